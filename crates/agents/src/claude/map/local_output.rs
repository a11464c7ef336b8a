//! Output of the runtime's own commands, such as `/cost` and `/context`.

use super::tool_text::code_block;

/// The text of a command's output in a user message, without its markup. `None` for other text.
pub(super) fn command_output(text: &str) -> Option<String> {
    let text = text.trim();
    ["local-command-stdout", "local-command-stderr"].into_iter().find_map(|tag| {
        let inner = text.strip_prefix(&format!("<{tag}>"))?.strip_suffix(&format!("</{tag}>"))?;
        Some(without_escapes(inner).trim().to_owned())
    })
}

/// The Markdown for a command's output. Aligned lines become preformatted text.
pub(super) fn markdown(text: &str) -> String {
    let text = without_escapes(text);
    let is_markup = |line: &str| line.starts_with(['#', '|', '-', '*', '>', '`']) || line.contains("**");
    let has_lines = text.trim().lines().nth(1).is_some();
    let is_json = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text.trim()).is_ok();
    if is_json || (has_lines && !text.lines().any(|line| is_markup(line.trim_start()))) {
        return code_block(text.trim_matches('\n'));
    }
    text.trim().to_owned()
}

/// Removes terminal escape sequences and other control characters.
pub(super) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // The final byte of a sequence is in this range.
            while characters.next().is_some_and(|next| !('@'..='~').contains(&next)) {}
        } else if character == '\n' || character == '\t' || !character.is_control() {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_loses_markup_and_escapes_and_keeps_its_lines() {
        let output =
            "<local-command-stdout>\u{1b}[1;31mCost:\u{1b}[0m  1\nTime:  2\r\n</local-command-stdout>";
        assert_eq!(command_output(output).as_deref(), Some("Cost:  1\nTime:  2"));
        assert_eq!(command_output("<local-command-stderr>no</local-command-stderr>").as_deref(), Some("no"));
        assert_eq!(command_output("see <local-command-stdout>x</local-command-stdout>"), None);
        assert_eq!(markdown("Cost:  1\nTime:  2\n"), "```\nCost:  1\nTime:  2\n```");
        assert_eq!(markdown("## Context\n\n| a | b |"), "## Context\n\n| a | b |");
        assert_eq!(markdown("Set model to x"), "Set model to x");
        assert_eq!(markdown("{\"a\":1}"), "```\n{\"a\":1}\n```");
    }
}
