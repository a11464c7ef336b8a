//! A session whose client answers what the agent asks.

use ahp_types::commands::CreateSessionParams;
use ahp_types::state::TurnState;
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{HostOptions, Observer, TestHost};
use serde_json::{Value, json};

use crate::new_session;

/// The id of the client that owns an [`AskingSession`].
pub(crate) const CLIENT: &str = "first";

/// A host with one session and one client.
pub(crate) struct AskingSession {
    pub(crate) host: TestHost,
    pub(crate) client: Observer,
    pub(crate) session: String,
    pub(crate) chat: String,
}

impl AskingSession {
    /// Starts a host and creates a session with this configuration.
    pub(crate) async fn start(options: HostOptions, config: Value) -> Result<Self> {
        Self::on(TestHost::start(options).await?, config).await
    }

    /// Creates a session with this configuration.
    pub(crate) async fn on(host: TestHost, config: Value) -> Result<Self> {
        let mut client = host.observer(CLIENT).await?;
        let (session, chat) = create(&mut client, &host, config).await?;
        Ok(Self { host, client, session, chat })
    }

    /// Connects another client that follows the session.
    pub(crate) async fn second_client(&self) -> Result<Observer> {
        let mut second = self.host.observer("second").await?;
        second.open_session(&self.session).await?;
        Ok(second)
    }

    /// Sends a message whose script has these steps.
    pub(crate) async fn say(&self, turn: &str, steps: &[String]) -> Result<()> {
        self.client.say(&self.chat, turn, &format!("#demo\n{}", steps.join("\n"))).await.map(drop)
    }

    /// Sends a message for another model than the default one.
    pub(crate) async fn say_to(&self, model: &str, turn: &str, steps: &[String]) -> Result<()> {
        let text = format!("#demo\n{}", steps.join("\n"));
        let started = json!({
            "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z",
            "message": {"text": text, "origin": {"kind": "user"}, "model": {"id": model}},
        });
        self.client.dispatch(&self.chat, started).await.map(drop)
    }

    /// Waits until the user is asked about a tool call. Returns the call.
    pub(crate) async fn permission(&mut self, turn: &str) -> Result<Value> {
        let needed = needed(&mut self.client, &self.session, &self.chat, turn, "toolConfirmation").await?;
        assert_eq!(needed["toolCall"]["status"], "pending-confirmation", "{needed:#}");
        Ok(needed["toolCall"].clone())
    }

    /// Waits until the user is asked questions. Returns the request.
    pub(crate) async fn question(&mut self, turn: &str) -> Result<Value> {
        let needed = needed(&mut self.client, &self.session, &self.chat, turn, "chatInput").await?;
        Ok(needed["request"].clone())
    }

    /// Answers a permission request and waits until the host has removed it.
    pub(crate) async fn confirm(&mut self, turn: &str, call: &Value, answer: Value) -> Result<()> {
        let seq = self.client.dispatch(&self.chat, confirmation(turn, call, answer)).await?;
        self.until_accepted(seq).await?;
        self.until_closed(&call["toolCallId"]).await
    }

    /// Approves a call with one of its options.
    pub(crate) async fn approve(&mut self, turn: &str, call: &Value, option: &str) -> Result<()> {
        let options = call["options"].as_array().context("the request has no options")?;
        ensure!(options.iter().any(|offered| offered["id"] == option), "{option} is not offered: {call:#}");
        let answer = json!({"approved": true, "confirmed": "user-action", "selectedOptionId": option});
        self.confirm(turn, call, answer).await
    }

    /// Denies a call, with a reason for the model.
    pub(crate) async fn deny(&mut self, turn: &str, call: &Value, option: &str, reason: &str) -> Result<()> {
        let suggestion = json!({"text": reason, "origin": {"kind": "user"}});
        let answer = json!({
            "approved": false, "reason": "denied", "selectedOptionId": option, "userSuggestion": suggestion,
        });
        self.confirm(turn, call, answer).await
    }

    /// Completes a request with answers and waits until the host has removed it.
    pub(crate) async fn answer(&mut self, request: &Value, response: &str, answers: Value) -> Result<()> {
        let seq = self.client.dispatch(&self.chat, completion(request, response, answers)).await?;
        self.until_accepted(seq).await?;
        self.until_closed(&request["id"]).await
    }

