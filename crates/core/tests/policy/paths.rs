//! Paths: roots, links, modes, protected paths and hard denies.

use std::path::PathBuf;

use innkeeper_core::policy::{
    PermissionMode, PolicyLayer, PolicyVerdict, ResolvedPath, RuleScope, ToolAccess,
};

use crate::fixture::{Fixture, ROOT};

#[test]
fn reads_are_free_inside_of_roots_only() {
    for mode in
        [PermissionMode::Default, PermissionMode::AcceptEdits, PermissionMode::Plan, PermissionMode::Auto]
    {
        let fixture = Fixture::new().mode(mode);
        for path in ["src/a", ".env", "/work/project", "/work/project/.git/config"] {
            let decision = fixture.read(path);
            assert_eq!(
                (decision.verdict, decision.layer),
                (PolicyVerdict::Allow, PolicyLayer::WorkspaceRead)
            );
        }
        for path in ["/etc/passwd", "../x", "/work/project2/x", "~/x", "src/../../x"] {
            assert_eq!(fixture.read(path).verdict, PolicyVerdict::Ask, "{path}");
        }
    }
    assert_eq!(Fixture::new().read("/etc/hosts").would_allow, ["Read(//etc/hosts)"]);
    assert_eq!(Fixture::new().allow(&["Read(//etc/*)"]).read("/etc/hosts").verdict, PolicyVerdict::Allow);
    assert_eq!(Fixture::new().decide("Glob", ToolAccess::Read(Vec::new())).verdict, PolicyVerdict::Ask);
}

#[test]
fn writes_follow_the_mode() {
    for (mode, expected, layer) in [
        (PermissionMode::Default, PolicyVerdict::Ask, PolicyLayer::WorkspaceWrite),
        (PermissionMode::AcceptEdits, PolicyVerdict::Allow, PolicyLayer::WorkspaceWrite),
        (PermissionMode::Plan, PolicyVerdict::Ask, PolicyLayer::WorkspaceWrite),
        (PermissionMode::Auto, PolicyVerdict::Ask, PolicyLayer::WorkspaceWrite),
        (PermissionMode::BypassPermissions, PolicyVerdict::Allow, PolicyLayer::Mode),
    ] {
        let decision = Fixture::new().mode(mode).write("src/a.rs");
        assert_eq!((decision.verdict, decision.layer), (expected, layer), "{mode:?}");
        // Some agents do not ask in plan mode.
        assert_eq!(decision.overrides_agent, mode == PermissionMode::Plan, "{mode:?}");
        assert_eq!(PermissionMode::parse(mode.name()), Some(mode));
    }
    assert_eq!(PermissionMode::parse("dontAsk"), None);
    assert_eq!(Fixture::new().write("src/a.rs").would_allow, ["Edit(/src/**)", "Edit(/src/a.rs)"]);
    assert_eq!(Fixture::new().write("a.rs").would_allow, ["Edit(/**)", "Edit(/a.rs)"]);
    assert_eq!(Fixture::new().write("/tmp/x/a").would_allow, ["Edit(//tmp/x/**)", "Edit(//tmp/x/a)"]);
    assert_eq!(
        Fixture::new().write("app/[id]/a").would_allow,
        ["Edit(/app/\\[id\\]/**)", "Edit(/app/\\[id\\]/a)"]
    );
}

#[test]
fn plan_mode_asks_before_everything_that_may_change_something() {
    let planning = Fixture::new().allow(&["Bash(touch:*)", "Edit"]).mode(PermissionMode::Plan);
    assert_eq!(planning.write("src/a.rs").verdict, PolicyVerdict::Ask, "in spite of a rule");
    for (command, asks) in [
        ("ls -la && git status", false),
        ("cat src/a.rs | grep -n main", false),
        ("git log --oneline", false),
        ("touch a.rs", true),
        ("echo x > a.rs", true),
        ("git commit -m x", true),
        ("git -c core.pager=x log", true),
        ("git log --output=a", true),
        ("cat $(rm a)", true),
    ] {
        let decision = planning.shell(command);
        assert_eq!(decision.overrides_agent, asks, "{command}");
    }
}

#[test]
fn suggested_rules_allow_the_request() {
    for path in [
        "src/a.rs",
        "a.rs",
        "/tmp/x/a",
        "app/[id]/a",
        ".env",
        "sub/package.json",
        ".vscode/tasks.json",
        "~/x/y",
    ] {
        let suggestions = Fixture::new().write(path).would_allow;
        assert!(!suggestions.is_empty(), "{path}");
        for rule in suggestions {
            let decision = Fixture::new().allow(&[&rule]).write(path);
            assert_eq!(decision.verdict, PolicyVerdict::Allow, "{path}: {rule}: {decision:?}");
        }
    }
}

