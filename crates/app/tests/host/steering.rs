//! Messages that steer the running turn, with both runtimes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{Observer, eventually, processes, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, CLIENT, shell, text, tool, write};
use crate::background_work::until_exists;
use crate::editing::unasked;
use crate::options;

/// A command that runs until the test opens the gate. It goes on for a moment, so that the runtime reads
/// what was written before.
const GATED: &str = "touch begun; until [ -e gate ]; do sleep 0.02; done; rm gate begun; sleep 0.3";

/// A session whose turns are steered.
struct Steered {
    asking: AskingSession,
}

impl Steered {
    /// Starts a session whose tools run without permission.
    async fn unasked(claude: std::path::PathBuf) -> Result<Self> {
        let config = json!({"permissionMode": "bypassPermissions"});
        Ok(Self { asking: AskingSession::start(unasked(claude), config).await? })
    }

    async fn dispatch(&mut self, action: Value) -> Result<()> {
        let seq = self.asking.client.dispatch(&self.asking.chat, action).await?;
        let rejection = self.asking.response(seq).await?;
        ensure!(rejection.is_none(), "rejected: {rejection:?}");
        Ok(())
    }

    async fn steer(&mut self, id: &str, text: &str) -> Result<()> {
        self.steer_with(id, json!({"text": text, "origin": {"kind": "user"}})).await
    }

    async fn steer_with(&mut self, id: &str, message: Value) -> Result<()> {
        let set = json!({"type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": message});
        self.dispatch(set).await
    }

    /// Waits until the running turn has exactly this text.
    async fn until_text(&mut self, expected: &str) -> Result<()> {
        let chat = self.asking.chat.clone();
        let shown = |client: &Observer| client.text_so_far(&chat).is_ok_and(|text| text == expected);
        self.asking.client.until(expected, shown).await
    }

    /// Starts a turn whose first step is a command that waits for the gate, and waits until it runs.
    async fn start_gated(&mut self, turn: &str, steps: &[String]) -> Result<()> {
        let steps: Vec<String> = std::iter::once(shell(GATED)).chain(steps.iter().cloned()).collect();
        self.asking.say(turn, &steps).await?;
        let begun = self.asking.host.work_dir().join("begun");
        eventually(Duration::from_secs(30), "the command runs", || begun.exists()).await
    }

    fn open_gate(&self) -> Result<()> {
        Ok(std::fs::write(self.asking.host.work_dir().join("gate"), "")?)
    }

    /// Waits until a turn is over and no message waits, then returns its parts.
    async fn finished(&mut self, turn: &str) -> Result<Vec<Value>> {
        self.asking.finish(turn).await?;
        self.parts(turn)
    }

    fn parts(&self, turn: &str) -> Result<Vec<Value>> {
        Ok(self.asking.turn(turn)?["responseParts"].as_array().context("no parts")?.clone())
    }

    fn chat(&self) -> Result<Value> {
        Ok(serde_json::to_value(self.asking.client.chat(&self.asking.chat)?)?)
    }

    fn turn_ids(&self) -> Result<Vec<String>> {
        let turns = &self.asking.client.chat(&self.asking.chat)?.turns;
        Ok(turns.iter().map(|turn| turn.id.clone()).collect())
    }
}

/// Parts in short: the text of the answer, `call`, or the steering message with its id.
fn outline(parts: &[Value]) -> Vec<String> {
    parts
        .iter()
        .map(|part| match part["kind"].as_str() {
            Some("systemNotification") => {
                let id = part["_meta"]["innkeeper.steering"]["id"].as_str().unwrap_or("?");
                format!("{id}: {}", part["content"].as_str().unwrap_or_default())
            }
            Some("toolCall") => "call".to_owned(),
            _ => part["content"].as_str().unwrap_or_default().to_owned(),
        })
        .collect()
}

