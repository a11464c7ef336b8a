//! What model requests used: tokens, cost and credits of a turn and of a session.
//!
//! Owns the counts and their published form in `_meta`. Agents report what was used since their
//! last report ([`UsageReport`]); the session adds the reports up, so that a turn's usage survives
//! a restart of its agent.

use ahp_types::common::JsonObject;
use ahp_types::state::{MessageKind, UsageInfo};
use serde_json::{Value, json};

/// The key of the totals in the `_meta` of a turn's usage and of a session.
pub(crate) const TOTALS: &str = "innkeeper.usage";

/// The key of Copilot's credits in the same objects. Other hosts use it as well.
pub(crate) const CREDITS: &str = "copilotUsage";

/// Billionths of a dollar in a dollar.
const NANOS: f64 = 1e9;

/// What a number of model requests used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelUse {
    /// The requests.
    pub requests: u64,
    /// The requests that the model service counts as the user's, if it distinguishes them.
    pub user_requests: u64,
    /// Input tokens neither read from nor written to a cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens read from the prompt cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the prompt cache.
    pub cache_write_tokens: u64,
    /// The cost in billionths of a US dollar, if the agent reported it.
    pub nano_dollars: Option<u64>,
    /// Copilot's credits in billionths, if the model service reported them.
    pub nano_aiu: Option<u64>,
}

/// A cost in US dollars as billionths; `None` if it is negative or not a finite number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive, and a cast from a float saturates"
)]
pub fn nano_dollars(dollars: f64) -> Option<u64> {
    (dollars.is_finite() && dollars >= 0.0).then(|| (dollars * NANOS).round() as u64)
}

/// What an agent used since its last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageReport {
    /// The requests since the last report.
    pub used: ModelUse,
    /// The context of the last model call of the main conversation, if there was one.
    pub context: Option<ContextUse>,
    /// The model of that call.
    pub model: Option<String>,
}

/// The input of one model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextUse {
    /// All input tokens.
    pub input_tokens: u64,
    /// Those read from the prompt cache.
    pub cache_read_tokens: u64,
}

impl ModelUse {
    /// Whether nothing was used.
    pub fn is_empty(&self) -> bool {
        let without_zeros = |count: Option<u64>| count.filter(|count| *count > 0);
        let (nano_dollars, nano_aiu) = (without_zeros(self.nano_dollars), without_zeros(self.nano_aiu));
        Self { nano_dollars, nano_aiu, ..*self } == Self::default()
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = u64::saturating_add;
        let known = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(sum(one, other)),
            (one, other) => one.or(other),
        };
        Self {
            requests: sum(self.requests, other.requests),
            user_requests: sum(self.user_requests, other.user_requests),
            input_tokens: sum(self.input_tokens, other.input_tokens),
            output_tokens: sum(self.output_tokens, other.output_tokens),
            cache_read_tokens: sum(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens),
            nano_dollars: known(self.nano_dollars, other.nano_dollars),
            nano_aiu: known(self.nano_aiu, other.nano_aiu),
        }
    }

    /// Reads the published form; missing counts are zero.
    pub fn from_meta(meta: &JsonObject) -> Self {
        let totals = meta.get(TOTALS);
        let count = |key: &str| totals.and_then(|totals| totals.get(key)?.as_u64()).unwrap_or_default();
        let dollars = totals.and_then(|totals| totals.get("costUsd")?.as_f64());
        Self {
            requests: count("requests"),
            user_requests: count("userRequests"),
            input_tokens: count("inputTokens"),
            output_tokens: count("outputTokens"),
            cache_read_tokens: count("cacheReadTokens"),
            cache_write_tokens: count("cacheWriteTokens"),
            nano_dollars: dollars.and_then(nano_dollars),
            nano_aiu: meta.get(CREDITS).and_then(|credits| credits.get("totalNanoAiu")?.as_u64()),
        }
    }

    /// The published totals, for the key [`TOTALS`].
    #[expect(clippy::cast_precision_loss, reason = "exact below nine million dollars")]
    pub(crate) fn totals(&self) -> JsonObject {
        let mut totals = JsonObject::from_iter([
            ("requests".to_owned(), json!(self.requests)),
            ("inputTokens".to_owned(), json!(self.input_tokens)),
            ("outputTokens".to_owned(), json!(self.output_tokens)),
            ("cacheReadTokens".to_owned(), json!(self.cache_read_tokens)),
            ("cacheWriteTokens".to_owned(), json!(self.cache_write_tokens)),
        ]);
        if self.user_requests > 0 {
            totals.insert("userRequests".to_owned(), json!(self.user_requests));
        }
        if let Some(cost) = self.nano_dollars {
            totals.insert("costUsd".to_owned(), json!(cost as f64 / NANOS));
        }
        totals
    }

    /// The published credits, for the key [`CREDITS`].
    pub(crate) fn credits(&self) -> Option<Value> {
        self.nano_aiu.map(|credits| json!({"totalNanoAiu": credits}))
    }
}

