//! Resource usage of a process and its children, from the kernel.
//!
//! Linux only; on other systems creating the tree returns an error.

#[cfg(target_os = "linux")]
pub(crate) use linux::{ProcessTree, TreeMemory};

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{ProcessTree, TreeMemory};

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use anyhow::{Context as _, Result};
    use nix::time::{clock_getcpuclockid, clock_gettime};
    use nix::unistd::Pid;

    /// A process and its descendants at the time of creation.
    #[derive(Clone, Debug)]
    pub(crate) struct ProcessTree {
        pids: Vec<u32>,
    }

    /// Bytes of memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TreeMemory {
        /// Resident memory; shared pages count in full.
        pub(crate) resident: u64,
        /// Resident memory; shared pages count in proportion (PSS).
        pub(crate) proportional: u64,
    }

    impl ProcessTree {
        /// Finds the descendants of a process.
        pub(crate) fn of(root: u32) -> Result<Self> {
            let mut parents = Vec::new();
            for entry in fs::read_dir("/proc").context("cannot read /proc")? {
                let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                    continue;
                };
                // The process has exited meanwhile.
                let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
                parents.push((pid, number(&status, "PPid:").unwrap_or(0)));
            }
            let mut pids = vec![root];
            let mut looked_at = 0;
            while let Some(parent) = pids.get(looked_at).copied() {
                looked_at += 1;
                pids.extend(
                    parents.iter().filter(|(_, known)| *known == u64::from(parent)).map(|(pid, _)| *pid),
                );
            }
            Ok(Self { pids })
        }

        /// CPU time so far, in nanoseconds.
        pub(crate) fn processor_time(&self) -> Result<u64> {
            self.sum(|pid| {
                let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
                let time = clock_gettime(clock)?;
                Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
            })
        }

        /// Current memory.
        pub(crate) fn memory(&self) -> Result<TreeMemory> {
            let mut memory = TreeMemory::default();
            for pid in &self.pids {
                let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
                    .with_context(|| format!("cannot read the memory of process {pid}"))?;
                memory.resident += number(&text, "Rss:").context("no Rss in smaps_rollup")? * 1024;
                memory.proportional += number(&text, "Pss:").context("no Pss in smaps_rollup")? * 1024;
            }
            Ok(memory)
        }

        /// Number of open files and sockets.
        pub(crate) fn open_files(&self) -> Result<u64> {
            self.sum(|pid| Ok(u64::try_from(fs::read_dir(format!("/proc/{pid}/fd"))?.count())?))
        }

        /// Number of threads.
        pub(crate) fn threads(&self) -> Result<u64> {
            self.sum(|pid| {
                let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
                number(&status, "Threads:").context("no Threads in status")
            })
        }

        fn sum(&self, of: impl Fn(u32) -> Result<u64>) -> Result<u64> {
            self.pids.iter().try_fold(0, |total, pid| {
                let one = of(*pid).with_context(|| format!("cannot measure process {pid}"))?;
                Ok(total + one)
            })
        }
    }

    /// The number after a line prefix.
    fn number(text: &str, name: &str) -> Option<u64> {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_ascii_whitespace().next())
            .and_then(|word| word.parse().ok())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn tree_reports_usage_of_current_process() {
            let tree = ProcessTree::of(std::process::id()).unwrap();
            let before = tree.processor_time().unwrap();
            let mut sum = 0_u64;
            while tree.processor_time().unwrap() < before + 1_000_000 {
                sum = sum.wrapping_mul(31).wrapping_add(1);
            }
            let memory = tree.memory().unwrap();
            assert!(memory.resident >= memory.proportional && memory.proportional > 0);
            let _open = fs::File::open("/proc/self/status").unwrap();
            assert!(tree.open_files().unwrap() > 0);
            assert!(tree.threads().unwrap() > 0);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use anyhow::{Result, bail};

    /// A process and its descendants.
    #[derive(Clone, Debug)]
    pub(crate) struct ProcessTree;

    /// Bytes of memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TreeMemory {
        /// Resident memory; shared pages count in full.
        pub(crate) resident: u64,
        /// Resident memory; shared pages count in proportion (PSS).
        pub(crate) proportional: u64,
    }

    impl ProcessTree {
        pub(crate) fn of(_root: u32) -> Result<Self> {
            bail!("the benchmark needs /proc and runs on Linux only")
        }

        pub(crate) fn processor_time(&self) -> Result<u64> {
            Ok(0)
        }

        pub(crate) fn memory(&self) -> Result<TreeMemory> {
            Ok(TreeMemory::default())
        }

        pub(crate) fn open_files(&self) -> Result<u64> {
            Ok(0)
        }

        pub(crate) fn threads(&self) -> Result<u64> {
            Ok(0)
        }
    }
}
