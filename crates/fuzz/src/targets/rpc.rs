//! Client input: bytes on a connection to a complete host with a scripted agent.
//!
//! An input is a list of lines, preceded by a handshake unless it starts with `!`. The host must not panic,
//! and must send exactly one response to every request, valid or not.

#![expect(clippy::panic, reason = "a target reports a failure by panicking")]

mod edit_log;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ahp_types::state::{AgentCapabilities, AgentInfo, MultipleChatsCapability};
use innkeeper_core::agent::{
    AgentCommand, AgentConnection, AgentEvent, AgentFeatures, AgentOffer, AgentProvider, BoxFuture,
    COMMAND_CAPACITY, EVENT_CAPACITY, History, OpenAgent, OpenError, TurnOutcome, plain_info,
};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig};
use innkeeper_server::{Admission, Listen, Server, ServerConfig};
use innkeeper_workspace::{FilesConfig, LocalFiles};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::FuzzTarget;
use edit_log::OneFileLog;

pub(super) const TARGET: FuzzTarget = FuzzTarget { name: "rpc", run: rpc, seeds, words: WORDS };

/// Number of invalid frames after which the host closes a connection.
const MAX_INVALID: u32 = 16;

/// Maximum nesting depth that the host accepts.
const MAX_DEPTH: usize = 96;

/// Timeout for all responses; the paused clock advances only when all tasks are idle.
const TIMEOUT: Duration = Duration::from_secs(600);

const HANDSHAKE: &str = r#"{"jsonrpc":"2.0","id":"the first","method":"initialize","params":{"protocolVersions":["1.0.0"],"clientId":"fuzz","initialSubscriptions":["ahp-root://"]}}"#;
const LAST: &str = r#"{"jsonrpc":"2.0","id":"the last","method":"listSessions"}"#;

/// Set by the panic hook, because the runtime catches panics of tasks.
static PANICKED: AtomicBool = AtomicBool::new(false);

fn rpc(input: &[u8]) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.store(true, Ordering::SeqCst);
            before(panic);
        }));
    });
    PANICKED.store(false, Ordering::SeqCst);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("cannot start the async runtime: {error}"));
    let (handshake, lines) = match input {
        [b'!', lines @ ..] => (None, lines),
        lines => (Some(HANDSHAKE), lines),
    };
    let sent =
        [handshake.unwrap_or_default().as_bytes(), b"\n", lines, b"\n", LAST.as_bytes(), b"\n"].concat();
    let expected = Expected::of(&sent);
    let responses = runtime.block_on(talk(&sent, expected.requests.values().sum()));
    // Without a handshake the connection may close early.
    if expected.invalid < MAX_INVALID && handshake.is_some() {
        assert_eq!(responses.requests, expected.requests, "not exactly one response per request");
        assert_eq!(
            responses.invalid, expected.invalid,
            "number of errors differs from number of invalid frames"
        );
    }
    for (id, count) in responses.requests {
        assert!(
            expected.requests.get(&id).is_some_and(|asked| count <= *asked),
            "unexpected response to {id}"
        );
    }
    assert!(!PANICKED.load(Ordering::SeqCst), "a task panicked");
}

/// Number of requests or responses by id, and number without an id.
#[derive(Debug, Default)]
struct Expected {
    requests: BTreeMap<String, usize>,
    invalid: u32,
}

#[derive(Deserialize)]
struct RpcEnvelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default, rename = "params")]
    _params: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "result")]
    _result: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "error")]
    _error: Option<&'a RawValue>,
}

impl Expected {
    fn of(sent: &[u8]) -> Self {
        let mut expected = Self::default();
        let lines = sent.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace)) {
            let text = std::str::from_utf8(line);
            // serde would accept an array as the fields in order.
            let object = text.ok().filter(|text| !text.trim_start().starts_with('['));
            let envelope = object.and_then(|text| serde_json::from_str::<RpcEnvelope<'_>>(text).ok());
            match envelope {
                Some(RpcEnvelope { id: Some(id), method: Some(_), .. }) => expected.request(id),
                Some(
                    RpcEnvelope { id: Some(_), method: None, .. }
                    | RpcEnvelope { id: None, method: Some(_), .. },
                ) if !is_deep(line) => {}
                Some(_) | None => expected.invalid += 1,
            }
        }
        expected
    }

    fn request(&mut self, id: &RawValue) {
        *self.requests.entry(id.get().to_owned()).or_default() += 1;
    }
}

