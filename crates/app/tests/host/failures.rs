//! Failures end the turn with cause, advice and the right `resumable`. With both pinned runtimes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ahp_types::state::{ResponsePart, TurnState};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use innkeeper_gateway::{DemoUpstream, Gateway, GatewayConfig, GatewayHandle};
use innkeeper_testkit::fakes::{FakeAnthropic, Reply, event};
use innkeeper_testkit::{HostOptions, Observer, TestHost, runtimes};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{Opened, options};

/// The last error of a chat: type, message, and whether the turn can be resumed.
fn last_error(client: &Observer, chat: &str) -> Result<(String, String, bool)> {
    let turn = client.chat(chat)?.turns.last().context("no turn")?;
    assert_eq!(turn.state, TurnState::Error, "{turn:?}");
    let Some(ResponsePart::Error(part)) = turn.response_parts.last() else {
        anyhow::bail!("no error: {turn:?}")
    };
    Ok((part.error.error_type.clone(), part.error.message.clone(), part.resumable == Some(true)))
}

/// Checks that nothing which clients received is about the runtime's own user interface.
fn nothing_misleading(client: &Observer, chat: &str) -> Result<()> {
    let seen = format!("{:?} {}", client.seen, serde_json::to_string(client.chat(chat)?)?);
    for wrong in ["inference gateway", "127.0.0.1:", "/login"] {
        assert!(!seen.contains(wrong), "{wrong}: {seen}");
    }
    Ok(())
}

/// Resumes the last turn and waits until it is complete.
async fn resume(client: &mut Observer, chat: &str, turn: &str) -> Result<()> {
    client.dispatch(chat, json!({"type": "chat/turnResume", "turnId": turn})).await?;
    let complete = |client: &Observer| {
        let last = client.chat(chat).ok().and_then(|chat| chat.turns.last());
        last.is_some_and(|last| last.id == turn && last.state == TurnState::Complete)
    };
    client.until("the resumed turn is complete", complete).await
}

/// Anthropic's API with the demo model, which answers requests without a script.
struct Service {
    fake: FakeAnthropic,
    _model: GatewayHandle,
}

impl Service {
    async fn start() -> Result<Self> {
        let upstream = std::sync::Arc::new(DemoUpstream::new());
        let config = GatewayConfig { listen: ([127, 0, 0, 1], 0).into(), upstream };
        let model = Gateway::start(config).await?;
        let fake =
            FakeAnthropic::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
        Ok(Self { fake, _model: model })
    }

    /// Options for a host that uses the service.
    fn options(&self, claude: PathBuf) -> HostOptions {
        at_service(claude, &self.fake.url())
    }

    /// Fails this many requests.
    fn fail(&self, count: usize, reply: &Reply) {
        for _ in 0..count {
            self.fake.script_messages(reply.clone());
        }
    }
}

fn at_service(claude: PathBuf, url: &str) -> HostOptions {
    let mut options = options(claude)
        .with_variable("ANTHROPIC_API_KEY", "the-hosts-key")
        .with_variable("INNKEEPER_ANTHROPIC_URL", url);
    options.upstream = "anthropic".to_owned();
    options
}

fn api_error(status: u16, kind: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"type": "error", "error": {"type": kind, "message": message}}))
}

/// A failure: status, kind and cause of the service; expected type, advice, and whether the turn
/// can be resumed.
type StatusCase = (u16, &'static str, &'static str, &'static str, &'static str, bool);

const STATUS_CASES: [StatusCase; 9] = [
    // First, because the newer runtime compacts a longer conversation and continues.
    (
        400,
        "invalid_request_error",
        "prompt is too long: 3 tokens > 2 maximum",
        "context_too_long",
        "/compact",
        false,
    ),
    (401, "authentication_error", "invalid key", "authentication", "ANTHROPIC_API_KEY", true),
    (402, "billing_error", "no credit left", "billing", "credit", true),
    (402, "quota_exceeded", "quota is used up", "billing", "next period", true),
    (403, "permission_error", "not for this account", "permission", "another model", true),
    (404, "not_found_error", "model: x", "model_not_found", "Choose another model", false),
    (429, "rate_limit_error", "too many tokens", "rate_limit", "in 42 s", true),
    (500, "api_error", "broken", "model_service", "in 42 s", true),
    (529, "overloaded_error", "busy now", "overloaded", "in 42 s", true),
];