    /// Cancels a turn and waits until nothing is asked any longer.
    pub(crate) async fn cancel(&mut self, turn: &str) -> Result<()> {
        let cancelled = json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 10});
        let seq = self.client.dispatch(&self.chat, cancelled).await?;
        self.until_accepted(seq).await?;
        let session = &self.session;
        let none = |client: &Observer| open_requests(client, session).is_empty();
        self.client.until("the removal of the requests of a cancelled turn", none).await
    }

    /// Changes the session's configuration and waits until the host has accepted the change.
    pub(crate) async fn configure(&mut self, config: Value) -> Result<()> {
        let changed = json!({"type": "session/configChanged", "config": config});
        let seq = self.client.dispatch(&self.session, changed).await?;
        self.until_accepted(seq).await
    }

    /// Waits for the response to a dispatch. Returns the reason of a rejection.
    pub(crate) async fn response(&mut self, seq: i64) -> Result<Option<String>> {
        let answered = |client: &Observer| !client.answers(CLIENT, seq).is_empty();
        self.client.until("the response to a dispatch", answered).await?;
        let answer = self.client.answers(CLIENT, seq);
        Ok(answer.first().context("no response")?.rejection_reason.clone())
    }

    async fn until_accepted(&mut self, seq: i64) -> Result<()> {
        let rejection = self.response(seq).await?;
        ensure!(rejection.is_none(), "rejected: {rejection:?}");
        Ok(())
    }

    /// Waits until the user is no longer asked about this call or request.
    async fn until_closed(&mut self, id: &Value) -> Result<()> {
        let is_open = |client: &Observer| {
            let open = open_requests(client, &self.session);
            open.iter().any(|open| open["toolCall"]["toolCallId"] == *id || open["request"]["id"] == *id)
        };
        self.client.until("the removal of an answered request", |client| !is_open(client)).await
    }

    /// Waits until a turn is complete, without another question. Returns its tool calls.
    pub(crate) async fn finish(&mut self, turn: &str) -> Result<Vec<Value>> {
        let over = |client: &Observer| is_over(client, &self.chat, turn);
        let asked = |client: &Observer| !open_requests(client, &self.session).is_empty();
        self.client.until(turn, |client| over(client) || asked(client)).await?;
        let open = open_requests(&self.client, &self.session);
        ensure!(open.is_empty(), "the user is asked: {open:#?}");
        let over = self.turn(turn)?;
        ensure!(over["state"] == json!(TurnState::Complete), "{over:#}");
        let parts = over["responseParts"].as_array().context("no parts")?;
        let calls = parts.iter().filter(|part| part["kind"] == "toolCall");
        Ok(calls.map(|part| part["toolCall"].clone()).collect())
    }

    /// A finished turn.
    pub(crate) fn turn(&self, turn: &str) -> Result<Value> {
        let turns = &self.client.chat(&self.chat)?.turns;
        let turn = turns.iter().find(|past| past.id == turn).context("the turn is not over")?;
        Ok(serde_json::to_value(turn)?)
    }

    /// The text of a finished turn.
    pub(crate) fn text(&self, turn: &str) -> Result<String> {
        let turn = self.turn(turn)?;
        let parts = turn["responseParts"].as_array().context("no parts")?;
        Ok(parts
            .iter()
            .filter_map(|part| part["content"].as_str().filter(|_| part["kind"] == "markdown"))
            .collect())
    }

    /// How often the user was asked for something.
    pub(crate) fn times_asked(&self) -> Result<usize> {
        let actions = self.client.actions(&self.session)?;
        Ok(actions.iter().filter(|action| *action == "session/inputNeededSet").count())
    }

    /// A value of the session's configuration.
    pub(crate) fn config(&self, key: &str) -> Result<Value> {
        let config = serde_json::to_value(&self.client.session(&self.session)?.config)?;
        Ok(config["values"][key].clone())
    }

    /// Checks that the client and a new one have the same state.
    pub(crate) async fn agrees_with_a_fresh_client(&mut self) -> Result<()> {
        self.client.agrees_with_a_fresh_client(&self.host.address()?).await
    }
}

/// Creates a session in the test's directory and subscribes to it. Returns it and its chat.
pub(crate) async fn create(
    client: &mut Observer,
    host: &TestHost,
    config: Value,
) -> Result<(String, String)> {
    let session = new_session();
    let params = CreateSessionParams {
        channel: session.clone(),
        meta: None,
        provider: Some("claude".to_owned()),
        working_directories: Some(vec![host.work_uri()]),
        config: serde_json::from_value(config)?,
        active_client: None,
        progress_token: None,
    };
    let () = client.client.request("createSession", params).await?;
    let chat = client.open_session(&session).await?;
    Ok((session, chat))
}

/// Waits until the user is asked for this kind of input.
pub(crate) async fn needed(
    client: &mut Observer,
    session: &str,
    chat: &str,
    turn: &str,
    kind: &str,
) -> Result<Value> {
    let is_asked = |client: &Observer| !open_requests(client, session).is_empty();
    client.until(kind, |client| is_asked(client) || is_over(client, chat, turn)).await?;
    let open = open_requests(client, session);
    let found = open.iter().find(|needed| needed["kind"] == kind).cloned();
    found.with_context(|| format!("no {kind} in {turn}; open: {open:#?}; chat: {:#?}", client.chat(chat)))
}

/// Everything that the user is asked for in a session.
pub(crate) fn open_requests(client: &Observer, session: &str) -> Vec<Value> {
    let open = client.session(session).ok().and_then(|session| session.input_needed.clone());
    open.iter().flatten().filter_map(|request| serde_json::to_value(request).ok()).collect()
}

fn is_over(client: &Observer, chat: &str, turn: &str) -> bool {
    client
        .chat(chat)
        .is_ok_and(|chat| chat.active_turn.is_none() && chat.turns.iter().any(|past| past.id == turn))
}

/// The action that answers a permission request.
pub(crate) fn confirmation(turn: &str, call: &Value, mut answer: Value) -> Value {
    answer["type"] = json!("chat/toolCallConfirmed");
    answer["turnId"] = json!(turn);
    answer["toolCallId"] = call["toolCallId"].clone();
    answer
}

/// The action that completes a request.
pub(crate) fn completion(request: &Value, response: &str, answers: Value) -> Value {
    json!({
        "type": "chat/inputCompleted", "requestId": request["id"], "response": response, "answers": answers,
    })
}

/// A step of a script: a call of a tool.
pub(crate) fn tool(name: &str, input: &Value) -> String {
    format!("tool {name} {input}")
}

/// A step that writes a file.
pub(crate) fn write(path: &std::path::Path, content: &str) -> String {
    tool("Write", &json!({"file_path": path, "content": content}))
}

/// A step that runs a shell command.
pub(crate) fn shell(command: &str) -> String {
    tool("Bash", &json!({"command": command, "description": "a step of the test"}))
}

/// The last step of a script.
pub(crate) fn text(words: &str) -> String {
    format!("text {words}")
}

/// A step in which the model repeats what it was sent.
pub(crate) fn echo() -> String {
    "echo".to_owned()
}