impl UsageReport {
    /// Whether the report says nothing.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty() && self.context.is_none()
    }

    /// The usage of a turn with this report, after the reports before it. `initiator` is the kind
    /// of the turn's message.
    ///
    /// `inputTokens` is the context of the last call, because clients show it as the filled part
    /// of the context window; `outputTokens` and the totals in `_meta` are sums.
    #[must_use]
    pub fn added_to(&self, before: Option<&UsageInfo>, initiator: &MessageKind) -> UsageInfo {
        let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let mut meta = before.and_then(|usage| usage.meta.clone()).unwrap_or_default();
        let used = ModelUse::from_meta(&meta).plus(self.used);
        let mut totals = used.totals();
        let is_user = *initiator == MessageKind::User;
        totals.insert("initiator".to_owned(), json!(if is_user { "user" } else { "agent" }));
        meta.insert(TOTALS.to_owned(), json!(totals));
        meta.extend(used.credits().map(|credits| (CREDITS.to_owned(), credits)));
        UsageInfo {
            input_tokens: self
                .context
                .map(|context| tokens(context.input_tokens))
                .or_else(|| before.and_then(|usage| usage.input_tokens)),
            output_tokens: Some(tokens(used.output_tokens)),
            model: self.model.clone().or_else(|| before.and_then(|usage| usage.model.clone())),
            cache_read_tokens: self
                .context
                .map(|context| tokens(context.cache_read_tokens))
                .or_else(|| before.and_then(|usage| usage.cache_read_tokens)),
            meta: Some(meta),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(output_tokens: u64, context: Option<u64>, dollars: Option<f64>) -> UsageReport {
        UsageReport {
            used: ModelUse {
                requests: 1,
                input_tokens: 10,
                output_tokens,
                cache_read_tokens: 3,
                cache_write_tokens: 4,
                nano_dollars: dollars.and_then(nano_dollars),
                ..ModelUse::default()
            },
            context: context.map(|input_tokens| ContextUse { input_tokens, cache_read_tokens: 3 }),
            model: context.map(|_| "m".to_owned()),
        }
    }

    #[test]
    fn turn_has_last_context_and_sums_of_everything_else() {
        let first = report(1, Some(100), Some(0.1)).added_to(None, &MessageKind::User);
        let second = report(2, Some(90), None).added_to(Some(&first), &MessageKind::User);
        // A subagent's call has no context.
        let mut last = report(4, None, Some(0.2));
        last.used = ModelUse { nano_aiu: Some(7), user_requests: 1, ..last.used };
        let usage = last.added_to(Some(&second), &MessageKind::User);
        assert_eq!(
            serde_json::to_value(&usage).unwrap(),
            json!({
                "inputTokens": 90, "outputTokens": 7, "cacheReadTokens": 3, "model": "m",
                "_meta": {
                    "innkeeper.usage": {
                        "requests": 3, "userRequests": 1, "inputTokens": 30, "outputTokens": 7,
                        "cacheReadTokens": 9, "cacheWriteTokens": 12, "costUsd": 0.3, "initiator": "user",
                    },
                    "copilotUsage": {"totalNanoAiu": 7},
                },
            })
        );
        let own = report(1, None, None).added_to(None, &MessageKind::SystemNotification);
        let totals = own.meta.unwrap().remove(TOTALS).unwrap();
        assert_eq!((&totals["initiator"], &totals["costUsd"]), (&json!("agent"), &Value::Null));
    }

    #[test]
    fn published_form_is_read_back_and_damaged_forms_are_zero() {
        let used = ModelUse {
            user_requests: 2,
            nano_aiu: Some(0),
            nano_dollars: nano_dollars(12.345_678_901),
            ..report(5, None, None).used
        };
        let mut meta = JsonObject::from_iter([(TOTALS.to_owned(), json!(used.totals()))]);
        meta.insert(CREDITS.to_owned(), used.credits().unwrap());
        assert_eq!(ModelUse::from_meta(&meta), used);
        for damaged in [json!(null), json!({"requests": -1, "costUsd": "1", "inputTokens": 1.5}), json!([])] {
            let meta =
                JsonObject::from_iter([(TOTALS.to_owned(), damaged.clone()), (CREDITS.to_owned(), damaged)]);
            assert_eq!(ModelUse::from_meta(&meta), ModelUse::default());
        }
        assert_eq!((nano_dollars(-1.0), nano_dollars(f64::NAN)), (None, None));
        assert!(ModelUse { nano_dollars: Some(0), nano_aiu: Some(0), ..ModelUse::default() }.is_empty());
        assert!(!ModelUse { nano_dollars: Some(1), ..ModelUse::default() }.is_empty());
    }
}
