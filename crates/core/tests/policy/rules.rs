//! Rules: syntax, tools, paths, scopes and rules that are not valid.

use std::path::Path;

use innkeeper_core::policy::{
    PermissionMode, PermissionRule, PolicyLayer, PolicyVerdict, RuleBehavior, RuleScope, RuleSet, ToolAccess,
};

use crate::fixture::{Fixture, ROOT};

#[test]
fn rule_text_is_parsed_and_formatted() {
    for text in [
        "Bash",
        "Bash(npm test:*)",
        "Bash(echo (a))",
        "Edit(src/**)",
        "mcp__github",
        "mcp__github__*",
        "mcp__github__get_*",
        "mcp__github__create_issue",
        "WebFetch(domain:example.com)",
        "TodoWrite",
    ] {
        let rule: PermissionRule = text.parse().unwrap();
        assert_eq!(rule.to_string(), text);
    }
    for text in
        ["", "*", "Bash(", "Bash(x", "Bash()", "Bash( )", "(x)", "Ba sh", "mcp__*", "mcp__", "Bash(a\0b)"]
    {
        let problem = text.parse::<PermissionRule>().unwrap_err();
        assert!(!problem.to_string().is_empty(), "{text:?}");
    }
    assert!("x".repeat(5_000).parse::<PermissionRule>().is_err());
}

#[test]
fn command_rules_match_words_not_text() {
    // The rule, a command that it allows, a similar one that it does not allow.
    for (rule, allowed, other) in [
        ("Bash(npm test:*)", "npm   test  x", "npm testx"),
        ("Bash(npm run test:unit)", "npm run test:unit", "npm run test:unit x"),
        ("Bash(npm run *)", "npm run a b", "npm runner"),
        ("Bash(* --version)", "node --version", "node --versions"),
        ("Bash(git commit -m 'a b')", "git commit -m \"a b\"", "git commit -m a b"),
        ("Bash(echo a:*)", "echo 'a' b", "echo 'a b'"),
        ("Bash(./run.sh:*)", "./run.sh x", "run.sh x"),
        ("Bash(make * check)", "make -j 2 check", "make check; true"),
        ("Bash(ls:*)", "ls \"$x\"", "$x ls"),
        ("Bash(echo $HOME)", "echo $HOME", "echo $PATH"),
    ] {
        let fixture = Fixture::new().allow(&[rule]);
        assert_eq!(fixture.shell(allowed).verdict, PolicyVerdict::Allow, "{rule}: {allowed}");
        assert_eq!(fixture.shell(other).verdict, PolicyVerdict::Ask, "{rule}: {other}");
    }
}

#[test]
fn allow_rule_never_matches_across_commands() {
    let fixture = Fixture::new().allow(&["Bash(ls *)", "Bash(echo * | cat)", "Bash(a && b)"]);
    for command in ["ls x && make", "ls x; make", "echo x | cat", "a && b"] {
        assert_eq!(fixture.shell(command).verdict, PolicyVerdict::Ask, "{command}");
    }
}

#[test]
fn deny_rule_may_match_unknown_words() {
    let fixture = Fixture::new().allow(&["Bash"]).deny(&[
        "Bash(git push:*)",
        "Bash(make * deploy)",
        "Bash(docker rm x)",
    ]);
    for (command, expected) in [
        ("git push", PolicyVerdict::Deny),
        ("git $x", PolicyVerdict::Ask),
        ("git \"$x\"", PolicyVerdict::Ask),
        ("git p*", PolicyVerdict::Ask),
        ("git *.c", PolicyVerdict::Allow),
        ("git \"a$x\"", PolicyVerdict::Allow),
        ("make all deploy", PolicyVerdict::Deny),
        ("make $x", PolicyVerdict::Ask),
        ("make \"$x\" deploy", PolicyVerdict::Deny),
        ("make all", PolicyVerdict::Allow),
        ("docker rm x", PolicyVerdict::Deny),
        ("docker rm y", PolicyVerdict::Allow),
        ("docker rm \"$x\"", PolicyVerdict::Ask),
        ("docker rm x y", PolicyVerdict::Allow),
        ("echo x | xargs git", PolicyVerdict::Ask),
    ] {
        let decision = fixture.shell(command);
        assert_eq!(decision.verdict, expected, "{command}: {decision:?}");
    }
}