/// All cases run in one conversation, which also shows that the runtime stays usable.
async fn status_cases(claude: PathBuf) -> Result<()> {
    let service = Service::start().await?;
    let host = TestHost::start(service.options(claude)).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    for (number, case) in STATUS_CASES.into_iter().enumerate() {
        let (status, kind, cause, expected, advice, resumable) = case;
        let turn = format!("turn-{number}");
        // The runtimes repeat some requests in other forms.
        service.fail(8, &api_error(status, kind, cause).header("retry-after", "42"));
        client.say(&chat, &turn, "#demo\ntext fine again").await?;
        client.until_turn_over(&chat, &turn).await?;
        service.fake.clear_scripts();
        let (found, message, can_resume) = last_error(&client, &chat)?;
        assert_eq!((found.as_str(), can_resume), (expected, resumable), "{status}: {message}");
        assert!(message.contains(cause) && message.contains(advice), "{status}: {message}");
        if resumable {
            resume(&mut client, &chat, &turn).await?;
        }
    }
    nothing_misleading(&client, &chat)
}

#[tokio::test]
async fn failed_request_names_cause_and_advice_with_native_runtime() -> Result<()> {
    let [native, _] = runtimes()?;
    status_cases(native).await
}

#[tokio::test]
async fn failed_request_names_cause_and_advice_with_node_runtime() -> Result<()> {
    let [_, node] = runtimes()?;
    status_cases(node).await
}

/// Scenario F: a stream without its end, and an error inside a stream.
#[tokio::test]
async fn broken_stream_fails_the_turn_visibly() -> Result<()> {
    for claude in runtimes()? {
        let service = Service::start().await?;
        let host = TestHost::start(service.options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        let mut events = innkeeper_testkit::fakes::EventStream::of("claude-x", &["half an answer"]).events;
        events.truncate(8);
        let pieces = |events: &[String]| Reply::pieces(events.iter().map(|event| event.clone().into()));
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy now"}});
        let with_error: Vec<String> = events.iter().cloned().chain([event("error", &error)]).collect();
        let cases = [
            ("eof", &events, 502, "api_error", "model_service"),
            ("event", &with_error, 529, "overloaded_error", "overloaded"),
        ];
        for (turn, events, status, kind, expected) in cases {
            service.fail(1, &pieces(events));
            // The runtimes may repeat the request without a stream.
            service.fail(8, &api_error(status, kind, "busy now"));
            client.say(&chat, turn, "#demo\ntext fine again").await?;
            client.until_turn_over(&chat, turn).await?;
            service.fake.clear_scripts();
            let (found, message, resumable) = last_error(&client, &chat)?;
            assert_eq!((found.as_str(), resumable), (expected, true), "{message}");
            resume(&mut client, &chat, turn).await?;
        }
        nothing_misleading(&client, &chat)?;
    }
    Ok(())
}

#[tokio::test]
async fn unreachable_service_fails_the_turn_with_the_cause() -> Result<()> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for claude in runtimes()? {
        let host = TestHost::start(at_service(claude, &format!("http://{free}"))).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "hi").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let (found, message, resumable) = last_error(&client, &chat)?;
        assert_eq!((found.as_str(), resumable), ("model_service", true), "{message}");
        assert!(message.starts_with("The Anthropic API failed"), "{message}");
        assert!(!message.contains("inference gateway") && !message.contains("/login"), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn invalid_image_fails_the_message_and_the_runtime_stays() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "first", "hi").await?;
        client.until_turn_over(&chat, "first").await?;
        let pids = host.runtimes();
        let large = STANDARD.encode(vec![0; 5 * 1024 * 1024 + 1]);
        for (turn, data) in
            [("empty", ""), ("junk", "AAAA"), ("text", "no base64!"), ("large", large.as_str())]
        {
            let image = json!({"type": "embeddedResource", "label": "shot", "data": data, "contentType": "image/png"});
            let message = json!({"text": "look", "origin": {"kind": "user"}, "attachments": [image]});
            let started = json!({
                "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z", "message": message,
            });
            client.dispatch(&chat, started).await?;
            client.until_turn_over(&chat, turn).await?;
            let (found, message, resumable) = last_error(&client, &chat)?;
            assert_eq!((found.as_str(), resumable), ("invalid_image", false), "{message}");
        }
        client.say(&chat, "last", "hi").await?;
        client.until_turn_over(&chat, "last").await?;
        assert_eq!(client.chat(&chat)?.turns.last().context("no turn")?.state, TurnState::Complete);
        assert_eq!(host.runtimes(), pids, "the image ended the runtime");
    }
    Ok(())
}

