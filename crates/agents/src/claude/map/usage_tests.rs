use innkeeper_claude::Message;
use innkeeper_claude::wire::SystemMessage;
use innkeeper_claude::wire::decode;
use innkeeper_claude::wire::message::StreamEvent;
use serde_json::{Value, json};

use super::*;

impl ReportedUsage {
    /// Follows a frame of the main conversation.
    fn frame(&mut self, frame: &Value) {
        match decode(frame.to_string().as_bytes()).unwrap() {
            Message::Result(result) => self.result(&result),
            Message::System(SystemMessage::CompactBoundary(boundary)) => self.compacted(&boundary),
            Message::StreamEvent(event) => match event.event.unwrap() {
                StreamEvent::MessageStart(start) => self.call_starts(&start),
                StreamEvent::MessageDelta(delta) => self.call_continues(&delta),
                StreamEvent::MessageStop(_) => self.call_ends(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Follows a call, and takes its report.
    fn call(&mut self, start: &Value, end: &Value) -> UsageReport {
        let message = json!({"id": "m", "model": "claude-x", "usage": start});
        for event in [
            json!({"type": "message_start", "message": message}),
            json!({"type": "message_delta", "usage": end}),
            json!({"type": "message_stop"}),
        ] {
            self.frame(&json!({"type": "stream_event", "event": event}));
        }
        self.take()
    }

    /// The reported cost of a result, in billionths of a dollar.
    fn cost(&mut self, result: &Value) -> Option<u64> {
        let mut frame = json!({"type": "result"});
        frame.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
        self.frame(&frame);
        self.take().used.nano_dollars
    }
}

#[test]
fn context_is_all_input_of_the_call_with_the_counts_of_its_last_event() {
    let start = json!({"input_tokens": 1, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 300});
    let mut usage = ReportedUsage::default();
    let report = usage.call(&start, &json!({"output_tokens": 5}));
    assert_eq!(report.context, Some(ContextUse { input_tokens: 321, cache_read_tokens: 20 }));
    assert_eq!((report.model.as_deref(), report.used), (Some("claude-x"), ModelUse::default()));
    assert_eq!(usage.take().context, None, "the context is reported once");

    let later = usage.call(&start, &json!({"input_tokens": 7, "output_tokens": 5}));
    assert_eq!(later.context, Some(ContextUse { input_tokens: 327, cache_read_tokens: 20 }));
    let unknown = usage.call(&json!({"input_tokens": 0}), &json!({}));
    assert_eq!(unknown.context, None);
}

#[test]
fn compaction_shrinks_the_context() {
    let mut usage = ReportedUsage::default();
    let boundary = |metadata: Value| json!({"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata});
    usage.frame(&boundary(json!({"trigger": "manual", "pre_tokens": 9000})));
    assert_eq!(usage.take().context, None);
    usage.frame(&boundary(json!({"trigger": "manual", "pre_tokens": 9000, "post_tokens": 1200})));
    assert_eq!(usage.take().context, Some(ContextUse { input_tokens: 1200, cache_read_tokens: 0 }));
}

#[test]
fn cost_is_the_difference_of_totals_and_restarts_with_them() {
    let mut usage = ReportedUsage::default();
    assert_eq!(usage.cost(&json!({"total_cost_usd": 0.1})), Some(100_000_000));
    assert_eq!(usage.cost(&json!({"total_cost_usd": 0.3})), Some(200_000_000));
    assert_eq!(usage.cost(&json!({"total_cost_usd": 0.3})), Some(0));
    assert_eq!(usage.cost(&json!({})), None);
    assert_eq!(usage.cost(&json!({"total_cost_usd": 0.05})), Some(50_000_000), "a new count");
    for damaged in [json!("1"), json!(-1), json!(null)] {
        assert_eq!(usage.cost(&json!({"total_cost_usd": damaged})), None);
    }
    assert_eq!(usage.cost(&json!({"total_cost_usd": 0.06})), Some(10_000_000));
}

#[test]
fn cost_of_newer_runtimes_excludes_that_of_the_resumed_conversation() {
    let mut usage = ReportedUsage::default();
    let since = |costs: &[f64]| {
        let models = costs.iter().enumerate();
        models
            .map(|(at, cost)| (format!("m{at}"), json!({"costUSD": cost})))
            .collect::<serde_json::Map<_, _>>()
    };
    let resumed = json!({"total_cost_usd": 9.5, "model_usage_since_last_result": since(&[0.25, 0.25])});
    assert_eq!(usage.cost(&resumed), Some(500_000_000));
    let free = json!({"total_cost_usd": 9.5, "model_usage_since_last_result": {}});
    assert_eq!(usage.cost(&free), Some(0));
}
