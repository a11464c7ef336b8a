//! Checks that the paths in documents exist.
//!
//! A path is a word in backticks that starts with an entry of the root directory, or a link target. Code
//! blocks and HTML comments are ignored. If a word contains a placeholder, only the part before it is
//! checked.

/// A path in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentPath {
    /// A word in backticks, relative to the root directory.
    FromRoot(String),
    /// A link target, relative to the document's directory.
    FromDocument(String),
}

/// Checks one document. `top` contains the names in the root directory.
pub(super) fn check(
    document: &str,
    text: &str,
    top: &[String],
    exists: impl Fn(&DocumentPath) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in visible_lines(text) {
        for named in words(&line, top).into_iter().chain(links(&line)) {
            if !exists(&named) {
                let (DocumentPath::FromRoot(path) | DocumentPath::FromDocument(path)) = named;
                problems.push(format!("{document}:{number}: `{path}` does not exist"));
            }
        }
    }
    problems
}

/// The lines outside code blocks and comments, with their numbers.
fn visible_lines(text: &str) -> Vec<(usize, String)> {
    let mut visible = Vec::new();
    let (mut in_code, mut in_comment) = (false, false);
    for (index, line) in text.lines().enumerate() {
        if !in_comment && line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            visible.push((index + 1, without_comments(line, &mut in_comment)));
        }
    }
    visible
}

/// Removes comments from a line; `in_comment` carries over to the next line.
fn without_comments(mut line: &str, in_comment: &mut bool) -> String {
    let mut kept = String::new();
    loop {
        let mark = if *in_comment { "-->" } else { "<!--" };
        let Some((before, after)) = line.split_once(mark) else {
            break;
        };
        if !*in_comment {
            kept.push_str(before);
        }
        *in_comment = !*in_comment;
        line = after;
    }
    if !*in_comment {
        kept.push_str(line);
    }
    kept
}

/// The paths among the words in backticks.
fn words(line: &str, top: &[String]) -> Vec<DocumentPath> {
    let inside_backticks = line.split('`').skip(1).step_by(2);
    inside_backticks.flat_map(str::split_whitespace).filter_map(|word| path_in(word, top)).collect()
}

/// The path in a word, if there is one.
fn path_in(word: &str, top: &[String]) -> Option<DocumentPath> {
    let word = word.trim_start_matches("./").trim_end_matches([',', ';', ':', '.']);
    // Strip a line number, as in `file.rs:12`.
    let word = word.split(':').next().unwrap_or_default();
    let fixed: Vec<&str> =
        word.split('/').take_while(|part| !part.contains(['*', '<', '{', '…', '$'])).collect();
    let first = fixed.first()?;
    top.iter().any(|name| name == first).then(|| DocumentPath::FromRoot(fixed.join("/")))
}

/// The link targets that are files.
fn links(line: &str) -> Vec<DocumentPath> {
    let outside_backticks: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let targets = outside_backticks.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter_map(|target| {
        let file = target.split('#').next().unwrap_or_default().trim();
        (!file.is_empty() && !file.contains(':')).then(|| file.to_owned())
    });
    files.map(DocumentPath::FromDocument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a document in a tree with `crates/core`, `scripts/run` and README.md.
    fn problems(text: &str) -> Vec<String> {
        let top = ["crates", "scripts", "README.md"].map(str::to_owned);
        let exists = |named: &DocumentPath| {
            let (DocumentPath::FromRoot(path) | DocumentPath::FromDocument(path)) = named;
            ["crates", "crates/core", "scripts", "scripts/run", "README.md"]
                .contains(&path.trim_end_matches('/'))
        };
        check("A.md", text, &top, exists)
    }

    #[test]
    fn accepts_existing_paths() {
        for text in [
            "`crates/core`",
            "`./scripts/run --listen 127.0.0.1:0`",
            "`crates/core/`, `README.md:12`.",
            "[read me](README.md#status) and [elsewhere](https://somewhere.test/crates/none)",
        ] {
            assert_eq!(problems(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn missing_path_is_reported_with_its_line() {
        assert_eq!(
            problems("fine\n\nsee `crates/none/src/lib.rs`"),
            ["A.md:3: `crates/none/src/lib.rs` does not exist"]
        );
        assert_eq!(problems("[guide](docs/guide.md)").len(), 1);
        assert_eq!(problems("`cargo run` and `scripts/none`").len(), 1);
    }

    #[test]
    fn word_outside_root_directory_is_not_a_path() {
        assert_eq!(problems("`src/none.rs` `and/or` `crate` `crates_io` crates/none"), [""; 0]);
    }

    #[test]
    fn path_is_checked_up_to_placeholder() {
        assert_eq!(problems("`crates/core/<name>` `crates/*/src`"), [""; 0]);
        assert_eq!(problems("`crates/none/<name>`").len(), 1);
    }

    #[test]
    fn code_blocks_and_comments_are_ignored() {
        assert_eq!(problems("```\n`crates/none`\n```\n<!-- `crates/none`\n[x](none.md) --> fine"), [""; 0]);
        assert_eq!(problems("```\n```\n<!-- x --> `crates/none`").len(), 1);
    }
}
