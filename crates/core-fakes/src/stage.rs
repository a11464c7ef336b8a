//! An agent that a test scripts: the test receives the commands of a session and sends
//! the events of the agent.
//!
//! [`Stage`] is the agent provider and controls whether agents open. [`Player`] is one
//! open agent. Both act only when the test calls them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    AgentCapabilities, AgentInfo, Customization, ProtectedResourceMetadata, SessionConfigSchema,
};
use anyhow::{Context as _, Result, bail};
use innkeeper_core::agent::{
    AgentCommand, AgentConnection, AgentEvent, AgentFeatures, AgentOffer, AgentProvider, BoxFuture,
    COMMAND_CAPACITY, ConversationRecords, ConversationSummary, EVENT_CAPACITY, History, HostConversation,
    OpenAgent, OpenError, RecordError, RecordedTurn, ResolvedConfig, ResourceToken, ResumeToken, StoppedWork,
    TokenRefused, TurnMessage, TurnOutcome, WorkKind,
};
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Timeout for expected events, generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the scripted provider supports.
#[derive(Clone, Debug)]
pub struct StageTraits {
    /// Supported commands; by default all but `Rewind`.
    pub features: AgentFeatures,
    /// Capabilities reported to clients.
    pub capabilities: Option<AgentCapabilities>,
    /// Protected resources reported to clients.
    pub protected_resources: Option<Vec<ProtectedResourceMetadata>>,
    /// Customizations reported to clients.
    pub customizations: Option<Vec<Customization>>,
}

impl Default for StageTraits {
    fn default() -> Self {
        let features = AgentFeatures { rewind: false, ..AgentFeatures::ALL };
        Self { features, capabilities: None, protected_resources: None, customizations: None }
    }
}

/// The agent provider `scripted`, controlled by a test. Clones share their state.
#[derive(Clone, Debug)]
pub struct Stage {
    shared: Arc<StageShared>,
}

#[derive(Debug)]
struct StageShared {
    traits: StageTraits,
    /// The current offer.
    offer: watch::Sender<AgentOffer>,
    /// Whether agents may open; false makes opening wait.
    open: watch::Sender<bool>,
    /// Recorded requests and scripted results.
    state: Mutex<StageState>,
    /// Notified when an agent is requested or opened.
    changed: Notify,
}

#[derive(Debug, Default)]
struct StageState {
    /// Number of calls of `open`.
    asked: usize,
    requests: Vec<OpenAgent>,
    failures: VecDeque<OpenError>,
    players: VecDeque<Player>,
    tokens: Vec<ResourceToken>,
    /// The agent's conversation records, if it keeps any.
    records: Option<Vec<(ConversationSummary, Vec<RecordedTurn>)>>,
    /// Conversations whose records were deleted.
    deleted_records: Vec<HostConversation>,
    /// Reasons to reject the next tokens.
    refusals: VecDeque<String>,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new(StageTraits::default())
    }
}

