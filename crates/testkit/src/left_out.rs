//! Skips tests whose requirements the machine does not meet. Locally a skipped test
//! prints a line; with `CI=true` it fails. A test never passes silently.

use std::ffi::OsStr;

use anyhow::{Result, bail};

/// Skips a test: prints `NOT RUN` and the reason. With `CI=true` it returns an error,
/// because CI must run every test.
pub fn leave_out(reason: &str) -> Result<()> {
    let line = left_out(reason, std::env::var_os("CI").as_deref())?;
    #[expect(clippy::print_stderr, reason = "the test log must show which tests were skipped")]
    {
        eprintln!("{line}");
    }
    Ok(())
}

fn left_out(reason: &str, ci: Option<&OsStr>) -> Result<String> {
    if ci.is_some_and(|ci| ci == "true") {
        bail!("cannot skip a test with CI=true: {reason}");
    }
    Ok(format!("NOT RUN: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_test_passes_locally_and_fails_in_ci() {
        for local in [None, Some(OsStr::new("")), Some(OsStr::new("false"))] {
            assert_eq!(left_out("no disk", local).unwrap(), "NOT RUN: no disk");
        }
        let error = left_out("no disk", Some(OsStr::new("true"))).unwrap_err().to_string();
        assert!(error.contains("no disk") && error.contains("CI=true"), "{error}");
    }
}
