//! A denied command anywhere in a line that is otherwise allowed.

use std::sync::LazyLock;

use innkeeper_core::policy::{PermissionMode, PolicyVerdict};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::fixture::{Fixture, shell_table};

/// Forms of the denied command. Each of them runs `rm`, or can run it.
const DENIED: [&str; 24] = [
    "rm x",
    "rm -rf .",
    "\\rm x",
    "r'm' x",
    "/bin/rm x",
    "rm",
    "sudo rm x",
    "env rm x",
    "timeout 5 rm x",
    "bash -c 'rm x'",
    "eval rm x",
    "find . -delete",
    "find . -exec rm {} +",
    "xargs rm",
    "command rm x",
    "exec rm x",
    "$(echo rm) x",
    "echo $(rm x)",
    "echo `rm x`",
    "(rm x)",
    "{ rm x; }",
    "nohup rm x",
    "rm\tx",
    "! rm x",
];

/// Ways to add a command to a line. `L` is the line, `D` the denied command.
const JOINTS: [&str; 25] = [
    "L; D",
    "L && D",
    "L || D",
    "L | D",
    "L |& D",
    "L & D",
    "L\nD",
    "D; L",
    "D && L",
    "D\nL",
    "D & L",
    "(L; D)",
    "{ L; D; }",
    "if L; then D; fi",
    "if D; then L; fi",
    "while L; do D; done",
    "for f in a; do D; L; done",
    "case a in a) D;; esac; L",
    "L $(D)",
    "L \"$(D)\"",
    "L <(D)",
    "L; echo ${x:-$(D)}",
    "cat <<END\n$(D)\nEND\nL",
    "L # comment\nD",
    "f() { D; }; L",
];

/// The lines of the table that are allowed.
fn allowed_lines() -> Vec<String> {
    let table = shell_table().into_iter();
    table.filter(|(verdict, _)| *verdict == PolicyVerdict::Allow).map(|(_, command)| command).collect()
}

/// The rules of the table in the modes that allow most.
fn fixtures() -> [Fixture; 2] {
    [PermissionMode::AcceptEdits, PermissionMode::BypassPermissions]
        .map(|mode| Fixture::for_shell_table().mode(mode))
}

fn assert_not_allowed(fixtures: &[Fixture], command: &str) {
    for fixture in fixtures {
        let decision = fixture.shell(command);
        assert_ne!(decision.verdict, PolicyVerdict::Allow, "{:?} {command:?}: {decision:?}", fixture.mode);
    }
}

#[test]
fn denied_command_beside_allowed_line_is_never_allowed() {
    let fixtures = fixtures();
    let lines = ["npm test", "ls | head", "cat <<EOF\ntext\nEOF", "echo 'a' # b", "timeout 5 ls"];
    for line in lines {
        assert_eq!(fixtures[0].shell(line).verdict, PolicyVerdict::Allow, "{line}");
        for denied in DENIED {
            for joint in JOINTS {
                // A comment at the end of the line would contain what follows on it.
                if line.contains('#') && !joint.starts_with('D') && !joint.starts_with("L\n") {
                    continue;
                }
                // The end of a here-document must stay on its own line.
                if line.contains("EOF")
                    && joint.contains('L')
                    && !joint.ends_with('L')
                    && !joint.contains("L\n")
                {
                    continue;
                }
                assert_not_allowed(&fixtures, &joint.replace('L', line).replace('D', denied));
            }
        }
    }
}

/// Compiled once for all cases.
static FIXTURES: LazyLock<[Fixture; 2]> = LazyLock::new(fixtures);

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// The command starts after a separator, wherever this is in the line. The insertion can be inside of
    /// quotes, a comment or a here-document, where it is text and not a command. There, the line may be
    /// allowed if a shell with the same words would not run the command; the test inserts it only between
    /// tokens outside of quotes.
    #[test]
    fn denied_command_inserted_between_tokens_is_never_allowed(
        line in select(allowed_lines()),
        denied in select(DENIED.to_vec()),
        separators in select(vec![("; ", "; "), ("\n", "\n"), (" && ", " && "), (" | ", " | "), (" $(", ") "), (" `", "` "), (" & ", " & ")]),
        place in any::<Index>(),
    ) {
        let places: Vec<usize> = unquoted_blanks(&line);
        let at = places[place.index(places.len())];
        let (before, after) = (line.get(..at).unwrap(), line.get(at..).unwrap());
        assert_not_allowed(FIXTURES.as_slice(), &format!("{before}{}{denied}{}{after}", separators.0, separators.1));
    }

    #[test]
    fn decisions_never_panic(command in "[ -~\n\t]{0,80}") {
        FIXTURES[0].shell(&command);
    }

    #[test]
    fn lines_of_shell_tokens_never_panic(tokens in prop::collection::vec(select(TOKENS.to_vec()), 0..40)) {
        FIXTURES[0].shell(&tokens.concat());
    }
}

const TOKENS: [&str; 44] = [
    " ", "\n", ";", "&", "|", "<", ">", "(", ")", "{", "}", "$", "$(", "${", "$((", "))", "`", "'", "\"",
    "\\", "#", "ls", "rm", "cd", "x", "=", "-c", "bash", "if", "then", "fi", "do", "done", "case", "esac",
    "in", "<<EOF", "EOF", "*", "~", "[", "]", "!", "é",
];

/// The blanks outside of quotes, substitutions, comments and here-documents, and both ends.
fn unquoted_blanks(line: &str) -> Vec<usize> {
    let is_simple =
        !line.contains("<<") && !line.contains('#') && !line.contains(['\'', '"', '\\', '`', '(', '[']);
    if !is_simple {
        return vec![0];
    }
    let blanks = line.char_indices().filter(|(_, letter)| *letter == ' ').map(|(at, _)| at);
    std::iter::once(0).chain(blanks).chain([line.len()]).collect()
}

#[test]
fn huge_and_deep_lines_are_not_understood_quickly() {
    let fixture = Fixture::for_shell_table();
    let deep = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(4_000), close.repeat(4_000))
    };
    for command in [
        "ls ".repeat(30_000),
        "ls && ".repeat(10_000) + "ls",
        "ls; ".repeat(10_000),
        "(".repeat(60_000),
        "$(".repeat(30_000),
        "`".repeat(60_000),
        "{ ".repeat(30_000),
        deep("(", "ls", ")"),
        "echo ".to_owned() + &deep("$(echo ", "ls", ")"),
        "echo ".to_owned() + &deep("\"$(echo ", "ls", ")\""),
        "echo ".to_owned() + &deep("${x:-", "y", "}"),
        deep("if true; then ", "ls", "; fi"),
        "case x in (".repeat(5_000),
        "cat <<E\n".repeat(5_000),
        "bash -c 'bash -c \"bash -c ".repeat(500),
        "a=".repeat(30_000),
        "! ".repeat(30_000),
        "echo $((".to_owned() + &"(1+".repeat(10_000),
        "[[ ".repeat(10_000),
        "cd x; ".repeat(200) + "ls > y",
    ] {
        let decision = fixture.shell(&command);
        assert_ne!(decision.verdict, PolicyVerdict::Allow, "{}…", command.get(..20).unwrap());
    }
}
