//! Opens the agents of a session's chats.
//!
//! An agent is opened with everything that must outlive its process. Opening happens in a
//! separate task that reports to the actor.

use std::sync::Arc;

use ahp_types::state::Turn;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::chats::Chat;
use super::handle::SessionInput;
use super::publisher::Publisher;
use crate::agent::{
    AgentProvider, History, OpenAgent, OpenError, OpeningAnswer, RecorderSource, ResumeToken, Selection,
    environment_of,
};
use crate::channel::ChannelUri;
use crate::directories::Primary;
use crate::edits::EditLog;
use crate::state::{ChannelState, StateStore};
use crate::storage::StoredTurn;
use crate::trust::TrustedFolders;

/// Opens agents with the session's provider.
pub(super) struct AgentOpener {
    pub(super) provider: Arc<dyn AgentProvider>,
    /// The session.
    pub(super) session: ChannelUri,
    /// Where agents record their edits.
    pub(super) edits: Arc<dyn EditLog>,
    /// Counts the opening tasks, so that shutdown waits for them.
    pub(super) tasks: TaskTracker,
    /// Where the tasks report. Weak, so that the actor does not keep itself alive.
    pub(super) inputs: mpsc::WeakSender<SessionInput>,
}

impl AgentOpener {
    /// Starts to open the agent of a chat.
    pub(super) fn open(
        &self,
        chat: &mut Chat,
        publisher: &mut Publisher,
        history: History,
        answer: Option<OpeningAnswer>,
    ) {
        // The provider's features may have changed since the last agent was opened.
        let (features, directories) = {
            let offer = self.provider.offer();
            let offer = offer.borrow();
            (offer.features, Primary::of(&offer.info))
        };
        (chat.agent.features, chat.agent.directories) = (features, directories);
        let (briefing, selection) = (chat.briefing(publisher), selection(publisher.store(), &chat.uri));
        let resumes = matches!(history, History::Resume);
        if resumes {
            self.find_links(chat, publisher.store());
        }
        let trusted =
            publisher.store().read(&ChannelUri::root(), TrustedFolders::of_root).unwrap_or_default();
        if matches!(history, History::Fresh | History::Rebuild(_)) {
            chat.drop_record(publisher);
        }
        chat.opening = CancellationToken::new();
        chat.agent.openings += 1;
        chat.briefed = briefing.clone();
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
            edits: RecorderSource::new(Arc::clone(&self.edits), self.session.clone(), chat.uri.clone()),
        };
        let opened = self.provider.open(request, chat.opening.clone());
        let mut report = OpeningReport {
            chat: chat.uri.clone(),
            tasks: self.tasks.clone(),
            inputs: Some(self.inputs.clone()),
        };
        self.tasks.spawn(async move {
            let result = opened.await;
            if let Some(inputs) = report.inputs.take().and_then(|inputs| inputs.upgrade()) {
                // If the actor has stopped, dropping the connection closes the agent.
                inputs.send(SessionInput::Opened(report.chat.clone(), result)).await.ok();
            }
        });
    }

    /// Reads the agent's own record if some turns have no link.
    fn find_links(&self, chat: &Chat, store: &StateStore) {
        let covered = |state: &ChannelState| state.chat_doc().map(|doc| chat.links.cover(doc.turns()));
        if chat.links.tried || store.read(&chat.uri, covered).flatten() != Some(false) {
            return;
        }
        let Some(records) = self.provider.records() else { return };
        let token =
            chat.resume_token.clone().unwrap_or_else(|| ResumeToken::new(chat.conversation.to_string()));
        let (inputs, uri) = (self.inputs.clone(), chat.uri.clone());
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
}

/// The user's selection: the model of the running turn's message, or else the latest model
/// that a message names, and the custom agent of the running turn's message. Without a turn, the
/// agent is opened in advance for the message that a client is writing.
fn selection(store: &StateStore, chat: &ChannelUri) -> Selection {
    let look = |state: &ChannelState| {
        let doc = state.chat_doc()?;
        let running = doc.open().active_turn.as_ref().map(|turn| &turn.message);
        let message = running.or(doc.open().draft.as_ref()).cloned();
        Some((message, doc.turns().to_vec()))
    };
    // Parsed outside the lock, since there may be many turns.
    let Some((message, turns)) = store.read(chat, look).flatten() else {
        return Selection::default();
    };
    let (model, agent) = message.map(|message| (message.model, message.agent)).unwrap_or_default();
    let model_of = |turn: &StoredTurn| serde_json::from_str::<Turn>(turn.body.get()).ok()?.message.model;
    Selection { model: model.or_else(|| turns.iter().rev().find_map(model_of)), agent }
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
