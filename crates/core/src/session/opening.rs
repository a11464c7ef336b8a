//! Opens the agents of a session's chats, and briefs them when session data changes.
//!
//! An agent is opened with everything that must outlive its process. Opening happens in a
//! separate task that reports to the actor.

use std::collections::BTreeMap;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::Turn;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::actor::SessionActor;
use super::briefing::Briefing;
use super::chats::Brief;
use super::handle::SessionInput;
use super::links::match_by_order;
use crate::agent::{
    AgentCommand, History, OpenAgent, OpenError, OpeningAnswer, RecordedTurn, ResumeToken, Selection,
};
use crate::channel::ChannelUri;
use crate::directories::Primary;
use crate::state::ChannelState;
use crate::storage::{Change, StoredTurn};
use crate::trust::TrustedFolders;

/// The configuration property with environment variables for agents.
const ENVIRONMENT: &str = "environment";

impl SessionActor {
    pub(super) fn open_agent(&mut self, uri: &ChannelUri, history: History, answer: Option<OpeningAnswer>) {
        // The provider's features may have changed since the last agent was opened.
        let (features, directories) = {
            let offer = self.seed.provider.offer();
            let offer = offer.borrow();
            (offer.features, Primary::of(&offer.info))
        };
        if let Some(chat) = self.chats.get_mut(uri) {
            (chat.agent.features, chat.agent.directories) = (features, directories);
        }
        let (briefing, selection) = (self.briefing(uri), self.selection(uri));
        let trusted = self.store.read(&ChannelUri::root(), TrustedFolders::of_root).unwrap_or_default();
        self.find_links(uri, &history);
        if matches!(history, History::Fresh | History::Rebuild(_)) {
            self.drop_record(uri);
        }
        let Some(chat) = self.chats.get_mut(uri) else { return };
        chat.opening = CancellationToken::new();
        chat.agent.openings += 1;
        chat.briefed = briefing.clone();
        let resumes = matches!(history, History::Resume);
        let request = OpenAgent {
            conversation: chat.conversation,
            history,
            resume_token: chat.resume_token.clone().filter(|_| resumes),
            working_directories: briefing.directories,
            selection,
            answer,
            trusted,
            environment: environment_of(&briefing.config),
            config: briefing.config,
            client_tools: if features.client_tools { briefing.client_tools } else { Arc::new([]) },
            switches: briefing.switches,
        };
        let opened = self.seed.provider.open(request, chat.opening.clone());
        let mut report = OpeningReport {
            chat: uri.clone(),
            tasks: self.tasks.clone(),
            inputs: Some(self.own_inputs.clone()),
        };
        self.tasks.spawn(async move {
            let result = opened.await;
            if let Some(inputs) = report.inputs.take().and_then(|inputs| inputs.upgrade()) {
                // If the actor has stopped, dropping the link closes the agent.
                inputs.send(SessionInput::Opened(report.chat.clone(), result)).await.ok();
            }
        });
    }

    /// The user's selection: the model of the running turn's message, or else the latest
    /// model that a message names, and the custom agent of the running turn's message.
    fn selection(&self, chat: &ChannelUri) -> Selection {
        let look = |state: &ChannelState| {
            let doc = state.chat_doc()?;
            let message = doc.open().active_turn.as_ref().map(|turn| turn.message.clone());
            Some((message, doc.turns().to_vec()))
        };
        // Parsed outside the lock, since there may be many turns.
        let Some((message, turns)) = self.store.read(chat, look).flatten() else {
            return Selection::default();
        };
        let (model, agent) = message.map(|message| (message.model, message.agent)).unwrap_or_default();
        let model_of = |turn: &StoredTurn| serde_json::from_str::<Turn>(turn.body.get()).ok()?.message.model;
        Selection { model: model.or_else(|| turns.iter().rev().find_map(model_of)), agent }
    }

