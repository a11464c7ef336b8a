//! How much of everything a client may have or send.
//!
//! Owns the numbers and the checks on a frame's shape; who applies them is named
//! at each. A limit that is reached gets its client an answer or a pause, and
//! never changes anything for others.

use std::time::Duration;

/// Largest message that a client may send: an image or two in a prompt.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// How deep JSON may be nested. Parsers commonly end at 128; this leaves room for
/// the levels that an envelope or a snapshot adds when others are told.
const MAX_DEPTH: usize = 96;

/// Longest name of a client and longest address of a channel, in bytes. Both are
/// kept for long, and repeated in every envelope.
pub(crate) const MAX_NAME: usize = 1024;

/// The limits of a server that its owner may change.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Open sockets of clients. The next one is refused with HTTP 503.
    pub connections: usize,
    /// Channels that one connection may be subscribed to. The next one is refused.
    pub subscriptions: usize,
    /// Sessions of the host, over which no new one is created. Clients that ask at
    /// the very same moment may exceed it by a few.
    pub sessions: usize,
    /// Messages a second that are read of a connection in the long run. What comes
    /// faster waits in the socket; nobody is closed for it.
    pub messages_per_second: u32,
    /// Messages that are read at once after a pause.
    pub message_burst: u32,
    /// How long a client may take to send the head of an HTTP request, to finish a
    /// TLS handshake, and then to say who it is.
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
            handshake: Duration::from_secs(10),
        }
    }
}

/// Whether JSON is nested deeper than this host takes. Looks at brackets only, so
/// that no depth can exhaust the stack; for text that is no JSON it means nothing.
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

/// What follows a string whose opening quote was just read.
fn after_string(mut text: &[u8]) -> &[u8] {
    loop {
        match memchr::memchr2(b'"', b'\\', text).and_then(|at| text.get(at..)) {
            Some([b'"', after @ ..]) => return after,
            Some([b'\\', _, after @ ..]) => text = after,
            _ => return &[],
        }
    }
}

/// How fast a connection may be read: a bucket that fills at a steady rate.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The time that one message costs.
    cost: Duration,
    /// How far the bucket may be ahead of the clock.
    burst: Duration,
    /// When the bucket would be full again.
    full_at: tokio::time::Instant,
}

impl Pace {
    /// A full bucket.
    pub(crate) fn new(limits: &ServerLimits) -> Self {
        let cost = Duration::from_secs(1) / limits.messages_per_second.max(1);
        Self { cost, burst: cost * limits.message_burst, full_at: tokio::time::Instant::now() }
    }

    /// Waits until one more message may be read.
    pub(crate) async fn step(&mut self) {
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
    fn depth_is_counted_in_brackets_outside_of_strings() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!too_deep(&nested(MAX_DEPTH)));
        assert!(too_deep(&nested(MAX_DEPTH + 1)));
        assert!(!too_deep(&format!(r#"{{"a\"b":"{}"}}"#, "[".repeat(1000))));
        assert!(!too_deep(&format!(r#"["\\",{}"\\\""]"#, "[],".repeat(1000))));
        assert!(too_deep(&format!(r#"{{"a":"\\","b":{}"#, "{\"c\":".repeat(MAX_DEPTH))));
        // No JSON at all, and ends in the middle.
        assert!(!too_deep("\"\\"));
        assert!(!too_deep(&"]".repeat(1000)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_then_the_pace_is_kept() {
        let limits = ServerLimits { messages_per_second: 100, message_burst: 50, ..ServerLimits::default() };
        let mut pace = Pace::new(&limits);
        let start = tokio::time::Instant::now();
        for _ in 0..50 {
            pace.step().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            pace.step().await;
        }
        let took = start.elapsed();
        assert!((Duration::from_millis(990)..Duration::from_millis(1110)).contains(&took), "{took:?}");
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = tokio::time::Instant::now();
        for _ in 0..50 {
            pace.step().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "a pause fills the bucket, and no more than that");
        pace.step().await;
        assert!(start.elapsed() >= Duration::from_millis(9));
    }
}
