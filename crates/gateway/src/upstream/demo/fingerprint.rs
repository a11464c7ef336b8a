//! Ids that follow from what was asked.
//!
//! Owns one hash (64-bit FNV-1a), spelled out here because the standard
//! library's may change between releases and ids are in golden tests.

use std::fmt;

/// Identity of a conversation state under one bearer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl Fingerprint {
    pub(super) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Adds a field; its length goes in too, so that fields cannot run together.
    #[must_use]
    pub(super) fn with(self, field: &str) -> Self {
        let length = (field.len() as u64).to_le_bytes();
        let bytes = length.iter().chain(field.as_bytes());
        Self(bytes.fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

/// Id of an answer. A repeated request gets another one, because that is how
/// a client tells a second attempt from the broken first.
pub(super) fn message_id(key: Fingerprint, attempt: u32) -> String {
    format!("msg_demo_{:?}", key.with(&attempt.to_string()))
}

/// Id of a tool use within the answer `message_id`.
pub(super) fn tool_use_id(message_id: &str, index: usize) -> String {
    format!("toolu_{}_{index}", message_id.trim_start_matches("msg_"))
}
