//! Which licences and crates may come in with the dependencies.
//!
//! Owns the two lists. Understands SPDX expressions as far as crates use them, the old `/` for "or" included; what
//! it does not understand it refuses.

use crate::metadata::Metadata;

/// Licences that ask for no more than a notice.
const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that must not come in, and why.
const BANNED: [(&str, &str); 3] = [
    ("native-tls", "TLS is done by rustls, the same on every platform"),
    ("openssl", "TLS is done by rustls, the same on every platform"),
    ("openssl-sys", "TLS is done by rustls, the same on every platform"),
];

/// Checks every dependency on any platform.
pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for package in metadata.foreign() {
        let named = format!("{} {}", package.name, package.version);
        if let Some((_, reason)) = BANNED.iter().find(|(name, _)| *name == package.name) {
            problems.push(format!("{named}: banned ({reason}); find what brings it in with `cargo tree -i`"));
        }
        match &package.license {
            None => problems.push(format!("{named}: names no licence")),
            Some(licence) if is_allowed(licence) => {}
            Some(licence) => problems.push(format!(
                "{named}: its licence `{licence}` is not on the list in xtask/src/tidy/licences.rs"
            )),
        }
    }
    problems
}

/// Whether an SPDX expression can be fulfilled with the licences on the list.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { rest: spaced.split_whitespace().collect() };
    let allowed = words.any();
    allowed == Some(true) && words.rest.is_empty()
}

/// What is left of an expression. Every method takes words off the front, and is `None` on an error.
struct Words<'a> {
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// Alternatives: `a OR b`.
    fn any(&mut self) -> Option<bool> {
        let mut allowed = self.all()?;
        while self.take("OR") {
            allowed |= self.all()?;
        }
        Some(allowed)
    }

    /// Licences that hold together: `a AND b`, which binds closer.
    fn all(&mut self) -> Option<bool> {
        let mut allowed = self.one()?;
        while self.take("AND") {
            allowed &= self.one()?;
        }
        Some(allowed)
    }

    /// A licence, perhaps with an exception, or a group in parentheses.
    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let allowed = self.any()?;
            return self.take(")").then_some(allowed);
        }
        let licence = self.next()?;
        if self.take("WITH") {
            let with_exception = format!("{licence} WITH {}", self.next()?);
            return Some(ALLOWED.contains(&with_exception.as_str()));
        }
        Some(ALLOWED.contains(&licence))
    }

    fn next(&mut self) -> Option<&'a str> {
        (!self.rest.is_empty()).then(|| self.rest.remove(0))
    }

    /// Takes the next word off if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let is_next = self.rest.first() == Some(&word);
        if is_next {
            self.rest.remove(0);
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    #[test]
    fn expressions_mean_what_spdx_says() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("MIT OR GPL-3.0 AND ISC", true),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("(MIT OR ISC) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH some-exception", false),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(is_allowed(expression), expected, "{expression}");
        }
    }

    #[test]
    fn banned_crates_and_unknown_licences_are_problems_but_not_our_own() {
        let package = |name: &str, licence: Option<&str>| Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: licence.map(str::to_owned),
            ..Package::default()
        };
        let metadata = Metadata {
            packages: vec![
                package("fine", Some("MIT")),
                package("openssl", Some("Apache-2.0")),
                package("copyleft", Some("GPL-3.0")),
                package("silent", None),
                package("ours", None),
            ],
            workspace_members: vec!["ours".to_owned()],
            ..Metadata::default()
        };
        let problems = check(&metadata);
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, start) in problems.iter().zip([
            "openssl 1.0.0: banned",
            "copyleft 1.0.0: its licence",
            "silent 1.0.0: names no",
        ]) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }
}