#[tokio::test]
async fn steering_during_text_cuts_the_answer_and_stays_in_its_turn() -> Result<()> {
    for claude in runtimes()? {
        let mut steered = Steered::unasked(claude.clone()).await?;
        steered.asking.say("turn-1", &[text("it begins"), "wait 60000".into(), text("it ends")]).await?;
        steered.until_text("it begins").await?;
        steered.steer("s1", "#demo\ntext steered").await?;
        let parts = steered.finished("turn-1").await?;
        assert_eq!(outline(&parts), ["it begins", "s1: #demo\ntext steered", "steered"]);

        // Before the first word, and with an attachment.
        let pid = steered.asking.host.runtimes();
        steered.asking.say("turn-2", &["wait 60000".into(), text("late")]).await?;
        let message = json!({
            "text": "#demo\necho", "origin": {"kind": "user"},
            "attachments": [{"type": "simple", "label": "note", "modelRepresentation": "a note for the model"}],
        });
        steered.steer_with("s2", message).await?;
        let parts = steered.finished("turn-2").await?;
        let notes: Vec<&Value> = parts.iter().filter(|part| part["kind"] == "systemNotification").collect();
        assert_eq!(notes.len(), 1, "{parts:#?}");
        assert_eq!(notes[0]["_meta"]["innkeeper.steering"], json!({"id": "s2", "attachments": 1}));
        let answer = steered.asking.text("turn-2")?;
        assert!(answer.contains("a note for the model") && answer.contains("text late"), "{answer}");
        assert_eq!(steered.turn_ids()?, ["turn-1", "turn-2"]);
        assert_eq!(steered.asking.host.runtimes(), pid);
        assert_eq!(steered.chat()?.get("steeringMessage"), None);
        steered.asking.agrees_with_a_fresh_client().await?;

        let (live, live_second) = (steered.parts("turn-1")?, steered.parts("turn-2")?);
        let AskingSession { host, session, .. } = steered.asking;
        let host = host.start_again(unasked(claude)).await?;
        let mut client = host.observer(CLIENT).await?;
        let chat = client.open_session(&session).await?;
        let restored = Steered { asking: AskingSession { host, client, session, chat } };
        assert_eq!(restored.parts("turn-1")?, live);
        assert_eq!(restored.parts("turn-2")?, live_second);
    }
    Ok(())
}

