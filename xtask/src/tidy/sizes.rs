//! Checks the length of source files.

/// Maximum lines per file; a longer file contains more than one concept.
const MAX_LINES: usize = 800;

/// Whether the length of a file is checked. Unit tests in separate files may be longer.
pub(super) fn is_checked(path: &str) -> bool {
    let is_source = [".rs", ".ts", ".tsx", ".mjs"].iter().any(|end| path.ends_with(end));
    is_source && !path.ends_with("_tests.rs")
}

/// Checks one file.
pub(super) fn check(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_LINES)
        .then(|| format!("{path}: {lines} lines exceed the maximum of {MAX_LINES}; split it by concept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_source_files_only() {
        for (path, expected) in [
            ("crates/core/src/host.rs", true),
            ("web/src/page.tsx", true),
            ("crates/core/src/host_tests.rs", false),
            ("README.md", false),
        ] {
            assert_eq!(is_checked(path), expected, "{path}");
        }
    }

    #[test]
    fn rejects_more_than_maximum_lines() {
        assert_eq!(check("a.rs", &"x\n".repeat(800)), None);
        assert!(check("a.rs", &"x\n".repeat(801)).unwrap().contains("801 lines"));
    }
}
