//! How long names may be: titles, what is being done, and ids.
//!
//! They are in the rows of the list, which everybody gets whole, so that a few that are
//! too long would keep everybody from it. A client's is refused, an agent's is cut.

use super::{Decision, reject};

/// Bytes of a name of a client's. More than anybody reads.
const MAX_NAME: usize = 1024;

/// Characters of a name of an agent's, which are never more bytes than that.
const KEPT: usize = MAX_NAME / 4;

/// Refuses a name that is too long.
pub(super) fn refused(what: &str, name: &str) -> Option<Decision> {
    (name.len() > MAX_NAME)
        .then(|| reject(&format!("{what} is longer than {MAX_NAME} bytes; make it shorter")))
}

/// The beginning of a text.
pub(in crate::session) fn cut(text: String) -> String {
    match text.char_indices().nth(KEPT) {
        Some(_) => text.chars().take(KEPT - 1).chain(['…']).collect(),
        None => text,
    }
}
