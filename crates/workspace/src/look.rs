//! Read-only operations: reading, listing, resolving.

use std::ffi::OsStr;
use std::fs::{FileType, Metadata};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use innkeeper_core::files::{FileContent, FileEntry, FileError, FileKind, FileStatus, Links};
use innkeeper_core::media;
use jiff::Timestamp;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::access_request::AccessRequest;
use crate::address;
use crate::beneath;
use crate::roots::{AllowedEntry, Roots};

/// Maximum size of a file that is read or written. Its base64 form fits into a
/// connection's outbox.
pub(crate) const MAX_CONTENT: u64 = 32 * 1024 * 1024;
pub(crate) const MAX_CONTENT_TEXT: &str = "32 MiB";

/// Maximum number of entries that are listed or copied at once.
pub(crate) const MAX_ENTRIES: usize = 50_000;
pub(crate) const MAX_ENTRIES_TEXT: &str = "50,000 entries";

pub(crate) fn read(roots: &Roots, uri: &str) -> Result<FileContent, FileError> {
    let access = AccessRequest::to_read(uri);
    let place = roots.locate(access, Links::Follow)?;
    let found = place.look().map_err(|errno| access.failed(errno))?.ok_or_else(|| access.not_found())?;
    must_be_regular(access, &found)?;
    let bytes = content(access, &place)?;
    Ok(FileContent { bytes: bytes.into(), content_type: media::type_of(&place.path) })
}

/// Reads the content of a regular file.
pub(crate) fn content(access: AccessRequest<'_>, place: &AllowedEntry) -> Result<Vec<u8>, FileError> {
    let file = place.open(OFlag::O_RDONLY).map_err(|errno| access.failed(errno))?;
    // Check again: the file may have been replaced.
    let found = beneath::metadata(&file).map_err(|errno| access.failed(errno))?;
    must_be_regular(access, &found)?;
    if found.len() > MAX_CONTENT {
        return Err(access.too_large(MAX_CONTENT_TEXT));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
    // The file may grow while it is read.
    file.take(MAX_CONTENT + 1).read_to_end(&mut bytes).map_err(|error| access.failed_io(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_CONTENT {
        return Err(access.too_large(MAX_CONTENT_TEXT));
    }
    Ok(bytes)
}

/// Pipes, sockets and devices are never opened: that could block or have side effects.
pub(crate) fn must_be_regular(access: AccessRequest<'_>, found: &Metadata) -> Result<(), FileError> {
    match kind_of(found.file_type()) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(access.failed(Errno::EISDIR)),
        FileKind::Symlink => Err(access.failed(Errno::ELOOP)),
        FileKind::Other => Err(access.invalid("is not a regular file")),
    }
}

pub(crate) fn list(roots: &Roots, uri: &str) -> Result<Vec<FileEntry>, FileError> {
    let access = AccessRequest::to_read(uri);
    let place = roots.locate(access, Links::Follow)?;
    let handle = place.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|errno| access.failed(errno))?;
    let mut dir = Dir::from_fd(OwnedFd::from(handle)).map_err(|errno| access.failed(errno))?;
    let mut entries = Vec::new();
    let mut unclear = Vec::new();
    for entry in dir.iter() {
        let entry = entry.map_err(|errno| access.failed(errno))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if entries.len() + unclear.len() >= MAX_ENTRIES {
            return Err(access.too_large(MAX_ENTRIES_TEXT));
        }
        match entry.file_type() {
            Some(kind) => entries
                .push(FileEntry { name: name.to_string_lossy().into_owned(), kind: kind_of_entry(kind) }),
            None => unclear.push(name.to_owned()),
        }
    }
    for name in unclear {
        use std::os::fd::AsFd as _;
        match beneath::look(dir.as_fd(), &name) {
            Ok(found) => entries.push(FileEntry {
                name: name.to_string_lossy().into_owned(),
                kind: kind_of(found.file_type()),
            }),
            // Deleted since it was listed, or not visible to clients.
            Err(Errno::ENOENT | beneath::KERNEL_VIEW) => {}
            Err(errno) => return Err(access.failed(errno)),
        }
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

pub(crate) fn resolve(roots: &Roots, uri: &str, links: Links) -> Result<FileStatus, FileError> {
    let access = AccessRequest::to_read(uri);
    let place = roots.locate(access, links)?;
    let found = place.look().map_err(|errno| access.failed(errno))?.ok_or_else(|| access.not_found())?;
    let kind = kind_of(found.file_type());
    if kind == FileKind::Symlink && links == Links::Follow {
        // A dangling link: its target does not exist.
        return Err(access.not_found());
    }
    let canonical = if links == Links::Keep || address::path_of(uri)?.as_os_str() == place.path {
        uri.to_owned()
    } else {
        address::uri_of(&place.path)
    };
    let created = found.created().ok().and_then(|time| Timestamp::try_from(time).ok());
    Ok(FileStatus {
        uri: canonical,
        kind,
        size: (kind != FileKind::Directory).then_some(found.len()),
        modified: found.modified().ok().and_then(|time| Timestamp::try_from(time).ok()),
        created,
        content_type: if kind == FileKind::File { media::type_of(&place.path) } else { None },
        etag: (kind == FileKind::File).then(|| etag(&found)),
    })
}

/// Returns a value that changes with the content. A replaced file has another inode; a
/// file changed in place has another modification time.
pub(crate) fn etag(found: &Metadata) -> String {
    let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
    format!("{seconds:x}.{nanoseconds:x}-{:x}-{:x}", found.size(), found.ino())
}

/// Converts a file type.
pub(crate) fn kind_of(kind: FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Other
    }
}

fn kind_of_entry(kind: Type) -> FileKind {
    match kind {
        Type::File => FileKind::File,
        Type::Directory => FileKind::Directory,
        Type::Symlink => FileKind::Symlink,
        Type::Fifo | Type::CharacterDevice | Type::BlockDevice | Type::Socket => FileKind::Other,
    }
}
