//! Checks the licences of dependencies, and banned crates.
//!
//! Parses the SPDX expressions that crates use, including the old `/` for "or"; rejects any other expression.

use crate::metadata::Metadata;

/// Licences that require at most a notice.
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

/// Banned crates and the reasons.
const BANNED: [(&str, &str); 3] = [
    ("native-tls", "TLS uses rustls on every platform"),
    ("openssl", "TLS uses rustls on every platform"),
    ("openssl-sys", "TLS uses rustls on every platform"),
];

/// Checks every dependency on all platforms.
pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for package in metadata.foreign() {
        let named = format!("{} {}", package.name, package.version);
        if let Some((_, reason)) = BANNED.iter().find(|(name, _)| *name == package.name) {
            problems.push(format!("{named}: banned ({reason}); find its dependents with `cargo tree -i`"));
        }
        match &package.license {
            None => problems.push(format!("{named}: no licence in its manifest")),
            Some(licence) if is_allowed(licence) => {}
            Some(licence) => problems.push(format!(
                "{named}: licence `{licence}` is not in the list in xtask/src/tidy/licences.rs"
            )),
        }
    }
    problems
}

/// Whether the allowed licences satisfy an SPDX expression.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = LicenceParser { rest: spaced.split_whitespace().collect() };
    let allowed = words.any();
    allowed == Some(true) && words.rest.is_empty()
}

/// The remaining words of an expression. Every method consumes words from the front and returns `None` on a
/// syntax error.
struct LicenceParser<'a> {
    rest: Vec<&'a str>,
}

impl<'a> LicenceParser<'a> {
    /// Alternatives: `a OR b`.
    fn any(&mut self) -> Option<bool> {
        let mut allowed = self.all()?;
        while self.take("OR") {
            allowed |= self.all()?;
        }
        Some(allowed)
    }

    /// Conjunctions: `a AND b`, which binds tighter.
    fn all(&mut self) -> Option<bool> {
        let mut allowed = self.one()?;
        while self.take("AND") {
            allowed &= self.one()?;
        }
        Some(allowed)
    }

    /// A licence, optionally with an exception, or a group in parentheses.
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

    /// Consumes the next word if it equals `word`.
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
    fn expressions_follow_spdx_precedence() {
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
    fn rejects_banned_crates_and_licences_outside_workspace() {
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
            "copyleft 1.0.0: licence",
            "silent 1.0.0: no licence",
        ]) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }
}
