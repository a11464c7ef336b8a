//! Taking over a file descriptor that was inherited from the parent process.
//!
//! The only unsafe code of the crate: there is no safe way to make an owned descriptor out of a number.
//! Owns nothing; the caller of [`take`] owns what it returns.
#![expect(unsafe_code, reason = "an inherited descriptor is known by its number alone")]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Takes over the open descriptor `number`, so that it is not passed on to children.
///
/// Must be called at most once for a number, before the process opens descriptors of its own; standard
/// streams are refused.
pub(crate) fn take(number: RawFd) -> Result<OwnedFd, Errno> {
    if number <= 2 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the borrow ends before this function does, and fcntl reports a number that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: the descriptor is open, and by the contract above nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
