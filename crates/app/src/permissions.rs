//! Rejects files and directories that other users of the machine can access.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Permission bits with which other users can write.
const WRITABLE: u32 = 0o022;

/// Permission bits with which other users can read or write.
const ACCESSIBLE: u32 = 0o077;

/// Rejects a directory that other users can write to: they could replace its files.
pub(crate) fn check_directory(directory: &Path) -> Result<()> {
    let metadata = fs::metadata(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    if metadata.permissions().mode() & WRITABLE != 0 {
        bail!(
            "other users can write to the data directory {}; run `chmod 700 {}`, or choose another --data-dir",
            directory.display(),
            quoted(directory)
        );
    }
    Ok(())
}

/// Rejects a file with a secret that other users can read. Accepts a missing file, which
/// its reader reports, and pipes and devices.
pub(crate) fn check_secret(file: &Path) -> Result<()> {
    let Ok(metadata) = fs::metadata(file) else { return Ok(()) };
    if metadata.is_file() && metadata.permissions().mode() & ACCESSIBLE != 0 {
        bail!("other users can read {}; run `chmod 600 {}`", file.display(), quoted(file));
    }
    Ok(())
}

/// A path as one word of a shell command.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@".contains(letter);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/my data/it's")), r"'/my data/it'\''s'");
    }
}
