//! Path patterns: `*` and `?` within a name, `**` for any number of names, `{a,b}` for
//! alternatives. A plain path matches itself and everything below it.
//!
//! Invariant: matching time is bounded by pattern length times path length for every
//! pattern, since clients choose the patterns.

/// Maximum length of a pattern in bytes, and maximum number of alternatives.
const MAX_LENGTH: usize = 1_024;
const MAX_ALTERNATIVES: usize = 128;

/// A set of patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Globs(Vec<Vec<String>>);

impl Globs {
    /// Parses patterns; the error names the invalid one.
    pub(crate) fn parse(patterns: &[String]) -> Result<Self, String> {
        let mut alternatives = Vec::new();
        for pattern in patterns {
            let pattern = pattern.trim_start_matches("./").trim_matches('/');
            if pattern.len() > MAX_LENGTH {
                return Err("a pattern is longer than 1,024 bytes".to_owned());
            }
            let expanded =
                expand(pattern).ok_or_else(|| format!("invalid braces in the pattern {pattern:?}"))?;
            alternatives.extend(
                expanded.iter().map(|pattern| pattern.split('/').map(str::to_owned).collect::<Vec<_>>()),
            );
        }
        if alternatives.len() > MAX_ALTERNATIVES {
            return Err("the patterns have more than 128 alternatives".to_owned());
        }
        Ok(Self(alternatives))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern matches the path or one of its parent directories.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        self.0.iter().any(|pattern| matches_prefix(pattern, &names))
    }
}

/// Whether a pattern matches the names or a prefix of them.
fn matches_prefix(pattern: &[String], names: &[&str]) -> bool {
    // reached[n]: the pattern so far matches the first n names.
    let mut reached = vec![false; names.len() + 1];
    if let Some(none) = reached.first_mut() {
        *none = true;
    }
    for part in pattern {
        let mut next = vec![false; names.len() + 1];
        if part == "**" {
            let mut any = false;
            for (now, then) in reached.iter().zip(next.iter_mut()) {
                any |= *now;
                *then = any;
            }
        } else {
            for ((now, then), name) in reached.iter().zip(next.iter_mut().skip(1)).zip(names) {
                *then = *now && matches_name(part, name);
            }
        }
        reached = next;
    }
    reached.iter().skip(1).any(|reached| *reached)
}

/// Whether a name matches a pattern of letters, `*` and `?`.
fn matches_name(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut reading) = (0, 0);
    // Position of the last star, and the end of the text that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    while let Some(letter) = name.get(reading) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, reading));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || wanted == letter => {
                at += 1;
                reading += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, reading) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == '*')
}

/// Expands braces; `None` if they are unbalanced or have too many alternatives.
fn expand(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        if done.len() + open.len() > MAX_ALTERNATIVES {
            return None;
        }
        // The last opening brace does not contain another one.
        let Some((before, rest)) = pattern.rsplit_once('{') else {
            if pattern.contains('}') {
                return None;
            }
            done.push(pattern);
            continue;
        };
        let (choices, after) = rest.split_once('}')?;
        open.extend(choices.split(',').map(|choice| format!("{before}{choice}{after}")));
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Globs::parse(&[pattern.to_owned()]).unwrap().matches(path)
    }

    #[test]
    fn patterns_match_expected_paths() {
        for (pattern, path) in [
            ("*.rs", "main.rs"),
            ("**/*.rs", "main.rs"),
            ("**/*.rs", "a/b/main.rs"),
            ("src", "src/deep/file"),
            ("./src/", "src/file"),
            ("**/node_modules/**", "a/node_modules/x/y"),
            ("**/node_modules", "node_modules/x"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/c/z"),
            ("{src,test}/*.{js,ts}", "test/a.ts"),
            ("{a,b{c,d}}", "bd"),
            ("f?o*", "foobar"),
            ("**", "anything/at/all"),
            ("*ü*", "grün"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.rs", "a/main.rs"),
            ("*.rs", "main.rc"),
            ("src", "srcs"),
            ("**/node_modules/**", "a/node_module/x"),
            ("a/**/z", "a/b"),
            ("f?o", "fo"),
            ("{a,b}", "c"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn rejects_or_bounds_expensive_patterns() {
        for pattern in ["{a,b}".repeat(20), "{".repeat(900), "a}".to_owned(), "x".repeat(2_000)] {
            assert!(Globs::parse(&[pattern]).is_err());
        }
        let nasty = "*a".repeat(500);
        assert!(!matches(&nasty, &"a".repeat(400)));
        assert!(!matches(&format!("{}b", "**/".repeat(300)), "a"));
    }
}
