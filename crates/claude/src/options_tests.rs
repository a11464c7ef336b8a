use std::ffi::OsString;
use std::path::Path;

use secrecy::ExposeSecret;
use serde_json::json;
use uuid::Uuid;

use super::*;

fn options(program: Program, environment: &[(&str, &str)]) -> LaunchOptions {
    let warden = WardenProgram { path: "warden".into(), args: Vec::new() };
    let directories =
        Directories { cwd: "/home/guest/project".into(), scratch: "/home/guest/scratch".into() };
    LaunchOptions {
        endpoint: Some(ApiEndpoint {
            base_url: "http://127.0.0.1:4000".to_owned(),
            bearer: "nonce.conversation".to_owned().into(),
        }),
        environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        ..LaunchOptions::new(program, warden, Conversation::New(Uuid::from_u128(7)), directories)
    }
}

fn native() -> Program {
    Program::from_path("/opt/claude")
}

/// All parts of a plan as one value.
fn shown(plan: &LaunchPlan) -> Value {
    let text = |value: &OsString| value.to_string_lossy().into_owned();
    let secret = |content: &Option<secrecy::SecretString>| {
        content.as_ref().map(|content| serde_json::from_str::<Value>(content.expose_secret()).unwrap())
    };
    let files = LaunchFiles {
        settings: plan.settings.as_ref().map(|_| Path::new("/home/guest/scratch/settings.json")),
        mcp: plan.mcp.as_ref().map(|_| Path::new("/home/guest/scratch/mcp.json")),
    };
    json!({
        "executable": plan.executable,
        "arguments": plan.arguments(files).iter().map(text).collect::<Vec<_>>(),
        "environment": plan.environment.iter().map(|(name, value)| (text(name), text(value))).collect::<BTreeMap<_, _>>(),
        "settings": secret(&plan.settings),
        "mcp": secret(&plan.mcp),
        "initialize": plan.initialize,
    })
}

fn variable(plan: &LaunchPlan, name: &str) -> Option<String> {
    plan.environment.get(&OsString::from(name)).map(|value| value.to_string_lossy().into_owned())
}

#[test]
fn native_runtime_plan() {
    let environment = [
        ("PATH", "/usr/bin"),
        ("HOME", "/home/guest"),
        ("CLAUDE_CONFIG_DIR", "/home/guest/.config/claude"),
        ("CLAUDE_CODE_MAX_RETRIES", "2"),
        ("ANTHROPIC_MODEL", "opus"),
        ("ANTHROPIC_API_KEY", "users-secret"),
        ("NO_PROXY", "intranet, localhost"),
        ("VSCODE_PID", "1"),
    ];
    insta::assert_json_snapshot!(shown(&LaunchPlan::new(&options(native(), &environment))));
}

#[test]
fn resumed_node_runtime_plan_with_all_options() {
    let program = Program::from_path("/opt/runtime/cli.js");
    let answer = Uuid::from_u128(9);
    let agent = AgentDefinition {
        description: "Reviews code".to_owned(),
        prompt: "You review.".to_owned(),
        tools: Some(vec!["Read".to_owned()]),
        model: Some("haiku".to_owned()),
        more: Map::from_iter([("color".to_owned(), json!("blue"))]),
    };
    let files = McpServer::Stdio {
        command: "files".to_owned(),
        args: vec!["--root".to_owned()],
        env: BTreeMap::from([("TOKEN".to_owned(), "secret".to_owned())]),
    };
    let plan = LaunchPlan::new(&LaunchOptions {
        conversation: Conversation::ResumeAt { id: Uuid::from_u128(7), answer },
        model: Some("claude-sonnet-4-5".to_owned()),
        fallback_model: Some("haiku".to_owned()),
        effort: Some(Effort::ExtraHigh),
        thinking: Some(Thinking::Budget(4000)),
        permission_mode: Some(PermissionMode::AcceptEdits),
        bypass_permissions: BypassPermissions::Selectable,
        max_turns: Some(25),
        system_prompt: SystemPrompt::Replaced("You are a test agent.".to_owned()),
        append_system_prompt: Some("Be brief.".to_owned()),
        renew_system_prompt: true,
        directories: vec!["/home/guest/other".into()],
        agent: Some("reviewer".to_owned()),
        agents: BTreeMap::from([("reviewer".to_owned(), agent)]),
        plugins: vec!["/home/guest/plugin".into()],
        mcp: McpOptions {
            servers: BTreeMap::from([("files".to_owned(), files)]),
            in_process: vec!["host".to_owned()],
            sources: McpSources::OptionsOnly,
        },
        tools: Tools {
            available: Some(vec!["Bash".to_owned(), "Read".to_owned()]),
            allowed: vec!["Bash(git status)".to_owned()],
            denied: vec!["WebSearch".to_owned()],
        },
        hooks: vec![HookRegistration {
            event: "PreToolUse".to_owned(),
            matcher: Some("Bash".to_owned()),
            callbacks: vec!["hook_0".to_owned()],
            timeout_seconds: Some(5),
            blocks_on_failure: true,
        }],
        json_schema: Some(json!({ "type": "object" })),
        settings: Map::from_iter([
            ("model".to_owned(), json!("opus")),
            ("env".to_owned(), json!({ "MINE": "1", "ANTHROPIC_BASE_URL": "http://elsewhere" })),
        ]),
        setting_sources: vec![SettingSource::User],
        file_checkpoints: true,
        forward_subagent_text: true,
        per_task_stop: true,
        overrides: BTreeMap::from([("EXTRA".into(), "1".into())]),
        ..options(program, &[("PATH", "/usr/bin")])
    });
    insta::assert_json_snapshot!(shown(&plan));
}

