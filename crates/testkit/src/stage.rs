//! An agent that a test plays itself: it sees what a session asks of its agent and
//! says what an agent would say.
//!
//! The stage is the provider's side (openings, and whether they succeed), a player is
//! one live agent. Nothing happens here that the test does not make happen.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    AgentCapabilities, AgentInfo, Customization, ProtectedResourceMetadata, SessionConfigSchema,
};
use anyhow::{Context as _, Result, bail};
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, AgentFeatures, AgentLink, AgentOffer, AgentProvider, BoxFuture,
    COMMAND_CAPACITY, ConversationRecords, ConversationSummary, EVENT_CAPACITY, History, OpenAgent,
    OpenError, RecordError, RecordedTurn, ResolvedConfig, ResourceToken, ResumeToken, TokenRefused,
    TurnOutcome, Unsent,
};
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How long a test waits for something that must come, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the played kind of agent can do.
#[derive(Clone, Debug)]
pub struct StageTraits {
    /// Which commands it handles; by default all but `Rewind`.
    pub features: AgentFeatures,
    /// What clients are told that it can do.
    pub capabilities: Option<AgentCapabilities>,
    /// What clients are told that it needs tokens for.
    pub protected_resources: Option<Vec<ProtectedResourceMetadata>>,
    /// What clients are told that it comes with.
    pub customizations: Option<Vec<Customization>>,
}

impl Default for StageTraits {
    fn default() -> Self {
        let features = AgentFeatures { rewind: false, ..AgentFeatures::ALL };
        Self { features, capabilities: None, protected_resources: None, customizations: None }
    }
}

/// A kind of agent, named `scripted`, that a test plays. Clones are the same stage.
#[derive(Clone, Debug)]
pub struct Stage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    traits: StageTraits,
    /// What it offers; changed by a test.
    offer: watch::Sender<AgentOffer>,
    /// Whether openings go on.
    open: watch::Sender<bool>,
    /// What happened, and what shall happen.
    book: Mutex<Book>,
    /// Wakes whoever waits for an opening or a player.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Book {
    /// How often an agent was asked for.
    asked: usize,
    requests: Vec<OpenAgent>,
    failures: VecDeque<OpenError>,
    players: VecDeque<Player>,
    tokens: Vec<ResourceToken>,
    /// The agent's own records, if it keeps any.
    records: Option<Vec<(ConversationSummary, Vec<RecordedTurn>)>>,
    /// Why the next tokens are not taken.
    refusals: VecDeque<String>,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new(StageTraits::default())
    }
}

