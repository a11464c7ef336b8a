//! Tests that need more than some machines permit: where they may be left out, they say
//! so; where all of them count, they fail. A test never passes silently.

use std::ffi::OsStr;

use anyhow::{Result, bail};

/// Leaves a test out for a reason, with a printed line. On a machine that checks
/// changes (`CI=true`) that is an error: a check which did not run is no check.
pub fn leave_out(reason: &str) -> Result<()> {
    let line = left_out(reason, std::env::var_os("CI").as_deref())?;
    #[expect(clippy::print_stderr, reason = "whoever reads the log shall know what did not run")]
    {
        eprintln!("{line}");
    }
    Ok(())
}

fn left_out(reason: &str, ci: Option<&OsStr>) -> Result<String> {
    if ci.is_some_and(|ci| ci == "true") {
        bail!("this test cannot run here, and with CI=true none may be left out: {reason}");
    }
    Ok(format!("NOT RUN: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_cannot_run_is_left_out_on_a_laptop_and_fails_where_changes_are_checked() {
        for laptop in [None, Some(OsStr::new("")), Some(OsStr::new("false"))] {
            assert_eq!(left_out("no disk", laptop).unwrap(), "NOT RUN: no disk");
        }
        let error = left_out("no disk", Some(OsStr::new("true"))).unwrap_err().to_string();
        assert!(error.contains("no disk") && error.contains("CI=true"), "{error}");
    }
}
