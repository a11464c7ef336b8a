//! Measures the permission policy with 1,000 rules: decisions per second, and the time of one decision
//! about a shell line, including the parser.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use innkeeper_bench::monotonic_nanos;
use innkeeper_core::policy::{
    PermissionMode, PermissionRequest, PolicyContext, PolicyVerdict, ResolvedPath, RuleScope, RuleSet,
    ShellAccess, ShellLine, ToolAccess, decide,
};

use crate::report::{LoadReport, median};

/// Rules of all scopes together.
const RULES: usize = 1_000;

/// Maximum microseconds per decision: 10,000 decisions per second.
const LIMIT: f64 = 100.0;

/// Maximum microseconds for one decision with its parser: a tool call is delayed by at most a millisecond.
const LINE_LIMIT: f64 = 1_000.0;

const ROOT: &str = "/work/project";

const LINE: &str =
    "cd sub && NODE_ENV=test npm test -- --watch=false 2>&1 | head -n 50 > /dev/null; git status";

pub(crate) fn measure(quick: bool, report: &mut LoadReport) -> Result<()> {
    let rounds = if quick { 20 } else { 500 };
    let sets = rule_sets();
    let requests = requests();
    let parsed = PolicyBench::new(&sets).cost(rounds, || requests.clone())?;
    let line = PolicyBench::new(&sets).cost(rounds, || vec![(shell(LINE), PolicyVerdict::Allow)])?;
    report.within("permission decision, 1,000 rules, mixed requests", parsed, "µs", LIMIT, String::new());
    report.within("  shell line with five commands, with its parser", line, "µs", LINE_LIMIT, String::new());
    Ok(())
}

struct PolicyBench<'a> {
    rules: Vec<&'a RuleSet>,
    roots: [ResolvedPath; 1],
    guarded: [PathBuf; 1],
    unguarded: [PathBuf; 1],
}

impl<'a> PolicyBench<'a> {
    fn new(sets: &'a [RuleSet]) -> Self {
        Self {
            rules: sets.iter().collect(),
            roots: [resolved(ROOT)],
            guarded: [PathBuf::from("/home/user/.local/share/innkeeper")],
            unguarded: [PathBuf::from("/home/user/.local/share/innkeeper/workspace")],
        }
    }

    /// The median time of one decision in microseconds. `requests` is part of the measurement.
    fn cost(
        &self,
        rounds: usize,
        requests: impl Fn() -> Vec<(PermissionRequest, PolicyVerdict)>,
    ) -> Result<f64> {
        let context = PolicyContext {
            rules: &self.rules,
            roots: &self.roots,
            mode: PermissionMode::Default,
            guarded: &self.guarded,
            unguarded: &self.unguarded,
            home: Some(Path::new("/home/user")),
        };
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = monotonic_nanos();
            let requests = requests();
            for (request, expected) in &requests {
                let decision = decide(request, &context);
                ensure!(decision.verdict == *expected, "unexpected decision: {decision:?}");
            }
            let nanos = monotonic_nanos() - start;
            times.push(nanos as f64 / requests.len() as f64 / 1_000.0);
        }
        Ok(median(times))
    }
}

/// Rules of three scopes, of which the last ones match.
fn rule_sets() -> Vec<RuleSet> {
    let scopes = [RuleScope::Session, RuleScope::Workspace, RuleScope::Administrator];
    let per_list = RULES / scopes.len() / 4;
    let rules = |start: &str| {
        let mut rules = Vec::new();
        for number in 0..per_list {
            rules.push(format!("Bash({start} tool{number} action:*)"));
            rules.push(format!("Edit(/{start}/module{number}/**)"));
        }
        rules
    };
    let set = |scope| {
        let mut allow = rules("allowed");
        allow.extend(["npm test:*", "head:*", "git status", "ls:*"].map(|rule| format!("Bash({rule})")));
        allow.push("Edit(/src/**)".to_owned());
        RuleSet::compile(scope, Some(Path::new(ROOT)), &allow, &[], &rules("denied")).0
    };
    scopes.into_iter().map(set).collect()
}

/// Requests with their verdicts. Shell lines are parsed already.
fn requests() -> Vec<(PermissionRequest, PolicyVerdict)> {
    let write = |path: &str| PermissionRequest {
        tool: "Edit".to_owned(),
        access: ToolAccess::Write(vec![resolved(path)]),
    };
    let read = PermissionRequest {
        tool: "Read".to_owned(),
        access: ToolAccess::Read(vec![resolved("/work/project/src/main.rs")]),
    };
    vec![
        (shell("npm test -- --watch"), PolicyVerdict::Allow),
        (shell("ls -l | head"), PolicyVerdict::Allow),
        (shell("unknown --option value"), PolicyVerdict::Ask),
        (shell("denied tool20 action x"), PolicyVerdict::Deny),
        (write("/work/project/src/deep/folder/main.rs"), PolicyVerdict::Allow),
        (write("/work/project/other/main.rs"), PolicyVerdict::Ask),
        (read, PolicyVerdict::Allow),
    ]
}

fn shell(command: &str) -> PermissionRequest {
    let line = ShellLine::parse(command);
    let paths = line.paths().iter().map(|path| resolved(&format!("{ROOT}/{}", path.text))).collect();
    PermissionRequest {
        tool: "Bash".to_owned(),
        access: ToolAccess::Shell(Box::new(ShellAccess { line, paths })),
    }
}

fn resolved(path: &str) -> ResolvedPath {
    let lexical = PathBuf::from(path);
    ResolvedPath { given: path.to_owned(), real: Some(lexical.clone()), lexical }
}
