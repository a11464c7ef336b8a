//! Stdout as the protocol's own.

use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use tokio::fs::File;

/// Takes stdout away from the rest of the process: what is written there by mistake
/// goes to stderr, and dropping the result is an end that the client sees.
pub(crate) fn take_stdout() -> Result<File> {
    let context = "stdout cannot be used for the protocol";
    let own = std::io::stdout().as_fd().try_clone_to_owned().context(context)?;
    nix::unistd::dup2_stdout(std::io::stderr()).context(context)?;
    Ok(File::from_std(std::fs::File::from(own)))
}
