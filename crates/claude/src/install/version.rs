//! The version of a runtime, and which package carries it.
//!
//! Owns the two kinds of runtimes there are. A version is three plain numbers and nothing else, which makes
//! it safe as a folder's name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::error::InstallError;
use super::platform::Platform;

/// A version of a Claude runtime.
///
/// Versions from 1.0.0 on are native binaries, one package a platform. Versions below are those of the agent
/// SDK, whose package carries a `cli.js` for Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl RuntimeVersion {
    /// The native runtime that this release is tested with, and the one that is installed by default.
    pub const PINNED_NATIVE: Self = Self::new(2, 1, 325);
    /// The Node runtime that this release is tested with.
    pub const PINNED_SDK: Self = Self::new(0, 2, 112);

    /// Puts a version together.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Whether the runtime is one native binary, as opposed to a script for Node.
    pub const fn is_native(self) -> bool {
        self.major > 0
    }

    /// The name of the npm package that carries this version for the machine at hand.
    ///
    /// # Errors
    /// When there is no native package for this platform.
    pub fn package(self) -> Result<String, InstallError> {
        if self.is_native() {
            let platform = Platform::current()?;
            Ok(format!("@anthropic-ai/claude-code-{platform}"))
        } else {
            Ok("@anthropic-ai/claude-agent-sdk".to_owned())
        }
    }

    /// Where the program lies inside the package.
    pub(super) fn program(self) -> &'static Path {
        Path::new(if self.is_native() { "claude" } else { "cli.js" })
    }
}

impl fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A text that is no version of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a runtime version: expected three numbers, such as {native} (native) or {sdk} (for Node)",
    native = RuntimeVersion::PINNED_NATIVE,
    sdk = RuntimeVersion::PINNED_SDK
)]
pub struct ParseVersionError {
    /// What was given.
    pub text: String,
}

impl FromStr for RuntimeVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.').map(number);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Ok(Self::new(major, minor, patch))
            }
            _ => Err(ParseVersionError { text: text.to_owned() }),
        }
    }
}

/// A decimal number without sign and without leading zeros, so that a version has one spelling only.
fn number(text: &str) -> Option<u32> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_back_as_they_were_written() {
        for text in ["2.1.325", "0.2.112", "10.0.0"] {
            assert_eq!(text.parse::<RuntimeVersion>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in [
            "",
            "2",
            "2.1",
            "2.1.x",
            "2.1.3.4",
            "v2.1.3",
            "2.01.3",
            "+2.1.3",
            "2.1.-3",
            "../2.1.3",
            "2.1.3/",
            "2.1.3-beta",
            " 2.1.3",
            "latest",
            "99999999999.1.1",
        ] {
            let error = text.parse::<RuntimeVersion>().unwrap_err().to_string();
            assert!(error.contains("2.1.325"), "{text}: {error}");
        }
    }

    #[test]
    fn the_major_number_tells_the_kind() {
        assert!(RuntimeVersion::PINNED_NATIVE.is_native());
        assert!(!RuntimeVersion::PINNED_SDK.is_native());
        assert_eq!(RuntimeVersion::PINNED_SDK.package().unwrap(), "@anthropic-ai/claude-agent-sdk");
    }

    #[test]
    fn versions_are_ordered_by_number_and_not_by_letter() {
        assert!(RuntimeVersion::new(2, 1, 99) < RuntimeVersion::PINNED_NATIVE);
    }
}