impl Stage {
    /// A stage whose agents can do this.
    pub fn new(traits: StageTraits) -> Self {
        let shared = Shared {
            offer: watch::Sender::new(offer(&traits)),
            traits,
            open: watch::Sender::new(true),
            book: Mutex::default(),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The kind of agent, for a host.
    pub fn provider(&self) -> Arc<dyn AgentProvider> {
        Arc::new(self.clone())
    }

    /// Openings wait from now on.
    pub fn hold_openings(&self) {
        self.shared.open.send_replace(false);
    }

    /// Openings go on.
    pub fn release_openings(&self) {
        self.shared.open.send_replace(true);
    }

    /// The next opening fails with this message.
    pub fn fail_next_opening(&self, message: &str) {
        let (error_type, message) = ("scripted".to_owned(), message.to_owned());
        self.book().failures.push_back(OpenError::Failed { error_type, message });
    }

    /// The next opening finds no record of the conversation.
    pub fn lose_history(&self, message: &str) {
        self.book().failures.push_back(OpenError::HistoryMissing { message: message.to_owned() });
    }

    /// Changes what the kind of agent offers.
    pub fn change_offer(&self, change: impl FnOnce(&mut AgentOffer)) {
        self.shared.offer.send_modify(change);
    }

    /// Gives the kind of agent records of its own, by their names.
    pub fn keep_records(&self, records: Vec<(ConversationSummary, Vec<RecordedTurn>)>) {
        self.book().records = Some(records);
    }

    /// The next token is refused for this reason.
    pub fn refuse_next_token(&self, reason: &str) {
        self.book().refusals.push_back(reason.to_owned());
    }

    /// The tokens that were taken so far.
    pub fn tokens(&self) -> Vec<ResourceToken> {
        self.book().tokens.clone()
    }

    /// What agents were opened with so far.
    pub fn openings(&self) -> Vec<OpenAgent> {
        self.book().requests.clone()
    }

    /// How many agents were asked for, of which some may not have been opened yet.
    pub fn asked(&self) -> usize {
        self.book().asked
    }

    /// Waits until this many openings have begun.
    pub async fn opened(&self, times: usize) -> Result<()> {
        self.wait("an opening", |book| (book.requests.len() >= times).then_some(())).await
    }

    /// The next agent that was opened and is nobody's yet.
    pub async fn player(&self) -> Result<Player> {
        self.wait("an agent", |book| book.players.pop_front()).await
    }

    /// The next agent if there is one already.
    pub fn waiting_player(&self) -> Option<Player> {
        self.book().players.pop_front()
    }

    async fn wait<T>(&self, what: &str, take: impl Fn(&mut Book) -> Option<T>) -> Result<T> {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if let Some(found) = take(&mut self.book()) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("waited in vain for {what}"))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.shared.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(self, request: OpenAgent, cancel: CancellationToken) -> Result<AgentLink, OpenError> {
        let conversation = request.conversation;
        self.book().requests.push(request);
        self.shared.changed.notify_waiters();
        let mut open = self.shared.open.subscribe();
        tokio::select! {
            () = cancel.cancelled() => return Err(OpenError::Cancelled),
            // The stage outlives its openings, so the wait can only succeed.
            _ = open.wait_for(|open| *open) => {}
        }
        if let Some(failure) = self.book().failures.pop_front() {
            return Err(failure);
        }
        let (commands, orders) = mpsc::channel(COMMAND_CAPACITY);
        let (reports, events) = mpsc::channel(EVENT_CAPACITY);
        let close = CancellationToken::new();
        let player = Player { commands: orders, events: reports, close: close.clone(), conversation };
        self.book().players.push_back(player);
        self.shared.changed.notify_waiters();
        Ok(AgentLink { commands, events, close })
    }
}

impl AgentProvider for Stage {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        self.shared.offer.subscribe()
    }

    fn records(&self) -> Option<Arc<dyn ConversationRecords>> {
        self.book().records.is_some().then(|| Arc::new(self.clone()) as Arc<dyn ConversationRecords>)
    }

    fn resolve_config(&self, chosen: &JsonObject) -> ResolvedConfig {
        let schema = config_schema();
        let mut values = JsonObject::new();
        for (key, property) in &schema.properties {
            if let Some(value) = chosen.get(key).or(property.default.as_ref()) {
                values.insert(key.clone(), value.clone());
            }
        }
        ResolvedConfig { schema, values }
    }

    fn open(&self, request: OpenAgent, cancel: CancellationToken) -> BoxFuture<Result<AgentLink, OpenError>> {
        self.book().asked += 1;
        Box::pin(self.clone().enter(request, cancel))
    }

    fn needs_tokens(&self) -> Vec<ProtectedResourceMetadata> {
        let book = self.book();
        let has_token = |resource: &ProtectedResourceMetadata| {
            let last = book.tokens.iter().rev().find(|token| token.resource == resource.resource);
            last.is_some_and(|token| token.token.is_some())
        };
        let resources = self.shared.traits.protected_resources.iter().flatten();
        resources
            .filter(|resource| resource.required != Some(false) && !has_token(resource))
            .cloned()
            .collect()
    }

    fn authenticate(&self, token: ResourceToken) -> BoxFuture<Result<(), TokenRefused>> {
        let mut book = self.book();
        let taken = match book.refusals.pop_front() {
            Some(reason) => Err(TokenRefused { reason }),
            None => {
                book.tokens.push(token);
                Ok(())
            }
        };
        Box::pin(std::future::ready(taken))
    }
}

impl ConversationRecords for Stage {
    fn list(&self) -> BoxFuture<Result<Vec<ConversationSummary>, RecordError>> {
        let records = self.book().records.clone().unwrap_or_default();
        Box::pin(std::future::ready(Ok(records.into_iter().map(|(summary, _)| summary).collect())))
    }