impl Stage {
    /// Creates a provider with these traits.
    pub fn new(traits: StageTraits) -> Self {
        let shared = StageShared {
            offer: watch::Sender::new(offer(&traits)),
            traits,
            open: watch::Sender::new(true),
            state: Mutex::default(),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The provider, for a host.
    pub fn provider(&self) -> Arc<dyn AgentProvider> {
        Arc::new(self.clone())
    }

    /// Makes opening wait until [`Self::release_openings`].
    pub fn hold_openings(&self) {
        self.shared.open.send_replace(false);
    }

    /// Lets waiting agents open.
    pub fn release_openings(&self) {
        self.shared.open.send_replace(true);
    }

    /// Makes the next opening fail with this message.
    pub fn fail_next_opening(&self, message: &str) {
        let (error_type, message) = ("scripted".to_owned(), message.to_owned());
        self.state().failures.push_back(OpenError::Failed { error_type, message });
    }

    /// Makes the next opening fail because the conversation history is missing.
    pub fn lose_history(&self, message: &str) {
        self.state().failures.push_back(OpenError::HistoryMissing { message: message.to_owned() });
    }

    /// Changes the offer.
    pub fn change_offer(&self, change: impl FnOnce(&mut AgentOffer)) {
        self.shared.offer.send_modify(change);
    }

    /// Sets the provider's conversation records.
    pub fn keep_records(&self, records: Vec<(ConversationSummary, Vec<RecordedTurn>)>) {
        self.state().records = Some(records);
    }

    /// The conversations whose records the host deleted, in order.
    pub fn deleted_records(&self) -> Vec<HostConversation> {
        self.state().deleted_records.clone()
    }

    /// Rejects the next token for this reason.
    pub fn refuse_next_token(&self, reason: &str) {
        self.state().refusals.push_back(reason.to_owned());
    }

    /// The tokens accepted so far.
    pub fn tokens(&self) -> Vec<ResourceToken> {
        self.state().tokens.clone()
    }

    /// The requests of all openings so far.
    pub fn openings(&self) -> Vec<OpenAgent> {
        self.state().requests.clone()
    }

    /// Number of requested agents, including those not opened yet.
    pub fn asked(&self) -> usize {
        self.state().asked
    }

    /// Waits until this many agents have been requested.
    pub async fn opened(&self, times: usize) -> Result<()> {
        self.wait("an opening", |state| (state.requests.len() >= times).then_some(())).await
    }

    /// Waits for the next open agent.
    pub async fn player(&self) -> Result<Player> {
        self.wait("an agent", |state| state.players.pop_front()).await
    }

    /// The next open agent, if there is one already.
    pub fn waiting_player(&self) -> Option<Player> {
        self.state().players.pop_front()
    }

    async fn wait<T>(&self, what: &str, take: impl Fn(&mut StageState) -> Option<T>) -> Result<T> {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if let Some(found) = take(&mut self.state()) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.with_context(|| format!("timed out waiting for {what}"))
    }

    fn state(&self) -> MutexGuard<'_, StageState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(
        self,
        request: OpenAgent,
        cancel: CancellationToken,
    ) -> Result<AgentConnection, OpenError> {
        let conversation = request.conversation;
        self.state().requests.push(request);
        self.shared.changed.notify_waiters();
        let mut open = self.shared.open.subscribe();
        tokio::select! {
            () = cancel.cancelled() => return Err(OpenError::Cancelled),
            // The stage holds the sender, so the wait cannot fail.
            _ = open.wait_for(|open| *open) => {}
        }
        if let Some(failure) = self.state().failures.pop_front() {
            return Err(failure);
        }
        let (commands, orders) = mpsc::channel(COMMAND_CAPACITY);
        let (reports, events) = mpsc::channel(EVENT_CAPACITY);
        let close = CancellationToken::new();
        let player = Player { commands: orders, events: reports, close: close.clone(), conversation };
        self.state().players.push_back(player);
        self.shared.changed.notify_waiters();
        Ok(AgentConnection { commands, events, close })
    }
}

impl AgentProvider for Stage {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        self.shared.offer.subscribe()
    }

