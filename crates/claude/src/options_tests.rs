use std::ffi::OsString;

use super::*;

fn options(program: Program, environment: &[(&str, &str)]) -> LaunchOptions {
    LaunchOptions {
        program,
        warden: WardenProgram { path: "warden".into(), args: Vec::new() },
        cwd: "/home/guest/project".into(),
        conversation: Conversation::New(Uuid::from_u128(7)),
        endpoint: Some(Endpoint {
            base_url: "http://127.0.0.1:4000".to_owned(),
            bearer: "nonce.conversation".to_owned().into(),
        }),
        model: None,
        permission_mode: None,
        append_system_prompt: None,
        environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        overrides: BTreeMap::new(),
        scratch_dir: "/home/guest/scratch".into(),
    }
}

fn native() -> Program {
    Program::from_path("/opt/claude")
}

/// Everything that a plan decides, as one value.
fn shown(plan: &LaunchPlan) -> Value {
    let text = |value: &OsString| value.to_string_lossy().into_owned();
    json!({
        "executable": plan.executable,
        "arguments": plan.arguments(Some(Path::new("/home/guest/scratch/settings.json"))).iter().map(text).collect::<Vec<_>>(),
        "environment": plan.environment.iter().map(|(name, value)| (text(name), text(value))).collect::<BTreeMap<_, _>>(),
        "settings": plan.settings.as_ref().map(|settings| serde_json::from_str::<Value>(settings.expose_secret()).unwrap()),
        "initialize": plan.initialize,
    })
}

fn variable(plan: &LaunchPlan, name: &str) -> Option<String> {
    plan.environment.get(&OsString::from(name)).map(|value| value.to_string_lossy().into_owned())
}

#[test]
fn plan_of_a_native_runtime() {
    let environment = [
        ("PATH", "/usr/bin"),
        ("HOME", "/home/guest"),
        ("CLAUDE_CONFIG_DIR", "/home/guest/.config/claude"),
        ("CLAUDE_CODE_MAX_RETRIES", "2"),
        ("ANTHROPIC_MODEL", "opus"),
        ("ANTHROPIC_API_KEY", "of the user's"),
        ("NO_PROXY", "intranet, localhost"),
        ("VSCODE_PID", "1"),
    ];
    insta::assert_json_snapshot!(shown(&LaunchPlan::new(&options(native(), &environment))));
}

#[test]
fn plan_of_a_resumed_node_runtime_with_every_option() {
    let program = Program::from_path("/opt/runtime/cli.js");
    let plan = LaunchPlan::new(&LaunchOptions {
        conversation: Conversation::Resume(Uuid::from_u128(7)),
        model: Some("claude-sonnet-4-5".to_owned()),
        permission_mode: Some(PermissionMode::AcceptEdits),
        append_system_prompt: Some("Be brief.".to_owned()),
        overrides: BTreeMap::from([("EXTRA".into(), "1".into())]),
        ..options(program, &[("PATH", "/usr/bin")])
    });
    insta::assert_json_snapshot!(shown(&plan));
}

#[test]
fn with_an_endpoint_nothing_of_the_users_account_is_inherited() {
    let personal = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_SOMETHING_NEW",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
    ];
    let environment: Vec<(&str, &str)> = personal.iter().map(|name| (*name, "secret")).collect();
    let plan = LaunchPlan::new(&options(native(), &environment));
    for name in personal {
        assert_eq!(variable(&plan, name), None, "{name}");
    }
    assert_eq!(variable(&plan, "ANTHROPIC_BASE_URL").unwrap(), "http://127.0.0.1:4000");
}

#[test]
fn without_an_endpoint_the_users_account_is_left_alone() {
    let environment = [("ANTHROPIC_API_KEY", "of the user's"), ("CLAUDE_CODE_USE_BEDROCK", "1")];
    let plan = LaunchPlan::new(&LaunchOptions { endpoint: None, ..options(native(), &environment) });
    assert_eq!(variable(&plan, "ANTHROPIC_API_KEY").unwrap(), "of the user's");
    assert_eq!(variable(&plan, "CLAUDE_CODE_USE_BEDROCK").unwrap(), "1");
    assert_eq!(variable(&plan, "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST"), None);
    assert!(plan.settings.is_none());
}

#[test]
fn variables_of_whoever_started_the_host_are_dropped_and_overrides_win() {
    let foreign = ["INNKEEPER_TOKEN", "ELECTRON_RUN_AS_NODE", "NODE_OPTIONS", "CLAUDECODE", "GITHUB_ACTIONS"];
    let environment: Vec<(&str, &str)> = foreign.iter().map(|name| (*name, "1")).collect();
    let plan = LaunchPlan::new(&LaunchOptions {
        overrides: BTreeMap::from([("CLAUDECODE".into(), "2".into())]),
        ..options(native(), &environment)
    });
    let kept: Vec<_> = foreign.iter().filter(|name| variable(&plan, name).is_some()).collect();
    assert_eq!(kept, [&"CLAUDECODE"]);
    assert_eq!(variable(&plan, "CLAUDECODE").unwrap(), "2");
}

#[test]
fn loopback_joins_the_hosts_without_proxy_of_both_spellings() {
    let plan = LaunchPlan::new(&options(
        native(),
        &[("NO_PROXY", "a.example,127.0.0.1"), ("no_proxy", "b.example")],
    ));
    for name in ["NO_PROXY", "no_proxy"] {
        assert_eq!(variable(&plan, name).unwrap(), "a.example,127.0.0.1,b.example,localhost,::1");
    }
}

#[test]
fn neither_the_bearer_nor_the_users_secrets_show_in_arguments_or_debug_output() {
    let options = options(native(), &[("ANTHROPIC_API_KEY", "of the user's"), ("TOKEN", "of the user's")]);
    let plan = LaunchPlan::new(&options);
    let shown = format!("{:?} {plan:?} {options:?}", plan.arguments(None));
    assert!(!shown.contains("nonce.conversation"), "{shown}");
    assert!(!shown.contains("of the user's"), "{shown}");
}

#[test]
fn a_script_is_run_with_node_and_all_else_is_native() {
    assert_eq!(Program::from_path("/opt/claude"), Program::Native("/opt/claude".into()));
    let node = Program::Node { node: "node".into(), script: "/opt/cli.js".into() };
    assert_eq!(Program::from_path("/opt/cli.js"), node);
}
