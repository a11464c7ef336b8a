//! How long a source file may be.

/// Lines after which a file holds more than one concept.
const MOST_LINES: usize = 800;

/// Whether a file's length is checked. Unit tests in files of their own may be long.
pub(super) fn is_checked(path: &str) -> bool {
    let is_source = [".rs", ".ts", ".tsx", ".mjs"].iter().any(|end| path.ends_with(end));
    is_source && !path.ends_with("_tests.rs")
}

/// Checks one file.
pub(super) fn check(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MOST_LINES)
        .then(|| format!("{path}: {lines} lines, more than {MOST_LINES}; split it by concept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_are_checked() {
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
    fn a_file_may_have_eight_hundred_lines_and_no_more() {
        assert_eq!(check("a.rs", &"x\n".repeat(800)), None);
        assert!(check("a.rs", &"x\n".repeat(801)).unwrap().contains("801 lines"));
    }
}