#[test]
fn path_rules_follow_gitignore_syntax() {
    // The pattern, a path that it matches, a path that it does not match.
    for (pattern, inside, outside) in [
        ("src/**", "src/a/b.rs", "lib/src/a.rs"),
        ("src", "lib/src/a.rs", "lib/srcs/a.rs"),
        ("src/", "src/a.rs", "srcs/a.rs"),
        ("/src", "src/a.rs", "lib/src/a.rs"),
        ("./src/*.rs", "src/a.rs", "src/b/a.txt"),
        ("*.rs", "a/b/c.rs", "a/b/c.rsx"),
        ("a/**/z", "a/b/c/z", "b/a/z"),
        ("a?c", "x/abc", "x/ac"),
        ("[a-c]x", "bx", "dx"),
        ("[!a]x", "bx", "ax"),
        ("a\\*b", "a*b", "axb"),
        ("//work/project/src/**", "src/a.rs", "lib/a.rs"),
        ("~/notes/**", "~/notes/a.md", "~/other/a.md"),
        ("//tmp/x/**", "/tmp/x/y", "/tmp/y/x"),
    ] {
        let fixture = Fixture::new().allow(&[&format!("Edit({pattern})")]);
        assert_eq!(fixture.write(inside).verdict, PolicyVerdict::Allow, "{pattern}: {inside}");
        assert_eq!(fixture.write(outside).verdict, PolicyVerdict::Ask, "{pattern}: {outside}");
        let fixture = Fixture::new().deny(&[&format!("Edit({pattern})")]);
        assert_eq!(fixture.write(inside).verdict, PolicyVerdict::Deny, "{pattern}: {inside}");
        assert_ne!(fixture.write(outside).verdict, PolicyVerdict::Deny, "{pattern}: {outside}");
    }
}

#[test]
fn deny_rule_ignores_case_and_allow_rule_does_not() {
    assert_eq!(Fixture::new().deny(&["Edit(Vendor/**)"]).write("vendor/X").verdict, PolicyVerdict::Deny);
    assert_eq!(Fixture::new().allow(&["Edit(Vendor/**)"]).write("vendor/X").verdict, PolicyVerdict::Ask);
}

#[test]
fn edit_and_read_rules_cover_related_tools() {
    let path = |fixture: &Fixture| vec![fixture.resolve("src/a")];
    let fixture = Fixture::new().deny(&["Edit(src/**)", "Read(src/**)"]);
    for tool in ["Edit", "Write", "MultiEdit", "NotebookEdit", "AnotherEditor"] {
        let decision = fixture.decide(tool, ToolAccess::Write(path(&fixture)));
        assert_eq!(decision.verdict, PolicyVerdict::Deny, "{tool}");
    }
    for tool in ["Read", "Glob", "Grep", "LS", "NotebookRead"] {
        let decision = fixture.decide(tool, ToolAccess::Read(path(&fixture)));
        assert_eq!(decision.verdict, PolicyVerdict::Deny, "{tool}");
    }
    let fixture = Fixture::new().deny(&["Write(src/**)"]);
    assert_eq!(fixture.decide("Write", ToolAccess::Write(path(&fixture))).verdict, PolicyVerdict::Deny);
    assert_eq!(fixture.decide("Edit", ToolAccess::Write(path(&fixture))).verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.shell("echo x > src/a").verdict, PolicyVerdict::Deny);
}

#[test]
fn other_tools_are_matched_by_name() {
    let fixture = Fixture::new()
        .allow(&[
            "WebFetch(domain:example.com)",
            "mcp__github",
            "mcp__a__*",
            "mcp__b__get_*",
            "mcp__c__x",
            "Task",
        ])
        .deny(&["WebFetch(domain:bad.example.com)", "mcp__github__delete"]);
    for (url, expected) in [
        ("https://example.com/x", PolicyVerdict::Allow),
        ("https://docs.EXAMPLE.com./x", PolicyVerdict::Allow),
        ("https://notexample.com", PolicyVerdict::Ask),
        ("https://example.com.evil.org", PolicyVerdict::Ask),
        ("https://example.com@evil.org/", PolicyVerdict::Ask),
        ("https://a.bad.example.com", PolicyVerdict::Deny),
        ("not an address", PolicyVerdict::Ask),
    ] {
        assert_eq!(fixture.fetch(url).verdict, expected, "{url}");
    }
    for (server, tool, expected) in [
        ("github", "list", PolicyVerdict::Allow),
        ("github", "delete", PolicyVerdict::Deny),
        ("github2", "list", PolicyVerdict::Ask),
        ("github__x", "list", PolicyVerdict::Ask),
        ("a", "anything", PolicyVerdict::Allow),
        ("b", "get_x", PolicyVerdict::Allow),
        ("b", "set_x", PolicyVerdict::Ask),
        ("c", "x", PolicyVerdict::Allow),
        ("c", "xy", PolicyVerdict::Ask),
    ] {
        assert_eq!(fixture.mcp(server, tool).verdict, expected, "{server} {tool}");
    }
    assert_eq!(fixture.decide("Task", ToolAccess::Other).verdict, PolicyVerdict::Allow);
    assert_eq!(fixture.decide("Other", ToolAccess::Other).verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.decide("TodoWrite", ToolAccess::Internal).layer, PolicyLayer::Internal);
    let fixture = Fixture::new().deny(&["TodoWrite", "mcp__x"]);
    assert_eq!(fixture.decide("TodoWrite", ToolAccess::Internal).verdict, PolicyVerdict::Deny);
    assert_eq!(fixture.decide("mcp__x__y", ToolAccess::Other).verdict, PolicyVerdict::Deny);
}