#[test]
fn fork_plan() {
    let conversation = Conversation::Fork { from: Uuid::from_u128(7), id: Uuid::from_u128(8) };
    let plan = LaunchPlan::new(&LaunchOptions { conversation, ..options(native(), &[]) });
    insta::assert_json_snapshot!(shown(&plan)["arguments"]);
}

#[test]
fn settings_are_unchanged_without_an_endpoint() {
    let settings = Map::from_iter([("model".to_owned(), json!("opus"))]);
    let plan = LaunchPlan::new(&LaunchOptions { endpoint: None, settings, ..options(native(), &[]) });
    assert_eq!(plan.settings.unwrap().expose_secret(), r#"{"model":"opus"}"#);
}

#[test]
fn account_variables_are_removed_with_an_endpoint() {
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
fn account_variables_are_kept_without_an_endpoint() {
    let environment = [("ANTHROPIC_API_KEY", "users-secret"), ("CLAUDE_CODE_USE_BEDROCK", "1")];
    let plan = LaunchPlan::new(&LaunchOptions { endpoint: None, ..options(native(), &environment) });
    assert_eq!(variable(&plan, "ANTHROPIC_API_KEY").unwrap(), "users-secret");
    assert_eq!(variable(&plan, "CLAUDE_CODE_USE_BEDROCK").unwrap(), "1");
    assert_eq!(variable(&plan, "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST"), None);
    assert!(plan.settings.is_none());
}

#[test]
fn variables_of_an_outer_session_are_removed_and_overrides_win() {
    let foreign = [
        "INNKEEPER_TOKEN",
        "ELECTRON_RUN_AS_NODE",
        "NODE_OPTIONS",
        "CLAUDECODE",
        "GITHUB_ACTIONS",
        "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
    ];
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
fn loopback_is_added_to_both_spellings_of_no_proxy() {
    let plan = LaunchPlan::new(&options(
        native(),
        &[("NO_PROXY", "a.example,127.0.0.1"), ("no_proxy", "b.example")],
    ));
    for name in ["NO_PROXY", "no_proxy"] {
        assert_eq!(variable(&plan, name).unwrap(), "a.example,127.0.0.1,b.example,localhost,::1");
    }
}

#[test]
fn secrets_are_not_in_arguments_or_debug_output() {
    let env = BTreeMap::from([("TOKEN".to_owned(), "users-secret".to_owned())]);
    let server = McpServer::Http { url: "http://127.0.0.1:1".to_owned(), headers: env };
    let options = LaunchOptions {
        mcp: McpOptions { servers: BTreeMap::from([("x".to_owned(), server)]), ..McpOptions::default() },
        settings: Map::from_iter([("token".to_owned(), json!("users-secret"))]),
        ..options(native(), &[("ANTHROPIC_API_KEY", "users-secret"), ("TOKEN", "users-secret")])
    };
    let plan = LaunchPlan::new(&options);
    let shown = format!("{:?} {plan:?} {options:?}", plan.arguments(LaunchFiles::default()));
    assert!(!shown.contains("nonce.conversation"), "{shown}");
    assert!(!shown.contains("users-secret"), "{shown}");
}

#[test]
fn script_runs_with_node_and_other_programs_are_native() {
    assert_eq!(Program::from_path("/opt/claude"), Program::Native("/opt/claude".into()));
    let node = Program::Node { node: "node".into(), script: "/opt/cli.js".into() };
    assert_eq!(Program::from_path("/opt/cli.js"), node);
}
