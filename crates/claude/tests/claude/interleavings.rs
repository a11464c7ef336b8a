//! Sessions with runtimes that behave randomly, on a paused clock.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use innkeeper_claude::{
    BoxFuture, ByteStream, ClaudeSession, LaunchOptions, Prompt, SessionOptions, StreamLaunch,
    StreamOnlyPeer, StreamTransport, Transport, TurnEnding, TurnFailure, TurnResult,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::Place;

/// How a runtime handles a message.
#[derive(Debug, Clone, Copy)]
struct Behaviour {
    answers: Answers,
    /// Whether an interrupt ends the turn.
    heeds: bool,
}

#[derive(Debug, Clone, Copy)]
enum Answers {
    /// After this many milliseconds.
    After(u64),
    Never,
    /// By naming the message in the result, as newer runtimes do, instead of an echo.
    Named(u64),
    /// After a turn that the host did not request.
    BackgroundFirst,
    DropsIt,
    ExitsBeforeTheEcho,
    ExitsAfterTheEcho,
}

/// The next action of the host.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// With an optional timeout in milliseconds.
    Send(Option<u64>),
    Interrupt,
    Wait(u64),
    Restart,
}

/// Round numbers, so that events coincide; the session repeats an interrupt after 250 ms.
fn times() -> impl Strategy<Value = u64> {
    (0_u64..12).prop_map(|time| time * 50)
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    let answers = prop_oneof![
        4 => times().prop_map(Answers::After),
        2 => times().prop_map(Answers::Named),
        1 => Just(Answers::Never),
        1 => Just(Answers::BackgroundFirst),
        1 => Just(Answers::DropsIt),
        1 => Just(Answers::ExitsBeforeTheEcho),
        1 => Just(Answers::ExitsAfterTheEcho),
    ];
    (answers, any::<bool>()).prop_map(|(answers, heeds)| Behaviour { answers, heeds })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => prop::option::of(times()).prop_map(Step::Send),
        3 => Just(Step::Interrupt),
        3 => times().prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// Transport to runtimes that use one behaviour after the other, for one message each.
struct Scripted {
    behaviours: Arc<Mutex<VecDeque<Behaviour>>>,
}

impl StreamTransport for Scripted {
    fn open<'a>(&'a self, _: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>> {
        Box::pin(async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(near);
            let (far_reader, far_writer) = tokio::io::split(far);
            let runtime = FakeRuntime { lines: BufReader::new(far_reader).lines(), writer: far_writer };
            let tasks = tokio_util::task::TaskTracker::new();
            tasks.spawn(runtime.run(Arc::clone(&self.behaviours)));
            Ok(ByteStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                peer: Box::new(StreamOnlyPeer),
            })
        })
    }
}

struct FakeRuntime {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

/// The session has closed the stream.
struct Gone;

impl FakeRuntime {
    async fn run(mut self, behaviours: Arc<Mutex<VecDeque<Behaviour>>>) {
        while let Ok(frame) = self.next().await {
            let went_on = if frame["type"] == "user" {
                let behaviour = behaviours.lock().unwrap().pop_front();
                let behaviour = behaviour.unwrap_or(Behaviour { answers: Answers::After(1), heeds: true });
                self.turn(&frame, behaviour).await
            } else {
                self.agree(&frame).await
            };
            if went_on.is_err() {
                return;
            }
        }
    }

