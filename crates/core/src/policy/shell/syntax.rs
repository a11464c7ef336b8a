//! Reads the parser's tree: which commands a line contains, with their words and redirections.
//!
//! A node of an unknown kind makes the line not understood; its children are read all the same, so
//! that deny rules see as many commands as possible.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser};

use super::audit::{self, MAX_DEPTH};
use super::builder::{LineBuilder, MAX_NESTING};
use super::word::{ShellWord, Splitting, UNKNOWN};
use super::{PathAccess, SubCommand};

/// Most characters with a meaning for the shell. The parser's time for a line with errors grows with the
/// square of their number, and the parser cannot be stopped at any time.
const MAX_SPECIAL: usize = 1_500;

/// Calls of the parser's progress function, one per 100 operations, after which an error stops it. Shorter
/// lines are parsed completely, so that deny rules see the commands of an invalid line.
const PATIENCE: usize = 8;

/// Reads a script and adds its commands to a line.
pub(super) fn read_script(source: &str, nesting: usize, line: &mut LineBuilder) {
    if nesting > MAX_NESTING {
        return line.not_understood("it is nested too deeply");
    }
    let mut parser = Parser::new();
    if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
        return line.not_understood("the parser is not available");
    }
    let is_plain = |letter: &u8| letter.is_ascii_alphanumeric() || b" \n\t_-./,:".contains(letter);
    if source.bytes().filter(|letter| !is_plain(letter) && letter.is_ascii()).count() > MAX_SPECIAL {
        return line.not_understood("it is too long");
    }
    let mut progress = 0;
    let mut limit = |state: &ParseState| {
        progress += 1;
        let is_hopeless = progress > PATIENCE && state.has_error();
        if is_hopeless { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let bytes = source.as_bytes();
    let options = ParseOptions::new().progress_callback(&mut limit);
    let tree =
        parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options));
    let Some(tree) = tree else { return line.not_understood("its syntax is not valid") };
    if let Some(problem) = audit::problem_of(tree.root_node(), source) {
        line.not_understood(problem);
    }
    TreeReader { source, nesting, line }.statement(tree.root_node(), 0);
}

struct TreeReader<'a> {
    source: &'a str,
    /// How many scripts contain this one.
    nesting: usize,
    line: &'a mut LineBuilder,
}