const PROTECTED: [&str; 30] = [
    ".env",
    ".ENV",
    ".env.local",
    "sub/.env",
    ".envrc",
    "package.json",
    "sub/package.json",
    "Package.JSON",
    "package-lock.json",
    "Cargo.lock",
    "yarn.lock",
    "pnpm-lock.yaml",
    "go.sum",
    ".git",
    ".gitignore",
    ".gitattributes",
    ".github/workflows/ci.yml",
    ".gitmodules",
    ".npmrc",
    ".yarnrc.yml",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
    ".claude/settings.json",
    ".claude/agents/x.md",
    ".mcp.json",
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".cargo/config.toml",
    "x.code-workspace",
    ".devcontainer/devcontainer.json",
];

#[test]
fn protected_paths_ask_unless_rule_names_them() {
    for mode in [PermissionMode::Default, PermissionMode::AcceptEdits] {
        for path in PROTECTED {
            let decision = Fixture::new().mode(mode).write(path);
            assert_eq!(decision.verdict, PolicyVerdict::Ask, "{path}");
            assert_eq!(decision.layer, PolicyLayer::ProtectedPath, "{path}");
            assert!(decision.overrides_agent, "{path}");
            for rule in
                ["Edit", "Edit(**)", "Edit(*)", "Edit(/**)", "Edit(**/*)", "Edit(//**)", "Edit(//work/**)"]
            {
                let decision = Fixture::new().mode(mode).allow(&[rule]).write(path);
                assert_eq!(decision.verdict, PolicyVerdict::Ask, "{rule} {path}");
            }
            let named = format!("Edit(/{path})");
            assert_eq!(Fixture::new().mode(mode).allow(&[&named]).write(path).verdict, PolicyVerdict::Allow);
        }
    }
    let bypass = Fixture::new().mode(PermissionMode::BypassPermissions);
    assert_eq!(bypass.write(".env").verdict, PolicyVerdict::Allow);
}

#[test]
fn ordinary_files_are_not_protected() {
    for path in
        ["CLAUDE.md", "AGENTS.md", "src/main.rs", "environment.ts", "Cargo.toml", "README.md", "src/lock.rs"]
    {
        let decision = Fixture::new().mode(PermissionMode::AcceptEdits).write(path);
        assert_eq!(decision.verdict, PolicyVerdict::Allow, "{path}");
    }
}

#[test]
fn home_and_platform_files_are_protected_in_wide_roots() {
    let mut fixture = Fixture::new().mode(PermissionMode::AcceptEdits);
    fixture.roots = vec![fixture.resolve("/")];
    for path in ["~/.bashrc", "~/.config/x", "/etc/passwd", "/usr/bin/x", "/ETC/passwd"] {
        let decision = fixture.write(path);
        assert_eq!(decision.layer, PolicyLayer::ProtectedPath, "{path}: {decision:?}");
    }
    assert_eq!(fixture.write("/srv/x").verdict, PolicyVerdict::Allow);
    fixture.roots = vec![fixture.resolve("~")];
    assert_eq!(fixture.write("~/.bashrc").layer, PolicyLayer::ProtectedPath);
    assert_eq!(fixture.write("~/notes").verdict, PolicyVerdict::Allow);
    // A root inside of such a directory is a project like any other.
    fixture.roots = vec![fixture.resolve("/var/www/site"), fixture.resolve("~/.dotfiles")];
    assert_eq!(fixture.write("/var/www/site/x").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.write("~/.dotfiles/x").verdict, PolicyVerdict::Allow);
}

#[test]
fn link_that_leaves_its_root_is_outside() {
    let mut fixture = Fixture::new().mode(PermissionMode::AcceptEdits);
    fixture.links = vec![(PathBuf::from("/work/project/link"), PathBuf::from("/etc"))];
    assert_eq!(fixture.read("link/passwd").verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.write("link/passwd").verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.write("link/passwd").would_allow, [""; 0]);
    let fixture = fixture.allow(&["Edit(link/**)", "Edit(//work/project/link/**)"]);
    assert_eq!(fixture.write("link/passwd").verdict, PolicyVerdict::Ask);
    let fixture = fixture.deny(&["Edit(//etc/**)"]);
    assert_eq!(fixture.write("link/passwd").verdict, PolicyVerdict::Deny);
}

#[test]
fn link_to_protected_or_git_file_counts_as_that_file() {
    let mut fixture = Fixture::new().mode(PermissionMode::AcceptEdits);
    fixture.links = vec![
        (PathBuf::from("/work/project/a"), PathBuf::from("/work/project/.env")),
        (PathBuf::from("/work/project/b"), PathBuf::from("/work/project/.git/config")),
    ];
    assert_eq!(fixture.write("a").layer, PolicyLayer::ProtectedPath);
    assert_eq!(fixture.write("b").layer, PolicyLayer::GitInternals);
    assert_eq!(fixture.shell("echo x > b").layer, PolicyLayer::GitInternals);
}