    fn read(&self, token: ResumeToken) -> BoxFuture<Result<Option<Vec<RecordedTurn>>, RecordError>> {
        let records = self.book().records.clone().unwrap_or_default();
        let found = records.into_iter().find(|(summary, _)| summary.token == token);
        Box::pin(std::future::ready(Ok(found.map(|(_, turns)| turns))))
    }
}

fn offer(traits: &StageTraits) -> AgentOffer {
    let info = AgentInfo {
        provider: "scripted".to_owned(),
        display_name: "Scripted".to_owned(),
        description: "An agent that a test plays".to_owned(),
        models: Vec::new(),
        protected_resources: traits.protected_resources.clone(),
        customizations: traits.customizations.clone(),
        capabilities: traits.capabilities.clone(),
    };
    AgentOffer { features: traits.features, ..AgentOffer::new(info) }
}

/// A form with a property of each kind, one of which stays as it was at the start.
fn config_schema() -> SessionConfigSchema {
    let properties = json!({
        "fixed": {"type": "string", "title": "Fixed", "default": "at first"},
        "mode": {
            "type": "string", "title": "Mode", "enum": ["careful", "bold"], "default": "careful",
            "sessionMutable": true,
        },
        "effort": {"type": "integer", "title": "Effort", "sessionMutable": true},
        "loud": {"type": "boolean", "title": "Loud", "sessionMutable": true},
        "names": {
            "type": "array", "title": "Names", "items": {"type": "string", "title": "Name"},
            "maxItems": 2, "sessionMutable": true,
        },
    });
    SessionConfigSchema {
        r#type: "object".to_owned(),
        properties: serde_json::from_value(properties).unwrap_or_else(|_| HashMap::new()),
        required: None,
    }
}

/// A live agent, seen from behind: its orders come in, what it says goes out.
#[derive(Debug)]
pub struct Player {
    commands: mpsc::Receiver<AgentCommand>,
    events: mpsc::Sender<AgentEvent>,
    close: CancellationToken,
    /// The conversation that it was opened for.
    pub conversation: uuid::Uuid,
}

impl Player {
    /// The next thing that the session wants.
    pub async fn command(&mut self) -> Result<AgentCommand> {
        let command = tokio::time::timeout(PATIENCE, self.commands.recv()).await.context("no command")?;
        command.context("the session let go of its agent")
    }

    /// The next command if there is one already. What a session sends in answer to an
    /// action is there before anything that it publishes later.
    pub fn waiting_command(&mut self) -> Option<AgentCommand> {
        self.commands.try_recv().ok()
    }

    /// The next command, which must be a prompt; answers its turn and its words.
    pub async fn prompt(&mut self) -> Result<(String, String)> {
        match self.command().await? {
            AgentCommand::Prompt { turn, message } => Ok((turn.as_str().to_owned(), message.text)),
            other => bail!("not a prompt: {other:?}"),
        }
    }

    /// Says something to the session.
    pub async fn send(&self, event: AgentEvent) -> Result<()> {
        self.events.send(event).await.context("the session does not listen to its agent")
    }

    /// Sends an action, given as it looks on the wire.
    pub async fn act(&self, action: Value) -> Result<()> {
        let action = serde_json::from_value(action)?;
        self.send(AgentEvent::Action(Box::new(action))).await
    }

    /// Streams a text part, word by word.
    pub async fn text(&self, turn: &str, part: &str, words: &[&str]) -> Result<()> {
        let markdown = json!({"kind": "markdown", "id": part, "content": ""});
        self.act(json!({"type": "chat/responsePart", "turnId": turn, "part": markdown})).await?;
        for word in words {
            self.act(json!({"type": "chat/delta", "turnId": turn, "partId": part, "content": word})).await?;
        }
        Ok(())
    }

