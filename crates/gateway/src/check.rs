//! Whether a Messages endpoint keeps to Anthropic's wire format.
//!
//! Owns the rules of the format as a client relies on them, and the requests
//! that find out. It works against any endpoint and knows nothing of the
//! gateway beside it, so that it can judge the gateway too. Nothing that an
//! endpoint sends can make it fail: a defect is a finding, never an error.

mod block;
mod endpoint;
mod frames;
mod grammar;
mod probes;
mod report;
mod rule;
mod shape;
mod stream;
mod usage;

pub use endpoint::{CheckError, Credentials, Target};
pub use probes::{CheckOptions, check};
pub use report::{Defect, Finding, Outcome, Report};
pub use rule::{Aspect, Rule, Violation};
pub use stream::{Ending, StreamLimits, StreamValidator, StreamVerdict};

/// Characters of foreign text in a finding: enough to recognise it, little
/// enough for a line of a terminal.
const EXCERPT: usize = 160;

/// The beginning of a text that somebody else wrote, safe to print.
///
/// Control characters are spelled out, because an endpoint must not be able
/// to drive the terminal of the person who checks it.
fn excerpt(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(EXCERPT)
        .flat_map(|character| {
            let escaped = character.is_control().then(|| character.escape_debug());
            let plain = escaped.is_none().then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    if text.chars().nth(EXCERPT).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_holds_no_control_characters() {
        assert_eq!(excerpt("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        let long = excerpt(&"ä".repeat(EXCERPT + 1));
        assert_eq!(long.chars().count(), EXCERPT + 1);
        assert!(long.ends_with("ä…"));
    }
}
