//! Stored file contents and their addresses.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The scheme of the URIs. It is not `file:`, so that clients ask the host for the content.
const SCHEME: &str = "innkeeper-blob:/";

/// The scheme of the addresses of diffs.
const DIFF_SCHEME: &str = "innkeeper-diff:/";

/// The SHA-256 digest of a content, which identifies it in storage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobDigest([u8; 32]);

impl BlobDigest {
    /// The digest of a content.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// A digest that was stored as bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest as bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 lower-case hexadecimal digits, which is what [`Self`] displays.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BlobDigest({self})")
    }
}

/// The address of a stored content: `innkeeper-blob:/SHA256/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobUri {
    /// The content.
    pub digest: BlobDigest,
    /// The file name, percent-encoded. Clients derive the language from its extension.
    pub name: String,
}

impl BlobUri {
    /// The address of a content under a file name.
    pub fn new(digest: BlobDigest, file_name: &[u8]) -> Self {
        let mut name = String::with_capacity(file_name.len());
        for &byte in file_name {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                name.push(char::from(byte));
            } else {
                name.push_str(&format!("%{byte:02X}"));
            }
        }
        Self { digest, name }
    }

    /// Parses an address. `None` if it has another scheme; an error if it is malformed.
    pub fn parse(uri: &str) -> Option<Result<Self, MalformedBlobUri>> {
        let rest = uri.strip_prefix(SCHEME)?;
        let (digest, name) = rest.split_once('/').unwrap_or((rest, ""));
        let digest = BlobDigest::parse(digest).ok_or(MalformedBlobUri);
        Some(digest.map(|digest| Self { digest, name: name.to_owned() }))
    }
}

impl fmt::Display for BlobUri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SCHEME}{}/{}", self.digest, self.name)
    }
}

/// The address of the diff of two stored contents: `innkeeper-diff:/BEFORE/AFTER/NAME`, with
/// `-` for a file that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffUri {
    /// The content before.
    pub before: Option<BlobDigest>,
    /// The content after.
    pub after: Option<BlobDigest>,
}

impl DiffUri {
    /// Parses an address. `None` if it has another scheme; an error if it is malformed.
    pub fn parse(uri: &str) -> Option<Result<Self, MalformedBlobUri>> {
        let mut segments = uri.strip_prefix(DIFF_SCHEME)?.splitn(3, '/');
        let mut side = || match segments.next()? {
            "-" => Some(None),
            digest => BlobDigest::parse(digest).map(Some),
        };
        let sides = side().zip(side()).ok_or(MalformedBlobUri);
        Some(sides.map(|(before, after)| Self { before, after }))
    }
}

/// The address does not contain a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid blob address; expected {SCHEME}SHA256/NAME")]
pub struct MalformedBlobUri;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_parsed_as_it_is_displayed() {
        let uri = BlobUri::new(BlobDigest::of(b"x"), "ä b.rs".as_bytes());
        assert_eq!(uri.name, "%C3%A4%20b.rs");
        assert_eq!(BlobUri::parse(&uri.to_string()), Some(Ok(uri)));
        assert_eq!(BlobUri::parse("file:///x"), None);
        assert_eq!(BlobUri::parse("innkeeper-blob:/12/x"), Some(Err(MalformedBlobUri)));
    }

    #[test]
    fn diff_address_has_two_sides() {
        let digest = BlobDigest::of(b"x");
        let parsed = |rest: String| DiffUri::parse(&format!("innkeeper-diff:/{rest}"));
        let (before, after) = (Some(digest), None);
        assert_eq!(parsed(format!("{digest}/-/a.rs")), Some(Ok(DiffUri { before, after })));
        assert_eq!(parsed(format!("-/{digest}/a/b")), Some(Ok(DiffUri { before: after, after: before })));
        assert_eq!(parsed(format!("{digest}")), Some(Err(MalformedBlobUri)));
        assert_eq!(parsed(format!("{digest}/1/x")), Some(Err(MalformedBlobUri)));
        assert_eq!(DiffUri::parse("innkeeper-blob:/x"), None);
    }

    #[test]
    fn upper_case_and_truncated_digests_are_rejected() {
        let digest = BlobDigest::of(b"x").to_string();
        assert!(BlobDigest::parse(&digest).is_some());
        assert!(BlobDigest::parse(&digest.to_uppercase()).is_none());
        assert!(BlobDigest::parse(digest.trim_end_matches(|_| true)).is_none());
        assert!(BlobDigest::parse(&format!("{digest}0")).is_none());
    }
}
