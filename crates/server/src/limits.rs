//! Limits on clients.
//!
//! Defines the numbers and the checks on a frame's shape. A client that reaches a limit
//! gets an error or is delayed; other clients are never affected.

use std::time::Duration;

/// Largest message from a client: enough for one or two images in a prompt.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Maximum nesting depth of JSON. Parsers commonly stop at 128; the difference is for the
/// levels that an envelope or a snapshot adds around the client's data.
const MAX_DEPTH: usize = 96;

/// Maximum length in bytes of a client id and of a channel URI. Both are stored for a
/// long time and repeated in every envelope.
pub(crate) const MAX_NAME: usize = 1024;

/// Configurable limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Open client connections. Further ones are rejected with HTTP 503.
    pub connections: usize,
    /// Subscriptions of one connection. Further ones are rejected.
    pub subscriptions: usize,
    /// Sessions of the host. Further ones are rejected. Concurrent requests may exceed
    /// the limit by a few.
    pub sessions: usize,
    /// Messages per second that are read from one connection, on average. Above it,
    /// reading is delayed; the connection is not closed.
    pub messages_per_second: u32,
    /// Messages that may be read in one burst after an idle period.
    pub message_burst: u32,
    /// Sockets per listener that may be in a TLS handshake or an HTTP request at once.
    /// Above it, the oldest is closed.
    pub unauthenticated: usize,
    /// File descriptors of the process that may be in use when a client connects. Above
    /// it, the client is rejected with HTTP 503, so that turns can still start processes
    /// and open files.
    pub descriptors: usize,
    /// Timeout of an HTTP request head, of a TLS handshake, and then of the AHP
    /// handshake.
    pub handshake: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            subscriptions: 1024,
            sessions: 20_000,
            messages_per_second: 2_000,
            message_burst: 5_000,
            unauthenticated: 256,
            descriptors: usize::MAX,
            handshake: Duration::from_secs(10),
        }
    }
}

/// Whether JSON exceeds the maximum nesting depth. Only counts brackets, so no depth can
/// exhaust the stack. For text that is not JSON the result is meaningless.
pub(crate) fn too_deep(json: &str) -> bool {
    let (mut depth, mut rest) = (0_usize, json.as_bytes());
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'"' => rest = after_string(after),
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Returns the text after a string whose opening quote was just read.
fn after_string(mut text: &[u8]) -> &[u8] {
    loop {
        match memchr::memchr2(b'"', b'\\', text).and_then(|at| text.get(at..)) {
            Some([b'"', after @ ..]) => return after,
            Some([b'\\', _, after @ ..]) => text = after,
            _ => return &[],
        }
    }
}

/// Limits how fast a connection is read, with a token bucket.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Time to refill one message.
    cost: Duration,
    /// Time to refill the whole bucket.
    burst: Duration,
    /// When the bucket will be full.
    full_at: tokio::time::Instant,
}

impl RateLimiter {
    /// Creates a full bucket.
    pub(crate) fn new(limits: &ServerLimits) -> Self {
        let cost = Duration::from_secs(1) / limits.messages_per_second.max(1);
        Self { cost, burst: cost * limits.message_burst, full_at: tokio::time::Instant::now() }
    }

    /// Waits until one more message may be read.
    pub(crate) async fn acquire(&mut self) {
        let now = tokio::time::Instant::now();
        self.full_at = self.full_at.max(now) + self.cost;
        if self.full_at > now + self.burst {
            tokio::time::sleep_until(self.full_at - self.burst).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!too_deep(&nested(MAX_DEPTH)));
        assert!(too_deep(&nested(MAX_DEPTH + 1)));
        assert!(!too_deep(&format!(r#"{{"a\"b":"{}"}}"#, "[".repeat(1000))));
        assert!(!too_deep(&format!(r#"["\\",{}"\\\""]"#, "[],".repeat(1000))));
        assert!(too_deep(&format!(r#"{{"a":"\\","b":{}"#, "{\"c\":".repeat(MAX_DEPTH))));
        // Truncated and invalid JSON.
        assert!(!too_deep("\"\\"));
        assert!(!too_deep(&"]".repeat(1000)));
    }

    #[tokio::test(start_paused = true)]
    async fn burst_passes_at_once_and_then_rate_is_limited() {
        let limits = ServerLimits { messages_per_second: 100, message_burst: 50, ..ServerLimits::default() };
        let mut rate = RateLimiter::new(&limits);
        let start = tokio::time::Instant::now();
        for _ in 0..50 {
            rate.acquire().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            rate.acquire().await;
        }
        let took = start.elapsed();
        assert!((Duration::from_millis(990)..Duration::from_millis(1110)).contains(&took), "{took:?}");
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = tokio::time::Instant::now();
        for _ in 0..50 {
            rate.acquire().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "an idle period refills the bucket");
        rate.acquire().await;
        assert!(start.elapsed() >= Duration::from_millis(9));
    }
}
