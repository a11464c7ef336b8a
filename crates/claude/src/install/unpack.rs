//! Unpacks a package archive into a folder.
//!
//! Owns the rules for archive contents: only regular files below `package/`. Blocking; runs on a separate
//! thread. All files are synced to disk when it returns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use tar::{Archive, Entry, EntryType};
use tokio_util::sync::CancellationToken;

use super::error::InstallError;
use super::folder::sync_folder;
use super::version::RuntimeVersion;

/// Bytes between two cancellation checks: a few milliseconds of work.
const PIECE: usize = 256 * 1024;
/// Largest number of files in a package. The largest known package has 33; the limit prevents inode
/// exhaustion.
const MAX_FILES: usize = 10_000;

/// Unpacks the archive `tarball` into the new folder `into` and checks that it contains the program.
pub(super) fn unpack(
    tarball: &Path,
    into: &Path,
    version: RuntimeVersion,
    limit: u64,
    stop: &CancellationToken,
) -> Result<(), InstallError> {
    let file = File::open(tarball).map_err(InstallError::disk("read", tarball))?;
    fs::create_dir(into).map_err(InstallError::disk("create", into))?;
    let mut unpacking = Unpacking {
        into,
        program: version.program(),
        folders: vec![into.to_owned()],
        files: 0,
        room: limit,
        buffer: vec![0; PIECE],
        stop,
    };
    let mut archive = Archive::new(GzDecoder::new(io::BufReader::with_capacity(PIECE, file)));
    for entry in archive.entries().map_err(InstallError::Archive)? {
        match unpacking.entry(entry.map_err(InstallError::Archive)?)? {
            Fit::Fits => {}
            Fit::TooLarge => {
                return Err(InstallError::TooLarge {
                    package: format!("the content of version {version}"),
                    limit,
                });
            }
        }
    }
    if !into.join(version.program()).is_file() {
        return Err(InstallError::NoProgram { version, program: version.program().to_owned() });
    }
    unpacking.folders.iter().try_for_each(|dir| sync_folder(dir))
}

/// Whether an entry is within the limits.
enum Fit {
    Fits,
    TooLarge,
}

/// State of unpacking one archive.
struct Unpacking<'a> {
    /// The destination folder.
    into: &'a Path,
    /// The program; made executable regardless of its mode in the archive.
    program: &'a Path,
    /// Folders created so far, synced at the end.
    folders: Vec<PathBuf>,
    /// Number of files created so far.
    files: usize,
    /// Bytes left of the size limit.
    room: u64,
    /// Copy buffer.
    buffer: Vec<u8>,
    /// Checked between two chunks.
    stop: &'a CancellationToken,
}

impl Unpacking<'_> {
    /// Unpacks one entry.
    fn entry<R: Read>(&mut self, mut entry: Entry<'_, R>) -> Result<Fit, InstallError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory || kind == EntryType::XGlobalHeader {
            // Folders are created with their files; a global header describes the archive.
            return Ok(Fit::Fits);
        }
        let path = entry.path().map_err(InstallError::Archive)?.into_owned();
        if !kind.is_file() {
            return Err(refused(&path, "is neither a file nor a folder"));
        }
        let inside = inside_package(&path)?;
        self.files += 1;
        if self.files > MAX_FILES || entry.size() > self.room {
            return Ok(Fit::TooLarge);
        }
        let mode = entry.header().mode().map_err(InstallError::Archive)?;
        let executable = mode & 0o111 != 0 || inside == self.program;
        let target = self.into.join(&inside);
        if let Some(parent) = inside.parent() {
            self.make_folders(parent)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(if executable { 0o755 } else { 0o644 })
            .open(&target)
            .map_err(|source| {
                if source.kind() == io::ErrorKind::AlreadyExists {
                    refused(&path, "occurs twice")
                } else {
                    InstallError::disk("create", &target)(source)
                }
            })?;
        self.copy(&mut entry, &mut file, &target)
    }

    /// Copies the content of an entry to its file and syncs the file.
    fn copy(&mut self, entry: &mut impl Read, file: &mut File, target: &Path) -> Result<Fit, InstallError> {
        loop {
            if self.stop.is_cancelled() {
                return Err(InstallError::Cancelled);
            }
            let read = entry.read(&mut self.buffer).map_err(InstallError::Archive)?;
            if read == 0 {
                break;
            }
            // The header's size was checked, but sparse entries can contain more.
            let Some(room) = self.room.checked_sub(read as u64) else {
                return Ok(Fit::TooLarge);
            };
            self.room = room;
            let piece = self.buffer.get(..read).unwrap_or_default();
            file.write_all(piece).map_err(InstallError::disk("write", target))?;
        }
        file.sync_all().map_err(InstallError::disk("write to disk", target))?;
        Ok(Fit::Fits)
    }

    /// Creates the parent folders of a file, relative to the package.
    fn make_folders(&mut self, relative: &Path) -> Result<(), InstallError> {
        let mut dir = self.into.to_owned();
        for name in relative {
            dir.push(name);
            match fs::create_dir(&dir) {
                Ok(()) => self.folders.push(dir.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                Err(error) => return Err(InstallError::disk("create", &dir)(error)),
            }
        }
        Ok(())
    }
}

/// The path relative to `package/`, if it stays inside.
fn inside_package(path: &Path) -> Result<PathBuf, InstallError> {
    let mut components = path.components();
    if components.next() != Some(Component::Normal("package".as_ref())) {
        return Err(refused(path, "is outside the folder `package`"));
    }
    let inside: PathBuf = components.clone().collect();
    if inside.as_os_str().is_empty() || !components.all(|part| matches!(part, Component::Normal(_))) {
        return Err(refused(path, "leaves the folder `package`"));
    }
    Ok(inside)
}

/// The error for a disallowed entry.
fn refused(path: &Path, reason: &'static str) -> InstallError {
    InstallError::UnsafeArchive { entry: path.display().to_string(), reason }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