    /// Streams a thought, word by word.
    pub async fn reasoning(&self, turn: &str, part: &str, words: &[&str]) -> Result<()> {
        let thought = json!({"kind": "reasoning", "id": part, "content": ""});
        self.act(json!({"type": "chat/responsePart", "turnId": turn, "part": thought})).await?;
        for word in words {
            self.act(json!({"type": "chat/reasoning", "turnId": turn, "partId": part, "content": word}))
                .await?;
        }
        Ok(())
    }

    /// Begins a tool call whose input is known.
    async fn call(&self, turn: &str, call: &str, start: Value, ready: Value) -> Result<()> {
        let common = json!({
            "turnId": turn, "toolCallId": call, "toolName": "bash", "displayName": "Run command",
            "invocationMessage": "Run `ls`", "toolInput": "ls",
        });
        for (kind, more) in [("chat/toolCallStart", start), ("chat/toolCallReady", ready)] {
            let mut action = common.clone();
            action["type"] = json!(kind);
            if let (Some(action), Value::Object(more)) = (action.as_object_mut(), more) {
                action.extend(more);
            }
            self.act(action).await?;
        }
        Ok(())
    }

    /// Asks whether a tool may run; `more` adds to the question (options, `editable`).
    pub async fn ask_to_run(&self, turn: &str, call: &str, more: Value) -> Result<()> {
        self.call(turn, call, json!({}), more).await
    }

    /// Runs a tool that needs no permission.
    pub async fn run(&self, turn: &str, call: &str) -> Result<()> {
        self.call(turn, call, json!({}), json!({"confirmed": "not-needed"})).await
    }

    /// Has a client run a tool of its own.
    pub async fn run_at_client(&self, turn: &str, call: &str, client: &str) -> Result<()> {
        let contributor = json!({"contributor": {"kind": "client", "clientId": client}});
        self.call(turn, call, contributor, json!({"confirmed": "not-needed"})).await
    }

    /// Tells what a tool gave; `more` adds to the action (`requiresResultConfirmation`).
    pub async fn ran(&self, turn: &str, call: &str, more: Value) -> Result<()> {
        let mut action = json!({
            "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call,
            "result": {"success": true, "pastTenseMessage": "Ran `ls`", "content": [{"type": "text", "text": "a"}]},
        });
        if let (Some(action), Value::Object(more)) = (action.as_object_mut(), more) {
            action.extend(more);
        }
        self.act(action).await
    }

    /// Asks the user something.
    pub async fn ask(&self, request: &str, questions: Value) -> Result<()> {
        let request = json!({"id": request, "message": "Please say", "questions": questions});
        self.act(json!({"type": "chat/inputRequested", "request": request})).await
    }

    /// Has taken a steering message into its turn.
    pub async fn steered(&self, id: &str) -> Result<()> {
        self.send(AgentEvent::SteeringTaken { id: id.to_owned() }).await
    }

    /// Is done with a turn.
    pub async fn complete(&self, turn: &str) -> Result<()> {
        self.end(turn, TurnOutcome::Completed).await
    }

    /// Is done with a turn, in this way.
    pub async fn end(&self, turn: &str, outcome: TurnOutcome) -> Result<()> {
        self.send(AgentEvent::TurnEnded { turn: TurnId::new(turn), outcome }).await
    }

    /// Takes no commands any more, as an agent that is about to end.
    pub fn stop_listening(&mut self) {
        self.commands.close();
    }

    /// Ends without having been asked to. Resolves when the session has heard of it.
    pub async fn crash(self) -> Result<()> {
        self.send(AgentEvent::Closed { history: History::Resume, unsent: None }).await?;
        tokio::time::timeout(PATIENCE, self.events.closed()).await.context("the session keeps its agent")
    }

    /// Ends without having looked at the message that it was sent last.
    pub async fn crash_before(self, unsent: Unsent) -> Result<()> {
        self.send(AgentEvent::Closed { history: History::Resume, unsent: Some(Box::new(unsent)) }).await
    }

    /// Waits until the session wants it to end, and ends.
    pub async fn leave_when_told(self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.close.cancelled()).await.context("nobody ends the agent")?;
        self.send(AgentEvent::Closed { history: History::Resume, unsent: None }).await
    }

    /// Fires when the session wants it to end.
    pub fn close(&self) -> &CancellationToken {
        &self.close
    }
}
