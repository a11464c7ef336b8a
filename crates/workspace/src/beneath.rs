//! Opens files relative to directory handles, so that a concurrent change of the path
//! cannot redirect them.
//!
//! Contains the system calls; which paths are allowed is decided elsewhere. Invariants:
//! no call follows a symbolic link, not even in the middle of a path, and no file of a
//! kernel file system is opened, wherever it is mounted.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// Flags for a directory handle that gives access to metadata and entries.
#[cfg(target_os = "linux")]
const HANDLE: OFlag = OFlag::O_PATH;
#[cfg(not(target_os = "linux"))]
const HANDLE: OFlag = OFlag::O_RDONLY;

/// Flags for the metadata of a link itself.
#[cfg(target_os = "linux")]
const LOOK: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);
#[cfg(target_os = "macos")]
const LOOK: OFlag = OFlag::from_bits_retain(nix::libc::O_SYMLINK).union(OFlag::O_NONBLOCK);
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
const LOOK: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

/// The error for a file of a kernel file system, such as the environment of a process.
/// Regular file systems do not return it.
pub(crate) const KERNEL_VIEW: Errno = Errno::ENODEV;

/// Opens a directory by its canonical path.
pub(crate) fn directory(canonical: &Path) -> Result<OwnedFd, Errno> {
    let top = nix::fcntl::open("/", HANDLE | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let relative = canonical.strip_prefix("/").map_err(|_| Errno::EINVAL)?;
    directory_below(top.as_fd(), relative)
}

/// Opens a directory below another one.
#[cfg(target_os = "linux")]
pub(crate) fn directory_below(top: BorrowedFd<'_>, relative: &Path) -> Result<OwnedFd, Errno> {
    use nix::fcntl::{OpenHow, ResolveFlag, openat2};
    let how = OpenHow::new().flags(HANDLE | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_SYMLINKS,
    );
    match openat2(top, or_itself(relative), how) {
        // An old kernel, or a container whose filter rejects the call.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EAGAIN) => walk(top, relative),
        opened => must_hold_files(opened?),
    }
}

/// Opens a directory below another one.
#[cfg(not(target_os = "linux"))]
pub(crate) fn directory_below(top: BorrowedFd<'_>, relative: &Path) -> Result<OwnedFd, Errno> {
    walk(top, relative)
}

/// Opens a directory below another one, with one call per component.
fn walk(top: BorrowedFd<'_>, relative: &Path) -> Result<OwnedFd, Errno> {
    let mut current = entry_directory(top, OsStr::new("."))?;
    for component in relative.components() {
        match component {
            Component::Normal(name) => current = entry_directory(current.as_fd(), name)?,
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::EINVAL),
        }
    }
    Ok(current)
}

/// Opens a directory entry that is a directory.
pub(crate) fn entry_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = HANDLE | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        // Systems return different errors for a link.
        Err(Errno::ENOTDIR) if look(parent, name).is_ok_and(|found| found.is_symlink()) => Err(Errno::ELOOP),
        opened => must_hold_files(opened?),
    }
}

/// Opens a directory entry that is not a link. Never waits for the other end of a pipe.
pub(crate) fn entry(parent: BorrowedFd<'_>, name: &OsStr, flags: OFlag, mode: Mode) -> Result<File, Errno> {
    let always = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    must_hold_files(openat(parent, name, flags | always, mode)?).map(File::from)
}

