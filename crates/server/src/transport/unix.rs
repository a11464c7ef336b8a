//! A unix socket that only its user can reach, and that leaves no file behind.

use std::fs::{DirBuilder, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The file of a bound socket. Dropping it removes the file, if it is still ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// By which our file is told from one that replaced it.
    identity: Identity,
}

/// Device, inode and time of change: an inode alone may be used again.
type Identity = (u64, u64, i64, i64);

/// Binds a socket at `path`. A file that a dead host left there is replaced; a live
/// host's is not.
pub(crate) async fn bind(path: &Path) -> Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(Error::new(ErrorKind::AlreadyExists, "a file that is no socket is in the way"));
        }
        Ok(_) => match UnixStream::connect(path).await {
            Ok(_) => return Err(Error::new(ErrorKind::AddrInUse, "another host listens there")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            Err(error) => return Err(error),
        },
    }
    // Made inside a private folder and moved into place, so that there is no moment
    // in which others could connect.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = parent.join(format!(".innkeeper-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&scratch)?;
    let bound = bind_in(&scratch, path);
    if let Err(error) = std::fs::remove_dir_all(&scratch) {
        tracing::warn!(%error, "a scratch folder stays behind");
    }
    bound
}

fn bind_in(scratch: &Path, path: &Path) -> Result<(UnixListener, SocketFile)> {
    let draft = scratch.join("socket");
    let listener = UnixListener::bind(&draft)?;
    std::fs::set_permissions(&draft, Permissions::from_mode(0o600))?;
    std::fs::rename(&draft, path)?;
    Ok((listener, SocketFile { path: path.to_owned(), identity: identity(path)? }))
}

fn identity(path: &Path) -> Result<Identity> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the socket's file stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_is_its_users_alone_and_goes_with_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.sock");
        let (listener, file) = bind(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(bind(&path).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        let (_listener, replaced) = bind(&path).await.unwrap();
        drop(file);
        assert!(path.exists(), "it belongs to the host that replaced it");
        drop(replaced);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "x").unwrap();
        assert!(bind(&path).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
    }
}