#[test]
fn root_that_is_a_link_contains_its_files() {
    let mut fixture = Fixture::new().allow(&["Edit(/src/**)"]);
    fixture.links = vec![(PathBuf::from(ROOT), PathBuf::from("/data/project"))];
    fixture.roots = vec![fixture.resolve(ROOT)];
    assert_eq!(fixture.read("src/a").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.read("/data/project/src/a").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.write("src/a").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.read("/data/other").verdict, PolicyVerdict::Ask);
}

#[test]
fn unresolved_path_and_nul_byte_ask() {
    let fixture = Fixture::new().mode(PermissionMode::AcceptEdits).allow(&["Edit", "Edit(//**)"]);
    let unresolved =
        ResolvedPath { given: "src/a".to_owned(), lexical: PathBuf::from("/work/project/src/a"), real: None };
    assert_eq!(fixture.decide("Edit", ToolAccess::Write(vec![unresolved])).verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.write("src/a\0.txt").verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.read("src/a\0.txt").verdict, PolicyVerdict::Ask);
}

#[test]
fn write_outside_needs_absolute_rule() {
    for rule in ["Edit", "Edit(**)", "Edit(x/**)"] {
        assert_eq!(Fixture::new().allow(&[rule]).write("/tmp/x/y").verdict, PolicyVerdict::Ask, "{rule}");
    }
    assert_eq!(Fixture::new().allow(&["Edit(//tmp/**)"]).write("/tmp/x/y").verdict, PolicyVerdict::Allow);
    assert_eq!(Fixture::new().allow(&["Edit(~/x/**)"]).write("~/x/y").verdict, PolicyVerdict::Allow);
}

#[test]
fn hard_denies_hold_in_every_mode_and_against_every_rule() {
    for mode in PermissionMode::ALL {
        let fixture = Fixture::new().mode(mode).rules(
            RuleScope::Session,
            &["Edit", "Bash", "Edit(//**)", "Edit(~/**)", "Edit(.git/**)", "Edit(//home/user/.innkeeper/**)"],
            &[],
            &[],
        );
        for (path, layer) in [
            ("~/.innkeeper", PolicyLayer::GuardedPath),
            ("~/.innkeeper/state.db", PolicyLayer::GuardedPath),
            ("~/.Innkeeper/state.db", PolicyLayer::GuardedPath),
            (".git/config", PolicyLayer::GitInternals),
            (".GIT/hooks/pre-commit", PolicyLayer::GitInternals),
            ("sub/module/.git/config", PolicyLayer::GitInternals),
        ] {
            let decision = fixture.write(path);
            assert_eq!((decision.verdict, decision.layer), (PolicyVerdict::Deny, layer), "{mode:?} {path}");
            assert!(decision.would_allow.is_empty());
        }
        for command in [
            "echo x > .git/config",
            "rm -rf .git",
            "rm -rf ~",
            "mv ~/.innkeeper /tmp/x",
            "cp x ~/.innkeeper/",
            "find . -fprint .git/x",
            "bash -c 'echo x > .git/config'",
        ] {
            assert_eq!(fixture.shell(command).verdict, PolicyVerdict::Deny, "{mode:?} {command}");
        }
        assert_ne!(fixture.shell("git commit -m x").verdict, PolicyVerdict::Deny);
        let denied =
            Fixture::new().mode(mode).rules(RuleScope::Administrator, &[], &[], &["Bash(rm:*)", "Edit(a)"]);
        assert_eq!(denied.write("a").verdict, PolicyVerdict::Deny);
        assert_eq!(denied.shell("rm x").verdict, PolicyVerdict::Deny);
    }
}

#[test]
fn ask_rules_ask_in_every_mode() {
    for mode in PermissionMode::ALL {
        let fixture = Fixture::new().mode(mode).allow(&["Bash", "Edit"]).ask(&["Bash(make:*)", "Edit(a)"]);
        for decision in [fixture.shell("make x"), fixture.shell("ls && make"), fixture.write("a")] {
            assert_eq!(decision.verdict, PolicyVerdict::Ask, "{mode:?}");
            assert!(decision.overrides_agent && decision.would_allow.is_empty());
        }
    }
}

#[test]
fn request_with_several_paths_needs_permission_for_each() {
    let fixture = Fixture::new().allow(&["Edit(/src/**)"]);
    let paths = |names: &[&str]| ToolAccess::Write(names.iter().map(|name| fixture.resolve(name)).collect());
    assert_eq!(fixture.decide("Edit", paths(&["src/a", "src/b"])).verdict, PolicyVerdict::Allow);
    let decision = fixture.decide("Edit", paths(&["src/a", "lib/b", "lib/c"]));
    assert_eq!(decision.verdict, PolicyVerdict::Ask);
    assert_eq!(decision.would_allow, ["Edit(/lib/b)", "Edit(/lib/c)"]);
    assert_eq!(fixture.decide("Edit", paths(&["src/a", ".git/x"])).verdict, PolicyVerdict::Deny);
}
