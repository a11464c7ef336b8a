//! Markdown for the messages of tool calls. External text never becomes markup.

use std::path::Path;

use url::Url;

/// Maximum length in characters of the command or path in a call's message.
pub(super) const SUMMARY_LENGTH: usize = 80;

/// ASCII punctuation that can start markup inside a line.
const SPECIAL: &str = "\\`*_{}[]()<>#!|~&$";

/// The first line of a text, shortened.
pub(super) fn summary(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim_end();
    let more = text.trim().lines().nth(1).is_some();
    let mut short: String = line.chars().take(SUMMARY_LENGTH).collect();
    if more || line.chars().nth(SUMMARY_LENGTH).is_some() {
        short.push('…');
    }
    short
}

/// Escapes a text, so that Markdown shows it as written, on one line.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if SPECIAL.contains(character) {
            escaped.push('\\');
        }
        escaped.push(if character.is_control() { ' ' } else { character });
    }
    escaped
}

/// A code span. Its fence is longer than every sequence of backticks in the text.
pub(super) fn code(text: &str) -> String {
    let text: String =
        text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    if text.trim().is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// A block of preformatted text.
pub(super) fn code_block(text: &str) -> String {
    let fence = "`".repeat((longest_run(text, '`') + 1).max(3));
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// A link to a file, named by its last component; a code span for a relative path.
pub(super) fn file_link(path: &str) -> String {
    match Url::from_file_path(path) {
        Ok(url) => link(&file_name(path), &url),
        Err(()) => code(&summary(path)),
    }
}

/// A link to a page; a code span for anything but `http` and `https`.
pub(super) fn page_link(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => link(&summary(text), &url),
        Ok(_) | Err(_) => code(&summary(text)),
    }
}

/// The last component of a path.
pub(super) fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    summary(&name.unwrap_or_else(|| path.to_owned()))
}

fn link(label: &str, url: &Url) -> String {
    // These characters would end the target of the link in some renderers.
    let target = url.as_str().replace('(', "%28").replace(')', "%29");
    let target = target.replace('[', "%5B").replace(']', "%5D");
    format!("[{}]({target})", escape(label))
}

fn longest_run(text: &str, wanted: char) -> usize {
    let (mut longest, mut run) = (0, 0);
    for character in text.chars() {
        run = if character == wanted { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_external_text_is_shown_as_written() {
        assert_eq!(escape("a_b [x](y) <b>&amp;\n$1"), "a\\_b \\[x\\]\\(y\\) \\<b\\>\\&amp; \\$1");
        assert_eq!(code("a `b` ``c``"), "``` a `b` ``c`` ```");
        assert_eq!(code("plain"), "`plain`");
        assert_eq!(code(" \n"), "");
        assert_eq!(code_block("a\n````\n"), "`````\na\n````\n`````");
        assert_eq!(summary("é".repeat(81).as_str()), format!("{}…", "é".repeat(80)));
        assert_eq!(summary("  first \nsecond"), "first…");
    }

    #[test]
    fn links_are_encoded_and_named_by_last_component() {
        assert_eq!(file_link("/a b/c(1)]_.rs"), "[c\\(1\\)\\]\\_.rs](file:///a%20b/c%281%29%5D_.rs)");
        assert_eq!(file_link("/"), "[/](file:///)");
        assert_eq!(file_link("src/main.rs"), "`src/main.rs`");
        assert_eq!(page_link("https://e.org/a(b)"), "[https://e.org/a\\(b\\)](https://e.org/a%28b%29)");
        assert_eq!(page_link("javascript:alert(1)"), "`javascript:alert(1)`");
        assert_eq!(page_link("not a url"), "`not a url`");
    }
}
