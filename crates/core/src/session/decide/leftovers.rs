//! Published state that must not outlive an agent's work: the chat's activity, its
//! background work, and the states of MCP servers.

use ahp_types::actions::{
    ChatActivityChangedAction, ChatBackgroundWorkRemovedAction, ChatResponsePartAction,
    ChatTurnCompleteAction, ChatTurnStartedAction, SessionMcpServerStateChangedAction, StateAction,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{
    BackgroundWork, ChatState, McpServerState, McpServerStoppedState, Message, MessageKind, MessageOrigin,
    ResponsePart, SessionState, SystemNotificationResponsePart,
};
use serde_json::{Value, json};

use super::customizations::running_servers;
use super::{titles, turns};
use crate::agent::{StoppedWork, WorkKind};
use crate::storage::StoredTurn;

/// The key of `_meta` that describes work in the background.
const WORK_META: &str = "innkeeper.work";

/// Most pieces of work that a note names.
const MAX_NAMED: usize = 8;

/// Clears the state of a finished turn.
pub(in crate::session) fn clear_turn(chat: &ChatState) -> Option<StateAction> {
    let cleared = StateAction::ChatActivityChanged(ChatActivityChangedAction { activity: None });
    chat.activity.as_ref().map(|_| cleared)
}

/// Removes the work in the background of a chat.
pub(super) fn remove_background_work(chat: &ChatState) -> Vec<StateAction> {
    let works = chat.background_work.iter().flatten().filter_map(WorkFacts::of);
    let removed = |work: WorkFacts<'_>| {
        StateAction::ChatBackgroundWorkRemoved(ChatBackgroundWorkRemovedAction { id: work.id.to_owned() })
    };
    works.map(removed).collect()
}

/// Removes the work in the background that has ended with its process, and adds a note: to the
/// running turn, or as a turn of the host. `process` names the process.
pub(in crate::session) fn stop_background_work(
    chat: &ChatState,
    turns: &[StoredTurn],
    process: &str,
    time: &str,
) -> Vec<StateAction> {
    let works: Vec<WorkFacts<'_>> = chat.background_work.iter().flatten().filter_map(WorkFacts::of).collect();
    if works.is_empty() {
        return Vec::new();
    }
    let mut actions = note(chat, turns, &works, process, time);
    actions.extend(remove_background_work(chat));
    actions
}

/// The note about work that has ended with its process.
fn note(
    chat: &ChatState,
    turns: &[StoredTurn],
    works: &[WorkFacts<'_>],
    process: &str,
    time: &str,
) -> Vec<StateAction> {
    let (text, meta) = (note_text(works, process), Some(note_meta(works)));
    if let Some(active) = &chat.active_turn {
        let part = ResponsePart::SystemNotification(SystemNotificationResponsePart {
            content: StringOrMarkdown::from(text),
            meta,
        });
        let turn_id = active.id.clone();
        return vec![StateAction::ChatResponsePart(ChatResponsePartAction { turn_id, part, meta: None })];
    }
    // Only the last turn can be resumed, which is worth more than the note.
    if chat.turns.last().is_some_and(turns::is_resumable) {
        return Vec::new();
    }
    let turn_id = turns::new_turn_id(turns, "work-stopped");
    let message = Message {
        text,
        origin: MessageOrigin { kind: MessageKind::SystemNotification },
        attachments: None,
        model: None,
        agent: None,
        meta,
    };
    let started = ChatTurnStartedAction {
        turn_id: turn_id.clone(),
        started_at: time.to_owned(),
        message,
        queued_message_id: None,
        meta: None,
    };
    let complete = ChatTurnCompleteAction { turn_id, duration: 0, meta: None };
    vec![StateAction::ChatTurnStarted(started), StateAction::ChatTurnComplete(complete)]
}

fn note_text(works: &[WorkFacts<'_>], process: &str) -> String {
    let named: Vec<String> =
        works.iter().take(MAX_NAMED).map(|work| titles::title_from(work.label)).collect();
    let more = works.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("Stopped with {process}: {}{more}", named.join("; "))
}

fn note_meta(works: &[WorkFacts<'_>]) -> JsonObject {
    let facts = match works {
        [work] => work.facts(),
        several => {
            let works: Vec<JsonObject> = several.iter().take(MAX_NAMED).map(WorkFacts::facts).collect();
            JsonObject::from_iter([
                ("works".to_owned(), json!(works)),
                ("status".to_owned(), json!("stopped")),
            ])
        }
    };
    JsonObject::from_iter([(WORK_META.to_owned(), json!(facts))])
}

/// A piece of work in the background.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkFacts<'a> {
    pub(super) id: &'a str,
    label: &'a str,
    kind: WorkKind,
    /// What the agent says about its tool call.
    own: Option<&'a Value>,
}

impl<'a> WorkFacts<'a> {
    pub(super) fn of(work: &'a BackgroundWork) -> Option<Self> {
        let own = |meta: &'a Option<JsonObject>| meta.as_ref()?.get(WORK_META);
        Some(match work {
            BackgroundWork::Shell(work) => {
                Self { id: &work.id, label: &work.label, kind: WorkKind::Command, own: own(&work.meta) }
            }
            BackgroundWork::Subagent(work) => {
                Self { id: &work.id, label: &work.label, kind: WorkKind::Subagent, own: own(&work.meta) }
            }
            BackgroundWork::Unknown(work) => Self {
                id: work.get("id")?.as_str()?,
                label: work.get("label").and_then(Value::as_str).unwrap_or("unnamed work"),
                kind: WorkKind::Command,
                own: work.get("_meta").and_then(|meta| meta.get(WORK_META)),
            },
        })
    }

    /// The tool call that started it.
    pub(super) fn tool_call(&self) -> Option<&'a str> {
        self.own?.get("toolCallId")?.as_str()
    }

    /// The description of work that has been stopped.
    fn facts(&self) -> JsonObject {
        let own = |key: &'static str| {
            let value = self.own?.get(key)?.as_str()?;
            Some((key.to_owned(), json!(value)))
        };
        let mut facts = JsonObject::from_iter([
            ("id".to_owned(), json!(self.id)),
            ("kind".to_owned(), json!(self.kind.as_str())),
            ("label".to_owned(), json!(titles::title_from(self.label))),
            ("status".to_owned(), json!("stopped")),
        ]);
        facts.extend(["toolCallId", "turnId"].into_iter().filter_map(own));
        facts
    }
}

impl From<WorkFacts<'_>> for StoppedWork {
    fn from(work: WorkFacts<'_>) -> Self {
        Self { kind: work.kind, label: titles::title_from(work.label) }
    }
}

/// Clears the state that a session's agents share, after the last one has closed.
pub(in crate::session) fn clear_session_agents(session: &SessionState) -> Vec<StateAction> {
    let stopped = |id: &str| {
        let state = McpServerState::Stopped(McpServerStoppedState {});
        let changed = SessionMcpServerStateChangedAction { id: id.to_owned(), state, channel: None };
        StateAction::SessionMcpServerStateChanged(Box::new(changed))
    };
    running_servers(session).map(stopped).collect()
}