    fn records(&self) -> Option<Arc<dyn ConversationRecords>> {
        self.state().records.is_some().then(|| Arc::new(self.clone()) as Arc<dyn ConversationRecords>)
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

    fn open(
        &self,
        request: OpenAgent,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<AgentConnection, OpenError>> {
        self.state().asked += 1;
        Box::pin(self.clone().enter(request, cancel))
    }

    fn needs_tokens(&self) -> Vec<ProtectedResourceMetadata> {
        let state = self.state();
        let has_token = |resource: &ProtectedResourceMetadata| {
            let last = state.tokens.iter().rev().find(|token| token.resource == resource.resource);
            last.is_some_and(|token| token.token.is_some())
        };
        let resources = self.shared.traits.protected_resources.iter().flatten();
        resources
            .filter(|resource| resource.required != Some(false) && !has_token(resource))
            .cloned()
            .collect()
    }

    fn authenticate(&self, token: ResourceToken) -> BoxFuture<Result<(), TokenRefused>> {
        let mut state = self.state();
        let taken = match state.refusals.pop_front() {
            Some(reason) => Err(TokenRefused { reason }),
            None => {
                state.tokens.push(token);
                Ok(())
            }
        };
        Box::pin(std::future::ready(taken))
    }
}

impl ConversationRecords for Stage {
    fn list(&self) -> BoxFuture<Result<Vec<ConversationSummary>, RecordError>> {
        let records = self.state().records.clone().unwrap_or_default();
        Box::pin(std::future::ready(Ok(records.into_iter().map(|(summary, _)| summary).collect())))
    }

    fn read(&self, token: ResumeToken) -> BoxFuture<Result<Option<Vec<RecordedTurn>>, RecordError>> {
        let records = self.state().records.clone().unwrap_or_default();
        let found = records.into_iter().find(|(summary, _)| summary.token == token);
        Box::pin(std::future::ready(Ok(found.map(|(_, turns)| turns))))
    }

    fn delete(&self, conversation: HostConversation) -> BoxFuture<Result<(), RecordError>> {
        self.state().deleted_records.push(conversation);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn offer(traits: &StageTraits) -> AgentOffer {
    let info = AgentInfo {
        provider: "scripted".to_owned(),
        display_name: "Scripted".to_owned(),
        description: "An agent that a test scripts".to_owned(),
        models: Vec::new(),
        protected_resources: traits.protected_resources.clone(),
        customizations: traits.customizations.clone(),
        capabilities: traits.capabilities.clone(),
    };
    AgentOffer { features: traits.features, ..AgentOffer::new(info) }
}

/// A schema with a property of each type; `fixed` cannot be changed after creation.
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
        "permissionMode": {"type": "string", "title": "Permission mode", "sessionMutable": true},
        "permissions": {"type": "object", "title": "Permission rules", "sessionMutable": true},
    });
    SessionConfigSchema {
        r#type: "object".to_owned(),
        properties: serde_json::from_value(properties).unwrap_or_else(|_| HashMap::new()),
        required: None,
    }
}

/// One open agent: receives the commands of its session and sends events.
#[derive(Debug)]
pub struct Player {
    commands: mpsc::Receiver<AgentCommand>,
    events: mpsc::Sender<AgentEvent>,
    close: CancellationToken,
    /// The conversation it was opened for.
    pub conversation: uuid::Uuid,
}

impl Player {
    /// Waits for the next command.
    pub async fn command(&mut self) -> Result<AgentCommand> {
        let command = tokio::time::timeout(TIMEOUT, self.commands.recv())
            .await
            .context("timed out waiting for a command")?;
        command.context("the session dropped its agent")
    }

    /// The next command, if there is one already. A command that an action causes is
    /// queued before anything that the session publishes later.
    pub fn waiting_command(&mut self) -> Option<AgentCommand> {
        self.commands.try_recv().ok()
    }

    /// Waits for a prompt; returns its turn and its text.
    pub async fn prompt(&mut self) -> Result<(String, String)> {
        match self.command().await? {
            AgentCommand::Prompt { turn, message } => Ok((turn.as_str().to_owned(), message.text)),
            other => bail!("not a prompt: {other:?}"),
        }
    }

    /// Sends an event to the session.
    pub async fn send(&self, event: AgentEvent) -> Result<()> {
        self.events.send(event).await.context("the session no longer receives events")
    }

    /// Sends an action given as JSON.
    pub async fn act(&self, action: Value) -> Result<()> {
        let action = serde_json::from_value(action)?;
        self.send(AgentEvent::Action(Box::new(action))).await
    }

    /// Streams a text part, one delta per word.
    pub async fn text(&self, turn: &str, part: &str, words: &[&str]) -> Result<()> {
        let markdown = json!({"kind": "markdown", "id": part, "content": ""});
        self.act(json!({"type": "chat/responsePart", "turnId": turn, "part": markdown})).await?;
        for word in words {
            self.act(json!({"type": "chat/delta", "turnId": turn, "partId": part, "content": word})).await?;
        }
        Ok(())
    }

    /// Streams a reasoning part, one delta per word.
    pub async fn reasoning(&self, turn: &str, part: &str, words: &[&str]) -> Result<()> {
        let thought = json!({"kind": "reasoning", "id": part, "content": ""});
        self.act(json!({"type": "chat/responsePart", "turnId": turn, "part": thought})).await?;
        for word in words {
            self.act(json!({"type": "chat/reasoning", "turnId": turn, "partId": part, "content": word}))
                .await?;
        }
        Ok(())
    }

