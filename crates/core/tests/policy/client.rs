//! Rules in the root configuration of a client.

use innkeeper_core::policy::{
    PermissionMode, PolicyDecision, PolicyLayer, PolicyVerdict, RuleScope, RuleSet,
};
use serde_json::{Value, json};

use crate::fixture::Fixture;

fn client(config: Value) -> Fixture {
    let Value::Object(config) = config else { panic!("not an object") };
    let mut fixture = Fixture::new();
    fixture.sets.push(RuleSet::of_client(&config.into_iter().collect()));
    fixture
}

fn verdict(rules: Value, command: &str) -> PolicyVerdict {
    client(json!({ "terminalAutoApproveRules": rules })).shell(command).verdict
}

fn is_allowed(decision: &PolicyDecision) -> bool {
    decision.verdict == PolicyVerdict::Allow
}

#[test]
fn client_entries_approve_commands() {
    let rules = json!({
        "ls": true,
        "npm run build": true,
        "/^git (status|log)\\b/": true,
        "/^MAKE$/i": { "approve": true },
        "/^npx tsc && npx eslint$/": { "approve": true, "matchCommandLine": true },
        "find": true,
        "/^find\\b.*-(delete|exec)\\b/": false,
        "/secret/s": { "approve": false, "matchCommandLine": true },
        "echo": null,
    });
    for (command, expected) in [
        ("ls -l", PolicyVerdict::Allow),
        ("ls", PolicyVerdict::Allow),
        ("lsof", PolicyVerdict::Ask),
        ("ls-x", PolicyVerdict::Ask),
        ("npm run build --x", PolicyVerdict::Allow),
        ("npm run other", PolicyVerdict::Ask),
        ("git status && ls", PolicyVerdict::Allow),
        ("git push", PolicyVerdict::Ask),
        ("ls && git push", PolicyVerdict::Ask),
        ("ls $(git push)", PolicyVerdict::Ask),
        ("make", PolicyVerdict::Allow),
        ("npx tsc && npx eslint", PolicyVerdict::Allow),
        ("npx tsc && npx other", PolicyVerdict::Ask),
        ("find . -name x", PolicyVerdict::Allow),
        ("find . -delete", PolicyVerdict::Ask),
        ("find . -'delete'", PolicyVerdict::Ask),
        ("ls secret", PolicyVerdict::Ask),
        ("echo x", PolicyVerdict::Ask),
        ("PATH=. ls", PolicyVerdict::Ask),
        ("/bin/ls", PolicyVerdict::Ask),
        ("ls > out", PolicyVerdict::Ask),
    ] {
        assert_eq!(verdict(rules.clone(), command), expected, "{command}");
    }
    let decision = client(json!({ "terminalAutoApproveRules": rules })).shell("ls");
    assert_eq!(decision.layer, PolicyLayer::Rule(RuleScope::Client));
    assert_eq!(decision.rule.as_deref(), Some("ls"));
}

#[test]
fn client_entry_with_false_does_not_override_the_users_rules() {
    let fixture = client(json!({ "terminalAutoApproveRules": { "make": false } }));
    assert!(is_allowed(&fixture.allow(&["Bash(make:*)"]).shell("make")));
}

#[test]
fn client_approvals_can_be_turned_off() {
    let rules = json!({ "ls": true });
    let edits = json!({ "**/a": true });
    for (key, value, commands, writes) in [
        ("terminalAutoApproveEnabled", json!(true), true, true),
        ("terminalAutoApproveEnabled", json!(null), true, true),
        ("terminalAutoApproveEnabled", json!(false), false, true),
        ("terminalAutoApproveEnabled", json!("yes"), false, true),
        ("autoApprovePolicyRestricted", json!(false), true, true),
        ("autoApprovePolicyRestricted", json!(true), false, false),
        ("autoApprovePolicyRestricted", json!(1), false, false),
    ] {
        let fixture = client(json!({
            "terminalAutoApproveRules": rules, "editAutoApprovePatterns": edits, key: value,
        }));
        assert_eq!(is_allowed(&fixture.shell("ls")), commands, "{key} {value}");
        assert_eq!(is_allowed(&fixture.write("a")), writes, "{key} {value}");
    }
    let restricted = json!({ "autoApprovePolicyRestricted": true, "permissions": { "allow": ["Bash(ls)"] } });
    assert!(!is_allowed(&client(restricted).shell("ls")));
}

#[test]
fn broken_client_entries_fail_closed() {
    for (entry, value, expected) in [
        // An entry that would approve approves nothing else.
        ("/(/", json!(true), PolicyVerdict::Allow),
        ("/a(?=b)/", json!(true), PolicyVerdict::Allow),
        ("/x/q", json!(true), PolicyVerdict::Allow),
        // One that would prevent prevents all.
        ("/(/", json!(false), PolicyVerdict::Ask),
        ("/a(?=b)/", json!(false), PolicyVerdict::Ask),
        ("/x/q", json!(false), PolicyVerdict::Ask),
        ("/a{1000000}/", json!(false), PolicyVerdict::Ask),
        ("", json!(false), PolicyVerdict::Ask),
        ("x", json!("no"), PolicyVerdict::Ask),
        ("x", json!({}), PolicyVerdict::Ask),
        ("x", json!({ "approve": 1 }), PolicyVerdict::Ask),
        ("x", json!({ "approve": false, "matchCommandLine": "x" }), PolicyVerdict::Ask),
    ] {
        assert_eq!(verdict(json!({ "ls": true, entry: value }), "ls"), expected, "{entry} {value}");
    }
    assert_eq!(verdict(json!([]), "ls"), PolicyVerdict::Ask);
    let fixture = client(json!({ "permissions": { "deny": "x" } })).mode(PermissionMode::BypassPermissions);
    assert_eq!(fixture.shell("ls").verdict, PolicyVerdict::Ask);
    let fixture = client(json!({ "permissions": { "deny": [1] } })).mode(PermissionMode::BypassPermissions);
    assert_eq!(fixture.write("x").verdict, PolicyVerdict::Ask);
}

#[test]
fn client_permissions_are_rules() {
    let fixture = client(json!({
        "permissions": { "allow": ["Bash(make:*)"], "ask": ["Bash(make x)"], "deny": ["Bash(make y)"] },
    }));
    assert_eq!(fixture.shell("make").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.shell("make x").verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.shell("make y").verdict, PolicyVerdict::Deny);
}

#[test]
fn client_patterns_approve_edits_inside_of_roots() {
    let fixture = client(json!({ "editAutoApprovePatterns": {
        "**/*": true, "src/**": true, "**/*.json": true, "**/*.{json,lock}": false, "**/.vscode/*.md": true, "docs/secret/**": false,
    }}));
    for (path, expected) in [
        ("src/a.rs", true),
        ("other/a.rs", false),
        ("x.json", false),
        ("X.JSON", false),
        (".env", false),
        (".vscode/tasks.json", false),
        (".vscode/notes.md", true),
        ("docs/secret/a", false),
        ("/tmp/x", false),
    ] {
        let decision = fixture.write(path);
        assert_eq!(is_allowed(&decision), expected, "{path}: {decision:?}");
    }
    for entry in [json!({ "src/*": true, "[a": false }), json!({ "src/*": true, "x": 1 }), json!(true)] {
        let fixture = client(json!({ "editAutoApprovePatterns": entry }));
        assert!(!is_allowed(&fixture.write("src/a.rs")), "{entry}");
    }
}
