//! Metrics for `/metrics`, in the Prometheus text format.
//!
//! Counters are incremented when an event happens; gauges are read from the core when the
//! metrics are rendered.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use innkeeper_core::Host;
use innkeeper_core::state::CloseReason;
use innkeeper_core::usage::ModelUse;

/// Every close reason with its label, in the order of `Counters::closed`.
const REASONS: [(CloseReason, &str); 10] = [
    (CloseReason::ClientGone, "client_gone"),
    (CloseReason::InvalidText, "invalid_text"),
    (CloseReason::MessageTooLarge, "message_too_large"),
    (CloseReason::NoCommonVersion, "no_common_version"),
    (CloseReason::NoHandshake, "no_handshake"),
    (CloseReason::ProtocolViolation, "protocol_violation"),
    (CloseReason::Shutdown, "shutdown"),
    (CloseReason::StateLost, "state_lost"),
    (CloseReason::TooMuchGarbage, "too_much_garbage"),
    (CloseReason::TooSlow, "too_slow"),
];

/// Reads what all model requests used since the host started.
#[derive(Clone)]
pub struct UsageSource(Arc<dyn Fn() -> ModelUse + Send + Sync>);

impl UsageSource {
    /// A source that calls this function.
    pub fn new(read: impl Fn() -> ModelUse + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for UsageSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UsageSource").finish_non_exhaustive()
    }
}

/// Event counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    frames_in: AtomicU64,
    frames_out: AtomicU64,
    closed: [AtomicU64; REASONS.len()],
    refused: AtomicU64,
}

impl Counters {
    /// Counts a received frame.
    pub(crate) fn frame_in(&self) {
        self.frames_in.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts frames that are about to be written.
    pub(crate) fn frames_out(&self, count: usize) {
        self.frames_out.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts a closed connection.
    pub(crate) fn closed(&self, reason: CloseReason) {
        let found = REASONS.iter().zip(&self.closed).find(|((each, _), _)| *each == reason);
        if let Some((_, counter)) = found {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that was rejected before it became a connection.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Renders all metrics as text.
    pub(crate) fn render(&self, host: &Host, usage: Option<&UsageSource>) -> String {
        let counts = host.store().counts();
        let mut text = MetricsText(String::with_capacity(2048));
        text.gauge("innkeeper_connections", "Open connections.", counts.connections as u64);
        text.gauge("innkeeper_sessions", "Sessions, including unlisted ones.", host.session_count() as u64);
        text.gauge("innkeeper_subscriptions", "Subscriptions to channels.", counts.subscriptions as u64);
        text.gauge("innkeeper_outbox_bytes", "Bytes queued for clients.", counts.outbox_bytes as u64);
        text.counter("innkeeper_server_seq", "Sequence number of the last published action.");
        text.value("innkeeper_server_seq", "", counts.server_seq.0);
        text.counter("innkeeper_frames_total", "Messages from and to clients.");
        text.value("innkeeper_frames_total", "{direction=\"in\"}", load(&self.frames_in));
        text.value("innkeeper_frames_total", "{direction=\"out\"}", load(&self.frames_out));
        text.counter("innkeeper_connections_closed_total", "Closed connections, by reason.");
        for ((_, label), counter) in REASONS.iter().zip(&self.closed) {
            let label = format!("{{reason=\"{label}\"}}");
            text.value("innkeeper_connections_closed_total", &label, load(counter));
        }
        text.counter("innkeeper_requests_refused_total", "Requests rejected before a connection was made.");
        text.value("innkeeper_requests_refused_total", "", load(&self.refused));
        if let Some(UsageSource(read)) = usage {
            text.model_use(&read());
        }
        if let Some(bytes) = resident_bytes() {
            text.gauge("process_resident_memory_bytes", "Resident memory of this process.", bytes);
        }
        text.0
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The output, as it is rendered.
struct MetricsText(String);

impl MetricsText {
    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        self.value(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str) {
        self.head(name, help, "counter");
    }

    fn model_use(&mut self, used: &ModelUse) {
        self.counter("innkeeper_model_requests_total", "Requests to the model service.");
        self.value("innkeeper_model_requests_total", "", used.requests);
        self.counter(
            "innkeeper_model_user_requests_total",
            "Requests that the model service counts as the user's.",
        );
        self.value("innkeeper_model_user_requests_total", "", used.user_requests);
        self.counter("innkeeper_model_tokens_total", "Tokens, by kind.");
        for (kind, count) in [
            ("input", used.input_tokens),
            ("output", used.output_tokens),
            ("cache_read", used.cache_read_tokens),
            ("cache_write", used.cache_write_tokens),
        ] {
            self.value("innkeeper_model_tokens_total", &format!("{{kind=\"{kind}\"}}"), count);
        }
        self.counter("innkeeper_model_copilot_nano_aiu_total", "Copilot credits, in billionths.");
        self.value("innkeeper_model_copilot_nano_aiu_total", "", used.nano_aiu.unwrap_or_default());
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    fn value(&mut self, name: &str, labels: &str, value: u64) {
        // Writing to a string cannot fail.
        writeln!(self.0, "{name}{labels} {value}").ok();
    }
}

/// Resident memory of this process; only known on Linux.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ServerContext;

    #[tokio::test]
    async fn renders_every_metric_with_type_and_every_close_reason() {
        let shared = ServerContext::without_agents().await;
        let host = &shared.host;
        let counters = Counters::default();
        counters.frame_in();
        counters.frames_out(3);
        counters.closed(CloseReason::TooSlow);
        let usage = UsageSource::new(|| ModelUse {
            requests: 4,
            user_requests: 1,
            cache_read_tokens: 9,
            nano_aiu: Some(5),
            ..ModelUse::default()
        });
        let text = counters.render(host, Some(&usage));
        for line in [
            "# TYPE innkeeper_connections gauge",
            "innkeeper_connections 0",
            "innkeeper_server_seq 0",
            "innkeeper_frames_total{direction=\"in\"} 1",
            "innkeeper_frames_total{direction=\"out\"} 3",
            "innkeeper_connections_closed_total{reason=\"too_slow\"} 1",
            "innkeeper_connections_closed_total{reason=\"shutdown\"} 0",
            "innkeeper_model_requests_total 4",
            "innkeeper_model_user_requests_total 1",
            "innkeeper_model_tokens_total{kind=\"input\"} 0",
            "innkeeper_model_tokens_total{kind=\"cache_read\"} 9",
            "innkeeper_model_copilot_nano_aiu_total 5",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} is missing in:\n{text}");
        }
        assert!(!counters.render(host, None).contains("innkeeper_model"));
        if cfg!(target_os = "linux") {
            assert!(text.contains("process_resident_memory_bytes "));
        }
    }
}
