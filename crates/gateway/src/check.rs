//! Checks whether a Messages endpoint follows Anthropic's wire format.
//!
//! Owns the rules of the format as clients rely on them, and the requests that
//! test them. It works with any endpoint and shares no code with the gateway,
//! so that it can check the gateway too. Nothing that an endpoint sends makes
//! the check itself fail: a defect is a finding, never an error.

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

pub use endpoint::{CheckError, CheckTarget, Credentials};
pub use probes::{CheckOptions, check};
pub use report::{CheckOutcome, CheckReport, Defect, Finding};
pub use rule::{Aspect, Rule, Violation};
pub use stream::{StreamEnding, StreamLimits, StreamValidator, StreamVerdict};

/// Characters of an endpoint's text in a finding: enough to recognise it, and
/// short enough for a line of a terminal.
const EXCERPT: usize = 160;

/// The start of an endpoint's text, safe to print.
///
/// Control characters are escaped, because an endpoint must not be able to
/// control the user's terminal.
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
    fn excerpt_is_short_and_without_control_characters() {
        assert_eq!(excerpt("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        let long = excerpt(&"ä".repeat(EXCERPT + 1));
        assert_eq!(long.chars().count(), EXCERPT + 1);
        assert!(long.ends_with("ä…"));
    }
}
