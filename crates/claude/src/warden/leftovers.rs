//! What a runtime leaves in the file system when it is killed.
//!
//! Owns the list of places. Only what bears the ended runtime's own process id is removed.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, Uid};

/// Variables that name the directory of the newer runtime's message socket, and where it is without them.
const SOCKET_ROOTS: [&str; 3] = ["XDG_RUNTIME_DIR", "CLAUDE_CODE_TMPDIR", "TMPDIR"];
const SOCKET_FALLBACK: &str = "/tmp";

/// Removes the message socket of a runtime that has ended.
pub(super) fn remove_socket(runtime: Pid) {
    let user = Uid::effective();
    for path in sockets(runtime, user, &|name| std::env::var_os(name)) {
        if is_socket_of(&path, user) && std::fs::remove_file(&path).is_ok() {
            return;
        }
    }
}

/// Where the socket of a runtime can be.
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
    // Not through a link: the directory may be everybody's.
    std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.file_type().is_socket() && metadata.uid() == user.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_looked_for_where_the_runtime_puts_it() {
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
    fn only_a_socket_is_one() {
        let place = tempfile::tempdir().unwrap();
        let (socket, file) = (place.path().join("1.sock"), place.path().join("2.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(is_socket_of(&socket, Uid::effective()));
        assert!(!is_socket_of(&file, Uid::effective()));
        assert!(!is_socket_of(&place.path().join("3.sock"), Uid::effective()));
    }
}
