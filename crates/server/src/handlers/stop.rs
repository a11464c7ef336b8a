//! `innkeeper/stop`: stops the running turn, a command or a subagent.

use innkeeper_core::ChannelUri;
use innkeeper_core::agent::{StopTarget, StoppedWork};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::StopParams;
use crate::rpc::RpcError;

/// The name of the method.
pub(super) const METHOD: &str = "innkeeper/stop";

impl Connection {
    /// Stops work. The turn is cancelled in order, before any later message is handled; a
    /// separate task waits for the agent.
    pub(super) async fn stop(&self, id: &RawValue, params: StopParams) -> Result<(), RpcError> {
        let target = target(params.what)?;
        let stopped = self.shared.host.stop_work(&ChannelUri::new(&params.channel), target).await?;
        self.reply_later(id, async move { Ok(StopResult::of(stopped.await?)) });
        Ok(())
    }
}

fn target(what: Value) -> Result<StopTarget, RpcError> {
    let wrong =
        || RpcError::invalid_params("invalid what; pass \"all\", {\"toolCallId\": …} or {\"workId\": …}");
    if what == "all" {
        return Ok(StopTarget::Background);
    }
    let text = |key: &str| what.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("toolCallId"), text("workId")) {
        (Some(id), None) => Ok(StopTarget::ToolCall(id)),
        (None, Some(id)) => Ok(StopTarget::Work(id)),
        (Some(_), Some(_)) | (None, None) => Err(wrong()),
    }
}

#[derive(Serialize)]
struct StopResult {
    stopped: Vec<StoppedEntry>,
}

#[derive(Serialize)]
struct StoppedEntry {
    kind: &'static str,
    label: String,
}

impl StopResult {
    fn of(stopped: Vec<StoppedWork>) -> Self {
        let entry = |work: StoppedWork| StoppedEntry { kind: work.kind.as_str(), label: work.label };
        Self { stopped: stopped.into_iter().map(entry).collect() }
    }
}
