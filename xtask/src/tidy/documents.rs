//! Whether the paths that documents name exist.
//!
//! A path is a word in backticks that starts with an entry of the top folder, or the target of a link. Blocks of code
//! and HTML comments are left out. Where a word has a placeholder, the part before it is checked.

/// A path that a document names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// A word in backticks, relative to the top folder.
    FromRoot(String),
    /// A link, relative to the document's own folder.
    FromDocument(String),
}

/// Checks one document. `top` has the names in the top folder.
pub(super) fn check(
    document: &str,
    text: &str,
    top: &[String],
    exists: impl Fn(&Named) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in visible_lines(text) {
        for named in words(&line, top).into_iter().chain(links(&line)) {
            if !exists(&named) {
                let (Named::FromRoot(path) | Named::FromDocument(path)) = named;
                problems.push(format!("{document}:{number}: names `{path}`, which does not exist"));
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

/// A line without the parts that are comments; `in_comment` carries over to the next line.
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
fn words(line: &str, top: &[String]) -> Vec<Named> {
    let inside_backticks = line.split('`').skip(1).step_by(2);
    inside_backticks.flat_map(str::split_whitespace).filter_map(|word| path_in(word, top)).collect()
}

/// The path that a word names, if it is one.
fn path_in(word: &str, top: &[String]) -> Option<Named> {
    let word = word.trim_start_matches("./").trim_end_matches([',', ';', ':', '.']);
    // A place in a file, as in `file.rs:12`.
    let word = word.split(':').next().unwrap_or_default();
    let fixed: Vec<&str> =
        word.split('/').take_while(|part| !part.contains(['*', '<', '{', '…', '$'])).collect();
    let first = fixed.first()?;
    top.iter().any(|name| name == first).then(|| Named::FromRoot(fixed.join("/")))
}

/// The targets of links to other files.
fn links(line: &str) -> Vec<Named> {
    let outside_backticks: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let targets = outside_backticks.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter_map(|target| {
        let file = target.split('#').next().unwrap_or_default().trim();
        (!file.is_empty() && !file.contains(':')).then(|| file.to_owned())
    });
    files.map(Named::FromDocument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a document in a tree that has `crates/core`, `scripts/run` and README.md.
    fn problems(text: &str) -> Vec<String> {
        let top = ["crates", "scripts", "README.md"].map(str::to_owned);
        let exists = |named: &Named| {
            let (Named::FromRoot(path) | Named::FromDocument(path)) = named;
            ["crates", "crates/core", "scripts", "scripts/run", "README.md"]
                .contains(&path.trim_end_matches('/'))
        };
        check("A.md", text, &top, exists)
    }

    #[test]
    fn paths_that_exist_are_fine() {
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
    fn paths_that_do_not_exist_are_named_with_their_line() {
        assert_eq!(
            problems("fine\n\nsee `crates/none/src/lib.rs`"),
            ["A.md:3: names `crates/none/src/lib.rs`, which does not exist"]
        );
        assert_eq!(problems("[guide](docs/guide.md)").len(), 1);
        assert_eq!(problems("`cargo run` and `scripts/none`").len(), 1);
    }

    #[test]
    fn what_does_not_start_in_the_top_folder_is_no_path() {
        assert_eq!(problems("`src/none.rs` `and/or` `crate` `crates_io` crates/none"), [""; 0]);
    }

    #[test]
    fn the_part_before_a_placeholder_is_checked() {
        assert_eq!(problems("`crates/core/<name>` `crates/*/src`"), [""; 0]);
        assert_eq!(problems("`crates/none/<name>`").len(), 1);
    }

    #[test]
    fn code_blocks_and_comments_are_left_out() {
        assert_eq!(problems("```\n`crates/none`\n```\n<!-- `crates/none`\n[x](none.md) --> fine"), [""; 0]);
        assert_eq!(problems("```\n```\n<!-- x --> `crates/none`").len(), 1);
    }
}
