//! The soak tests `deaf`, `starve` and `connections`: their options and plans.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use innkeeper_testkit::HostOptions;
use innkeeper_testkit::pressure::{
    ConnectionsPlan, DeafPlan, StarvePlan, fill_connections, fill_outboxes, send_half_requests,
};

/// Time for the host to start, to serve the clients and to return its memory.
const EXTRA: Duration = Duration::from_secs(240);

#[derive(Debug, Args)]
pub(crate) struct DeafOptions {
    /// The `innkeeper` program
    #[arg(long, value_name = "PATH")]
    innkeeper: PathBuf,
    /// Number of clients that never read
    #[arg(long, value_name = "N", default_value_t = 40)]
    clients: usize,
    /// Snapshots of 512 KiB that each client asks for
    #[arg(long, value_name = "N", default_value_t = 60)]
    snapshots: usize,
    /// What the host may queue for all clients
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    queued_mib: u32,
    /// Seed of the order and size of the requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct StarveOptions {
    /// The `innkeeper` program
    #[arg(long, value_name = "PATH")]
    innkeeper: PathBuf,
    /// The Claude runtime
    #[arg(long, value_name = "PATH")]
    claude: PathBuf,
    /// Half requests that are kept open at each listener
    #[arg(long, value_name = "N", default_value_t = 1000)]
    sockets: usize,
    /// How long turns run beside them
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Seed of the positions at which the requests are cut
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectionsOptions {
    /// The `innkeeper` program
    #[arg(long, value_name = "PATH")]
    innkeeper: PathBuf,
    /// The Claude runtime
    #[arg(long, value_name = "PATH")]
    claude: PathBuf,
    /// The host's limit of open files
    #[arg(long, value_name = "N", default_value_t = 1024)]
    open_files: usize,
    /// Sessions that are started while the host is full
    #[arg(long, value_name = "N", default_value_t = 20)]
    sessions: usize,
}

impl DeafOptions {
    pub(crate) fn deadline(&self) -> Duration {
        EXTRA
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let Self { innkeeper, clients, snapshots, queued_mib, seed } = self;
        let plan = DeafPlan { clients, snapshots, queued_mib, seed };
        report(&fill_outboxes(HostOptions::new(innkeeper, None), plan).await?)
    }
}

impl StarveOptions {
    pub(crate) fn deadline(&self) -> Duration {
        EXTRA + Duration::from_secs(self.seconds)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let time = Duration::from_secs(self.seconds);
        let plan = StarvePlan { sockets: self.sockets, time, seed: self.seed };
        report(&send_half_requests(HostOptions::new(self.innkeeper, Some(self.claude)), plan).await?)
    }
}

impl ConnectionsOptions {
    pub(crate) fn deadline(&self) -> Duration {
        EXTRA
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let plan = ConnectionsPlan { open_files: self.open_files, sessions: self.sessions };
        report(&fill_connections(HostOptions::new(self.innkeeper, Some(self.claude)), plan).await?)
    }
}

fn report(result: &impl std::fmt::Display) -> Result<ExitCode> {
    writeln!(std::io::stdout(), "{result}")?;
    Ok(ExitCode::SUCCESS)
}