fn is_deep(json: &[u8]) -> bool {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match (in_string, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, _, b'"') => in_string = !in_string,
            (false, _, b'[' | b'{') => depth += 1,
            (false, _, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest > MAX_DEPTH
}

/// Sends all input and counts responses until `wanted` have arrived.
async fn talk(sent: &[u8], wanted: usize) -> Expected {
    let config = HostConfig {
        providers: vec![Arc::new(InstantAgent)],
        clock: Arc::new(SystemClock),
        storage: Arc::new(Nowhere),
        permissions: PermissionConfig::default(),
        edits: EditConfig { log: Arc::new(OneFileLog), default_directory: None },
        lifetimes: AgentLifetimes::default(),
        services: HostServices::default(),
    };
    let host = Host::start(config).await.unwrap_or_else(|error| panic!("{error}"));
    let config = ServerConfig {
        listen: vec![Listen::Stdio],
        admission: Admission::open(),
        version: String::new(),
        default_directory: None,
        // No session directories, because an input must not reach the machine's files.
        files: Arc::new(LocalFiles::new(FilesConfig {
            sessions: Arc::new(Vec::new),
            granted: Vec::new(),
            closed: Vec::new(),
        })),
        clients: Arc::default(),
    };
    let server = Server::start(config, Arc::clone(&host)).await.unwrap_or_else(|error| panic!("{error}"));
    let (mut input, host_input) = tokio::io::duplex(4096);
    let (host_output, output) = tokio::io::duplex(4096);
    server.open_stdio(host_input, host_output);
    let mut lines = BufReader::new(output).lines();
    let mut responses = Expected::default();
    let reading = async {
        let mut seen = 0;
        // Waits a moment longer after the last expected response, to detect extra ones.
        while let Ok(Ok(Some(line))) = tokio::time::timeout(
            if seen < wanted { TIMEOUT } else { Duration::from_secs(1) },
            lines.next_line(),
        )
        .await
        {
            let envelope: RpcEnvelope<'_> =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            match (envelope.id, envelope.method) {
                (Some(id), None) => {
                    seen += 1;
                    responses.request(id);
                }
                (None, None) => responses.invalid += 1,
                (_, Some(_)) => {}
            }
        }
    };
    // Writing fails if the host closed the connection; received responses still count.
    let (_, ()) = tokio::join!(input.write_all(sent), reading);
    drop(input);
    host.shutdown().await;
    server.drain().await;
    responses
}

/// An agent that completes every turn at once, unless the message contains "hang".
struct InstantAgent;

impl AgentProvider for InstantAgent {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        let info = AgentInfo { capabilities: Some(several_chats()), ..plain_info("a", "") };
        watch::channel(AgentOffer { features: AgentFeatures::ALL, ..AgentOffer::new(info) }).1
    }

    fn open(&self, _: OpenAgent, _: CancellationToken) -> BoxFuture<Result<AgentConnection, OpenError>> {
        Box::pin(async {
            let (commands, orders) = mpsc::channel(COMMAND_CAPACITY);
            let (reports, events) = mpsc::channel(EVENT_CAPACITY);
            let close = CancellationToken::new();
            #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of this input")]
            tokio::spawn(work(orders, reports, close.clone()));
            Ok(AgentConnection { commands, events, close })
        })
    }
}

fn several_chats() -> AgentCapabilities {
    AgentCapabilities {
        multiple_chats: Some(MultipleChatsCapability { fork: Some(true), side_chat: Some(true) }),
        ..AgentCapabilities::default()
    }
}

