//! Checks every byte of a line that the parser accepted.
//!
//! The parser skips text that it does not need, and accepts words that bash reads differently: an
//! escaped blank, a line continuation inside of a word, backquotes in a here-document. A line passes
//! only if all text between the parser's tokens is blank and all tokens have the form that bash gives
//! them.

use tree_sitter::Node;

/// Deepest nesting that is checked. Each `&&` of a list adds a level.
pub(super) const MAX_DEPTH: usize = 128;

/// The first problem of a parsed line, if any.
pub(super) fn problem_of(root: Node<'_>, source: &str) -> Option<&'static str> {
    if source.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t') {
        return Some("it contains control characters");
    }
    if root.has_error() {
        return Some("its syntax is not valid or not supported");
    }
    let before = source.get(..root.start_byte());
    let after = source.get(root.end_byte()..);
    if !before.is_some_and(is_blank) || !after.is_some_and(is_blank) {
        return Some("its syntax is not supported");
    }
    Audit { source }.check(root, 0)
}

struct Audit<'a> {
    source: &'a str,
}

impl<'a> Audit<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    fn check(&self, node: Node<'_>, depth: usize) -> Option<&'static str> {
        if depth > MAX_DEPTH {
            return Some("it is nested too deeply");
        }
        if node.is_missing() {
            return Some("its syntax is not valid");
        }
        if node.child_count() == 0 {
            return self.check_leaf(node);
        }
        if let Some(problem) = self.check_gaps(node) {
            return Some(problem);
        }
        let special = match node.kind() {
            "command_substitution" => self.check_backquotes(node),
            "simple_expansion" => self.check_variable(node),
            "heredoc_redirect" => self.check_here_document(node),
            _ => None,
        };
        if special.is_some() {
            return special;
        }
        let mut cursor = node.walk();
        node.children(&mut cursor).find_map(|child| self.check(child, depth + 1))
    }

    /// Checks the text between the children of a node.
    fn check_gaps(&self, node: Node<'_>) -> Option<&'static str> {
        let mut at = node.start_byte();
        let mut cursor = node.walk();
        let mut previous: Option<Node<'_>> = None;
        for child in node.children(&mut cursor) {
            let Some(gap) = self.source.get(at..child.start_byte()) else {
                return Some("its syntax is not supported");
            };
            if !self.is_valid_gap(node, previous, child, gap) {
                return Some("its syntax is not supported");
            }
            at = child.end_byte();
            previous = Some(child);
        }
        let rest = self.source.get(at..node.end_byte()).unwrap_or("?");
        let is_valid = match node.kind() {
            "heredoc_body" | "string" => is_inert(rest),
            _ => is_blank(rest),
        };
        (!is_valid).then_some("its syntax is not supported")
    }

    fn is_valid_gap(&self, parent: Node<'_>, previous: Option<Node<'_>>, next: Node<'_>, gap: &str) -> bool {
        match parent.kind() {
            // The parser skips blanks in quoted text.
            "string" | "heredoc_body" => return is_inert(gap),
            // The parts of one word.
            "concatenation"
            | "simple_expansion"
            | "variable_assignment"
            | "translated_string"
            | "brace_expression" => return gap.is_empty(),
            "file_redirect" if previous.is_some_and(|node| node.kind() == "file_descriptor") => {
                return gap.is_empty();
            }
            _ => {}
        }
        if !is_blank(gap) || !self.is_valid_continuation(parent, next) {
            return false;
        }
        if contains_newline(gap) && !allows_newline(parent.kind(), next.kind()) {
            return false;
        }
        // Two words without a blank between them are one word for bash.
        let are_words = previous.is_some_and(|previous| is_word(previous.kind())) && is_word(next.kind());
        !are_words || !gap.is_empty()
    }

    /// A line continuation before a token must follow a blank. Otherwise bash joins two words.
    fn is_valid_continuation(&self, parent: Node<'_>, next: Node<'_>) -> bool {
        let gap_start = next.prev_sibling().map_or(parent.start_byte(), |previous| previous.end_byte());
        let Some(gap) = self.source.get(gap_start..next.start_byte()) else { return false };
        let mut previous = 'x';
        for letter in gap.chars() {
            if letter == '\\' && !matches!(previous, ' ' | '\t' | '\n') {
                return false;
            }
            previous = letter;
        }
        true
    }

    fn check_leaf(&self, node: Node<'_>) -> Option<&'static str> {
        let text = self.text(node);
        let is_valid = match node.kind() {
            "word" | "variable_name" | "number" | "file_descriptor" | "extglob_pattern" | "test_operator" => {
                is_plain_word(text)
            }
            "comment" => text.starts_with('#') && !text.contains('\n') && self.starts_word(node),
            "string_content" => is_inert(text),
            "raw_string" => text.len() >= 2 && text.starts_with('\'') && text.matches('\'').count() == 2,
            // Bash reads escapes in them, so that a quote can be part of the text.
            "ansi_c_string" => !text.contains('\\') && text.matches('\'').count() == 2,
            "heredoc_start" => is_delimiter(text),
            // Checked with the whole here-document.
            "heredoc_body" | "heredoc_content" | "heredoc_end" => true,
            "special_variable_name" => text.chars().count() == 1,
            "regex" => !text.contains(['$', '`', '\n', ';', '&', '<', '>', '\'', '"', ' ', '\\']),
            _ => !node.is_named() || text.is_empty(),
        };
        (!is_valid).then_some("it contains a word that is not supported")
    }

    /// Whether a token is at the start of a word.
    fn starts_word(&self, node: Node<'_>) -> bool {
        let before = self.source.get(..node.start_byte()).unwrap_or_default();
        before.chars().next_back().is_none_or(|letter| matches!(letter, ' ' | '\t' | '\n' | ';' | '&' | '|'))
    }

    /// Escapes inside of backquotes have an own meaning.
    fn check_backquotes(&self, node: Node<'_>) -> Option<&'static str> {
        let text = self.text(node);
        (text.starts_with('`') && text.contains('\\')).then_some("it has escapes inside of backquotes")
    }

    fn check_variable(&self, node: Node<'_>) -> Option<&'static str> {
        let name = self.text(node).strip_prefix('$').unwrap_or_default();
        let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let is_special = matches!(name, "@" | "*" | "#" | "?" | "$" | "!" | "-");
        let is_valid = !name.is_empty() && (is_name || is_special);
        (!is_valid).then_some("it contains a variable that is not supported")
    }

    /// Checks that bash ends the here-document at the same line, and replaces nothing else in it.
    fn check_here_document(&self, node: Node<'_>) -> Option<&'static str> {
        const PROBLEM: Option<&str> = Some("its here-document is not supported");
        let mut cursor = node.walk();
        let (mut start, mut body, mut end) = (None, None, None);
        for child in node.children(&mut cursor) {
            let place = match child.kind() {
                "heredoc_start" => &mut start,
                "heredoc_body" => &mut body,
                "heredoc_end" => &mut end,
                _ => continue,
            };
            if place.replace(child).is_some() {
                return PROBLEM;
            }
        }
        let (Some(start), Some(end)) = (start, end) else { return PROBLEM };
        let written = self.text(start);
        let delimiter = written.replace(['\'', '"', '\\'], "");
        if self.text(end).trim_matches(['\t', '\n']) != delimiter {
            return PROBLEM;
        }
        let first = body.map_or(end.start_byte(), |body| body.start_byte());
        // The text before the body's first token belongs to the body, too.
        let Some(line_end) = self.source.get(..first).and_then(|text| text.rfind('\n')) else {
            return PROBLEM;
        };
        let Some(text) = self.source.get(line_end..end.start_byte()) else { return PROBLEM };
        let ends_early = text.lines().any(|line| line.trim_start_matches('\t') == delimiter);
        let after = self.source.get(end.end_byte()..).unwrap_or("?");
        let ends_line = after.is_empty() || after.starts_with('\n');
        if ends_early || !ends_line || self.has_other_text(node, body) {
            return PROBLEM;
        }
        let is_quoted = written != delimiter;
        let is_literal = body.is_none_or(|body| body.child_count() == 0);
        match (is_quoted, is_literal) {
            (true, true) => None,
            (true, false) => PROBLEM,
            (false, true) => {
                if is_inert(text) {
                    None
                } else {
                    PROBLEM
                }
            }
            (false, false) => body.and_then(|body| self.check_expanded_body(body, line_end)),
        }
    }

    /// Whether a here-document's line contains tokens after the here-document.
    fn has_other_text(&self, node: Node<'_>, body: Option<Node<'_>>) -> bool {
        let mut cursor = node.walk();
        let Some(body) = body else { return false };
        node.children(&mut cursor).any(|child| {
            child.kind() != "heredoc_end"
                && child.kind() != "heredoc_body"
                && child.start_byte() >= body.end_byte()
        })
    }

    /// Checks the text between the substitutions of a here-document.
    fn check_expanded_body(&self, body: Node<'_>, start: usize) -> Option<&'static str> {
        let mut at = start;
        let mut cursor = body.walk();
        for child in body.children(&mut cursor) {
            let until = if child.kind() == "heredoc_content" { child.end_byte() } else { child.start_byte() };
            if !self.source.get(at..until).is_some_and(is_inert) {
                return Some("its here-document is not supported");
            }
            at = child.end_byte();
        }
        None
    }
}

/// Whether the text separates tokens: blanks, newlines and line continuations.
fn is_blank(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_blank = match letter {
            ' ' | '\t' | '\n' => true,
            '\\' => letters.next() == Some('\n'),
            _ => false,
        };
        if !is_blank {
            return false;
        }
    }
    true
}

/// Whether blank text contains a newline that is not part of a line continuation.
fn contains_newline(gap: &str) -> bool {
    gap.replace("\\\n", "").contains('\n')
}

/// Whether bash continues a construct after a newline. The parser skips a newline before any token, so
/// that it reads the command after `ls >` and a newline as the target of the redirection.
fn allows_newline(parent: &str, next: &str) -> bool {
    match parent {
        "program"
        | "list"
        | "pipeline"
        | "subshell"
        | "compound_statement"
        | "if_statement"
        | "elif_clause"
        | "else_clause"
        | "while_statement"
        | "do_group"
        | "command_substitution"
        | "process_substitution" => true,
        // The words of these constructs, for example the values of a loop, stay on one line.
        "for_statement" | "case_statement" | "case_item" | "function_definition" => {
            next == "variable_assignment" || !is_word(next)
        }
        "heredoc_redirect" => matches!(next, "heredoc_body" | "heredoc_end"),
        _ => false,
    }
}

/// Whether bash replaces nothing in this text inside of double quotes.
fn is_inert(text: &str) -> bool {
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            '`' => return false,
            '$' => {
                let starts = |next: &char| {
                    next.is_ascii_alphanumeric()
                        || matches!(
                            next,
                            '_' | '{' | '(' | '[' | '@' | '*' | '#' | '?' | '$' | '!' | '-' | '\'' | '"'
                        )
                };
                if letters.peek().is_some_and(starts) {
                    return false;
                }
            }
            _ => {}
        }
    }
    true
}

/// Whether an unquoted word has no character that bash gives another meaning.
fn is_plain_word(text: &str) -> bool {
    if text.starts_with('#') {
        return false;
    }
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                None | Some('\n') => return false,
                Some(_) => {}
            },
            '\'' | '"' | '`' | '$' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => return false,
            letter if letter.is_whitespace() || is_invisible(letter) => return false,
            _ => {}
        }
    }
    true
}

/// Characters that look like a blank or like nothing.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{3164}' | '\u{feff}')
}

/// Whether the delimiter of a here-document is a plain word, possibly quoted as a whole.
fn is_delimiter(text: &str) -> bool {
    let inner = ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .or_else(|| text.strip_prefix('\\'))
        .unwrap_or(text);
    !inner.is_empty()
        && inner.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.'))
}

/// Whether a node of this kind is a word or a part of one.
pub(super) fn is_word(kind: &str) -> bool {
    matches!(
        kind,
        "word"
            | "number"
            | "string"
            | "raw_string"
            | "ansi_c_string"
            | "translated_string"
            | "concatenation"
            | "simple_expansion"
            | "expansion"
            | "command_substitution"
            | "process_substitution"
            | "arithmetic_expansion"
            | "brace_expression"
            | "command_name"
            | "variable_assignment"
            | "$"
    )
}
