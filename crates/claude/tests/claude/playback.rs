//! Recordings played to a session: a stream replaces the runtime and writes the recorded output.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};

use innkeeper_claude::{
    BoxFuture, ByteStream, ClaudeSession, EventKind, IncomingRequest, Interrupted, Peer, PeerExit,
    PeerSignal, PermissionAnswer, Program, SessionOptions, StreamLaunch, StreamTransport, Transport, Turn,
    TurnEnding, TurnFailure,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::*;

/// Recording directories of both pinned runtimes.
const VERSIONS: [&str; 2] = ["0.2.112", "0.3.325"];

/// The lines of a recording, in order and in both directions.
#[derive(Clone)]
struct Recording {
    lines: Vec<Line>,
    /// The conversation id in the recording.
    conversation: String,
}

#[derive(Clone)]
enum Line {
    /// A frame from the host, which playback waits for.
    Host(Value),
    /// A frame from the runtime.
    Runtime(Value),
    /// Output of the runtime that is not a frame.
    Noise(String),
}

impl Recording {
    fn read(version: &str, scenario: &str) -> Self {
        let path = format!("{}/../../recordings/{version}/{scenario}/wire.jsonl", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Line> = text
            .lines()
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                let frame = line["msg"].take();
                if line["dir"] == "host->cli" { Line::Host(frame) } else { Line::Runtime(frame) }
            })
            .collect();
        let conversation = lines.iter().find_map(|line| match line {
            Line::Runtime(frame) => frame["session_id"].as_str().map(str::to_owned),
            Line::Host(_) | Line::Noise(_) => None,
        });
        Self { lines, conversation: conversation.unwrap() }
    }

    /// Inserts lines after the first frame that matches.
    fn insert_after(mut self, holds: impl Fn(&Value) -> bool, added: impl IntoIterator<Item = Line>) -> Self {
        let place = self.lines.iter().position(|line| matches!(line, Line::Runtime(frame) if holds(frame)));
        let place = place.expect("no such frame in the recording") + 1;
        self.lines.splice(place..place, added);
        self
    }
}

/// Type and subtype of a frame.
fn kind(frame: &Value) -> String {
    format!("{} {}", frame["type"], frame["request"]["subtype"])
}

/// Transport that plays one recording.
struct Playback {
    recording: Recording,
    conversation: String,
    tasks: TaskTracker,
}

impl StreamTransport for Playback {
    fn open<'a>(&'a self, _: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>> {
        let (stdin, writer) = tokio::io::duplex(1 << 20);
        let (stdout, reader) = tokio::io::duplex(1 << 20);
        let renamed = vec![(self.recording.conversation.clone(), self.conversation.clone())];
        let (recording, ended) = (self.recording.clone(), CancellationToken::new());
        let peer = Box::new(Player { ended: ended.clone() });
        self.tasks.spawn(async move {
            play(recording, stdin, stdout, renamed).await;
            ended.cancel();
        });
        Box::pin(async { Ok(ByteStream { reader: Box::new(reader), writer: Box::new(writer), peer }) })
    }
}

/// The process of a playback. It exits without a signal.
struct Player {
    ended: CancellationToken,
}

impl Peer for Player {
    fn signal(&mut self, _: PeerSignal) {}

    fn exited(&mut self) -> BoxFuture<'_, PeerExit> {
        Box::pin(async {
            self.ended.cancelled().await;
            PeerExit::Code(0)
        })
    }
}

/// Plays a recording; `renamed` maps recorded ids to those of this run.
async fn play(
    recording: Recording,
    stdin: tokio::io::DuplexStream,
    mut stdout: tokio::io::DuplexStream,
    mut renamed: Vec<(String, String)>,
) {
    let mut input = BufReader::new(stdin).lines();
    let mut taken = None;
    for line in recording.lines {
        match line {
            Line::Host(recorded) => {
                let frame = loop {
                    let Ok(Some(line)) = input.next_line().await else { return };
                    let frame: Value = serde_json::from_str(&line).unwrap();
                    if kind(&frame) == kind(&recorded) {
                        break frame;
                    }
                    agree(&frame, &mut stdout).await;
                };
                for id in ["request_id", "uuid"] {
                    if let (Some(old), Some(new)) = (recorded[id].as_str(), frame[id].as_str()) {
                        renamed.push((old.to_owned(), new.to_owned()));
                    }
                }
                if frame["type"] == "user" {
                    taken = Some(frame);
                }
            }
            Line::Runtime(frame) => {
                let text = renamed.iter().fold(frame.to_string(), |text, (old, new)| text.replace(old, new));
                write(&text, &mut stdout).await;
                // The recordings were made without the flag that enables echoes; an echo follows `init`.
                if frame["subtype"] == "init"
                    && let Some(mut echo) = taken.take()
                {
                    echo["isReplay"] = json!(true);
                    write(&echo.to_string(), &mut stdout).await;
                }
            }
            Line::Noise(text) => write(&text, &mut stdout).await,
        }
    }
    while let Ok(Some(line)) = input.next_line().await {
        agree(&serde_json::from_str(&line).unwrap(), &mut stdout).await;
    }
}

