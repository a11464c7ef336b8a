//! Short forms of the soak tests `deaf`, `starve` and `connections`.

use std::time::Duration;

use anyhow::Result;
use innkeeper_testkit::pressure::{
    ConnectionsPlan, DeafPlan, StarvePlan, fill_connections, fill_outboxes, send_half_requests,
};
use innkeeper_testkit::runtimes;

use crate::{options, without_runtime};

/// Seed of the short forms.
const SEED: u64 = 12;

#[tokio::test]
async fn clients_that_never_read_take_bounded_memory_which_is_returned() -> Result<()> {
    let plan = DeafPlan { clients: 40, snapshots: 20, queued_mib: 16, seed: SEED };
    println!("{}", fill_outboxes(without_runtime(), plan).await?);
    Ok(())
}

#[tokio::test]
async fn half_requests_on_both_listeners_do_not_stop_turns() -> Result<()> {
    let [native, _] = runtimes()?;
    let plan = StarvePlan { sockets: 300, time: Duration::ZERO, seed: SEED };
    println!("{}", send_half_requests(options(native), plan).await?);
    Ok(())
}

#[tokio::test]
async fn clients_above_descriptor_limit_are_rejected_and_turns_work() -> Result<()> {
    let [native, _] = runtimes()?;
    let plan = ConnectionsPlan { open_files: 256, sessions: 2 };
    println!("{}", fill_connections(options(native), plan).await?);
    Ok(())
}
