//! Runtime versions and the packages that contain them.
//!
//! Owns the distinction between the two kinds of runtimes. A version is exactly three numbers, so it is
//! safe as a folder name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::error::InstallError;
use super::platform::Platform;

/// A version of a Claude runtime.
///
/// Versions from 1.0.0 are native binaries with one package per platform. Lower versions are those of the
/// agent SDK, whose package contains a `cli.js` for Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl RuntimeVersion {
    /// The native runtime that this release is tested with; the default to install.
    pub const PINNED_NATIVE: Self = Self::new(2, 1, 325);
    /// The Node runtime that this release is tested with.
    pub const PINNED_SDK: Self = Self::new(0, 2, 112);

    /// Creates a version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Whether the runtime is a native binary rather than a Node script.
    pub const fn is_native(self) -> bool {
        self.major > 0
    }

    /// The npm package of this version for the current platform.
    ///
    /// # Errors
    /// If no native package exists for the platform.
    pub fn package(self) -> Result<String, InstallError> {
        if self.is_native() {
            let platform = Platform::current()?;
            Ok(format!("@anthropic-ai/claude-code-{platform}"))
        } else {
            Ok("@anthropic-ai/claude-agent-sdk".to_owned())
        }
    }

    /// Path of the program inside the package.
    pub(super) fn program(self) -> &'static Path {
        Path::new(if self.is_native() { "claude" } else { "cli.js" })
    }
}

impl fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An invalid runtime version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid runtime version `{text}`; expected three numbers, such as {native} (native) or {sdk} (for Node)",
    native = RuntimeVersion::PINNED_NATIVE,
    sdk = RuntimeVersion::PINNED_SDK
)]
pub struct ParseVersionError {
    /// The given text.
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

/// Parses a decimal number without sign or leading zeros, so that a version has only one spelling.
fn number(text: &str) -> Option<u32> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_round_trip_through_text() {
        for text in ["2.1.325", "0.2.112", "10.0.0"] {
            assert_eq!(text.parse::<RuntimeVersion>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rejects_invalid_versions() {
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
    fn major_number_determines_the_kind() {
        assert!(RuntimeVersion::PINNED_NATIVE.is_native());
        assert!(!RuntimeVersion::PINNED_SDK.is_native());
        assert_eq!(RuntimeVersion::PINNED_SDK.package().unwrap(), "@anthropic-ai/claude-agent-sdk");
    }

    #[test]
    fn versions_are_ordered_numerically() {
        assert!(RuntimeVersion::new(2, 1, 99) < RuntimeVersion::PINNED_NATIVE);
    }
}
