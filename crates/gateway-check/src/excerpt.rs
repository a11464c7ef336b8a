//! Excerpts of text that an endpoint sent.

/// Characters of an endpoint's text in a finding: enough to recognise it, and
/// short enough for a line of a terminal.
const EXCERPT: usize = 160;

/// The start of an endpoint's text, safe to print.
///
/// Control characters are escaped, because an endpoint must not be able to
/// control the user's terminal.
pub(crate) fn excerpt(text: &str) -> String {
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
