//! Takes ownership of a file descriptor inherited from the parent process.
//!
//! The only unsafe code in the crate: an owned descriptor cannot be created from a number safely. The
//! caller of [`take`] owns the returned descriptor.
#![expect(unsafe_code, reason = "an inherited descriptor is known only by its number")]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Takes ownership of the open descriptor `number` and sets it to close on exec.
///
/// Must be called at most once per number, before the process opens descriptors of its own. Rejects
/// standard streams.
pub(crate) fn take(number: RawFd) -> Result<OwnedFd, Errno> {
    if number <= 2 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the borrow ends before this function does, and fcntl reports a number that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: the descriptor is open, and by the contract above has no other owner in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