    /// Starts a tool call with complete input.
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

    /// Requests confirmation of a tool call; `more` adds fields to the action (options,
    /// `editable`).
    pub async fn ask_to_run(&self, turn: &str, call: &str, more: Value) -> Result<()> {
        self.call(turn, call, json!({}), more).await
    }

    /// Runs a tool that needs no confirmation.
    pub async fn run(&self, turn: &str, call: &str) -> Result<()> {
        self.call(turn, call, json!({}), json!({"confirmed": "not-needed"})).await
    }

    /// Runs a tool that a client provides.
    pub async fn run_at_client(&self, turn: &str, call: &str, client: &str) -> Result<()> {
        let contributor = json!({"contributor": {"kind": "client", "clientId": client}});
        self.call(turn, call, contributor, json!({"confirmed": "not-needed"})).await
    }

    /// Reports the result of a tool call; `more` adds fields to the action
    /// (`requiresResultConfirmation`).
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

    /// Requests input from the user.
    pub async fn ask(&self, request: &str, questions: Value) -> Result<()> {
        let request = json!({"id": request, "message": "Please answer", "questions": questions});
        self.act(json!({"type": "chat/inputRequested", "request": request})).await
    }

    /// Reports that a steering message with this text was added to the turn.
    pub async fn steered(&self, turn: &str, id: &str, text: &str) -> Result<()> {
        let message = serde_json::from_value(json!({"text": text, "origin": {"kind": "user"}}))?;
        self.send(AgentEvent::SteeringTaken { id: id.to_owned(), turn: TurnId::new(turn), message }).await
    }

    /// Reports a command that runs in the background, started by a call of the turn.
    pub async fn run_in_background(&self, turn: &str, call: &str, work: &str, label: &str) -> Result<()> {
        let work = json!({
            "kind": "shell", "id": work, "label": label, "startedAt": "2025-11-15T09:00:05.000Z",
            "command": label, "_meta": {"innkeeper.work": {"toolCallId": call, "turnId": turn}},
        });
        self.act(json!({"type": "chat/backgroundWorkSet", "work": work})).await
    }

    /// Answers the request to stop work.
    pub async fn stopped(&self, request: u64, result: std::result::Result<&[&str], &str>) -> Result<()> {
        let work = |label: &&str| StoppedWork { kind: WorkKind::Command, label: (*label).to_owned() };
        let result = result.map(|labels| labels.iter().map(work).collect()).map_err(str::to_owned);
        self.send(AgentEvent::WorkStopped { request, result }).await
    }

    /// Completes a turn.
    pub async fn complete(&self, turn: &str) -> Result<()> {
        self.end(turn, TurnOutcome::Completed).await
    }

    /// Ends a turn with this outcome.
    pub async fn end(&self, turn: &str, outcome: TurnOutcome) -> Result<()> {
        self.send(AgentEvent::TurnEnded { turn: TurnId::new(turn), outcome }).await
    }

    /// Stops accepting commands, like an agent that is about to exit.
    pub fn stop_listening(&mut self) {
        self.commands.close();
    }

    /// Exits unexpectedly; returns once the session has noticed.
    pub async fn crash(self) -> Result<()> {
        self.send(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None }).await?;
        tokio::time::timeout(TIMEOUT, self.events.closed())
            .await
            .context("the session did not drop its agent")
    }

    /// Exits before it processed `unsent`.
    pub async fn crash_before(self, unsent: TurnMessage) -> Result<()> {
        self.send(AgentEvent::Closed {
            history: History::Resume,
            unsent: Some(Box::new(unsent)),
            restart: None,
        })
        .await
    }

    /// Waits until the session closes the agent, then exits.
    pub async fn leave_when_told(self) -> Result<()> {
        tokio::time::timeout(TIMEOUT, self.close.cancelled())
            .await
            .context("the session did not close the agent")?;
        self.send(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None }).await
    }

    /// Cancelled when the session closes the agent.
    pub fn close(&self) -> &CancellationToken {
        &self.close
    }
}