/// Responds to a request that is not in the recording.
async fn agree(frame: &Value, stdout: &mut (impl AsyncWrite + Unpin)) {
    if frame["type"] == "control_request" {
        let response = json!({ "subtype": "success", "request_id": frame["request_id"] });
        write(&json!({ "type": "control_response", "response": response }).to_string(), stdout).await;
    }
}

/// Writes a line. Ignores errors, since the session may have closed the stream.
async fn write(text: &str, stdout: &mut (impl AsyncWrite + Unpin)) {
    stdout.write_all(format!("{text}\n").as_bytes()).await.ok();
}

/// Starts a session over a recording; every tool is allowed.
async fn session(place: &Place, recording: Recording) -> ClaudeSession {
    let launch = place.options(Program::Native("/bin/true".into()));
    let conversation = launch.conversation.id().to_string();
    let transport =
        Transport::Stream(Arc::new(Playback { recording, conversation, tasks: TaskTracker::new() }));
    let allow = |request, _cancel| -> BoxFuture<'static, Result<Value, String>> {
        let IncomingRequest::CanUseTool(question) = request else { panic!("{request:?}") };
        Box::pin(async move { Ok(PermissionAnswer::allow().to_json(&question)) })
    };
    let options = SessionOptions { transport, ..SessionOptions::new(launch) }.with_handler(allow);
    soon(ClaudeSession::start(options, CancellationToken::new())).await.unwrap()
}

/// Formats the events of a turn, one per line, without those that clients do not see.
async fn events(turn: &mut Turn) -> String {
    let mut words = String::new();
    while let Some(event) = soon(turn.next()).await {
        let event = event.unwrap();
        assert_eq!(event.turn, Some(turn.uuid()));
        match &event.kind {
            EventKind::TextDelta { text } => writeln!(words, "+ {text}"),
            EventKind::ThinkingDelta { text } => writeln!(words, "+ thinking {text}"),
            EventKind::Text { text } => writeln!(words, "text {text}"),
            EventKind::Thinking { text } => writeln!(words, "thinking {text}"),
            EventKind::ToolUse { id, name, .. } => writeln!(words, "tool {name} {id}"),
            EventKind::ToolResult { tool_use_id, is_error, .. } => {
                writeln!(words, "result of {tool_use_id}, failed: {is_error}")
            }
            EventKind::Result { text, is_error, .. } => writeln!(words, "result {text}, failed: {is_error}"),
            EventKind::Error { message } => writeln!(words, "error {message}"),
            _ => Ok(()),
        }
        .unwrap();
    }
    words
}

#[tokio::test]
async fn recorded_responses_have_expected_events_and_result() {
    let cases = [
        ("hello", "+ Hel\n+ lo!\ntext Hello!\nresult Hello!, failed: false\n", 7),
        (
            "thinking",
            "+ thinking Let me think about it.\nthinking Let me think about it.\n\
             + The answer is 4.\ntext The answer is 4.\nresult The answer is 4., failed: false\n",
            7,
        ),
        (
            "read_allow",
            "+ Reading.\ntext Reading.\ntool Read toolu_read_1\nresult of toolu_read_1, failed: false\n\
             + It has two lines.\ntext It has two lines.\nresult It has two lines., failed: false\n",
            14,
        ),
    ];
    for version in VERSIONS {
        for (scenario, expected, tokens) in cases {
            let place = Place::new();
            let session = session(&place, Recording::read(version, scenario)).await;
            let mut turn = session.send("hi").unwrap();
            assert_eq!(events(&mut turn).await, expected, "{version} {scenario}");
            let result = soon(turn.result()).await.unwrap();
            assert_eq!((result.ending, result.tokens.output), (TurnEnding::Completed, tokens));
            assert_eq!(result.conversation, session.conversation());
            soon(session.terminate()).await;
        }
    }
}

