//! Memory, descriptors and gateway of a host, from `/proc`.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use crate::host::TestHost;

/// Resident memory in bytes.
pub(super) fn memory(host: &TestHost) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024)
}

/// Number of open descriptors.
pub(super) fn descriptors(host: &TestHost) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{}/fd", host.pid()?))?.count())
}

/// The address of the gateway, from the environment of a runtime.
pub(super) fn gateway(host: &TestHost) -> Result<SocketAddr> {
    let runtime = *host.runtimes().first().context("no runtime is running")?;
    let environment = std::fs::read(format!("/proc/{runtime}/environ"))?;
    let url = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"ANTHROPIC_BASE_URL=http://"))
        .context("the runtime has no gateway")?;
    Ok(std::str::from_utf8(url)?.parse()?)
}
