//! Specifiers of rules for shell commands: `npm test:*`, `git diff`, `npm run *`.

use super::shell::{ShellLine, ShellWord, Splitting, SubCommand, UNKNOWN, matches_wildcards};

/// Longest text for which two patterns are compared with each other; longer ones may match.
const MAX_COMPARED: usize = 4 * 1_024;

/// Whether a rule matches a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternMatch {
    No,
    /// Depends on text that is only known when the line runs.
    Maybe,
    Yes,
}

/// A compiled specifier.
#[derive(Clone, Debug)]
pub(super) enum CommandPattern {
    /// The command with exactly these arguments.
    Exact { words: Vec<String>, text: String },
    /// The command and the arguments at the start.
    Prefix { words: Vec<String>, text: String },
    /// The text of the command, with `*` for any text.
    Wildcard(Vec<char>),
}

impl CommandPattern {
    /// Compiles a specifier; `None` if it matches every command.
    pub(super) fn parse(specifier: &str) -> Option<Self> {
        let text = specifier.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().all(|letter| letter == '*') || text == ":*" {
            return None;
        }
        if let Some(prefix) = text.strip_suffix(":*") {
            let prefix = prefix.trim_end();
            if !prefix.contains('*') {
                return Some(Self::Prefix { words: words_of(prefix), text: prefix.to_owned() });
            }
            return Some(Self::Wildcard(format!("{prefix} *").chars().collect()));
        }
        if text.contains('*') {
            return Some(Self::Wildcard(text.chars().collect()));
        }
        Some(Self::Exact { words: words_of(&text), text })
    }

    /// Whether the specifier names one command with all its arguments.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Self::Exact { .. })
    }

    /// Whether a rule that allows matches a command: only if it is certain.
    pub(super) fn allows(&self, command: &CommandForms) -> bool {
        match self {
            Self::Exact { text, .. } if *text == command.display => true,
            Self::Exact { .. } | Self::Prefix { .. } | Self::Wildcard(_) => {
                self.matches_words(&command.words, command.has_more, &command.text) == PatternMatch::Yes
            }
        }
    }

    /// Whether a rule that restricts matches a command in any of its forms.
    pub(super) fn restricts(&self, command: &CommandForms) -> PatternMatch {
        let mut found = self.matches_words(&command.words, command.has_more, &command.text);
        for (words, text) in &command.alternatives {
            found = found.max(self.matches_words(words, command.has_more, text));
        }
        found
    }

    /// Whether a rule that restricts matches the text of the whole line.
    pub(super) fn restricts_line(&self, line: &[char]) -> bool {
        match self {
            Self::Exact { text: wanted, .. } => line.iter().copied().eq(wanted.chars()),
            Self::Prefix { text: wanted, .. } => {
                let mut rest = line.iter();
                wanted.chars().all(|letter| rest.next() == Some(&letter))
                    && rest.next().is_none_or(|next| *next == ' ')
            }
            Self::Wildcard(pattern) => matches_text(pattern, line) == PatternMatch::Yes,
        }
    }

    fn matches_words(&self, words: &[ShellWord], has_more: bool, text: &[char]) -> PatternMatch {
        match self {
            Self::Exact { words: wanted, .. } => {
                let found = starts_with(words, wanted, has_more);
                let has_open_end = has_more || words.iter().any(|word| word.splitting != Splitting::One);
                match words.len().cmp(&wanted.len()) {
                    std::cmp::Ordering::Equal => found,
                    _ if has_open_end => found.min(PatternMatch::Maybe),
                    std::cmp::Ordering::Less | std::cmp::Ordering::Greater => PatternMatch::No,
                }
            }
            Self::Prefix { words: wanted, .. } => starts_with(words, wanted, has_more),
            Self::Wildcard(pattern) => matches_text(pattern, text),
        }
    }
}

/// A whole line as rules compare it: with one blank between words.
pub(super) fn line_text(line: &ShellLine) -> Vec<char> {
    line.text().split_whitespace().collect::<Vec<_>>().join(" ").chars().collect()
}

/// A command in the forms that rules are compared with.
#[derive(Debug)]
pub(super) struct CommandForms {
    words: Vec<ShellWord>,
    has_more: bool,
    /// The words as one text, with unknown parts.
    text: Vec<char>,
    /// The words as in the line, quoted only if necessary.
    pub(super) display: String,
    /// Other forms of the same command, for rules that restrict.
    alternatives: Vec<(Vec<ShellWord>, Vec<char>)>,
}

