//! Length limits for titles, activity texts and ids.
//!
//! They are part of the rows in the session list, which every client gets completely; a few
//! oversized ones would make the list unusable. A client's value is rejected, an agent's is
//! cut.

use super::{Decision, reject};

/// Longest name from a client, in bytes.
const MAX_NAME: usize = 1024;

/// Longest name from an agent, in characters; never more than [`MAX_NAME`] bytes.
const MAX_CUT: usize = MAX_NAME / 4;

/// Rejects a name that is too long.
pub(super) fn reject_too_long(what: &str, name: &str) -> Option<Decision> {
    (name.len() > MAX_NAME).then(|| reject(&format!("{what} is longer than {MAX_NAME} bytes; shorten it")))
}

/// Cuts a text to the longest name.
pub(in crate::session) fn cut(text: String) -> String {
    match text.char_indices().nth(MAX_CUT) {
        Some(_) => text.chars().take(MAX_CUT - 1).chain(['…']).collect(),
        None => text,
    }
}
