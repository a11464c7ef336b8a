use super::*;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::os::unix::fs::PermissionsExt as _;

const VERSION: RuntimeVersion = RuntimeVersion::new(0, 2, 1);
const LIMIT: u64 = 1_000_000;

/// One entry of an archive.
struct Item {
    path: &'static str,
    kind: EntryType,
    mode: u32,
    content: &'static [u8],
}

fn file(path: &'static str, mode: u32) -> Item {
    Item { path, kind: EntryType::Regular, mode, content: b"content" }
}

/// Builds a gzipped archive. Paths are written unchanged, even if invalid.
fn archive(items: &[Item]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for item in items {
        let mut header = tar::Header::new_ustar();
        let name = item.path.as_bytes();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_entry_type(item.kind);
        header.set_mode(item.mode);
        header.set_size(item.content.len() as u64);
        if item.kind.is_symlink() || item.kind.is_hard_link() {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        builder.append(&header, item.content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Unpacks an archive; returns the scratch directory, with the content in `package`.
fn unpacked(bytes: &[u8], limit: u64) -> (tempfile::TempDir, Result<(), InstallError>) {
    let dir = tempfile::tempdir().unwrap();
    let tarball = dir.path().join("package.tgz");
    fs::write(&tarball, bytes).unwrap();
    let stop = CancellationToken::new();
    let result = unpack(&tarball, &dir.path().join("package"), VERSION, limit, &stop);
    (dir, result)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o111
}

#[test]
fn files_keep_path_and_executable_bit() {
    let bytes = archive(&[
        Item { kind: EntryType::Directory, content: b"", ..file("package/vendor", 0o755) },
        file("package/vendor/tool", 0o755),
        file("package/readme", 0o644),
        // The program becomes executable even if the archive does not say so.
        file("package/cli.js", 0o600),
    ]);
    let (dir, result) = unpacked(&bytes, LIMIT);
    result.unwrap();
    let package = dir.path().join("package");
    assert_eq!(fs::read(package.join("vendor/tool")).unwrap(), b"content");
    assert_ne!(mode(&package.join("vendor/tool")), 0);
    assert_ne!(mode(&package.join("cli.js")), 0);
    assert_eq!(mode(&package.join("readme")), 0);
}

#[test]
fn rejects_unsafe_entries() {
    let link = |kind| Item { kind, content: b"", ..file("package/link", 0o777) };
    for item in [
        file("package/../../escaped", 0o644),
        file("package/..", 0o644),
        file("../escaped", 0o644),
        file("/escaped", 0o644),
        file("elsewhere/file", 0o644),
        file("package", 0o644),
        link(EntryType::Symlink),
        link(EntryType::Link),
        link(EntryType::Fifo),
        link(EntryType::Char),
    ] {
        let (dir, result) = unpacked(&archive(&[item, file("package/cli.js", 0o644)]), LIMIT);
        let error = result.unwrap_err();
        assert!(matches!(error, InstallError::UnsafeArchive { .. }), "{error}");
        assert!(!dir.path().parent().unwrap().join("escaped").exists());
        assert!(!dir.path().join("escaped").exists());
    }
}

#[test]
fn rejects_duplicate_entry() {
    let bytes = archive(&[file("package/cli.js", 0o644), file("package/cli.js", 0o644)]);
    let (_dir, result) = unpacked(&bytes, LIMIT);
    assert!(result.unwrap_err().to_string().contains("occurs twice"));
}

#[test]
fn rejects_content_over_the_limit() {
    let bytes = archive(&[file("package/a", 0o644), file("package/cli.js", 0o644)]);
    let (_dir, result) = unpacked(&bytes, 13);
    assert!(matches!(result, Err(InstallError::TooLarge { limit: 13, .. })));
    let (_dir, result) = unpacked(&bytes, 14);
    result.unwrap();
}

#[test]
fn rejects_package_without_the_program() {
    let (_dir, result) = unpacked(&archive(&[file("package/readme", 0o644)]), LIMIT);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("0.2.1") && error.contains("cli.js"), "{error}");
}

#[test]
fn rejects_invalid_and_truncated_archives() {
    let whole = archive(&[file("package/cli.js", 0o644)]);
    for bytes in [b"not gzip at all".to_vec(), whole[..whole.len() / 2].to_vec()] {
        let (_dir, result) = unpacked(&bytes, LIMIT);
        assert!(matches!(result, Err(InstallError::Archive(_))));
    }
}

#[test]
fn cancelled_unpack_stops() {
    let dir = tempfile::tempdir().unwrap();
    let tarball = dir.path().join("package.tgz");
    fs::write(&tarball, archive(&[file("package/cli.js", 0o644)])).unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let result = unpack(&tarball, &dir.path().join("package"), VERSION, LIMIT, &stop);
    assert!(matches!(result, Err(InstallError::Cancelled)));
}
