//! The token that clients must present.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRngCore as _;
use rand::rngs::OsRng;

use crate::permissions;

/// Number of random bytes in a token.
const TOKEN_BYTES: usize = 32;

/// Validates a token that the user chose. It must be usable in a URL.
pub(crate) fn validate(token: &str) -> Result<String> {
    let token = token.trim();
    if token.is_empty() {
        bail!("the token is empty; omit it for a random one, or use --no-token");
    }
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        bail!("the token may contain only letters, digits, - and _");
    }
    Ok(token.to_owned())
}

/// Validates the value of `--token`. It may start with one hyphen. A value that starts
/// with two is taken for the next option after a missing value.
pub(crate) fn from_flag(token: &str) -> Result<String> {
    if token.starts_with("--") {
        bail!("--token has no value before {token}; use --token-file for a token that starts with --");
    }
    validate(token)
}

/// Reads the token from a file that the user named.
pub(crate) fn read(path: &Path) -> Result<String> {
    read_or(path, "write one into it, or omit --token-file for a random one")
}

/// Reads the token from a file. The error for an empty file contains `advice`.
fn read_or(path: &Path, advice: &str) -> Result<String> {
    permissions::check_secret(path)?;
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token file {}", path.display()))?;
    if text.trim().is_empty() {
        bail!("the token file {} is empty; {advice}", path.display());
    }
    validate(&text).with_context(|| format!("invalid token file {}", path.display()))
}

/// Reads the token at `path`, and creates it first if it does not exist. Two hosts that
/// start at the same time get the same token.
pub(crate) fn load_or_create(path: &Path) -> Result<String> {
    let kept = || read_or(path, "remove it to create a new token");
    if path.exists() {
        return kept();
    }
    let token = random(|bytes| OsRng.try_fill_bytes(bytes).context("cannot read random bytes for a token"))?;
    // Written to a temporary file first, so that a reader never sees a partial token.
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .with_context(|| unwritable(&draft))?;
    file.write_all(token.as_bytes()).with_context(|| unwritable(&draft))?;
    let kept = match std::fs::hard_link(&draft, path) {
        Ok(()) => Ok(token),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => kept(),
        Err(error) => Err(error).with_context(|| unwritable(path)),
    };
    if let Err(error) = std::fs::remove_file(&draft) {
        tracing::warn!(%error, "could not remove temporary token file");
    }
    kept
}

/// Generates a token. It never starts with `-`, so that it is not parsed as an option.
fn random(mut fill: impl FnMut(&mut [u8]) -> Result<()>) -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    loop {
        fill(&mut bytes)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        if !token.starts_with('-') {
            return Ok(token);
        }
    }
}

fn unwritable(path: &Path) -> String {
    format!("cannot write {}; make the directory writable or choose another --data-dir", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn token_is_created_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = load_or_create(&path).unwrap();
        assert_eq!(token.len(), 43);
        assert_eq!(load_or_create(&path).unwrap(), token);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn generated_token_never_starts_with_a_hyphen() {
        let mut first = [0xf8, 0xfb, 0x00].into_iter();
        let fill = |bytes: &mut [u8]| {
            bytes[0] = first.next().context("read more bytes than needed")?;
            Ok(())
        };
        assert!(random(fill).unwrap().starts_with('A'), "0xf8 to 0xfb encode to a hyphen");
        assert_eq!(first.next(), None);
    }

    #[test]
    fn rejects_token_that_is_not_url_safe() {
        assert_eq!(validate(" abc-_9\n").unwrap(), "abc-_9");
        for bad in ["", " ", "a b", "a&b", "ü"] {
            assert!(validate(bad).is_err(), "{bad:?}");
        }
    }
}