#[test]
fn narrower_scope_is_reported_and_order_of_behaviours_holds() {
    let fixture = Fixture::new()
        .rules(RuleScope::Administrator, &["Bash(ls:*)"], &[], &[])
        .rules(RuleScope::Session, &["Bash(ls -l)"], &[], &[])
        .rules(RuleScope::Always, &["Bash(ls:*)"], &[], &[]);
    assert_eq!(fixture.shell("ls -l").layer, PolicyLayer::Rule(RuleScope::Session));
    assert_eq!(fixture.shell("ls").layer, PolicyLayer::Rule(RuleScope::Always));
    let fixture = fixture.rules(RuleScope::Administrator, &[], &["Bash(ls -a)"], &["Bash(ls -d)"]);
    let decision = fixture.shell("ls -a");
    assert_eq!((decision.verdict, decision.overrides_agent), (PolicyVerdict::Ask, true));
    assert_eq!(decision.rule.as_deref(), Some("Bash(ls -a)"));
    assert_eq!(fixture.shell("ls -d").verdict, PolicyVerdict::Deny);
    assert_eq!(fixture.shell("ls -a && ls -d").verdict, PolicyVerdict::Deny);
    for layer in [fixture.shell("ls").layer, fixture.shell("x").layer] {
        assert!(!layer.name().is_empty());
    }
}

/// Compiles a set with one rule that is not valid.
fn broken(behavior: RuleBehavior, rule: &str) -> Fixture {
    let rules = [rule.to_owned()];
    let (allow, ask, deny): (&[String], &[String], &[String]) = match behavior {
        RuleBehavior::Allow => (&rules, &[], &[]),
        RuleBehavior::Ask => (&[], &rules, &[]),
        RuleBehavior::Deny => (&[], &[], &rules),
    };
    let (set, errors) = RuleSet::compile(RuleScope::Always, Some(Path::new(ROOT)), allow, ask, deny);
    assert_eq!(errors.len(), 1, "{rule}");
    assert_eq!((errors[0].behavior, errors[0].text.as_str()), (behavior, rule));
    let mut fixture = Fixture::new().allow(&["Bash", "Edit", "Task", "mcp__a"]);
    fixture.mode = PermissionMode::BypassPermissions;
    fixture.sets.push(set);
    fixture
}

#[test]
fn invalid_deny_and_ask_rules_fail_closed() {
    for behavior in [RuleBehavior::Deny, RuleBehavior::Ask] {
        let fixture = broken(behavior, "Bash(rm");
        assert_eq!(fixture.shell("ls").verdict, PolicyVerdict::Ask);
        assert!(fixture.shell("ls").overrides_agent);
        assert_eq!(fixture.write("a").verdict, PolicyVerdict::Allow);
        for rule in ["Edit(../x)", "Edit(!x)", "Edit(~other/x)", "Edit([a)", "Edit()"] {
            let fixture = broken(behavior, rule);
            assert_eq!(fixture.write("a").verdict, PolicyVerdict::Ask, "{rule}");
            assert_eq!(fixture.shell("ls").verdict, PolicyVerdict::Allow, "{rule}");
        }
        let fixture = broken(behavior, "WebFetch(example.com)");
        assert_eq!(fixture.fetch("https://example.org").verdict, PolicyVerdict::Ask);
        let fixture = broken(behavior, "Task(name)");
        assert_eq!(fixture.decide("Task", ToolAccess::Other).verdict, PolicyVerdict::Ask);
        let fixture = broken(behavior, "mcp__a(x)");
        assert_eq!(fixture.mcp("a", "y").verdict, PolicyVerdict::Ask);
        for rule in ["*", "", "(x)", "? ?"] {
            let fixture = broken(behavior, rule);
            assert_eq!(fixture.shell("ls").verdict, PolicyVerdict::Ask, "{rule:?}");
            assert_eq!(fixture.write("a").verdict, PolicyVerdict::Ask, "{rule:?}");
            assert_eq!(fixture.decide("Task", ToolAccess::Other).verdict, PolicyVerdict::Ask, "{rule:?}");
            assert_eq!(fixture.decide("TodoWrite", ToolAccess::Internal).verdict, PolicyVerdict::Allow);
        }
    }
}

#[test]
fn invalid_allow_rule_allows_nothing() {
    let fixture = broken(RuleBehavior::Allow, "WebFetch(example.com)").mode(PermissionMode::Default);
    assert_eq!(fixture.fetch("https://example.com").verdict, PolicyVerdict::Ask);
}

#[test]
fn rule_for_tool_whose_access_is_unknown_restricts_it() {
    let fixture = Fixture::new().deny(&["Bash(rm:*)", "Edit"]).mode(PermissionMode::BypassPermissions);
    assert_eq!(fixture.decide("Bash", ToolAccess::Other).verdict, PolicyVerdict::Ask);
    assert_eq!(fixture.decide("Write", ToolAccess::Write(Vec::new())).verdict, PolicyVerdict::Deny);
}
