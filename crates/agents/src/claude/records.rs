//! Reads the runtime's transcripts as recorded conversations.
//!
//! Includes conversations that the host did not start. Messages go through the same
//! mappers as live ones. Never starts a runtime.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::{ChatTurnCompleteAction, ChatTurnStartedAction, StateAction};
use ahp_types::state::{ChatState, Message as UserInput, MessageKind, MessageOrigin, SessionStatus, Turn};
use innkeeper_claude::transcript::{
    self, Erased, ListOptions, ReadOptions, SessionSummary, TranscriptMessage, TranscriptMessageKind,
    TranscriptOrigin, Transcripts,
};
use innkeeper_core::agent::{
    AgentEvent, BoxFuture, ConversationRecords, ConversationSummary, HostConversation, RecordError,
    RecordedTurn, ResumeToken, TurnLink,
};
use innkeeper_core::ids::TurnId;
use serde::Deserialize;
use uuid::Uuid;

use super::driver::ConversationIdentity;
use super::map::Mapper;

/// Prefix of the text that the runtime writes for an interrupted turn.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Message of a turn that continues after a compaction.
const COMPACTED: &str = "The conversation was compacted.";

/// Transcripts of one configuration directory.
pub(super) struct ClaudeRecords {
    environment: Arc<BTreeMap<OsString, OsString>>,
    /// Caches transcripts that were read before.
    transcripts: Option<Arc<Transcripts>>,
}

impl ClaudeRecords {
    /// Opens the transcripts of runtimes with this environment.
    pub(super) fn new(environment: &BTreeMap<OsString, OsString>) -> Self {
        let transcripts = Transcripts::from_environment(environment).map(Arc::new);
        Self { environment: Arc::new(environment.clone()), transcripts }
    }
}

impl ConversationRecords for ClaudeRecords {
    fn list(&self) -> BoxFuture<Result<Vec<ConversationSummary>, RecordError>> {
        let transcripts = self.transcripts.clone();
        blocking(move || {
            let listed = transcripts.map(|transcripts| transcripts.list(&ListOptions::default()));
            Ok(listed.unwrap_or_default().iter().map(|summary| summarized(summary)).collect())
        })
    }

    fn read(&self, token: ResumeToken) -> BoxFuture<Result<Option<Vec<RecordedTurn>>, RecordError>> {
        let environment = Arc::clone(&self.environment);
        blocking(move || {
            let identity = ConversationIdentity::parse(&token);
            let path: Option<PathBuf> =
                identity.and_then(|identity| transcript::find(&environment, identity.id));
            path.map(|path| read(&path)).transpose()
        })
    }

    fn delete(&self, conversation: HostConversation) -> BoxFuture<Result<(), RecordError>> {
        let config_dir = transcript::config_dir(&self.environment);
        blocking(move || config_dir.map_or(Ok(()), |config_dir| delete(&config_dir, &conversation)))
    }
}

/// Deletes the transcripts that a conversation had under all of its ids. The runtime records in
/// each transcript which program created it; those of other programs are kept.
fn delete(config_dir: &Path, conversation: &HostConversation) -> Result<(), RecordError> {
    let identity = conversation.token.as_ref().and_then(ConversationIdentity::parse);
    let named = identity.into_iter().flat_map(|identity| identity.earlier.into_iter().chain([identity.id]));
    // The host's id is the runtime's first id, unless it was taken.
    let mut ids: Vec<Uuid> = named.collect();
    if !ids.contains(&conversation.id) {
        ids.push(conversation.id);
    }
    let mut failed = Vec::new();
    for id in ids {
        match transcript::erase(config_dir, id) {
            Ok(Erased::Everything) => {}
            Ok(Erased::Foreign) => tracing::info!(%id, "kept a transcript that another program created"),
            Err(error) => failed.push(describe(&error)),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(RecordError { reason: failed.join("; ") }) }
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RecordError> + Send + 'static,
) -> BoxFuture<Result<T, RecordError>> {
    Box::pin(async {
        let failed = |error: tokio::task::JoinError| RecordError { reason: error.to_string() };
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    })
}

fn summarized(summary: &SessionSummary) -> ConversationSummary {
    ConversationSummary {
        token: ResumeToken::new(summary.id.to_string()),
        title: summary.title.clone().unwrap_or_else(|| summary.summary.clone()),
        directory: summary.cwd.as_ref().map(PathBuf::from),
        modified_at: summary.last_modified.try_into().unwrap_or_default(),
    }
}

fn read(path: &Path) -> Result<Vec<RecordedTurn>, RecordError> {
    let messages = transcript::messages(path, &ReadOptions::default())
        .map_err(|error| RecordError { reason: error.to_string() })?;
    let mut record = TranscriptTurns::default();
    for message in &messages {
        record.add(message);
    }
    Ok(record.turns.into_iter().filter_map(RecordingTurn::finished).collect())
}

/// Turns of a transcript read so far.
#[derive(Default)]
struct TranscriptTurns {
    turns: Vec<RecordingTurn>,
    mapper: Mapper,
}

/// A turn that is being read.
struct RecordingTurn {
    id: TurnId,
    link: TurnLink,
    chat: ChatState,
    /// Whether the turn starts with the summary of a compaction.
    is_summary: bool,
}

impl TranscriptTurns {
    fn add(&mut self, message: &TranscriptMessage) {
        if message.parent_tool_use_id.is_some() {
            return;
        }
        let prompt = prompt_of(message);
        match (message.origin, prompt) {
            // A message that was sent during a turn belongs to that turn.
            (TranscriptOrigin::Queued, Some(_)) if !self.turns.is_empty() => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.link.prompts.push(message.uuid.clone());
                }
            }
            (TranscriptOrigin::Plain | TranscriptOrigin::Queued, Some(text)) => {
                self.mapper.begin_turn();
                self.turns.push(RecordingTurn::new(message, text));
            }
            // The summary replaces earlier turns, and the next response may have no other prompt.
            (TranscriptOrigin::CompactSummary, Some(_)) => {
                self.mapper.begin_turn();
                let mut turn = RecordingTurn::new(message, COMPACTED.to_owned());
                turn.is_summary = true;
                self.turns.push(turn);
            }
            (TranscriptOrigin::LocalCommand, Some(_)) => {}
            (_, None) => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.add(message, &mut self.mapper);
                }
            }
        }
    }
}

