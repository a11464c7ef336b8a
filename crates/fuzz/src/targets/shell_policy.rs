//! Shell lines: parsing and the decision.
//!
//! A decision takes at most a second, a line that is not understood is not allowed, and an allowed line is
//! not allowed with a denied command after it.

#![expect(clippy::panic, reason = "a target reports a failure by panicking")]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use innkeeper_core::policy::{
    PermissionMode, PermissionRequest, PolicyContext, PolicyVerdict, ResolvedPath, RuleScope, RuleSet,
    ShellAccess, ShellLine, ToolAccess, decide,
};
use tokio::time::Instant;

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget =
    FuzzTarget { name: "shell-policy", run: shell_policy, seeds: || Ok(seeds()), words: WORDS };

/// Maximum time of one decision, including the parser.
const TIME_LIMIT: Duration = Duration::from_secs(1);

static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    let owned = |rules: &[&str]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let allow = owned(&[
        "Bash(npm test:*)",
        "Bash(npm run *)",
        "Bash(git diff:*)",
        "Bash(git status)",
        "Bash(ls:*)",
        "Bash(cat:*)",
        "Bash(echo:*)",
        "Bash(find:*)",
        "Bash(xargs:*)",
        "Bash(sed:*)",
        "Bash(cp:*)",
        "Bash([:*)",
        "Bash(true)",
    ]);
    let deny = owned(&["Bash(rm:*)", "Bash(git push:*)", "Bash(curl * | sh)", "Read(./secrets/**)"]);
    RuleSet::compile(RuleScope::Workspace, Some(Path::new("/work")), &allow, &[], &deny).0
});

fn shell_policy(input: &[u8]) {
    let command = String::from_utf8_lossy(input);
    let start = Instant::now();
    let verdict = verdict(&command);
    // The machine can be busy once, but not twice.
    if start.elapsed() > TIME_LIMIT {
        let start = Instant::now();
        self::verdict(&command);
        assert!(start.elapsed() <= TIME_LIMIT, "the decision takes {:?}", start.elapsed());
    }
    if verdict != PolicyVerdict::Allow {
        return;
    }
    assert!(ShellLine::parse(&command).is_understood(), "allowed, but not understood: {command:?}");
    for denied in ["\nrm x", "\n(rm x)", "\ngit push"] {
        let longer = format!("{command}{denied}");
        if self::verdict(&longer) == PolicyVerdict::Allow {
            panic!("allowed: {longer:?}");
        }
    }
}

/// The decision in the mode that allows most writes.
fn verdict(command: &str) -> PolicyVerdict {
    let line = ShellLine::parse(command);
    let resolve = |path: &str| {
        let path_below = Path::new("/work").join(path);
        ResolvedPath { given: path.to_owned(), lexical: path_below.clone(), real: Some(path_below) }
    };
    let paths = line.paths().iter().map(|path| resolve(&path.text)).collect();
    let access = ToolAccess::Shell(Box::new(ShellAccess { line, paths }));
    let request = PermissionRequest { tool: "Bash".to_owned(), access };
    let guarded = [PathBuf::from("/home/user/.innkeeper")];
    let context = PolicyContext {
        rules: &[&RULES],
        roots: &[resolve("")],
        mode: PermissionMode::AcceptEdits,
        guarded: &guarded,
        unguarded: &[],
        home: Some(Path::new("/home/user")),
    };
    decide(&request, &context).verdict
}

/// The table of the policy's tests.
fn seeds() -> Vec<Vec<u8>> {
    let lines = include_str!("../../../core/tests/policy/shell_commands.txt").lines();
    let commands = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    commands
        .map(|(_, command)| command.trim_start().replace('⏎', "\n").replace('⇥', "\t").into_bytes())
        .collect()
}

const WORDS: &[&str] = &[
    "$(",
    "${",
    "$((",
    "))",
    ")",
    "(",
    "`",
    "'",
    "\"",
    "\\",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "<<EOF\n",
    "\nEOF\n",
    "<<'EOF'\n",
    "<<<",
    "<(",
    ">(",
    ">",
    ">>",
    "2>&1",
    "&>",
    "#",
    " # ",
    "if true; then ",
    "; fi",
    "for x in a; do ",
    "; done",
    "case x in a) ",
    ";; esac",
    "f() { ",
    "; }",
    "{ ",
    "rm x",
    "ls",
    "npm test",
    "bash -c '",
    "eval ",
    "xargs ",
    "find . -exec ",
    " {} +",
    " \\;",
    "sudo ",
    "env ",
    "timeout 5 ",
    "X=1 ",
    "$x",
    "\"$x\"",
    "*",
    "~/",
    "{a,b}",
    "$'",
    "\\\n",
    "\u{a0}",
    "cd ..",
    ".git/config",
    "[[ ",
    " ]]",
    "[ ",
    " ]",
    "!",
    "a=(",
    "git -c ",
];
