//! A unix socket that only its user can reach, and that leaves no file behind.

use std::fs::Permissions;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::SocketAddr;
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
    if SocketAddr::from_pathname(path).is_err() {
        let message = format!(
            "a path of {} bytes is longer than a unix socket can have; choose one below 100",
            path.as_os_str().len()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
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
    let listener = bind_private(path)?;
    // Says the same again, for a system that does not do as Linux does.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((listener, SocketFile { path: path.to_owned(), identity: identity(path)? }))
}

/// Binds so that there is no moment in which others could connect: Linux gives the file
/// the mode of the socket, which has one before it has a file.
#[cfg(target_os = "linux")]
fn bind_private(path: &Path) -> Result<UnixListener> {
    use nix::sys::stat::{Mode, fchmod};
    use tokio::net::UnixSocket;

    /// Connections that the system takes ahead of us.
    const BACKLOG: u32 = 1024;

    let socket = UnixSocket::new_stream()?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

/// Binds so that there is no moment in which others could connect: inside a private
/// folder, from which the file is moved into place. Its path is short, as that of the
/// socket may be almost as long as it can.
#[cfg(not(target_os = "linux"))]
fn bind_private(path: &Path) -> Result<UnixListener> {
    use std::os::unix::fs::DirBuilderExt as _;

    let parent = path.parent().unwrap_or(Path::new("."));
    let scratch = parent.join(format!(".{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&scratch)?;
    let draft = scratch.join("s");
    let bound = UnixListener::bind(&draft).and_then(|listener| {
        std::fs::set_permissions(&draft, Permissions::from_mode(0o600))?;
        std::fs::rename(&draft, path)?;
        Ok(listener)
    });
    if let Err(error) = std::fs::remove_dir_all(&scratch) {
        tracing::warn!(%error, "a scratch folder stays behind");
    }
    bound
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
    async fn the_file_has_its_mode_from_the_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.sock");
        let _listener = bind_private(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_path_may_be_as_long_as_a_client_can_dial_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = |length: usize| {
            let name = "x".repeat(length - dir.path().as_os_str().len() - 1);
            dir.path().join(name)
        };
        let longest = (80..200).map(path).take_while(|path| SocketAddr::from_pathname(path).is_ok()).last();
        let longest = longest.unwrap();
        let (_listener, _file) = bind(&longest).await.unwrap();
        UnixStream::connect(&longest).await.unwrap();
        let error = bind(&path(longest.as_os_str().len() + 1)).await.unwrap_err();
        assert!(error.to_string().contains("longer than a unix socket can have"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left behind");
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