    /// Reads the agent's own record if some turns have no link.
    fn find_links(&self, uri: &ChannelUri, history: &History) {
        let resumes = matches!(history, History::Resume);
        let Some(chat) = self.chats.get(uri).filter(|chat| resumes && !chat.links.tried) else { return };
        let covered = |state: &ChannelState| state.chat_doc().map(|doc| chat.links.cover(doc.turns()));
        let Some(records) = self.seed.provider.records() else { return };
        if self.store.read(uri, covered).flatten() != Some(false) {
            return;
        }
        let token =
            chat.resume_token.clone().unwrap_or_else(|| ResumeToken::new(chat.conversation.to_string()));
        let (inputs, uri) = (self.own_inputs.clone(), uri.clone());
        self.tasks.spawn(async move {
            match records.read(token).await {
                Ok(Some(record)) => {
                    if let Some(inputs) = inputs.upgrade() {
                        // If the actor has stopped, the next opening tries again.
                        inputs.send(SessionInput::Recorded(uri, record)).await.ok();
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(chat = %uri, %error, "cannot read agent record to link turns")
                }
            }
        });
    }

    /// Drops the references to a record that the agent does not have or will not use.
    fn drop_record(&mut self, uri: &ChannelUri) {
        let Some(chat) = self.chats.get_mut(uri) else { return };
        chat.resume_token = None;
        let turns = chat.links.retain(|_| false);
        if !turns.is_empty() {
            self.journal.write_soon(Change::RemoveTurnLinks { chat: uri.clone(), turns });
        }
    }

    pub(super) fn link_by_order(&mut self, uri: &ChannelUri, record: &[RecordedTurn]) {
        let turns = self.store.read(uri, |state| state.chat_doc().map(|doc| doc.turns().to_vec())).flatten();
        let (Some(turns), Some(chat)) = (turns, self.chats.get_mut(uri)) else { return };
        chat.links.tried = true;
        for (turn, link) in match_by_order(&turns, &chat.links, record) {
            if chat.links.fill(&turn, link.clone()) {
                self.journal.write_soon(Change::PutTurnLink { chat: uri.clone(), turn, link });
            }
        }
    }

    /// The current session data for the agent of a chat.
    fn briefing(&self, chat: &ChannelUri) -> Briefing {
        let primary = self.chats.get(chat).and_then(|chat| chat.agent.directories);
        self.with_state(chat, |session, chat| Briefing::of(session, chat, primary)).unwrap_or_default()
    }

    pub(super) fn brief(&mut self, chat: &ChannelUri, when: Brief) {
        // Checked first, because collecting the data is expensive.
        if !self.chats.get_mut(chat).is_some_and(|chat| chat.can_brief(when)) {
            return;
        }
        let briefing = self.briefing(chat);
        if let Some(chat) = self.chats.get_mut(chat) {
            chat.brief(briefing);
        }
    }

    pub(super) fn brief_all(&mut self) {
        let agents = self.chats.iter().filter(|chat| chat.link.is_some()).map(|chat| chat.uri.clone());
        for chat in agents.collect::<Vec<_>>() {
            self.brief(&chat, Brief::IfRoom);
        }
    }

    /// Briefs an agent that had no room for the last briefing.
    pub(super) fn brief_if_outdated(&mut self, chat: &ChannelUri, when: Brief) {
        if self.chats.get(chat).is_some_and(|chat| chat.briefing_outdated) {
            self.brief(chat, when);
        }
    }

    /// Sends an agent the changes since its opening began.
    pub(super) fn brief_after_opening(&mut self, chat: &ChannelUri) {
        let briefing = self.briefing(chat);
        let Some(chat) = self.chats.get_mut(chat) else { return };
        let switched = chat.briefed.switched(&briefing);
        if chat.can_brief(Brief::First) {
            chat.brief(briefing);
        }
        if !switched.is_empty() {
            chat.command(AgentCommand::Toggle(switched));
        }
    }
}

/// The environment variables in a session's configuration.
fn environment_of(config: &JsonObject) -> BTreeMap<String, String> {
    let Some(variables) = config.get(ENVIRONMENT).and_then(|variables| variables.as_object()) else {
        return BTreeMap::new();
    };
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    variables.iter().filter_map(text).collect()
}

/// Reports a failed opening to the actor if the opening task panics; otherwise the session
/// would wait indefinitely.
struct OpeningReport {
    chat: ChannelUri,
    tasks: TaskTracker,
    inputs: Option<mpsc::WeakSender<SessionInput>>,
}

impl Drop for OpeningReport {
    fn drop(&mut self) {
        let Some(inputs) = self.inputs.take().and_then(|inputs| inputs.upgrade()) else { return };
        let error = OpenError::Failed {
            error_type: "internal_error".to_owned(),
            message: "The agent could not be started: internal error in the host. See the host's log."
                .to_owned(),
        };
        let chat = self.chat.clone();
        // Sent from a task, because the actor's queue may be full.
        self.tasks.spawn(async move { inputs.send(SessionInput::Opened(chat, Err(error))).await.ok() });
    }
}
