//! Keeps the secrets in the environment of this process from other processes.
//!
//! Owns the list of variables with secrets. Invariant: no child process inherits them. The environment
//! itself is not changed, since that is unsafe in a program with threads; instead, every place that
//! starts a process excludes the variables.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Key for the Anthropic API.
pub(crate) const ANTHROPIC_KEY: &str = "ANTHROPIC_API_KEY";

/// GitHub token; overrides the one from `innkeeper login`.
pub(crate) const GITHUB_TOKEN: &str = "INNKEEPER_GITHUB_TOKEN";

/// Token that clients must present; overridden by the flags.
pub(crate) const CLIENT_TOKEN: &str = "INNKEEPER_TOKEN";

/// All variables with secrets.
pub(crate) const VARIABLES: [&str; 3] = [ANTHROPIC_KEY, GITHUB_TOKEN, CLIENT_TOKEN];

/// Prevents other processes of the same user from reading the memory and the initial environment of this
/// process through `/proc`, and prevents core dumps. Child programs are not affected: the kernel resets
/// the flag when a program is executed.
#[cfg(target_os = "linux")]
pub(crate) fn protect_process() -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(false)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn protect_process() -> std::io::Result<()> {
    Ok(())
}

/// Returns the environment of this process without the secrets.
pub(crate) fn public_environment() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().filter(|(name, _)| VARIABLES.iter().all(|secret| name != secret)).collect()
}
