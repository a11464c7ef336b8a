//! The table of shell lines.

use innkeeper_core::policy::{PermissionMode, PolicyVerdict};

use crate::fixture::{Fixture, shell_table};

#[test]
fn shell_lines_have_expected_verdicts() {
    let fixture = Fixture::for_shell_table();
    let table = shell_table();
    assert!(table.len() >= 200, "only {} lines", table.len());
    let mut wrong = Vec::new();
    for (expected, command) in table {
        let decision = fixture.shell(&command);
        if decision.verdict != expected {
            wrong.push(format!("{command:?}: expected {expected:?}, got {decision:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn denied_shell_lines_are_denied_in_every_mode() {
    for mode in PermissionMode::ALL {
        let fixture = Fixture::for_shell_table().mode(mode);
        for (expected, command) in shell_table() {
            if expected == PolicyVerdict::Deny {
                let decision = fixture.shell(&command);
                assert_eq!(decision.verdict, PolicyVerdict::Deny, "{mode:?} {command:?}: {decision:?}");
            }
        }
    }
}

#[test]
fn hidden_denied_command_is_never_allowed_in_bypass_mode() {
    let fixture = Fixture::for_shell_table().mode(PermissionMode::BypassPermissions);
    for command in [
        "$cmd x",
        "eval \"$x\"",
        "echo `echo \\`rm x\\``",
        "ls\r\nls",
        "r{m,} x",
        "alias ls=rm; ls",
        "git $x",
        "strace rm x",
        "bash -c \"$script\"",
        "ls \"unclosed",
        "ls >\nrm\n /dev/null",
        "ls > # comment\nrm",
        "cat <<EOF\n`rm x`\nEOF",
    ] {
        let decision = fixture.shell(command);
        assert_eq!(decision.verdict, PolicyVerdict::Ask, "{command:?}: {decision:?}");
        assert!(decision.overrides_agent, "{command:?}");
    }
}
