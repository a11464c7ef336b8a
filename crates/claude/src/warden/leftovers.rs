//! Removes files that a killed runtime leaves behind.
//!
//! Owns the list of locations. Removes only files named after the process id of the exited runtime.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, Uid};

/// Variables that name the directory of the newer runtime's message socket, and the default directory.
const SOCKET_ROOTS: [&str; 3] = ["XDG_RUNTIME_DIR", "CLAUDE_CODE_TMPDIR", "TMPDIR"];
const SOCKET_FALLBACK: &str = "/tmp";

/// Removes the message socket of an exited runtime.
pub(super) fn remove_socket(runtime: Pid) {
    let user = Uid::effective();
    for path in sockets(runtime, user, &|name| std::env::var_os(name)) {
        if is_socket_of(&path, user) && std::fs::remove_file(&path).is_ok() {
            return;
        }
    }
}

/// Possible paths of a runtime's socket.
fn sockets(runtime: Pid, user: Uid, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let named = SOCKET_ROOTS.iter().filter_map(|name| variable(name)).map(PathBuf::from);
    let roots = named.filter(|root| root.is_absolute()).chain([PathBuf::from(SOCKET_FALLBACK)]);
    roots
        .flat_map(|root| {
            let file = format!("{runtime}.sock");
            [root.join("cc-socks").join(&file), root.join(format!("cc-socks-{user}")).join(&file)]
        })
        .collect()
}

fn is_socket_of(path: &Path, user: Uid) -> bool {
    // Does not follow links: the directory may be writable by other users.
    std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.file_type().is_socket() && metadata.uid() == user.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_searched_in_all_runtime_locations() {
        let variable = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| OsString::from("/run/user/7"));
        let found = sockets(Pid::from_raw(12), Uid::from_raw(7), &variable);
        let expected = [
            "/run/user/7/cc-socks/12.sock",
            "/run/user/7/cc-socks-7/12.sock",
            "/tmp/cc-socks/12.sock",
            "/tmp/cc-socks-7/12.sock",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn only_sockets_are_accepted() {
        let place = tempfile::tempdir().unwrap();
        let (socket, file) = (place.path().join("1.sock"), place.path().join("2.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(is_socket_of(&socket, Uid::effective()));
        assert!(!is_socket_of(&file, Uid::effective()));
        assert!(!is_socket_of(&place.path().join("3.sock"), Uid::effective()));
    }
}
