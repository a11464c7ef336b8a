//! One word of a command, without its quotes.

/// Stands for text that is only known when the line runs. A line with a NUL byte is not understood.
pub(in crate::policy) const UNKNOWN: char = '\0';

/// Whether a word can become several words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::policy) enum Splitting {
    /// Always exactly one word.
    #[default]
    One,
    /// One or more words, each of which matches the word's text.
    Several,
    /// Any number of words with any text.
    Any,
}

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct ShellWord {
    /// The text without quotes; [`UNKNOWN`] replaces each unknown part.
    pub(in crate::policy) text: String,
    pub(in crate::policy) splitting: Splitting,
    /// Whether the word starts with a `~` that the shell replaces.
    pub(in crate::policy) has_tilde: bool,
    /// The word as in the line.
    pub(in crate::policy) source: String,
}

impl ShellWord {
    /// A word without any special meaning.
    pub(in crate::policy) fn of_text(text: &str) -> Self {
        Self { text: text.to_owned(), source: quoted(text), ..Self::default() }
    }

    /// A word of which nothing is known.
    pub(in crate::policy) fn unknown(source: &str) -> Self {
        Self { text: UNKNOWN.to_string(), source: source.to_owned(), ..Self::default() }
    }

    /// The text if it is completely known.
    pub(in crate::policy) fn literal(&self) -> Option<&str> {
        (self.splitting == Splitting::One && !self.text.contains(UNKNOWN)).then_some(self.text.as_str())
    }

    /// Whether the word can be equal to a text when the line runs.
    pub(in crate::policy) fn may_be(&self, text: &str) -> bool {
        self.splitting == Splitting::Any || may_equal(&self.text, text)
    }

    /// The word in a form that a rule can contain: quoted only if necessary.
    pub(in crate::policy) fn display(&self) -> String {
        match self.literal() {
            Some(text) if !self.has_tilde => quoted(text),
            Some(_) | None => self.source.clone(),
        }
    }

    /// The word as a path for the resolver, which replaces a leading `~`; `None` if it is not known.
    pub(super) fn path(&self) -> Option<String> {
        let text = self.literal()?;
        Some(if text.starts_with('~') && !self.has_tilde { format!("./{text}") } else { text.to_owned() })
    }
}

/// Quotes a text for the shell if necessary.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| {
        letter.is_alphanumeric()
            || matches!(letter, '-' | '_' | '.' | '/' | ':' | ',' | '=' | '@' | '+' | '%' | '^' | '{' | '}')
    };
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whether a text with unknown parts can be equal to a known text. Takes at most the product of both
/// lengths.
pub(in crate::policy) fn may_equal(text: &str, wanted: &str) -> bool {
    let (text, wanted): (Vec<char>, Vec<char>) = (text.chars().collect(), wanted.chars().collect());
    matches_wildcards(&text, &wanted, UNKNOWN)
}

/// Whether a pattern, in which one letter stands for any text, matches a text.
pub(in crate::policy) fn matches_wildcards(pattern: &[char], text: &[char], star: char) -> bool {
    let (mut at, mut reading) = (0, 0);
    // The position of the last star, and the end of the text that it matches so far.
    let mut last: Option<(usize, usize)> = None;
    while let Some(letter) = text.get(reading) {
        match pattern.get(at) {
            Some(wanted) if *wanted == star => {
                last = Some((at, reading));
                at += 1;
            }
            Some(wanted) if wanted == letter => {
                at += 1;
                reading += 1;
            }
            Some(_) | None => match &mut last {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, reading) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == star)
}