fn transcript(host: &TestHost) -> Result<PathBuf> {
    for project in std::fs::read_dir(host.config_dir().join("projects"))? {
        for file in std::fs::read_dir(project?.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                return Ok(path);
            }
        }
    }
    anyhow::bail!("no transcript")
}

/// Scenario L: a runtime that refuses to resume never leads to an empty conversation.
#[tokio::test]
async fn refused_resume_offers_the_choices_of_a_lost_transcript() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude.clone())).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\ntext remember the milk").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        drop(client);
        let host = host.start_again(options(claude)).await?;
        let path = transcript(&host)?;
        let kept = std::fs::read(&path)?;
        std::fs::write(&path, "not a transcript\n")?;
        let mut client = host.observer("second").await?;
        client.open_session(&session).await?;
        client.say(&chat, "turn-2", "#demo\necho").await?;
        client.until_turn_over(&chat, "turn-2").await?;
        let (_, message, resumable) = last_error(&client, &chat)?;
        assert!(resumable, "{message}");
        for wanted in ["transcript", "rebuild", "start fresh", "cancel"] {
            assert!(message.contains(wanted), "{wanted}: {message}");
        }
        assert_eq!(host.runtimes(), Vec::<u32>::new(), "an empty conversation was started");
        std::fs::write(&path, kept)?;
        resume(&mut client, &chat, "turn-2").await?;
        let said = serde_json::to_string(&client.chat(&chat)?.turns.last())?;
        assert!(said.contains("remember the milk"), "{said}");
    }
    Ok(())
}

/// Writes an executable script.
fn script(folder: &Path, text: &str) -> Result<PathBuf> {
    let program = folder.join("claude");
    std::fs::write(&program, format!("#!/usr/bin/env bash\n{text}\n"))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// Scripts, because the real runtimes cannot be made to do this.
#[tokio::test]
async fn unusable_runtime_is_explained() -> Result<()> {
    let cases = [
        (
            "echo 'hello there'; cat > /dev/null",
            "runtime_start_timeout",
            vec!["hello there", "not ready after 1 s"],
        ),
        ("cat > /dev/null", "runtime_start_timeout", vec!["not ready after 1 s"]),
        ("echo 'hello there'", "runtime_start_failed", vec!["hello there", "exited with code 0"]),
        (
            "if [ \"$1\" = --version ]; then echo '1.0.3 (Claude Code)'; else echo 'unknown option' >&2; exit 1; fi",
            "runtime_too_old",
            vec!["1.0.3", "2.1.112", "innkeeper runtime install"],
        ),
        (
            "echo 'FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory' >&2; kill -ABRT $$",
            "runtime_out_of_memory",
            vec!["SIGABRT", "memory"],
        ),
    ];
    for (text, expected, wanted) in cases {
        let folder = tempfile::tempdir()?;
        let options = options(script(folder.path(), text)?).with_variable("INNKEEPER_START_TIMEOUT", "1");
        let host = TestHost::start(options).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "hi").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let (found, message, resumable) = last_error(&client, &chat)?;
        assert_eq!((found.as_str(), resumable), (expected, true), "{message}");
        for wanted in wanted {
            assert!(message.contains(wanted), "{wanted}: {message}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn removed_runtime_is_explained_and_the_turn_can_be_resumed() -> Result<()> {
    let [native, _] = runtimes()?;
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("claude");
    let host = TestHost::start(options(program.clone())).await?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "#demo\ntext fine").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    let (found, message, resumable) = last_error(&client, &chat)?;
    assert_eq!((found.as_str(), resumable), ("runtime_missing", true), "{message}");
    std::os::unix::fs::symlink(native, &program)?;
    resume(&mut client, &chat, "turn-1").await
}

/// Scenario C, as far as the host's options allow: a limit in the user's own options ends the turn.
#[tokio::test]
async fn reached_limit_is_an_error_with_advice() -> Result<()> {
    for claude in runtimes()? {
        let folder = tempfile::tempdir()?;
        let is_script = claude.extension().is_some_and(|extension| extension == "js");
        let start = if is_script { "node " } else { "" };
        let wrapper =
            script(folder.path(), &format!("exec {start}{claude:?} \"$@\" --max-budget-usd 0.000001"))?;
        let host = TestHost::start(options(wrapper)).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\ntext it costs").await?;
        client.until_turn_over(&chat, "turn-1").await?;
        let (found, message, resumable) = last_error(&client, &chat)?;
        assert_eq!((found.as_str(), resumable), ("error_max_budget_usd", false), "{message}");
        assert!(message.contains("Raise the budget"), "{message}");
    }
    Ok(())
}
