//! CPU time and memory of one process, from the kernel. Linux only; other systems return
//! an error.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long a process must use no CPU time to count as idle.
const IDLE_TIME: Duration = Duration::from_millis(300);

/// How long a process may take to become idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// CPU time that does not count, such as that of timers.
const IDLE_USE: Duration = Duration::from_millis(3);

/// Bytes of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMemory {
    /// Resident memory; shared pages count in full.
    pub(crate) resident: u64,
    /// Resident memory; shared pages count in proportion (PSS).
    pub(crate) proportional: u64,
}

/// Waits until a process has nothing to do.
pub(crate) async fn idle(pid: u32) -> Result<()> {
    let idle = async {
        let mut before = processor_time(pid)?;
        loop {
            tokio::time::sleep(IDLE_TIME).await;
            let now = processor_time(pid)?;
            if now.saturating_sub(before) < IDLE_USE {
                return Ok(());
            }
            before = now;
        }
    };
    let waited = tokio::time::timeout(IDLE_TIMEOUT, idle).await;
    waited.with_context(|| format!("timed out waiting until process {pid} is idle"))?
}

/// CPU time of a process so far.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time(pid: u32) -> Result<Duration> {
    use nix::time::{clock_getcpuclockid, clock_gettime};
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(i32::try_from(pid)?))?;
    Ok(Duration::from(clock_gettime(clock)?))
}

/// Current memory of a process.
#[cfg(target_os = "linux")]
pub(crate) fn memory(pid: u32) -> Result<ProcessMemory> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .with_context(|| format!("cannot read the memory of process {pid}"))?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib * 1024).with_context(|| format!("no {name} in smaps_rollup"))
    };
    Ok(ProcessMemory { resident: bytes("Rss:")?, proportional: bytes("Pss:")? })
}

/// CPU time of a process so far.
#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time(_pid: u32) -> Result<Duration> {
    anyhow::bail!("the benchmark needs /proc and runs on Linux only")
}

/// Current memory of a process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn memory(_pid: u32) -> Result<ProcessMemory> {
    anyhow::bail!("the benchmark needs /proc and runs on Linux only")
}