impl<'a> TreeReader<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    fn children<'t>(node: Node<'t>) -> Vec<Node<'t>> {
        let mut cursor = node.walk();
        node.children(&mut cursor).collect()
    }

    /// Reads a statement, or a part of one that contains statements.
    fn statement(&mut self, node: Node<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            return self.line.not_understood("it is nested too deeply");
        }
        match node.kind() {
            "command" => self.command(node, depth),
            "declaration_command" | "unset_command" => self.declaration(node, depth),
            "test_command" => self.test(node, depth),
            "variable_assignment" => {
                let name = self.assignment(node, depth);
                self.line.assignment(name);
            }
            "file_redirect" => self.redirection(node, depth),
            "herestring_redirect" | "heredoc_redirect" | "heredoc_body" => self.parts(node, depth),
            "for_statement" | "while_statement" | "c_style_for_statement" => {
                self.line.repeats += 1;
                self.parts(node, depth);
                self.line.repeats -= 1;
            }
            "function_definition" => {
                self.line.not_by_rule("it defines a function");
                self.line.repeats += 1;
                self.parts(node, depth);
                self.line.repeats -= 1;
            }
            "compound_statement" if self.text(node).starts_with("((") => self.arithmetic(node, depth),
            "program"
            | "list"
            | "pipeline"
            | "subshell"
            | "compound_statement"
            | "if_statement"
            | "elif_clause"
            | "else_clause"
            | "do_group"
            | "case_statement"
            | "case_item"
            | "negated_command"
            | "redirected_statement"
            | "variable_assignments" => self.parts(node, depth),
            kind if audit::is_word(kind) => {
                self.word(node, depth);
            }
            "comment" | "heredoc_start" | "heredoc_content" | "heredoc_end" | "extglob_pattern" => {}
            // The variable of a loop.
            "variable_name" => {
                let name = self.text(node);
                self.line.assignment(name);
            }
            _ if !node.is_named() => {}
            _ => {
                self.line.not_understood("its syntax is not supported");
                self.parts(node, depth);
            }
        }
    }

    fn parts(&mut self, node: Node<'_>, depth: usize) {
        for child in Self::children(node) {
            self.statement(child, depth + 1);
        }
    }

    fn command(&mut self, node: Node<'_>, depth: usize) {
        let mut words = Vec::new();
        for child in Self::children(node) {
            match child.kind() {
                "variable_assignment" => {
                    let name = self.assignment(child, depth + 1);
                    self.line.assignment_for_command(name);
                }
                "command_name" => {
                    for part in Self::children(child) {
                        words.push(self.word(part, depth + 2));
                    }
                }
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {
                    self.statement(child, depth + 1);
                }
                kind if audit::is_word(kind) && child.is_named() => words.push(self.word(child, depth + 1)),
                _ => {
                    self.line.not_understood("its syntax is not supported");
                    self.statement(child, depth + 1);
                }
            }
        }
        if !words.is_empty() {
            self.line.command(SubCommand { words, ..SubCommand::default() }, self.nesting);
        }
    }

    /// `export`, `declare` and similar, and `unset`.
    fn declaration(&mut self, node: Node<'_>, depth: usize) {
        let mut words = Vec::new();
        for child in Self::children(node) {
            match child.kind() {
                "variable_assignment" => {
                    let name = self.assignment(child, depth + 1);
                    self.line.assignment(name);
                    words.push(ShellWord::of_text(name));
                }
                kind if audit::is_word(kind) && child.is_named() => words.push(self.word(child, depth + 1)),
                _ => words.push(ShellWord::of_text(self.text(child))),
            }
        }
        self.line.command(SubCommand { words, ..SubCommand::default() }, self.nesting);
    }

    /// `[ … ]` and `[[ … ]]`. Some operators evaluate their operands as arithmetic, which can run commands.
    fn test(&mut self, node: Node<'_>, depth: usize) {
        let text = self.text(node);
        let is_extended = text.starts_with("[[");
        const EVALUATING: [&str; 8] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"];
        let evaluates = text.split_whitespace().any(|word| EVALUATING.contains(&word));
        if evaluates && is_extended || text.starts_with("((") {
            self.line.not_by_rule("it evaluates arithmetic, which can run commands");
        }
        let mut words = vec![ShellWord::of_text("[")];
        self.test_parts(node, depth, &mut words);
        if !is_extended {
            // The builtin evaluates the index in the name of a variable.
            return self.line.command(SubCommand { words, ..SubCommand::default() }, self.nesting);
        }
        let words = vec![ShellWord { source: "[[".to_owned(), ..ShellWord::of_text("test") }];
        self.line.command(SubCommand { words, ..SubCommand::default() }, self.nesting);
    }

    fn test_parts(&mut self, node: Node<'_>, depth: usize, words: &mut Vec<ShellWord>) {
        if depth > MAX_DEPTH {
            return self.line.not_understood("it is nested too deeply");
        }
        for child in Self::children(node) {
            match child.kind() {
                kind if audit::is_word(kind) && child.is_named() => words.push(self.word(child, depth + 1)),
                "unary_expression" | "binary_expression" | "parenthesized_expression" => {
                    self.test_parts(child, depth + 1, words);
                }
                "test_operator" => words.push(ShellWord::of_text(self.text(child))),
                "extglob_pattern" | "regex" => words.push(ShellWord::unknown(self.text(child))),
                _ if !child.is_named() => {}
                _ => {
                    self.line.not_understood("its syntax is not supported");
                    self.statement(child, depth + 1);
                }
            }
        }
    }

    /// Arithmetic evaluates the values of variables again, and an index in a value can run commands.
    fn arithmetic(&mut self, node: Node<'_>, depth: usize) {
        let text = self.text(node).trim_start_matches('$');
        if text.chars().any(|letter| letter.is_alphabetic() || matches!(letter, '$' | '`' | '_' | '\\')) {
            self.line.not_by_rule("it evaluates arithmetic, which can run commands");
        }
        self.substitutions(node, depth);
    }

    /// Reads only the substitutions in a node.
    fn substitutions(&mut self, node: Node<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            return self.line.not_understood("it is nested too deeply");
        }
        for child in Self::children(node) {
            match child.kind() {
                "command_substitution" | "process_substitution" => self.parts(child, depth + 1),
                _ => self.substitutions(child, depth + 1),
            }
        }
    }

    /// Reads the value of an assignment. Returns the name.
    fn assignment(&mut self, node: Node<'_>, depth: usize) -> &'a str {
        let mut name = "";
        for child in Self::children(node) {
            match child.kind() {
                "variable_name" => name = self.text(child),
                "subscript" => self.line.not_by_rule("it evaluates an index, which can run commands"),
                "array" => self.parts(child, depth + 1),
                kind if audit::is_word(kind) => {
                    self.word(child, depth + 1);
                }
                _ => {}
            }
        }
        name
    }

    fn redirection(&mut self, node: Node<'_>, depth: usize) {
        let mut operator = "";
        let mut targets = Vec::new();
        for child in Self::children(node) {
            match child.kind() {
                "file_descriptor" => {}
                kind if audit::is_word(kind) && child.is_named() => targets.push(self.word(child, depth + 1)),
                _ if !child.is_named() => operator = self.text(child),
                _ => self.line.not_understood("a redirection is not supported"),
            }
        }
        let is_descriptor = |word: &ShellWord| {
            word.literal()
                .is_some_and(|text| text == "-" || text.chars().all(|letter| letter.is_ascii_digit()))
        };
        match (operator, targets.as_slice()) {
            (">&-" | "<&-", []) => {}
            (">&" | "<&", [target]) if is_descriptor(target) => {}
            ("<", [target]) => self.line.redirection(target, PathAccess::Read),
            (">" | ">>" | ">|" | "&>" | "&>>" | ">&", [target]) => {
                self.line.redirection(target, PathAccess::Write);
            }
            // The parser takes the words after the target as further targets; for bash they are arguments.
            _ => self.line.not_understood("a redirection is not supported"),
        }
    }

    /// Reads a word, and the commands of its substitutions.
    fn word(&mut self, node: Node<'_>, depth: usize) -> ShellWord {
        let mut draft = WordDraft::default();
        self.word_part(node, depth, false, &mut draft);
        draft.finish(self.text(node))
    }

    fn word_part(&mut self, node: Node<'_>, depth: usize, is_quoted: bool, draft: &mut WordDraft) {
        if depth > MAX_DEPTH {
            return self.line.not_understood("it is nested too deeply");
        }
        let text = self.text(node);
        let variable = if is_quoted { Splitting::One } else { Splitting::Any };
        match node.kind() {
            "word" | "number" => draft.unquoted(text),
            "raw_string" => draft.quoted(text.trim_matches('\'')),
            "ansi_c_string" if !text.contains('\\') => {
                draft.quoted(text.trim_start_matches('$').trim_matches('\''));
            }
            "ansi_c_string" => draft.unknown(Splitting::One),
            "string" => self.string(node, depth, draft),
            "concatenation" | "translated_string" => {
                for child in Self::children(node).into_iter().filter(Node::is_named) {
                    self.word_part(child, depth + 1, is_quoted, draft);
                }
            }
            // Inside of quotes, only these become several words.
            "simple_expansion" => draft.unknown(if text == "$@" { Splitting::Any } else { variable }),
            "expansion" => {
                self.expansion(node, depth);
                draft.unknown(if text.contains('@') { Splitting::Any } else { variable });
            }
            "command_substitution" => {
                self.parts(node, depth + 1);
                draft.unknown(variable);
            }
            "process_substitution" => {
                self.parts(node, depth + 1);
                draft.unknown(Splitting::One);
            }
            "arithmetic_expansion" => {
                self.arithmetic(node, depth + 1);
                draft.unknown(Splitting::One);
            }
            "brace_expression" => draft.unknown(Splitting::Any),
            _ => {
                self.line.not_understood("it contains a word that is not supported");
                draft.unknown(Splitting::Any);
                self.parts(node, depth + 1);
            }
        }
    }

    /// Reads a text in double quotes. The parser leaves blanks at the ends of its parts out.
    fn string(&mut self, node: Node<'_>, depth: usize, draft: &mut WordDraft) {
        draft.quoted("");
        let mut at = node.start_byte() + 1;
        for child in Self::children(node) {
            if !child.is_named() {
                continue;
            }
            draft.double_quoted(self.source.get(at..child.start_byte()).unwrap_or_default());
            if child.kind() == "string_content" {
                draft.double_quoted(self.text(child));
            } else {
                self.word_part(child, depth + 1, true, draft);
            }
            at = child.end_byte();
        }
        draft.double_quoted(self.source.get(at..node.end_byte().saturating_sub(1)).unwrap_or_default());
    }

    /// `${…}`. Forms that evaluate a value again can run commands.
    fn expansion(&mut self, node: Node<'_>, depth: usize) {
        let text = self.text(node);
        let inner = text.strip_prefix("${").and_then(|text| text.strip_suffix('}')).unwrap_or("!");
        let after_name =
            inner.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        let is_plain = after_name.is_empty() || inner == "#" || inner == "@" || inner == "*" || inner == "?";
        let is_length = inner
            .strip_prefix('#')
            .is_some_and(|name| name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'));
        let is_default =
            [":-", ":+", "-", "+", "#", "%"].iter().any(|operator| after_name.starts_with(operator))
                && !after_name.contains(['$', '`', '\\', '"', '\'', '(', ')', '{', '}', '<', '>']);
        if !is_plain && !is_length && !is_default {
            self.line.not_by_rule("it evaluates a variable in a form that is not supported");
        }
        // Nested substitutions may be hidden in parts that the parser does not read.
        if after_name.contains(['`', '\\', '\'', '"']) || after_name.contains("$(") || inner.starts_with('!')
        {
            self.line.not_understood("it evaluates a variable in a form that is not supported");
        }
        self.substitutions(node, depth);
    }
}

/// A word while its parts are read.
#[derive(Default)]
struct WordDraft {
    word: ShellWord,
    /// The unquoted text; quoted text is left out.
    unquoted: String,
}

impl WordDraft {
    fn unknown(&mut self, splitting: Splitting) {
        self.word.text.push(UNKNOWN);
        self.word.splitting = self.word.splitting.max(splitting);
        self.unquoted.push(UNKNOWN);
    }

    fn quoted(&mut self, text: &str) {
        self.word.text.push_str(text);
        self.unquoted.push(UNKNOWN);
    }

    /// Text in double quotes, in which a backslash only escapes some characters.
    fn double_quoted(&mut self, text: &str) {
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match (letter, letters.peek()) {
                ('\\', Some('\n')) => {
                    letters.next();
                }
                ('\\', Some(next @ ('$' | '`' | '"' | '\\'))) => {
                    self.word.text.push(*next);
                    letters.next();
                }
                _ => self.word.text.push(letter),
            }
        }
    }

    fn unquoted(&mut self, text: &str) {
        let is_first = self.word.text.is_empty() && self.unquoted.is_empty();
        if is_first && text.starts_with('~') {
            self.word.has_tilde = true;
        }
        let is_bracket = text == "[" || text == "]";
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => {
                    self.word.text.extend(letters.next());
                    self.unquoted.push(UNKNOWN);
                }
                '*' | '?' => self.glob(),
                '[' if !(is_bracket && is_first) => self.glob(),
                _ => {
                    self.word.text.push(letter);
                    self.unquoted.push(letter);
                }
            }
        }
    }

    fn glob(&mut self) {
        self.word.text.push(UNKNOWN);
        self.word.splitting = self.word.splitting.max(Splitting::Several);
        self.unquoted.push(UNKNOWN);
    }

    fn finish(mut self, source: &str) -> ShellWord {
        if is_brace_expansion(&self.unquoted) {
            self.word.text = UNKNOWN.to_string();
            self.word.splitting = Splitting::Any;
        }
        // The text after an opening bracket is a set of characters, of which one is matched.
        if self.word.splitting == Splitting::Several && self.word.text.contains(']') {
            self.word.text = UNKNOWN.to_string();
        }
        if self.word.has_tilde {
            let rest = self.unquoted.strip_prefix('~').unwrap_or("?");
            // Another user's home directory is not known, and a quote ends the user's name.
            if !rest.is_empty() && !rest.starts_with('/') {
                self.word.text = UNKNOWN.to_string();
                self.word.has_tilde = false;
            }
        }
        self.word.source = source.to_owned();
        self.word
    }
}

/// Whether bash expands braces in an unquoted text: `{a,b}` or `{1..3}`.
fn is_brace_expansion(text: &str) -> bool {
    let Some((_, rest)) = text.split_once('{') else { return false };
    let Some((inner, _)) = rest.rsplit_once('}') else { return false };
    inner.contains(',') || inner.contains("..") || inner.contains(UNKNOWN)
}
