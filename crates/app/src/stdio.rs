//! Reserves stdout for the protocol.

use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use tokio::fs::File;

/// Takes over stdout. Anything that the rest of the process writes to stdout goes to
/// stderr instead. Dropping the returned file signals end of file to the client.
pub(crate) fn take_stdout() -> Result<File> {
    let context = "cannot use stdout for the protocol";
    let own = std::io::stdout().as_fd().try_clone_to_owned().context(context)?;
    nix::unistd::dup2_stdout(std::io::stderr()).context(context)?;
    Ok(File::from_std(std::fs::File::from(own)))
}
