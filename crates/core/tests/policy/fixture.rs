//! Rules, directories and requests for the tests.

use std::path::{Component, Path, PathBuf};

use innkeeper_core::policy::{
    PermissionMode, PermissionRequest, PolicyContext, PolicyDecision, PolicyVerdict, ResolvedPath, RuleScope,
    RuleSet, ShellAccess, ShellLine, ToolAccess, decide,
};

pub(crate) const ROOT: &str = "/work/project";
pub(crate) const HOME: &str = "/home/user";
pub(crate) const GUARDED: &str = "/home/user/.innkeeper";

/// The table of shell lines with their verdicts.
pub(crate) fn shell_table() -> Vec<(PolicyVerdict, String)> {
    let lines = include_str!("shell_commands.txt").lines();
    lines
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (verdict, command) = line.split_once(' ').unwrap();
            let verdict = match verdict {
                "allow" => PolicyVerdict::Allow,
                "ask" => PolicyVerdict::Ask,
                "deny" => PolicyVerdict::Deny,
                other => panic!("unknown verdict {other}"),
            };
            // The columns are six letters wide.
            (verdict, unescape(command.get(5 - verdict.name().len()..).unwrap()))
        })
        .collect()
}

fn unescape(command: &str) -> String {
    let mut text = String::new();
    let mut rest = command.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '⏎' => text.push('\n'),
            '⇥' => text.push('\t'),
            '␍' => text.push('\r'),
            '⟨' => {
                let code: String = rest.by_ref().take_while(|letter| *letter != '⟩').collect();
                text.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
            }
            letter => text.push(letter),
        }
    }
    text
}

/// What decisions of a test depend on.
pub(crate) struct Fixture {
    pub(crate) sets: Vec<RuleSet>,
    pub(crate) roots: Vec<ResolvedPath>,
    pub(crate) mode: PermissionMode,
    /// Links: a path and the path that it leads to.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
}

impl Fixture {
    /// A session in one directory without rules.
    pub(crate) fn new() -> Self {
        let mut fixture =
            Self { sets: Vec::new(), roots: Vec::new(), mode: PermissionMode::Default, links: Vec::new() };
        fixture.roots = vec![fixture.resolve(ROOT)];
        fixture
    }

    /// The rules for the table of shell lines.
    pub(crate) fn for_shell_table() -> Self {
        Self::new()
            .allow(&[
                "Bash(npm test:*)",
                "Bash(npm run *)",
                "Bash(git status)",
                "Bash(git diff:*)",
                "Bash(git log:*)",
                "Bash(ls:*)",
                "Bash(cat:*)",
                "Bash(echo:*)",
                "Bash(grep:*)",
                "Bash(head:*)",
                "Bash(tee:*)",
                "Bash(find:*)",
                "Bash(xargs:*)",
                "Bash(mkdir:*)",
                "Bash(cp:*)",
                "Bash(sed:*)",
                "Bash(printf:*)",
                "Bash(read:*)",
                "Bash(true)",
                "Bash([:*)",
                "Edit(/generated/**)",
            ])
            .ask(&["Bash(npm publish:*)"])
            .deny(&[
                "Bash(rm:*)",
                "Bash(git push:*)",
                "Bash(curl * | sh)",
                "Read(./secrets/**)",
                "Edit(/vendor/**)",
            ])
    }

    pub(crate) fn mode(mut self, mode: PermissionMode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn allow(self, rules: &[&str]) -> Self {
        self.rules(RuleScope::Workspace, rules, &[], &[])
    }

    pub(crate) fn ask(self, rules: &[&str]) -> Self {
        self.rules(RuleScope::Workspace, &[], rules, &[])
    }

    pub(crate) fn deny(self, rules: &[&str]) -> Self {
        self.rules(RuleScope::Workspace, &[], &[], rules)
    }

    /// Adds rules; they must be valid.
    pub(crate) fn rules(mut self, scope: RuleScope, allow: &[&str], ask: &[&str], deny: &[&str]) -> Self {
        let owned = |rules: &[&str]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (set, errors) =
            RuleSet::compile(scope, Some(Path::new(ROOT)), &owned(allow), &owned(ask), &owned(deny));
        assert!(errors.is_empty(), "{errors:?}");
        self.sets.push(set);
        self
    }

    /// Resolves a path with the fixture's links.
    pub(crate) fn resolve(&self, path: &str) -> ResolvedPath {
        let expanded = match path.strip_prefix('~') {
            Some("") => PathBuf::from(HOME),
            Some(rest) if rest.starts_with('/') => Path::new(HOME).join(rest.trim_start_matches('/')),
            _ => Path::new(ROOT).join(path),
        };
        let mut lexical = PathBuf::new();
        for component in expanded.components() {
            match component {
                Component::ParentDir => {
                    lexical.pop();
                }
                Component::CurDir => {}
                Component::Prefix(_) | Component::RootDir | Component::Normal(_) => lexical.push(component),
            }
        }
        let link = self.links.iter().find_map(|(from, to)| Some(to.join(lexical.strip_prefix(from).ok()?)));
        let real = Some(link.unwrap_or_else(|| lexical.clone()));
        ResolvedPath { given: path.to_owned(), lexical, real }
    }

    pub(crate) fn decide(&self, tool: &str, access: ToolAccess) -> PolicyDecision {
        let sets: Vec<&RuleSet> = self.sets.iter().collect();
        let guarded = [PathBuf::from(GUARDED)];
        let context = PolicyContext {
            rules: &sets,
            roots: &self.roots,
            mode: self.mode,
            guarded: &guarded,
            unguarded: &[],
            home: Some(Path::new(HOME)),
        };
        decide(&PermissionRequest { tool: tool.to_owned(), access }, &context)
    }

    pub(crate) fn shell(&self, command: &str) -> PolicyDecision {
        let line = ShellLine::parse(command);
        let paths = line.paths().iter().map(|path| self.resolve(&path.text)).collect();
        self.decide("Bash", ToolAccess::Shell(Box::new(ShellAccess { line, paths })))
    }

    pub(crate) fn write(&self, path: &str) -> PolicyDecision {
        self.decide("Write", ToolAccess::Write(vec![self.resolve(path)]))
    }

    pub(crate) fn read(&self, path: &str) -> PolicyDecision {
        self.decide("Read", ToolAccess::Read(vec![self.resolve(path)]))
    }

    pub(crate) fn fetch(&self, url: &str) -> PolicyDecision {
        self.decide("WebFetch", ToolAccess::Fetch { url: url.to_owned() })
    }

    pub(crate) fn mcp(&self, server: &str, tool: &str) -> PolicyDecision {
        let access = ToolAccess::Mcp { server: server.to_owned(), tool: tool.to_owned() };
        self.decide(&format!("mcp__{server}__{tool}"), access)
    }
}