    async fn turn(&mut self, message: &Value, behaviour: Behaviour) -> Result<(), Gone> {
        let uuid = &message["uuid"];
        let lifecycle =
            |state: &str| json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state });
        let mut more = json!({});
        let wait = match behaviour.answers {
            Answers::ExitsBeforeTheEcho => return Err(Gone),
            Answers::DropsIt => return self.say(lifecycle("cancelled")).await,
            Answers::BackgroundFirst => {
                self.begin().await?;
                self.end("background", &json!({ "origin": { "kind": "task-notification" } })).await?;
                Some(1)
            }
            Answers::Never => None,
            Answers::ExitsAfterTheEcho => Some(0),
            Answers::After(wait) => Some(wait),
            Answers::Named(wait) => {
                more = json!({ "user_message_uuids": [uuid] });
                Some(wait)
            }
        };
        self.begin().await?;
        if let Answers::Named(_) = behaviour.answers {
            self.say(lifecycle("started")).await?;
        } else {
            let mut echo = message.clone();
            echo["isReplay"] = json!(true);
            self.say(echo).await?;
        }
        if let Answers::ExitsAfterTheEcho = behaviour.answers {
            return Err(Gone);
        }
        let mut answer = Box::pin(async {
            match wait {
                Some(wait) => sleep(Duration::from_millis(wait)).await,
                None => std::future::pending().await,
            }
        });
        loop {
            tokio::select! {
                () = &mut answer => {
                    let words = format!("answer to {}", message["message"]["content"].as_str().unwrap());
                    return self.end(&words, &more).await;
                }
                frame = self.next() => {
                    let frame = frame?;
                    assert_eq!(frame["type"], "control_request", "a second message arrived during a turn");
                    self.agree(&frame).await?;
                    if frame["request"]["subtype"] == "interrupt" && behaviour.heeds {
                        more["terminal_reason"] = json!("aborted_streaming");
                        return self.end("aborted", &more).await;
                    }
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<(), Gone> {
        self.state("running").await?;
        self.say(json!({ "type": "system", "subtype": "init" })).await
    }

    async fn end(&mut self, words: &str, more: &Value) -> Result<(), Gone> {
        let mut result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": words,
            "terminal_reason": "completed" });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.say(result).await?;
        self.state("idle").await
    }

    async fn state(&mut self, state: &str) -> Result<(), Gone> {
        self.say(json!({ "type": "system", "subtype": "session_state_changed", "state": state })).await
    }

    async fn agree(&mut self, frame: &Value) -> Result<(), Gone> {
        if frame["type"] != "control_request" {
            return Ok(());
        }
        let response = json!({ "subtype": "success", "request_id": frame["request_id"], "response": {} });
        self.say(json!({ "type": "control_response", "response": response })).await
    }

    async fn say(&mut self, frame: Value) -> Result<(), Gone> {
        self.writer.write_all(format!("{frame}\n").as_bytes()).await.map_err(|_| Gone)
    }

    async fn next(&mut self) -> Result<Value, Gone> {
        let line = self.lines.next_line().await.ok().flatten().ok_or(Gone)?;
        Ok(serde_json::from_str(&line).unwrap())
    }
}

/// Plays the steps; returns the outcome of each send with its timeout.
async fn play(
    launch: LaunchOptions,
    behaviours: Vec<Behaviour>,
    steps: &[Step],
) -> Vec<(Option<u64>, Result<TurnResult, TurnFailure>)> {
    let behaviours = Arc::new(Mutex::new(VecDeque::from(behaviours)));
    let transport = Transport::Stream(Arc::new(Scripted { behaviours }));
    let options = SessionOptions { transport, ..SessionOptions::new(launch) };
    let session = ClaudeSession::new(options, CancellationToken::new());
    let mut turns = Vec::new();
    let tasks = tokio_util::task::TaskTracker::new();
    for step in steps {
        match *step {
            Step::Send(timeout) => {
                let prompt = Prompt::from(format!("{}", turns.len()));
                let timed = timeout.map(|timeout| prompt.clone().within(Duration::from_millis(timeout)));
                let turn = session.send(timed.unwrap_or(prompt)).unwrap();
                turns.push(async move { (timeout, turn.result().await) });
            }
            Step::Interrupt => {
                // Not awaited: the next steps run concurrently.
                let session = session.clone();
                tasks.spawn(async move { session.interrupt().await });
                tokio::task::yield_now().await;
            }
            Step::Wait(time) => sleep(Duration::from_millis(time)).await,
            Step::Restart => {
                let session = session.clone();
                tasks.spawn(async move { session.restart(|_| ()).await });
            }
        }
    }
    // Sends that are never answered are interrupted until all have settled.
    let interrupts = Box::pin(async {
        loop {
            sleep(Duration::from_secs(60)).await;
            session.interrupt().await;
        }
    });
    let outcomes = match select(Box::pin(join_all(turns)), interrupts).await {
        Either::Left((outcomes, _)) => outcomes,
        Either::Right((never, _)) => never,
    };
    session.terminate().await;
    outcomes
}

/// Plays on a paused clock.
fn outcomes(
    behaviours: Vec<Behaviour>,
    steps: &[Step],
) -> Vec<(Option<u64>, Result<TurnResult, TurnFailure>)> {
    let place = Place::new();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let played = play(place.scripted(""), behaviours, steps);
    let outcomes = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(3600), played).await });
    outcomes.expect("a send did not settle")
}

#[test]
fn interrupt_at_the_end_of_its_turn_does_not_affect_the_next_turn() {
    let late = Behaviour { answers: Answers::After(500), heeds: false };
    let steps = [Step::Send(None), Step::Send(None), Step::Wait(500), Step::Interrupt];
    let outcomes = outcomes(vec![late], &steps);
    assert!(matches!(outcomes[0].1, Err(TurnFailure::Interrupted)), "{outcomes:?}");
    assert_eq!(outcomes[1].1.as_ref().unwrap().text, "answer to 1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_send_settles_with_its_own_response_or_its_own_error(
        behaviours in prop::collection::vec(behaviours(), 0..12),
        steps in prop::collection::vec(steps(), 1..24),
    ) {
        for (at, (timeout, outcome)) in outcomes(behaviours, &steps).into_iter().enumerate() {
            match outcome {
                Ok(result) => {
                    prop_assert_eq!(&result.text, &format!("answer to {at}"));
                    prop_assert_eq!(result.ending, TurnEnding::Completed);
                }
                Err(TurnFailure::TimedOut { .. }) => prop_assert!(timeout.is_some()),
                Err(TurnFailure::Interrupted | TurnFailure::UnexpectedExit(_) | TurnFailure::Cancelled) => {}
                Err(error) => prop_assert!(false, "{at}: {error:?}"),
            }
        }
    }
}
