//! Rules that a decision suggests.

use innkeeper_core::policy::{PermissionMode, PolicyVerdict};

use crate::fixture::Fixture;

#[test]
fn suggestions_for_shell_lines() {
    for (command, expected) in [
        ("npm test", vec!["Bash(npm test:*)"]),
        ("npm run build:prod -- x", vec!["Bash(npm run build:prod:*)"]),
        ("git commit -m 'a b'", vec!["Bash(git commit:*)"]),
        ("git -C sub diff", vec!["Bash(git -C sub diff)"]),
        ("cargo test -p x", vec!["Bash(cargo test:*)"]),
        ("ls -l", vec!["Bash(ls:*)"]),
        ("mkdir src/x", vec!["Bash(mkdir:*)"]),
        ("python3 x.py", vec!["Bash(python3 x.py)"]),
        ("python3 -c 'print(1)'", vec!["Bash(python3 -c 'print(1)')"]),
        ("npx tsc", vec!["Bash(npx tsc)"]),
        ("docker run x", vec!["Bash(docker run x)"]),
        ("sudo apt-get update", vec!["Bash(sudo apt-get update)"]),
        ("./run.sh a", vec!["Bash(./run.sh a)"]),
        ("timeout 5 npm test", vec!["Bash(npm test:*)"]),
        ("bash -c 'npm test'", vec!["Bash(npm test:*)"]),
        ("cd src && make all | head", vec!["Bash(make all:*)", "Bash(head:*)"]),
        ("make all && make all", vec!["Bash(make all:*)"]),
        ("echo x > out/a.txt", vec!["Bash(echo:*)", "Edit(/out/a.txt)"]),
        ("echo x > .env", vec!["Bash(echo:*)", "Edit(/.env)"]),
        ("find . -exec grep x {} +", vec!["Bash(find . -exec grep x {} +)"]),
        ("a; b; c; d", vec![]),
        ("python3 *.py", vec![]),
        ("$x", vec![]),
        ("FOO=1 make", vec![]),
        ("ls (", vec![]),
        ("x | xargs rm", vec![]),
    ] {
        let decision = Fixture::new().shell(command);
        assert_eq!(decision.verdict, PolicyVerdict::Ask, "{command}");
        assert_eq!(decision.would_allow, expected, "{command}: {decision:?}");
        if !expected.is_empty() {
            let decision = Fixture::new().allow(&expected).shell(command);
            assert_eq!(decision.verdict, PolicyVerdict::Allow, "{command}: {decision:?}");
        }
    }
}

#[test]
fn suggestions_for_other_tools() {
    let fixture = Fixture::new();
    assert_eq!(fixture.fetch("https://Example.com/x").would_allow, ["WebFetch(domain:example.com)"]);
    assert_eq!(fixture.fetch("x").would_allow, [""; 0]);
    assert_eq!(fixture.mcp("a b", "c").would_allow, ["mcp__a_b__c", "mcp__a_b"]);
    assert_eq!(Fixture::new().allow(&["mcp__a_b__c"]).mcp("a b", "c").verdict, PolicyVerdict::Allow);
}

#[test]
fn redirection_is_allowed_with_edits() {
    let fixture = Fixture::new().allow(&["Bash(echo:*)"]);
    assert_eq!(fixture.shell("echo x > a").verdict, PolicyVerdict::Ask);
    let fixture = fixture.mode(PermissionMode::AcceptEdits);
    assert_eq!(fixture.shell("echo x > a").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.shell("echo x > .env").verdict, PolicyVerdict::Ask);
    assert!(fixture.shell("echo x > .env").overrides_agent);
    assert_eq!(fixture.shell("cd sub && echo x > a").verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.shell("cd .vscode && echo x > a").verdict, PolicyVerdict::Ask);
}
