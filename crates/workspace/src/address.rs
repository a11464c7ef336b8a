//! Conversion between `file:` URIs and paths.
//!
//! A URI is decoded exactly once, byte by byte, and not normalised, so that later checks
//! see the requested path.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use innkeeper_core::files::FileError;

/// Maximum length of a path in bytes, as in the system calls.
const MAX_PATH: usize = 4_096;

/// Returns the absolute path of a URI.
pub fn path_of(uri: &str) -> Result<PathBuf, FileError> {
    let shown: String = uri.chars().take(200).collect();
    let invalid = |why: &str| FileError::Invalid(format!("invalid URI {shown:?}: {why}"));
    let Some((scheme, rest)) = uri.split_once(':') else {
        return Err(invalid("not a URI; use file:///…"));
    };
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(invalid("only file: URIs are supported"));
    }
    let Some(path) = rest.strip_prefix("//") else { return Err(invalid("it must start with file:///")) };
    if !path.starts_with('/') {
        return Err(invalid("it names another machine or a relative path; it must start with file:///"));
    }
    if path.contains(['?', '#']) {
        return Err(invalid("a file: URI cannot have a query or fragment; encode ? as %3F and # as %23"));
    }
    let bytes = decode(path).ok_or_else(|| invalid("a % is not followed by two hexadecimal digits"))?;
    if bytes.contains(&0) {
        return Err(invalid("a path cannot contain NUL"));
    }
    if bytes.len() > MAX_PATH {
        return Err(invalid("the path is longer than 4,096 bytes"));
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Returns the URI of an absolute path.
pub fn uri_of(path: &Path) -> String {
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            decoded.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_round_trips_through_uri() {
        for path in ["/", "/a b/c%20d/ü?#", "/x/\u{1}\\\"<>|^`{}[]"] {
            assert_eq!(path_of(&uri_of(Path::new(path))).unwrap(), Path::new(path));
        }
        let raw = PathBuf::from(OsString::from_vec(vec![b'/', 0xff, 0xfe]));
        assert_eq!(path_of(&uri_of(&raw)).unwrap(), raw);
    }

    #[test]
    fn uri_is_decoded_once() {
        assert_eq!(path_of("file:///a/%252e%252E").unwrap(), Path::new("/a/%2e%2E"));
        assert_eq!(path_of("FILE:///a%2Fb").unwrap(), Path::new("/a/b"));
    }

    #[test]
    fn rejects_uri_that_is_not_a_local_file() {
        let long = format!("file:///{}", "x".repeat(MAX_PATH));
        for uri in [
            "",
            "/etc/passwd",
            "etc/passwd",
            "file:",
            "file:/etc/passwd",
            "file:etc",
            "file://host/etc/passwd",
            "file://localhost/etc/passwd",
            "file://../etc",
            "http:///etc/passwd",
            "untitled:1",
            "file:///a%00b",
            "file:///a\0b",
            "file:///a%2",
            "file:///a%zz",
            "file:///a?b",
            "file:///a#b",
            &long,
        ] {
            assert!(matches!(path_of(uri), Err(FileError::Invalid(_))), "{uri:?}");
        }
    }
}