impl RecordingTurn {
    fn new(message: &TranscriptMessage, text: String) -> Self {
        let id = TurnId::new(&message.uuid);
        let started_at = message.timestamp.clone().unwrap_or_default();
        let mut chat = empty_chat(&started_at);
        let is_user = message.sender.is_none() && message.origin != TranscriptOrigin::CompactSummary;
        let kind = if is_user { MessageKind::User } else { MessageKind::SystemNotification };
        let started = StateAction::ChatTurnStarted(ChatTurnStartedAction {
            turn_id: message.uuid.clone(),
            started_at,
            message: UserInput {
                text,
                origin: MessageOrigin { kind },
                attachments: None,
                model: None,
                agent: None,
                meta: None,
            },
            queued_message_id: None,
            meta: None,
        });
        apply_action_to_chat(&mut chat, &started);
        let link = TurnLink { prompts: vec![message.uuid.clone()], ..TurnLink::default() };
        Self { id, link, chat, is_summary: false }
    }

    fn add(&mut self, message: &TranscriptMessage, mapper: &mut Mapper) {
        if message.kind == TranscriptMessageKind::Assistant {
            self.link.answer = Some(message.uuid.clone());
        }
        // An unparsable line is skipped; the rest of the turn is kept.
        let Ok(wire) = message.to_wire() else { return };
        for event in mapper.map(&self.id, &wire) {
            if let AgentEvent::Action(action) = event {
                apply_action_to_chat(&mut self.chat, &action);
            }
        }
    }

    fn finished(mut self) -> Option<RecordedTurn> {
        let turn_id = self.id.as_str().to_owned();
        let complete = ChatTurnCompleteAction { turn_id, duration: 0, meta: None };
        apply_action_to_chat(&mut self.chat, &StateAction::ChatTurnComplete(complete));
        let turn: Turn = self.chat.turns.pop()?;
        if self.is_summary && turn.response_parts.is_empty() {
            return None;
        }
        Some(RecordedTurn { link: self.link, turn: Turn { duration: None, ..turn } })
    }
}

/// Returns the text of a message from a user or a finished task. Tool results and the
/// runtime's own markers are not prompts.
fn prompt_of(message: &TranscriptMessage) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum PromptContent {
        Text(String),
        Blocks(Vec<PromptBlock>),
    }
    #[derive(Deserialize)]
    struct PromptBlock {
        r#type: String,
        #[serde(default)]
        text: Option<String>,
    }
    #[derive(Deserialize)]
    struct PromptBody {
        content: PromptContent,
    }
    if message.kind != TranscriptMessageKind::User {
        return None;
    }
    let body: PromptBody = serde_json::from_str(message.message.as_ref()?.get()).ok()?;
    let text = match body.content {
        PromptContent::Text(text) => text,
        PromptContent::Blocks(blocks) if blocks.iter().any(|block| block.r#type == "tool_result") => {
            return None;
        }
        // The user's text comes last, after the attachments.
        PromptContent::Blocks(blocks) => blocks.into_iter().filter_map(|block| block.text).next_back()?,
    };
    (!text.starts_with(INTERRUPTED)).then_some(text)
}

fn empty_chat(created_at: &str) -> ChatState {
    ChatState {
        resource: String::new(),
        title: String::new(),
        status: SessionStatus::Idle.0,
        activity: None,
        modified_at: created_at.to_owned(),
        changes: None,
        origin: None,
        movable: None,
        interactivity: None,
        working_directories: None,
        changesets: None,
        background_work: None,
        canvases: None,
        turns: Vec::new(),
        turns_next_cursor: None,
        active_turn: None,
        steering_message: None,
        queued_messages: None,
        draft: None,
        meta: None,
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