/// Scenario B: the runtime folds a steering message into the result of the running turn.
#[tokio::test]
async fn steering_during_a_tool_is_folded_into_the_running_turn() -> Result<()> {
    for claude in runtimes()? {
        let mut steered = Steered::unasked(claude).await?;
        steered.start_gated("turn-1", &["echo".into()]).await?;
        steered.steer("s1", "prefer short names").await?;
        steered.open_gate()?;
        let parts = steered.finished("turn-1").await?;
        assert_eq!(outline(&parts)[..2], ["call", "s1: prefer short names"]);
        assert_eq!(parts[0]["toolCall"]["status"], "completed", "{:#}", parts[0]);
        let answer = steered.asking.text("turn-1")?;
        assert!(answer.contains("prefer short names"), "the model did not see the message: {answer}");

        // One that is taken back, and one that is replaced by another one with the same id.
        steered.start_gated("turn-2", &["echo".into()]).await?;
        steered.steer("s2", "words taken back").await?;
        steered
            .dispatch(json!({"type": "chat/pendingMessageRemoved", "kind": "steering", "id": "s2"}))
            .await?;
        steered.steer("s3", "words replaced").await?;
        steered.steer("s3", "words that stay").await?;
        steered.open_gate()?;
        let parts = steered.finished("turn-2").await?;
        assert_eq!(outline(&parts)[..2], ["call", "s3: words that stay"]);
        assert_eq!(outline(&parts).len(), 3, "{parts:#?}");
        let answer = steered.asking.text("turn-2")?;
        assert!(!answer.contains("words taken back") && !answer.contains("words replaced"), "{answer}");
        assert_eq!(steered.turn_ids()?, ["turn-1", "turn-2"]);
        assert_eq!(steered.chat()?.get("steeringMessage"), None);
        steered.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn open_requests_stay_open_while_the_turn_is_steered() -> Result<()> {
    for claude in runtimes()? {
        let mut steered = Steered { asking: AskingSession::start(options(claude), json!({})).await? };
        let file = steered.asking.host.work_dir().join("made.txt");
        steered.asking.say("turn-1", &[write(&file, "made\n"), text("written")]).await?;
        let call = steered.asking.permission("turn-1").await?;
        steered.steer("s1", "prefer short names").await?;
        steered.asking.approve("turn-1", &call, "allow-once").await?;
        let parts = steered.finished("turn-1").await?;
        assert_eq!(outline(&parts), ["call", "s1: prefer short names", "written"]);
        assert_eq!(std::fs::read_to_string(&file)?, "made\n");

        let options = json!([{"label": "red", "description": "r"}, {"label": "blue", "description": "b"}]);
        let questions = json!([{"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": options}]);
        let ask = tool("AskUserQuestion", &json!({"questions": questions}));
        steered.asking.say("turn-2", &[ask, "echo".into()]).await?;
        let request = steered.asking.question("turn-2").await?;
        steered.steer("s2", "prefer long names").await?;
        let id = request["questions"][0]["id"].as_str().context("no id")?;
        let value = json!({"kind": "selected", "value": "red"});
        let answers = json!({id: {"state": "submitted", "value": value}});
        steered.asking.answer(&request, "accept", answers).await?;
        let parts = steered.finished("turn-2").await?;
        assert!(outline(&parts).contains(&"s2: prefer long names".to_owned()), "{parts:#?}");
        let answer = steered.asking.text("turn-2")?;
        assert!(answer.contains("\"Which colour?\"=\"red\""), "{answer}");
        assert_eq!(steered.asking.times_asked()?, 2);
        steered.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn steering_message_that_turn_does_not_take_is_sent_next() -> Result<()> {
    for claude in runtimes()? {
        let mut steered = Steered::unasked(claude).await?;
        // A command cannot steer.
        steered.start_gated("turn-1", &[text("first")]).await?;
        steered.steer("s1", "/cost").await?;
        steered.open_gate()?;
        let chat = steered.asking.chat.clone();
        let two = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| chat.turns.len() == 2 && chat.active_turn.is_none())
        };
        steered.asking.client.until("the turn of the command", two).await?;
        assert_eq!(outline(&steered.parts("turn-1")?), ["call", "first"]);
        let second = serde_json::to_value(&steered.asking.client.chat(&chat)?.turns[1])?;
        assert_eq!((&second["message"]["text"], &second["state"]), (&json!("/cost"), &json!("complete")));
        assert!(steered.asking.text(second["id"].as_str().context("no id")?)?.contains("Total cost"));

        // After a cancel it waits in front of the queue, and the runtime continues.
        let pid = steered.asking.host.runtimes();
        steered.start_gated("turn-3", &[text("never")]).await?;
        steered.steer("s2", "#demo\ntext after the cancel").await?;
        steered.asking.cancel("turn-3").await?;
        let queued = |client: &Observer| {
            let chat = client.chat(&chat).ok();
            let first = chat.and_then(|chat| chat.queued_messages.as_ref()?.first());
            first.is_some_and(|first| first.id == "s2")
        };
        steered.asking.client.until("the steering message is queued", queued).await?;
        steered.open_gate()?;
        steered.asking.say("turn-4", &["echo".into()]).await?;
        let four = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| chat.turns.len() == 5 && chat.active_turn.is_none())
        };
        steered.asking.client.until("the turn of the steering message", four).await?;
        let answer = steered.asking.text("turn-4")?;
        assert!(!answer.contains("after the cancel"), "the runtime has the message: {answer}");
        let ids = steered.turn_ids()?;
        assert_eq!(steered.asking.text(&ids[4])?, "after the cancel");
        assert_eq!(steered.asking.host.runtimes(), pid);
        steered.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn steering_message_survives_a_killed_runtime() -> Result<()> {
    for claude in runtimes()? {
        let mut steered = Steered::unasked(claude).await?;
        steered.start_gated("turn-1", &["echo".into()]).await?;
        steered.steer("s1", "prefer short names").await?;
        processes::kill(*steered.asking.host.runtimes().first().context("no runtime")?)?;
        let chat = steered.asking.chat.clone();
        steered.asking.client.until_turn_over(&chat, "turn-1").await?;
        assert_eq!(steered.asking.turn("turn-1")?["state"], "error");
        let after = steered.chat()?;
        let waits = after["steeringMessage"]["id"] == "s1" || after["queuedMessages"][0]["id"] == "s1";
        ensure!(waits, "the message is lost: {after:#}");
        steered.dispatch(json!({"type": "chat/turnResume", "turnId": "turn-1"})).await?;
        let none = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| {
                let waits = chat.steering_message.is_some() || chat.queued_messages.is_some();
                chat.active_turn.is_none() && !waits
            })
        };
        steered.asking.client.until("no message waits", none).await?;
        let shown = outline(&steered.parts("turn-1")?);
        assert_eq!(shown.iter().filter(|part| *part == "s1: prefer short names").count(), 1, "{shown:?}");
        assert_eq!(steered.asking.turn("turn-1")?["state"], "complete");
        assert_eq!(steered.turn_ids()?, ["turn-1"]);
        steered.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn turn_that_the_runtime_started_is_steered() -> Result<()> {
    for claude in runtimes()? {
        let mut steered = Steered::unasked(claude).await?;
        let command =
            json!({"command": until_exists("go"), "run_in_background": true, "description": "a task"});
        let steps = [
            tool("Bash", &command),
            text("first"),
            "end".into(),
            text("it begins"),
            "wait 60000".into(),
            text("it ends"),
        ];
        steered.asking.say("turn-1", &steps).await?;
        steered.asking.finish("turn-1").await?;
        std::fs::write(steered.asking.host.work_dir().join("go"), "")?;
        steered.until_text("it begins").await?;
        steered.steer("s1", "#demo\ntext steered").await?;
        let chat = steered.asking.chat.clone();
        let over = |client: &Observer| {
            client.chat(&chat).is_ok_and(|chat| chat.turns.len() == 2 && chat.active_turn.is_none())
        };
        steered.asking.client.until("the end of the background turn", over).await?;
        let ids = steered.turn_ids()?;
        ensure!(ids[1].starts_with("background-"), "{ids:?}");
        let parts: Vec<String> = outline(&steered.parts(&ids[1])?);
        assert_eq!(parts, ["it begins", "s1: #demo\ntext steered", "steered"]);
        assert_eq!(steered.asking.turn(&ids[1])?["state"], "complete");
        steered.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
