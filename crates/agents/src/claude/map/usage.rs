//! The context of the main conversation and the cost, from stream events and results.
//!
//! Tokens are counted by the model endpoint, which sees every request: the runtime streams only
//! the calls of the main conversation. The cost is the runtime's, which knows the prices.

use innkeeper_claude::wire::content::{ApiMessage, ModelUsage, Usage};
use innkeeper_claude::wire::message::{
    CompactBoundaryMessage, MessageDeltaEvent, MessageStartEvent, ResultMessage,
};
use innkeeper_core::usage::{ContextUse, ModelUse, UsageReport, nano_dollars};
use serde::Deserialize;

/// Follows the usage that one runtime process reports.
#[derive(Debug, Default)]
pub(super) struct ReportedUsage {
    /// The input of the streamed call so far.
    call: InputCounts,
    /// What was reported since [`Self::take`].
    report: UsageReport,
    /// The model of the last call.
    model: Option<String>,
    /// The process's cost in the last result, in billionths of a dollar.
    cost: u64,
}

impl ReportedUsage {
    /// Takes the report since the last call.
    pub(super) fn take(&mut self) -> UsageReport {
        let model = self.model.clone();
        UsageReport { model, ..std::mem::take(&mut self.report) }
    }

    /// A streamed call starts.
    pub(super) fn call_starts(&mut self, start: &MessageStartEvent) {
        let Some(message) = &start.message else { return };
        self.call = InputCounts::default();
        self.call.update(message.usage.as_ref());
        self.model = message.model.clone().or_else(|| self.model.take());
    }

    /// The counts of later events include those of earlier ones.
    pub(super) fn call_continues(&mut self, delta: &MessageDeltaEvent) {
        self.call.update(delta.usage.as_ref());
    }

    /// A streamed call ends.
    pub(super) fn call_ends(&mut self) {
        self.report.context = std::mem::take(&mut self.call).context().or(self.report.context);
    }

    /// A call ends that was not streamed.
    pub(super) fn whole_call(&mut self, message: &ApiMessage) {
        let mut call = InputCounts::default();
        call.update(message.usage.as_ref());
        self.report.context = call.context().or(self.report.context);
        self.model = message.model.clone().or_else(|| self.model.take());
    }

    /// The conversation was compacted: the context is smaller until the next call.
    pub(super) fn compacted(&mut self, boundary: &CompactBoundaryMessage) {
        let metadata: Option<CompactMetadata> =
            boundary.compact_metadata.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        if let Some(input_tokens) = metadata.and_then(|metadata| metadata.post_tokens) {
            self.report.context = Some(ContextUse { input_tokens, cache_read_tokens: 0 });
        }
    }

    /// A turn ends. Newer runtimes continue the total of the resumed conversation, and say how much
    /// was added; the total of older ones starts at zero in each process.
    pub(super) fn result(&mut self, result: &ResultMessage) {
        let total = result.total_cost_usd.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let total = total.and_then(nano_dollars);
        let added = result.model_usage_since_last_result.as_ref();
        let added = added.and_then(|usage| usage.values().map(cost_of).sum::<Option<u64>>());
        let since = |total: u64| total.checked_sub(self.cost).unwrap_or(total);
        let cost = ModelUse { nano_dollars: added.or(total.map(since)), ..ModelUse::default() };
        self.cost = total.unwrap_or(self.cost);
        self.report.used = self.report.used.plus(cost);
        let only_model = || result.model_usage.as_ref().and_then(|usage| usage.keys().next().cloned());
        self.model = self.model.take().or_else(only_model);
    }
}

#[derive(Deserialize)]
struct CompactMetadata {
    #[serde(default)]
    post_tokens: Option<u64>,
}

fn cost_of(usage: &ModelUsage) -> Option<u64> {
    nano_dollars(serde_json::from_str(usage.cost_usd.as_ref()?.get()).ok()?)
}

/// The input tokens of one call, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct InputCounts {
    fresh: u64,
    read: u64,
    written: u64,
}

impl InputCounts {
    /// Replaces the counts that an event contains.
    fn update(&mut self, usage: Option<&Usage>) {
        let Some(usage) = usage else { return };
        self.fresh = usage.input_tokens.unwrap_or(self.fresh);
        self.read = usage.cache_read_input_tokens.unwrap_or(self.read);
        self.written = usage.cache_creation_input_tokens.unwrap_or(self.written);
    }

    /// All of the input; `None` if it is not known.
    fn context(self) -> Option<ContextUse> {
        let input_tokens = self.fresh.saturating_add(self.read).saturating_add(self.written);
        (input_tokens > 0).then_some(ContextUse { input_tokens, cache_read_tokens: self.read })
    }
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