impl CommandForms {
    pub(super) fn of(command: &SubCommand) -> Self {
        let text = text_of(&command.words, command.has_more);
        let mut alternatives: Vec<Vec<ShellWord>> = Vec::new();
        for words in [Some(&command.words), command.without_globals.as_ref()].into_iter().flatten() {
            alternatives.extend(without_directory(words));
            alternatives.push(words.clone());
        }
        alternatives.retain(|words| *words != command.words);
        let alternatives = alternatives
            .into_iter()
            .map(|words| {
                let text = text_of(&words, command.has_more);
                (words, text)
            })
            .collect();
        Self {
            words: command.words.clone(),
            has_more: command.has_more,
            text,
            display: command.display(),
            alternatives,
        }
    }

    /// The forms of all commands of a line.
    pub(super) fn of_line(line: &ShellLine) -> Vec<Self> {
        line.commands.iter().map(Self::of).collect()
    }
}

/// The same command named without its directory, in lower case: some file systems ignore case.
fn without_directory(words: &[ShellWord]) -> Option<Vec<ShellWord>> {
    let (first, rest) = words.split_first()?;
    let name = first.literal()?.rsplit('/').next()?.to_lowercase();
    Some(std::iter::once(ShellWord::of_text(&name)).chain(rest.iter().cloned()).collect())
}

fn text_of(words: &[ShellWord], has_more: bool) -> Vec<char> {
    let mut text = Vec::new();
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        match word.literal() {
            Some(_) => text.extend(word.display().chars()),
            None if word.splitting == Splitting::Any => text.push(UNKNOWN),
            None => text.extend(word.text.chars()),
        }
    }
    if has_more {
        text.extend([' ', UNKNOWN]);
    }
    text
}

/// Whether the words of a command start with the words of a rule.
fn starts_with(words: &[ShellWord], wanted: &[String], has_more: bool) -> PatternMatch {
    let mut found = PatternMatch::Yes;
    let mut words = words.iter();
    for wanted in wanted {
        let Some(word) = words.next() else {
            return if has_more { PatternMatch::Maybe } else { PatternMatch::No };
        };
        if word.literal() == Some(wanted) {
            continue;
        }
        match word.splitting {
            _ if !word.may_be(wanted) => return PatternMatch::No,
            Splitting::One => found = PatternMatch::Maybe,
            Splitting::Several | Splitting::Any => return PatternMatch::Maybe,
        }
    }
    found
}

/// Whether a pattern matches a text with unknown parts. ` *` at the end also matches nothing.
fn matches_text(pattern: &[char], text: &[char]) -> PatternMatch {
    let without_end = pattern.strip_suffix(&[' ', '*']);
    let known_matches = |pattern: &[char]| matches_wildcards(pattern, text, '*');
    if known_matches(pattern) || without_end.is_some_and(known_matches) {
        return PatternMatch::Yes;
    }
    if !text.contains(&UNKNOWN) {
        return PatternMatch::No;
    }
    let fixed =
        |letters: &[char], star| letters.iter().position(|letter| *letter == star).unwrap_or(letters.len());
    let common = fixed(pattern, '*').min(fixed(text, UNKNOWN));
    if pattern.get(..common) != text.get(..common) {
        return PatternMatch::No;
    }
    let can_match = pattern.len() > MAX_COMPARED
        || text.len() > MAX_COMPARED
        || intersect(pattern, text)
        || without_end.is_some_and(|pattern| intersect(pattern, text));
    if can_match { PatternMatch::Maybe } else { PatternMatch::No }
}

/// Whether a text exists that matches both patterns: `*` in the first and [`UNKNOWN`] in the second stand
/// for any text.
fn intersect(pattern: &[char], text: &[char]) -> bool {
    // reached[n]: the part of the pattern so far can match the first n letters of the text.
    let mut reached = vec![false; text.len() + 1];
    let close = |reached: &mut Vec<bool>| {
        // An unknown part can be empty.
        let mut carry = false;
        for (at, place) in reached.iter_mut().enumerate() {
            carry = *place || (carry && at > 0 && text.get(at - 1) == Some(&UNKNOWN));
            *place = carry;
        }
    };
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    close(&mut reached);
    for wanted in pattern {
        let mut next = vec![false; text.len() + 1];
        let mut any = false;
        for (at, now) in reached.iter().enumerate() {
            any |= *now;
            if *wanted == '*' {
                if let Some(place) = next.get_mut(at) {
                    *place = any;
                }
                continue;
            }
            if !*now {
                continue;
            }
            match text.get(at) {
                // The unknown part contains the letter and can go on.
                Some(letter) if *letter == UNKNOWN => {
                    if let Some(place) = next.get_mut(at) {
                        *place = true;
                    }
                }
                Some(letter) if letter == wanted => {
                    if let Some(place) = next.get_mut(at + 1) {
                        *place = true;
                    }
                }
                Some(_) | None => {}
            }
        }
        close(&mut next);
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

/// Splits a rule's text into words, with the shell's quotes.
fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (' ' | '\t', None) => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(open)) if letter == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(letters.next()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
