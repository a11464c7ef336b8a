//! The end of a turn: its usage.

use ahp_types::actions::{ChatUsageAction, StateAction};
use ahp_types::state::UsageInfo;
use innkeeper_claude::wire::message::ResultMessage;
use innkeeper_core::ids::TurnId;

/// Token usage of a turn.
pub(super) fn usage(turn: &TurnId, result: &ResultMessage, model: Option<&str>) -> StateAction {
    let usage = result.usage.as_ref();
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
    let only_model = || result.model_usage.as_ref().and_then(|usage| usage.keys().next().cloned());
    StateAction::ChatUsage(ChatUsageAction {
        turn_id: turn.as_str().to_owned(),
        usage: UsageInfo {
            input_tokens: usage.and_then(|usage| count(usage.input_tokens)),
            output_tokens: usage.and_then(|usage| count(usage.output_tokens)),
            cache_read_tokens: usage.and_then(|usage| count(usage.cache_read_input_tokens)),
            model: model.map(str::to_owned).or_else(only_model),
            meta: None,
        },
        meta: None,
    })
}
