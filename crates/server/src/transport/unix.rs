//! Unix sockets that only their user can open, and whose files are removed on exit.

use std::fs::Permissions;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// The file of a bound socket. Removes it when dropped, unless it was replaced.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Distinguishes the file from one that replaced it.
    identity: FileIdentity,
}

/// Device, inode and change time: an inode alone may be reused.
type FileIdentity = (u64, u64, i64, i64);

/// Binds a socket at `path`. Replaces the file of a host that no longer runs, but not
/// that of a running one.
pub(crate) async fn bind(path: &Path) -> Result<(UnixListener, SocketFile)> {
    if SocketAddr::from_pathname(path).is_err() {
        let message = format!(
            "a path of {} bytes is longer than a unix socket can have; choose one shorter than 100 bytes",
            path.as_os_str().len()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "a file that is not a socket already exists there",
            ));
        }
        Ok(_) => match UnixStream::connect(path).await.map_err(|error| (error.kind(), error)) {
            // A host with a full backlog is running, too.
            Ok(_) | Err((ErrorKind::WouldBlock, _)) => {
                return Err(Error::new(ErrorKind::AddrInUse, "another host is listening there"));
            }
            Err((ErrorKind::ConnectionRefused, _)) => std::fs::remove_file(path)?,
            Err((_, error)) => return Err(error),
        },
    }
    let listener = bind_private(path)?;
    Ok((listener, SocketFile { path: path.to_owned(), identity: identity(path)? }))
}

/// Binds a socket that other users can never connect to: its file mode is restricted
/// before the socket listens.
fn bind_private(path: &Path) -> Result<UnixListener> {
    /// Pending connections that the system queues.
    const BACKLOG: u32 = 1024;

    let socket = UnixSocket::new_stream()?;
    // On Linux the file gets the mode of the socket, which can be set before the bind.
    #[cfg(target_os = "linux")]
    nix::sys::stat::fchmod(&socket, nix::sys::stat::Mode::from_bits_truncate(0o600))?;
    socket.bind(path)?;
    let listening =
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).and_then(|()| socket.listen(BACKLOG));
    if listening.is_err()
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!(%error, path = %path.display(), "could not remove socket file after failed listen");
    }
    listening
}

fn identity(path: &Path) -> Result<FileIdentity> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "could not remove socket file");
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A directory with a path short enough for a socket in it; the default temporary
    /// directory may be too long.
    fn directory() -> TempDir {
        let usual = tempfile::tempdir().unwrap();
        if SocketAddr::from_pathname(usual.path().join("host.sock")).is_ok() {
            return usual;
        }
        tempfile::tempdir_in("/tmp").unwrap()
    }

    #[tokio::test]
    async fn socket_file_is_private_and_removed_with_its_host() {
        let dir = directory();
        let path = dir.path().join("host.sock");
        let (listener, file) = bind(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(bind(&path).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        let (_listener, replaced) = bind(&path).await.unwrap();
        drop(file);
        assert!(path.exists(), "the file belongs to the host that replaced it");
        drop(replaced);
        assert!(!path.exists());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn host_with_full_backlog_is_not_replaced() {
        let dir = directory();
        let path = dir.path().join("host.sock");
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let _busy = socket.listen(0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
        }
        assert_eq!(bind(&path).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn socket_file_is_created_with_private_mode() {
        let dir = directory();
        let path = dir.path().join("host.sock");
        let _listener = bind_private(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn path_up_to_longest_connectable_length_is_accepted() {
        let dir = directory();
        let named = |length: usize| dir.path().join("x".repeat(length));
        let fits = |length: &usize| SocketAddr::from_pathname(named(*length)).is_ok();
        let longest = (1..200).take_while(fits).last().unwrap();
        let (_listener, _file) = bind(&named(longest)).await.unwrap();
        UnixStream::connect(&named(longest)).await.unwrap();
        let error = bind(&named(longest + 1)).await.unwrap_err();
        assert!(error.to_string().contains("longer than a unix socket can have"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no other file remains");
    }

    #[tokio::test]
    async fn file_that_is_not_a_socket_is_not_removed() {
        let dir = directory();
        let path = dir.path().join("precious");
        std::fs::write(&path, "x").unwrap();
        assert!(bind(&path).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
    }
}
