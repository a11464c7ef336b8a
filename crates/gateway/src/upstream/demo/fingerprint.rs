//! Deterministic ids derived from the request.
//!
//! Implements one hash (64-bit FNV-1a), because the standard library's may
//! change between releases and the ids are in golden tests.

use std::fmt;

/// Identifies a conversation state in one session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl Fingerprint {
    pub(super) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Adds a field and its length, so that adjacent fields stay distinct.
    #[must_use]
    pub(super) fn with(self, field: &str) -> Self {
        let length = (field.len() as u64).to_le_bytes();
        let bytes = length.iter().chain(field.as_bytes());
        Self(bytes.fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

/// The id of a response. A repeated request gets another id, by which a client
/// distinguishes the second attempt from the failed first one.
pub(super) fn message_id(key: Fingerprint, attempt: u32) -> String {
    format!("msg_demo_{:?}", key.with(&attempt.to_string()))
}

/// The id of a tool use in the response `message_id`.
pub(super) fn tool_use_id(message_id: &str, index: usize) -> String {
    format!("toolu_{}_{index}", message_id.trim_start_matches("msg_"))
}
