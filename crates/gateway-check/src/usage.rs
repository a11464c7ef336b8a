//! The token counters of a streamed response.
//!
//! Keeps the last value of each counter. A counter is a running total, so a
//! smaller value than before is a defect.

use serde_json::Value;

/// The counters that are running totals.
const COUNTERS: [&str; 4] =
    ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];

/// A defect of a `usage` object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UsageFault {
    Missing(String),
    WentDown(String),
}

/// The counters seen so far.
#[derive(Debug, Default)]
pub(super) struct UsageCounters {
    last: [Option<u64>; COUNTERS.len()],
}

impl UsageCounters {
    /// Processes the `usage` of an event, which must have the required counters.
    pub(super) fn take(&mut self, usage: Option<&Value>, required: &[&str]) -> Vec<UsageFault> {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else {
            return vec![UsageFault::Missing("no usage object".to_owned())];
        };
        let mut faults = Vec::new();
        for (name, last) in COUNTERS.iter().zip(&mut self.last) {
            let value = usage.get(name).filter(|value| !value.is_null());
            match value.map(Value::as_u64) {
                None if required.contains(name) => {
                    faults.push(UsageFault::Missing(format!("no {name}")));
                }
                None => {}
                Some(None) => {
                    let shown = value.map(Value::to_string).unwrap_or_default();
                    faults
                        .push(UsageFault::Missing(format!("{name} is {}", crate::excerpt::excerpt(&shown))));
                }
                Some(Some(now)) => {
                    if let Some(before) = last.filter(|before| *before > now) {
                        faults.push(UsageFault::WentDown(format!("{name} {before}, then {now}")));
                    }
                    *last = Some(now);
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_may_be_missing_null_or_grow() {
        let mut usage = UsageCounters::default();
        let start =
            json!({"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": null, "new": "x"});
        assert_eq!(usage.take(Some(&start), &["input_tokens", "output_tokens"]), []);
        assert_eq!(usage.take(Some(&json!({"output_tokens": 1})), &["output_tokens"]), []);
        assert_eq!(usage.take(Some(&json!({"output_tokens": 9, "input_tokens": 6})), &["output_tokens"]), []);
    }

    #[test]
    fn missing_invalid_and_falling_counters_are_reported() {
        let mut usage = UsageCounters::default();
        let missing = |text: &str| vec![UsageFault::Missing(text.to_owned())];
        assert_eq!(usage.take(None, &[]), missing("no usage object"));
        assert_eq!(usage.take(Some(&json!([])), &[]), missing("no usage object"));
        assert_eq!(usage.take(Some(&json!({})), &["input_tokens"]), missing("no input_tokens"));
        assert_eq!(usage.take(Some(&json!({"output_tokens": -1})), &[]), missing("output_tokens is -1"));
        assert_eq!(usage.take(Some(&json!({"output_tokens": 8})), &[]), []);
        assert_eq!(
            usage.take(Some(&json!({"output_tokens": 7})), &[]),
            [UsageFault::WentDown("output_tokens 8, then 7".to_owned())]
        );
    }
}