async fn work(
    mut orders: mpsc::Receiver<AgentCommand>,
    reports: mpsc::Sender<AgentEvent>,
    close: CancellationToken,
) {
    loop {
        let order = tokio::select! {
            biased;
            () = close.cancelled() => None,
            order = orders.recv() => order,
        };
        let report = match order {
            None => break,
            Some(AgentCommand::Prompt { message, .. }) if message.text.contains("hang") => continue,
            Some(AgentCommand::Prompt { turn, .. }) => {
                AgentEvent::TurnEnded { turn, outcome: TurnOutcome::Completed }
            }
            Some(AgentCommand::Cancel { turn }) => {
                AgentEvent::TurnEnded { turn, outcome: TurnOutcome::Cancelled }
            }
            Some(AgentCommand::StopWork { request, .. }) => {
                AgentEvent::WorkStopped { request, result: Ok(Vec::new()) }
            }
            Some(AgentCommand::Steer { id, turn, message }) => {
                AgentEvent::SteeringTaken { id, turn, message: Box::new(message) }
            }
            Some(
                AgentCommand::Unsteer { .. }
                | AgentCommand::Release
                | AgentCommand::PermissionVerdict { .. }
                | AgentCommand::ToolAnswer { .. }
                | AgentCommand::InputAnswer(_)
                | AgentCommand::Rewind { .. }
                | AgentCommand::Directories(_)
                | AgentCommand::Token(_)
                | AgentCommand::Config(_)
                | AgentCommand::ClientTools(_)
                | AgentCommand::Toggle(_)
                | AgentCommand::McpServer { .. },
            ) => continue,
        };
        // The send fails if the session is gone.
        reports.send(report).await.ok();
    }
    // The send fails if the session is gone.
    reports.send(AgentEvent::Closed { history: History::Fresh, unsent: None, restart: None }).await.ok();
}

/// Requests to stop work and to restart the agent.
const STOPS: &str = concat!(
    r#"{"id":16,"method":"innkeeper/stop","params":{"channel":"ahp-chat://default/YWNtZTovczE","what":{"toolCallId":"k"}}}"#,
    "\n",
    r#"{"id":17,"method":"innkeeper/stop","params":{"channel":"ahp-chat://default/YWNtZTovczE","what":{"workId":"w"}}}"#,
    "\n",
    r#"{"id":18,"method":"innkeeper/stop","params":{"channel":"ahp-chat://default/YWNtZTovczE","what":"all"}}"#,
    "\n",
    r#"{"id":19,"method":"innkeeper/restartAgent","params":{"channel":"ahp-chat://default/YWNtZTovczE"}}"#,
    "\n",
);

fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let session = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"createSession","params":{"channel":"acme:/s1","provider":"a"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"subscribe","params":{"channel":"ahp-chat://default/YWNtZTovczE"}}"#,
        "\n",
    );
    let dispatch = |channel: &str, action: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"{channel}","clientSeq":1,"action":{action}}}}}"#
        ) + "\n"
    };
    let chat = |action: &str| dispatch("ahp-chat://default/YWNtZTovczE", action);
    let started = |text: &str| {
        chat(&format!(
            r#"{{"type":"chat/turnStarted","turnId":"t","startedAt":"2025-11-15T09:00:05.000Z","message":{{"text":"{text}","origin":{{"kind":"user"}}}}}}"#
        ))
    };
    let seeds = [
        "{not json\n[]\n42\n\n{}\n".to_owned(),
        format!("!{HANDSHAKE}\n{}\n", r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#),
        format!(
            "!{}\n",
            r#"{"id":1,"method":"reconnect","params":{"clientId":"c","lastSeenServerSeq":3,"subscriptions":["x:/1"]}}"#
        ),
        dispatch("ahp-root://", r#"{"type":"root/configChanged","config":{"telemetryLevel":"off"}}"#),
        format!("{session}{}{}", started("hello"), started("hang")),
        format!("{session}{}{}", started("hang"), chat(r#"{"type":"chat/turnCancelled","turnId":"t"}"#)),
        format!(
            "{session}{}{}{}",
            started("hang"),
            chat(
                r#"{"type":"chat/pendingMessageSet","kind":"queued","id":"q","message":{"text":"x","origin":{"kind":"user"}}}"#
            ),
            chat(
                r#"{"type":"chat/pendingMessageSet","kind":"steering","id":"s","message":{"text":"x","origin":{"kind":"user"}}}"#
            ),
        ),
        format!(
            "{session}{}{}",
            dispatch("acme:/s1", r#"{"type":"session/titleChanged","title":"x"}"#),
            dispatch("acme:/s1", r#"{"type":"session/isReadChanged","isRead":true}"#),
        ),
        format!(
            "{session}{}\n",
            r#"{"jsonrpc":"2.0","id":3,"method":"disposeSession","params":{"channel":"acme:/s1"}}"#
        ),
        format!(
            "{}\n{}\n{}\n",
            r#"{"id":4,"method":"resolveSessionConfig","params":{"config":{}}}"#,
            r#"{"id":5,"method":"listSessions","params":{"limit":1,"cursor":"1"}}"#,
            r#"{"id":12,"method":"innkeeper/audit","params":{"session":"acme:/s1","before":"7","limit":500}}"#
        ),
        format!(
            "{session}{}{}\n{}\n{}\n{}\n",
            started("hello"),
            r#"{"id":8,"method":"createChat","params":{"channel":"acme:/s1","chat":"ahp-chat:/2","initialMessage":{"text":"x","origin":{"kind":"user"}}}}"#,
            r#"{"id":9,"method":"createChat","params":{"channel":"acme:/s1","chat":"ahp-chat:/3","source":{"kind":"fork","chat":"ahp-chat:/2","turnId":"t"}}}"#,
            r#"{"id":10,"method":"moveChat","params":{"channel":"ahp-chat:/2","destination":{"kind":"newSession"}}}"#,
            r#"{"id":11,"method":"disposeChat","params":{"channel":"ahp-chat:/2"}}"#,
        ),
        format!(
            "{session}{}{}\n{}{}\n{}\n",
            started("hello"),
            r#"{"id":13,"method":"subscribe","params":{"channel":"acme:/s1/changeset/session"}}"#,
            dispatch(
                "acme:/s1/changeset/session",
                r#"{"type":"changeset/filesReviewChanged","files":["file:///a"],"reviewed":true}"#
            ),
            r#"{"id":14,"method":"invokeChangesetOperation","params":{"channel":"acme:/s1/changeset/turn/t","operationId":"undo","target":{"kind":"range","resource":"file:///a","range":{"start":{"line":0,"character":0},"end":{"line":1,"character":0}}},"_meta":{"innkeeper.force":true}}}"#,
            r#"{"id":15,"method":"resourceRead","params":{"uri":"innkeeper-diff:/-/0000000000000000000000000000000000000000000000000000000000000000/a"}}"#,
        ),
        format!("{session}{}{STOPS}", started("hang")),
        format!("{}\n", r#"{"id":6,"result":null}"#),
        format!(r#"{{"id":7,"method":"ping","params":{}{}}}"#, "[".repeat(100), "]".repeat(100)) + "\n",
    ];
    Ok(seeds.into_iter().map(String::into_bytes).collect())
}

const WORDS: &[&str] = &[
    "\"jsonrpc\":\"2.0\"",
    "\"id\":",
    "\"method\":",
    "\"params\":",
    "null",
    "\n",
    "initialize",
    "reconnect",
    "ping",
    "subscribe",
    "unsubscribe",
    "listSessions",
    "innkeeper/audit",
    "innkeeper/stop",
    "innkeeper/restartAgent",
    "\"what\":\"all\"",
    "\"what\":{\"workId\":\"w\"}",
    "createSession",
    "disposeSession",
    "resolveSessionConfig",
    "dispatchAction",
    "resourceRead",
    "resourceWrite",
    "resourceList",
    "createResourceWatch",
    "completions",
    "createChat",
    "disposeChat",
    "moveChat",
    "invokeChangesetOperation",
    "\"operationId\":\"undo\"",
    "\"target\":{\"kind\":\"resource\",\"resource\":\"file:///a\"}",
    "/changeset/session",
    "/changeset/turn/t",
    "changeset/filesReviewChanged",
    "innkeeper-blob:/",
    "innkeeper-diff:/-/-/a",
    "\"chat\":",
    "ahp-chat:/2",
    "\"source\":{\"kind\":\"fork\",",
    "\"destination\":{\"kind\":\"newSession\"}",
    "authenticate",
    "file:///",
    "fetchTurns",
    "\"channel\":",
    "ahp-root://",
    "acme:/s1",
    "ahp-chat://default/YWNtZTovczE",
    "\"action\":",
    "\"type\":",
    "chat/turnStarted",
    "chat/turnCancelled",
    "chat/pendingMessageSet",
    "chat/pendingMessageRemoved",
    "chat/queuedMessagesReordered",
    "chat/truncated",
    "chat/draftChanged",
    "chat/toolCallConfirmed",
    "chat/toolCallComplete",
    "chat/inputCompleted",
    "session/titleChanged",
    "session/configChanged",
    "session/isReadChanged",
    "session/isArchivedChanged",
    "session/activeClientSet",
    "session/activeClientRemoved",
    "root/configChanged",
    "\"turnId\":",
    "\"message\":",
    "\"text\":",
    "\"origin\":",
    "hang",
    "[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]",
    "{\"a\":",
    "true",
    "-1",
    "18446744073709551616",
    "1e999",
    "\\ud800",
];