/// Reads the metadata of a directory entry without opening it.
pub(crate) fn look(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Metadata, Errno> {
    look_beside(parent, name, None)
}

/// Like [`look`], inside a directory on a device that is known to be a regular file
/// system. An entry on the same device is not checked again, since each check is slow on
/// a remote file system.
pub(crate) fn look_beside(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    device: Option<u64>,
) -> Result<Metadata, Errno> {
    let handle = File::from(openat(parent, name, LOOK | OFlag::O_CLOEXEC, Mode::empty())?);
    let found = metadata(&handle)?;
    if device != Some(found.dev()) {
        must_hold_files(handle.into())?;
    }
    Ok(found)
}

/// Reads the metadata of an open file.
pub(crate) fn metadata(file: &File) -> Result<Metadata, Errno> {
    file.metadata().map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

/// Rejects a handle on a kernel file system. Checks the open handle, since a path does
/// not show what is mounted there.
#[cfg(target_os = "linux")]
fn must_hold_files(handle: OwnedFd) -> Result<OwnedFd, Errno> {
    let kind = nix::sys::statfs::fstatfs(&handle).map(|found| found.filesystem_type());
    if is_kernel_view(kind) { Err(KERNEL_VIEW) } else { Ok(handle) }
}

/// Whether this is a kernel file system. A file system that does not report its type is
/// not one: some user-space file systems do not, but the kernel's own always do.
#[cfg(target_os = "linux")]
fn is_kernel_view(kind: Result<nix::sys::statfs::FsType, Errno>) -> bool {
    use nix::sys::statfs::{
        BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC,
        SECURITYFS_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC,
    };
    let views = [
        PROC_SUPER_MAGIC,
        SYSFS_MAGIC,
        CGROUP_SUPER_MAGIC,
        CGROUP2_SUPER_MAGIC,
        DEBUGFS_MAGIC,
        TRACEFS_MAGIC,
        SECURITYFS_MAGIC,
        BPF_FS_MAGIC,
    ];
    kind.is_ok_and(|kind| views.contains(&kind))
}

#[cfg(not(target_os = "linux"))]
fn must_hold_files(handle: OwnedFd) -> Result<OwnedFd, Errno> {
    Ok(handle)
}

fn or_itself(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn kernel_file_systems_are_never_opened() {
        let top = directory(Path::new("/")).unwrap();
        let proc = nix::fcntl::open("/proc", HANDLE | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        let pid = OsStr::new("self/environ");
        assert_eq!(directory(Path::new("/proc")).map(drop), Err(KERNEL_VIEW));
        assert_eq!(directory(Path::new("/proc/sys")).map(drop), Err(KERNEL_VIEW));
        assert_eq!(directory(Path::new("/sys")).map(drop), Err(KERNEL_VIEW));
        assert_eq!(walk(top.as_fd(), Path::new("proc")).map(drop), Err(KERNEL_VIEW));
        assert_eq!(look(top.as_fd(), OsStr::new("proc")).map(drop), Err(KERNEL_VIEW));
        assert_eq!(entry(proc.as_fd(), pid, OFlag::O_RDONLY, Mode::empty()).map(drop), Err(KERNEL_VIEW));
        assert_eq!(look(top.as_fd(), OsStr::new("etc")).map(|found| found.is_dir()), Ok(true));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn unknown_file_system_type_is_accepted() {
        assert!(!is_kernel_view(Err(Errno::ENOSYS)));
        assert!(is_kernel_view(Ok(nix::sys::statfs::PROC_SUPER_MAGIC)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_entries_on_other_devices_are_checked() {
        let top = directory(Path::new("/")).unwrap();
        let name = OsStr::new("proc");
        let (here, there) =
            (std::fs::metadata("/").unwrap().dev(), std::fs::metadata("/proc").unwrap().dev());
        let look = |device| look_beside(top.as_fd(), name, device).map(|found| found.dev());
        assert_eq!(look(None), Err(KERNEL_VIEW));
        assert_eq!(look(Some(here)), Err(KERNEL_VIEW));
        assert_eq!(look(Some(there)), Ok(there));
    }

    type OpenDirectory = fn(BorrowedFd<'_>, &Path) -> Result<OwnedFd, Errno>;

    #[test]
    fn links_and_parent_paths_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("top/a/b")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("top/file"), "x").unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("top/inner")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("outside"), dir.path().join("top/outer")).unwrap();
        let top = directory(&dir.path().canonicalize().unwrap().join("top")).unwrap();
        for open in [directory_below as OpenDirectory, walk as OpenDirectory] {
            let at = |path: &str| open(top.as_fd(), Path::new(path)).map(drop);
            assert_eq!(at("a/b"), Ok(()));
            assert_eq!(at(""), Ok(()));
            assert_eq!(at("inner/b"), Err(Errno::ELOOP));
            assert_eq!(at("inner"), Err(Errno::ELOOP));
            assert_eq!(at("outer"), Err(Errno::ELOOP));
            assert_eq!(at("file"), Err(Errno::ENOTDIR));
            assert_eq!(at("none"), Err(Errno::ENOENT));
            assert!(at("../outside").is_err());
            assert!(at("/").is_err());
        }
    }
}
