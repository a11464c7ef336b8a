//! Sends many short requests over several concurrent connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use innkeeper_bench::plan::Plan;
use tokio::task::JoinSet;

use crate::client::LoadConnection;
use crate::target::BenchTarget;

/// Concurrent connections, as in the speed measurement.
const CONNECTIONS: u32 = 64;

/// Requests per connection, so that the cost of connecting is included.
const REQUESTS_PER_CONNECTION: u32 = 16;

/// Sends `count` requests over concurrent connections.
pub(crate) async fn requests(target: &BenchTarget, count: u32, plan: Plan) -> Result<()> {
    let request = Arc::new(target.endpoint.request(plan));
    let taken = Arc::new(AtomicU32::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (request, taken) = (Arc::clone(&request), Arc::clone(&taken));
        let (endpoint, fidelity) = (target.endpoint.clone(), target.fidelity);
        clients.spawn(async move {
            loop {
                let mut connection = LoadConnection::open(&endpoint).await?;
                for _ in 0..REQUESTS_PER_CONNECTION {
                    if taken.fetch_add(1, Ordering::Relaxed) >= count {
                        return Ok(());
                    }
                    connection.ask(&request, plan, fidelity).await?;
                }
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        let ended: Result<()> = ended.context("client task failed")?;
        ended?;
    }
    Ok(())
}