#[tokio::test]
async fn recorded_turns_in_one_process_have_separate_results() {
    for version in VERSIONS {
        let place = Place::new();
        let session = session(&place, Recording::read(version, "two_turns")).await;
        for (prompt, expected) in [("one", "First."), ("two", "Second.")] {
            let mut turn = session.send(prompt).unwrap();
            let words = format!("+ {expected}\ntext {expected}\nresult {expected}, failed: false\n");
            assert_eq!(events(&mut turn).await, words, "{version}");
            assert_eq!(soon(turn.result()).await.unwrap().text, expected);
        }
        assert_eq!(session.artifact().turns, 2);
        soon(session.terminate()).await;
    }
}

#[tokio::test]
async fn recorded_model_error_fails_the_turn() {
    for version in VERSIONS {
        let place = Place::new();
        let session = session(&place, Recording::read(version, "upstream_400")).await;
        let result = soon(session.send("hi").unwrap().result()).await.unwrap();
        assert_eq!(result.ending, TurnEnding::Failed);
        assert!(result.text.contains("messages: something is wrong"), "{version}: {}", result.text);
        soon(session.terminate()).await;
    }
}

#[tokio::test]
async fn recorded_interrupt_ends_its_turn_and_the_next_one_completes() {
    for version in VERSIONS {
        let place = Place::new();
        let session = session(&place, Recording::read(version, "interrupt_stream")).await;
        let mut turn = session.send("count").unwrap();
        loop {
            let event = soon(turn.next()).await.unwrap().unwrap();
            if matches!(&event.kind, EventKind::TextDelta { text } if text == "three ") {
                break;
            }
        }
        assert_eq!(soon(session.interrupt()).await, Interrupted::Turn, "{version}");
        assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)), "{version}");
        assert_eq!(soon(session.send("go on").unwrap().result()).await.unwrap().text, "Carrying on.");
        soon(session.terminate()).await;
    }
}

/// Collects the warnings logged by this thread.
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn malformed_stream_event_is_logged_once_and_turn_continues() {
    let cut = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"ty"#;
    let is_delta = |frame: &Value| frame["event"]["type"] == "content_block_delta";
    for version in VERSIONS {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
        let place = Place::new();
        let recording =
            Recording::read(version, "hello").insert_after(is_delta, [Line::Noise(cut.to_owned())]);
        let session = session(&place, recording).await;
        let mut turn = session.send("hi").unwrap();
        let expected = "+ Hel\n+ lo!\ntext Hello!\nresult Hello!, failed: false\n";
        assert_eq!(events(&mut turn).await, expected, "{version}");
        assert_eq!(soon(turn.result()).await.unwrap().ending, TurnEnding::Completed);
        let warnings = warnings.lock().unwrap();
        assert_eq!(warnings.len(), 1, "{version}: {warnings:?}");
        assert!(warnings[0].contains("content_block_delta"), "{version}: {warnings:?}");
    }
}

#[tokio::test]
async fn stream_events_of_unexpected_type_do_not_end_the_turn() {
    let odd = [
        json!({ "type": "stream_event" }),
        json!({ "type": "stream_event", "event": null }),
        json!({ "type": "stream_event", "event": 7 }),
        json!({ "type": "stream_event", "event": { "type": "content_block_delta", "index": "x", "delta": [] } }),
        json!({ "type": "stream_event", "event": { "type": "content_block_stop", "index": 99 } }),
        json!({ "type": "stream_event", "event": { "type": "never_heard_of" } }),
    ];
    let is_delta = |frame: &Value| frame["event"]["type"] == "content_block_delta";
    for version in VERSIONS {
        let place = Place::new();
        let recording =
            Recording::read(version, "hello").insert_after(is_delta, odd.clone().map(Line::Runtime));
        let session = session(&place, recording).await;
        let mut turn = session.send("hi").unwrap();
        let expected = "+ Hel\n+ lo!\ntext Hello!\nresult Hello!, failed: false\n";
        assert_eq!(events(&mut turn).await, expected, "{version}");
        assert_eq!(soon(turn.result()).await.unwrap().ending, TurnEnding::Completed);
    }
}
