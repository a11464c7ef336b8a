//! One session of a storm, with two clients that act on what they see.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ahp_types::commands::CreateSessionParams;
use ahp_types::state::{ChatState, PendingMessage, ResponsePart, TurnState};
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{Observer, TestHost, processes};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plan::{Operation, Step, script, token_in};
use crate::asking::{confirmation, open_requests};
use crate::new_session;

const MODES: [&str; 3] = ["default", "acceptEdits", "plan"];

/// How often the clients look at the state while they wait.
const LOOK: Duration = Duration::from_millis(50);

/// A session with its two clients.
pub(super) struct StormSession {
    name: String,
    pub(super) folder: PathBuf,
    pub(super) session: String,
    pub(super) chat: String,
    address: String,
    pub(super) clients: [Observer; 2],
    models: Vec<String>,
    /// The tokens of all messages that the clients sent.
    pub(super) sent: Vec<String>,
    /// Requests of the host's own methods that have not been answered.
    requests: JoinSet<Result<String>>,
    /// What the clients did.
    log: Vec<String>,
}

impl StormSession {
    /// Creates a session in its own folder and completes a first turn.
    pub(super) async fn start(host: &TestHost, name: String) -> Result<Self> {
        let folder = host.work_dir().join(&name);
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("note.txt"), "a note")?;
        let (session, address) = (new_session(), host.address()?);
        let mut first = connect(&address, &name, 0).await?;
        let params = CreateSessionParams {
            channel: session.clone(),
            meta: None,
            provider: Some("claude".to_owned()),
            working_directories: Some(vec![uri_of(&folder)]),
            config: None,
            active_client: None,
            progress_token: None,
        };
        let () = first.client.request("createSession", params).await?;
        let chat = first.open_session(&session).await?;
        let mut second = connect(&address, &name, 1).await?;
        second.open_session(&session).await?;
        let models = first.root()?.agents.iter().flat_map(|agent| &agent.models);
        let models = models.map(|model| model.id.clone()).collect();
        let (clients, requests) = ([first, second], JoinSet::new());
        let mut started = Self {
            name,
            folder,
            session,
            chat,
            address,
            clients,
            models,
            sent: Vec::new(),
            requests,
            log: Vec::new(),
        };
        started.clients[0].say(&started.chat, "first", "#demo\ntext hello").await?;
        started.clients[0].until_turn_over(&started.chat, "first").await?;
        Ok(started)
    }

    /// Performs the steps.
    pub(super) async fn run(&mut self, start: Instant, steps: &[Step]) -> Result<()> {
        for step in steps {
            self.follow(start + step.at).await?;
            let done = self.perform(*step).await.with_context(|| format!("{step:?}"))?;
            self.log.push(format!(
                "{:>6} ms  client {} {:?}: {done}",
                start.elapsed().as_millis(),
                step.client,
                step.operation
            ));
        }
        Ok(())
    }

    /// The operations of the clients, for the message of a failure.
    pub(super) fn history(&self) -> String {
        format!("{} {}\n{}", self.name, self.chat, self.log.join("\n"))
    }

    /// Processes the messages of the host until a point in time.
    async fn follow(&mut self, until: Instant) -> Result<()> {
        let [first, second] = &mut self.clients;
        tokio::try_join!(first.follow(until), second.follow(until))?;
        Ok(())
    }

    fn next_token(&mut self) -> String {
        let token = format!("{}m{:03}", self.name, self.sent.len());
        self.sent.push(token.clone());
        token
    }

    fn state(&self, client: usize) -> Result<&ChatState> {
        self.clients[client].chat(&self.chat)
    }

    fn queue(&self, client: usize) -> Result<&[PendingMessage]> {
        Ok(self.state(client)?.queued_messages.as_deref().unwrap_or_default())
    }

    fn running(&self, client: usize) -> Result<Option<String>> {
        Ok(self.state(client)?.active_turn.as_ref().map(|turn| turn.id.clone()))
    }

    async fn dispatch(&self, client: usize, action: Value) -> Result<()> {
        self.clients[client].dispatch(&self.chat, action).await.map(drop)
    }

    /// Starts a turn with a new message.
    async fn say(&mut self, client: usize, choice: u64, model: Option<&str>) -> Result<String> {
        let token = self.next_token();
        let mut message = json!({"text": script(&token, choice), "origin": {"kind": "user"}});
        if let Some(model) = model {
            message["model"] = json!({"id": model});
        }
        let started = json!({
            "type": "chat/turnStarted", "turnId": token, "startedAt": "2025-11-15T09:00:05.000Z",
            "message": message,
        });
        self.dispatch(client, started).await?;
        Ok(token)
    }

    /// Sets a waiting message with a new text.
    async fn set_waiting(
        &mut self,
        client: usize,
        kind: &str,
        id: Option<String>,
        choice: u64,
    ) -> Result<String> {
        let token = self.next_token();
        let id = id.unwrap_or_else(|| token.clone());
        let message = json!({"text": script(&token, choice), "origin": {"kind": "user"}});
        let set = json!({"type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": message});
        self.dispatch(client, set).await?;
        Ok(format!("{token} as {id}"))
    }

    async fn remove(&self, client: usize, kind: &str, id: &str) -> Result<String> {
        self.dispatch(client, json!({"type": "chat/pendingMessageRemoved", "kind": kind, "id": id})).await?;
        Ok(id.to_owned())
    }

    async fn cancel(&self, client: usize, turn: &str) -> Result<String> {
        self.dispatch(client, json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 10})).await?;
        Ok(turn.to_owned())
    }

    /// Performs a step. Returns what was done, for the log.
    async fn perform(&mut self, Step { operation, client, choice, .. }: Step) -> Result<String> {
        let nothing = Ok("nothing to do".to_owned());
        let running = self.running(client)?;
        let queued: Vec<String> = self.queue(client)?.iter().map(|message| message.id.clone()).collect();
        let picked = pick(&queued, choice).cloned();
        match operation {
            Operation::Send if running.is_some() => self.set_waiting(client, "queued", None, choice).await,
            Operation::Send | Operation::SendAnyway => self.say(client, choice, None).await,
            Operation::SwitchModel => {
                let model = pick(&self.models, choice).cloned();
                self.say(client, choice, model.as_deref()).await
            }
            Operation::Cancel => match running {
                Some(turn) => self.cancel(client, &turn).await,
                None => nothing,
            },
            Operation::Steer => self.set_waiting(client, "steering", None, choice).await,
            Operation::TakeBack => match self.state(client)?.steering_message.clone() {
                Some(waiting) => self.remove(client, "steering", &waiting.id).await,
                None => nothing,
            },
            Operation::Queue => self.set_waiting(client, "queued", None, choice).await,
            Operation::Edit => match picked {
                Some(id) => self.set_waiting(client, "queued", Some(id), choice).await,
                None => nothing,
            },
            Operation::Remove => match picked {
                Some(id) => self.remove(client, "queued", &id).await,
                None => nothing,
            },
            Operation::Reorder => self.reorder(client).await,
            Operation::SendImmediately => match (running, queued.last()) {
                (Some(turn), Some(id)) => {
                    self.remove(client, "queued", id).await?;
                    self.cancel(client, &turn).await?;
                    self.say(client, choice, None).await
                }
                _ => nothing,
            },
            Operation::SwitchMode => {
                let mode = pick(&MODES, choice).context("no mode")?;
                let changed = json!({"type": "session/configChanged", "config": {"permissionMode": mode}});
                self.clients[client].dispatch(&self.session, changed).await?;
                Ok((*mode).to_owned())
            }
            Operation::Answer => {
                let open = open_requests(&self.clients[client], &self.session);
                match (pick(&open, choice), running) {
                    (Some(request), Some(turn)) => {
                        self.dispatch(client, answer(&turn, request, choice % 4 > 0)).await?;
                        Ok(request["toolCall"]["toolCallId"].to_string())
                    }
                    _ => nothing,
                }
            }
            Operation::Resume => match self.state(client)?.turns.last().map(|turn| turn.id.clone()) {
                Some(turn) if running.is_none() => {
                    self.dispatch(client, json!({"type": "chat/turnResume", "turnId": turn})).await?;
                    Ok(turn)
                }
                _ => nothing,
            },
            Operation::StopAll | Operation::StopCall | Operation::StopWork | Operation::RestartAgent => {
                self.request(operation, client, choice)
            }
            Operation::Kill => Ok(self.kill_runtime()),
            Operation::Reconnect => self.reconnect(client, Duration::from_millis(choice % 800)).await,
        }
    }

    async fn reorder(&self, client: usize) -> Result<String> {
        let order: Vec<&str> = self.queue(client)?.iter().rev().map(|message| message.id.as_str()).collect();
        self.dispatch(client, json!({"type": "chat/queuedMessagesReordered", "order": order})).await?;
        Ok(format!("{order:?}"))
    }

    /// Sends a request of the host's own methods. The storm goes on until its response.
    fn request(&mut self, operation: Operation, client: usize, choice: u64) -> Result<String> {
        let state = serde_json::to_value(self.state(client)?)?;
        let ids = |list: &Value, path: &str| -> Vec<Value> {
            list.as_array().into_iter().flatten().filter_map(|entry| entry.pointer(path).cloned()).collect()
        };
        let (method, what) = match operation {
            Operation::RestartAgent => ("innkeeper/restartAgent", None),
            Operation::StopCall => {
                let calls = ids(&state["activeTurn"]["responseParts"], "/toolCall/toolCallId");
                ("innkeeper/stop", pick(&calls, choice).map(|id| json!({"toolCallId": id})))
            }
            Operation::StopWork => {
                let works = ids(&state["backgroundWork"], "/id");
                ("innkeeper/stop", pick(&works, choice).map(|id| json!({"workId": id})))
            }
            _ => ("innkeeper/stop", Some(json!("all"))),
        };
        let mut params = json!({"channel": self.chat});
        if method == "innkeeper/stop" {
            let Some(what) = what else { return Ok("nothing to do".to_owned()) };
            params["what"] = what;
        }
        let label = format!("{method} {}", params["what"]);
        let (client, name) = (self.clients[client].client.clone(), label.clone());
        self.requests.spawn(async move {
            let began = Instant::now();
            let answer = client.request::<_, Value>(method, params).await;
            let answer = answer.map_or_else(|error| error.to_string(), |answer| answer.to_string());
            Ok(format!("{name} answered after {} ms: {answer}", began.elapsed().as_millis()))
        });
        Ok(label)
    }

    /// Kills the session's runtime. The folder identifies it.
    fn kill_runtime(&self) -> String {
        let runtimes = runtimes_in(&self.folder);
        for pid in &runtimes {
            // It may have exited meanwhile.
            processes::kill(*pid).ok();
        }
        format!("{runtimes:?}")
    }

    async fn reconnect(&mut self, client: usize, away: Duration) -> Result<String> {
        // A dispatch on a broken connection is lost, so the host answers all of them first.
        self.clients[client].settle().await?;
        self.finish_requests().await?;
        self.clients[client].client.shutdown().await;
        self.clients[1 - client].follow(Instant::now() + away).await?;
        let id = client_id(&self.name, client);
        self.clients[client].reconnect(&self.address, &id).await?;
        Ok(format!("{:?} after {away:?}", self.clients[client].came_back))
    }

    /// Waits for the responses to all requests.
    async fn finish_requests(&mut self) -> Result<()> {
        while !self.requests.is_empty() {
            self.follow(Instant::now() + LOOK).await?;
            while let Some(answer) = self.requests.try_join_next() {
                let answer = answer??;
                ensure!(!answer.contains("not found"), "{answer}");
                self.log.push(answer);
            }
        }
        Ok(())
    }

    /// Answers everything that is asked until the chat is idle and no message waits.
    pub(super) async fn calm_down(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut answered = HashSet::new();
        let mut idle_looks = 0;
        self.finish_requests().await?;
        loop {
            self.follow(Instant::now() + LOOK).await?;
            let running = self.running(0)?;
            for request in open_requests(&self.clients[0], &self.session) {
                if let Some(turn) = &running
                    && answered.insert(request["id"].to_string())
                {
                    self.dispatch(0, answer(turn, &request, true)).await?;
                }
            }
            let chat = self.state(0)?;
            let waits = chat.queued_messages.is_some() || chat.steering_message.is_some();
            let works = chat.background_work.as_ref().is_some_and(|works| !works.is_empty());
            idle_looks = if running.is_some() || works { 0 } else { idle_looks + 1 };
            if idle_looks > 4 && !waits {
                return Ok(());
            }
            if idle_looks % 10 == 9 {
                // Continues a held queue.
                self.reorder(0).await?;
            }
            ensure!(
                Instant::now() < deadline,
                "not idle within {limit:?}: {:#?}; open: {:#?}",
                self.state(0)?,
                open_requests(&self.clients[0], &self.session)
            );
        }
    }

    /// Sends one more message, which must be answered. Returns the time that this took.
    pub(super) async fn answers_once_more(&mut self, limit: Duration) -> Result<Duration> {
        let (began, token) = (Instant::now(), self.next_token());
        let message = json!({"text": format!("#demo\ntext answer {token}."), "origin": {"kind": "user"}});
        let set =
            json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": token, "message": message});
        self.dispatch(1, set).await?;
        loop {
            self.follow(Instant::now() + LOOK).await?;
            let turn = self.state(1)?.turns.iter().find(|turn| token_in(&turn.message.text) == Some(&token));
            if let Some(turn) = turn {
                ensure!(turn.state == TurnState::Complete, "the last message failed: {turn:#?}");
                return Ok(began.elapsed());
            }
            ensure!(began.elapsed() < limit, "no answer within {limit:?}: {:#?}", self.state(1)?);
        }
    }

    /// Checks that both clients and a new one see the same, and that each answer is in the
    /// turn of its message.
    pub(super) async fn check_state(&mut self) -> Result<()> {
        for client in &mut self.clients {
            client.agrees_with_a_fresh_client(&self.address).await?;
        }
        let turns = &self.state(0)?.turns;
        ensure!(*turns == self.state(1)?.turns, "the clients see different turns");
        for turn in turns {
            let parts = serde_json::to_value(&turn.response_parts)?.to_string();
            let steered = parts.contains("innkeeper.steering");
            let said = turn.response_parts.iter().filter_map(|part| match part {
                ResponsePart::Markdown(part) => Some(part.content.as_str()),
                _ => None,
            });
            let said: String = said.collect();
            let Some(token) = token_in(&turn.message.text).filter(|_| !steered) else { continue };
            ensure!(
                turn.state != TurnState::Complete || said.contains(&format!("answer {token}.")),
                "{turn:#?}"
            );
            let strange = said.split("answer ").skip(1).find(|rest| !rest.starts_with(token));
            ensure!(strange.is_none(), "the answer of another message is in this turn: {turn:#?}");
        }
        Ok(())
    }
}

fn client_id(name: &str, client: usize) -> String {
    format!("{name}-{client}")
}

async fn connect(address: &str, name: &str, client: usize) -> Result<Observer> {
    Observer::connect_small(address, &client_id(name, client), &["1.0.0"]).await
}

fn pick<T>(list: &[T], choice: u64) -> Option<&T> {
    let index = usize::try_from(choice).unwrap_or_default().checked_rem(list.len())?;
    list.get(index)
}

/// The answer to a request of the agent.
fn answer(turn: &str, request: &Value, approves: bool) -> Value {
    if request["kind"] != "toolConfirmation" {
        return json!({"type": "chat/inputCompleted", "requestId": request["request"]["id"], "response": "decline"});
    }
    let answer = if approves {
        json!({"approved": true, "confirmed": "user-action", "selectedOptionId": "allow-once"})
    } else {
        json!({"approved": false, "reason": "denied", "selectedOptionId": "deny"})
    };
    confirmation(turn, &request["toolCall"], answer)
}

/// The runtimes that work in a folder: the children of wardens there.
fn runtimes_in(folder: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let here =
        pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder));
    here.filter(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        !arguments.is_empty() && !arguments.windows(12).any(|part| part == b"--control-fd")
    })
    .collect()
}
