//! Path patterns of rules, with the syntax of `.gitignore`.
//!
//! Invariant: matching takes at most the product of the lengths of pattern and path.

use std::path::{Component, Path};

use super::RuleProblem;

/// What a pattern is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternBase {
    /// `//x`: the file system.
    FileSystem,
    /// `~/x`: the home directory.
    Home,
    /// `/x`, `./x`, `x/y`: the directory of the rules. `x`: any directory below it.
    Project,
}

/// A compiled pattern. Matches a path, or a directory with all that is below it.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    base: PatternBase,
    /// Names with wildcards; `**` stands for any number of names. The last one is always `**`.
    names: Vec<String>,
    is_broad: bool,
}

impl PathPattern {
    /// Compiles a pattern. `ignore_case` is for rules that restrict: another spelling can be the same file.
    pub(super) fn parse(text: &str, ignore_case: bool) -> Result<Self, RuleProblem> {
        let text = text.trim();
        let invalid = |reason: &str| Err(RuleProblem::Pattern(reason.to_owned()));
        if text.starts_with('!') {
            return invalid("a leading ! is not supported");
        }
        let (base, rest, is_anchored) = if let Some(rest) = text.strip_prefix("//") {
            (PatternBase::FileSystem, rest, true)
        } else if text == "~" {
            (PatternBase::Home, "", true)
        } else if let Some(rest) = text.strip_prefix("~/") {
            (PatternBase::Home, rest, true)
        } else if text.starts_with('~') {
            return invalid("only ~/ is supported, not the home directory of another user");
        } else if let Some(rest) = text.strip_prefix('/').or_else(|| text.strip_prefix("./")) {
            (PatternBase::Project, rest, true)
        } else {
            (PatternBase::Project, text, text.trim_end_matches('/').contains('/'))
        };
        let mut names: Vec<String> = rest
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .map(|name| if ignore_case { name.to_lowercase() } else { name.to_owned() })
            .collect();
        if names.iter().any(|name| name == "..") {
            return invalid(".. is not supported");
        }
        if names.iter().any(|name| !has_valid_sets(name)) {
            return invalid("a bracket is not closed");
        }
        let is_broad = names.iter().all(|name| name.chars().all(|letter| letter == '*'));
        if !is_anchored {
            names.insert(0, "**".to_owned());
        }
        names.push("**".to_owned());
        names.dedup_by(|name, previous| name == "**" && previous == "**");
        Ok(Self { base, names, is_broad })
    }

    pub(super) fn base(&self) -> PatternBase {
        self.base
    }

    /// Whether the pattern consists of wildcards only.
    pub(super) fn is_broad(&self) -> bool {
        self.is_broad
    }

    /// Whether a part of the pattern that is more than a star matches a name given in lower case.
    pub(super) fn names(&self, wanted: &str) -> bool {
        let is_star = |name: &str| name.chars().all(|letter| letter == '*');
        self.names.iter().any(|name| !is_star(name) && matches_name(&name.to_lowercase(), wanted))
    }

    /// Whether the names of a path relative to the pattern's base match.
    pub(super) fn matches(&self, path: &[String]) -> bool {
        let (mut at, mut reading) = (0, 0);
        // The position of the last `**`, and the end of the names that it matches so far.
        let mut last: Option<(usize, usize)> = None;
        while let Some(name) = path.get(reading) {
            match self.names.get(at) {
                Some(wanted) if wanted == "**" => {
                    if at + 1 == self.names.len() {
                        return true;
                    }
                    last = Some((at, reading));
                    at += 1;
                }
                Some(wanted) if matches_name(wanted, name) => {
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
        self.names.iter().skip(at).all(|rest| rest == "**")
    }
}

/// Splits an absolute path into names.
pub(super) fn names_of(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            Component::Prefix(prefix) => Some(prefix.as_os_str().to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => None,
            Component::ParentDir => Some("..".to_owned()),
        })
        .collect()
}

/// Writes a name so that it only matches itself.
pub(super) fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for letter in name.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// Whether every opening bracket has a closing one.
fn has_valid_sets(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some((atom, after)) = Atom::first(rest) {
        if atom == Atom::Invalid {
            return false;
        }
        rest = after;
    }
    true
}

/// One part of a pattern for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atom<'a> {
    Letter(char),
    One,
    Any,
    /// The text between brackets.
    Set(&'a str),
    Invalid,
}

impl<'a> Atom<'a> {
    fn first(pattern: &'a str) -> Option<(Self, &'a str)> {
        let mut letters = pattern.chars();
        let atom = match letters.next()? {
            '*' => Self::Any,
            '?' => Self::One,
            '\\' => letters.next().map_or(Self::Invalid, Self::Letter),
            '[' => {
                // A bracket at the start of the set is part of it.
                let rest = letters.as_str();
                let skip = rest.len() - rest.trim_start_matches(['!', '^']).len();
                let skip = skip.min(1) + usize::from(rest.chars().nth(skip.min(1)) == Some(']'));
                let end = rest.get(skip..).and_then(|set| set.find(']')).map(|end| end + skip);
                return Some(match end.and_then(|end| Some((rest.get(..end)?, rest.get(end + 1..)?))) {
                    Some((set, after)) => (Self::Set(set), after),
                    None => (Self::Invalid, ""),
                });
            }
            letter => Self::Letter(letter),
        };
        Some((atom, letters.as_str()))
    }

    fn matches(self, letter: char) -> bool {
        match self {
            Self::Letter(wanted) => wanted == letter,
            Self::One => true,
            Self::Set(set) => in_set(set, letter),
            Self::Any | Self::Invalid => false,
        }
    }
}

fn in_set(set: &str, letter: char) -> bool {
    let (set, negated) = match set.strip_prefix(['!', '^']) {
        Some(set) => (set, true),
        None => (set, false),
    };
    let mut letters = set.chars().peekable();
    let mut found = false;
    while let Some(first) = letters.next() {
        let mut ahead = letters.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) => {
                found |= (first..=last).contains(&letter);
                letters = ahead;
            }
            _ => found |= first == letter,
        }
    }
    found != negated
}

/// Whether a name matches a pattern with `*`, `?` and sets.
fn matches_name(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // The pattern after the last star, and the rest of the name after the text that it matches so far.
    let mut last: Option<(&str, &str)> = None;
    loop {
        let mut letters = name.chars();
        let letter = letters.next();
        match (Atom::first(pattern), letter) {
            (None, None) => return true,
            (Some((Atom::Any, after)), _) => {
                last = Some((after, name));
                pattern = after;
            }
            (Some((atom, after)), Some(letter)) if atom.matches(letter) => {
                pattern = after;
                name = letters.as_str();
            }
            _ => {
                let Some((after, rest)) = last else { return false };
                let mut rest = rest.chars();
                if rest.next().is_none() {
                    return false;
                }
                last = Some((after, rest.as_str()));
                (pattern, name) = (after, rest.as_str());
            }
        }
    }
}
