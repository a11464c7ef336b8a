//! The steps of a random test and their encoding as actions.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::scene::{cancelled, confirmed, message, pending, started, tool_complete};
use crate::test_clients::CLIENTS;

/// One step of a test.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A client dispatches an action, if it is connected.
    Client { client: usize, action: ClientAction },
    /// The agent sends an event, if there is an agent.
    Agent(AgentStep),
    /// A client stops all work, or one piece of it.
    Stop { work: Option<usize> },
    /// A client restarts the agent, if there is one.
    RestartAgent,
    /// The edit log of the session changes.
    Edit { files: usize, added: i64 },
    /// A client disconnects.
    Disconnect { client: usize },
    /// A client reconnects.
    Reconnect { client: usize },
    /// The test waits until everything is handled.
    Settle,
    /// The host shuts down cleanly, and another one starts.
    Restart,
    /// The host crashes, at once or after everything is handled and stored.
    Kill { settled: bool },
}

/// An action that a client dispatches. Ids come from small sets, so that some match existing
/// objects and some do not.
#[derive(Clone, Debug)]
pub(super) enum ClientAction {
    Start,
    StartAgain { turn: usize },
    Cancel,
    CancelOther { turn: usize },
    Resume,
    Truncate { turn: Option<usize> },
    Pend { steering: bool, message: usize },
    Unpend { steering: bool, message: usize },
    Reorder { order: Vec<usize> },
    Draft { text: bool },
    Confirm { call: usize, approved: bool, edited: bool },
    ConfirmResult { call: usize, approved: bool },
    Complete { call: usize },
    Answer { draft: bool, fits: bool },
    Flag { kind: usize, on: bool },
    Rename,
    Configure { values: usize },
    TakePart { leave: bool, other: bool },
    Directory { kind: usize, directory: usize },
    Review { file: usize, reviewed: bool },
    Nonsense { kind: usize },
}

/// The channel of a client's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionChannel {
    Session,
    Chat,
    Changeset,
}

/// An event that the agent sends.
#[derive(Clone, Debug)]
pub(super) enum AgentStep {
    Text,
    AskToRun { call: usize },
    RunAtClient { call: usize, client: usize },
    Ran { call: usize, confirm: bool },
    Ask,
    Steered { message: usize },
    Title,
    Discard { call: usize },
    Todo { items: usize },
    Work { work: usize },
    WorkDone { work: usize },
    Complete,
    Crash,
}

pub(super) fn call_id(number: usize) -> String {
    format!("k{number}")
}

pub(super) fn message_id(number: usize) -> String {
    format!("m{number}")
}

pub(super) fn work_id(number: usize) -> String {
    format!("w{number}")
}

/// The text of all waiting messages.
pub(super) const WAITING_TEXT: &str = "waits";

/// The address of an edited file.
pub(super) fn file_uri(number: usize) -> String {
    format!("file:///w/{number}")
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS.len();
    prop_oneof![
        12 => (client.clone(), client_action()).prop_map(|(client, action)| Step::Client { client, action }),
        8 => agent_step().prop_map(Step::Agent),
        1 => proptest::option::of(0..3_usize).prop_map(|work| Step::Stop { work }),
        1 => Just(Step::RestartAgent),
        3 => (0..4_usize, 0..3_i64).prop_map(|(files, added)| Step::Edit { files, added }),
        1 => client.clone().prop_map(|client| Step::Disconnect { client }),
        4 => client.prop_map(|client| Step::Reconnect { client }),
        5 => Just(Step::Settle),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(|settled| Step::Kill { settled }),
    ]
}

fn client_action() -> impl Strategy<Value = ClientAction> {
    use ClientAction::{
        Answer, Cancel, CancelOther, Complete, Configure, Confirm, ConfirmResult, Directory, Draft, Flag,
        Nonsense, Pend, Rename, Reorder, Resume, Review, Start, StartAgain, TakePart, Truncate, Unpend,
    };
    let (flag, few) = (any::<bool>(), 0..3_usize);
    let turns = prop_oneof![
        6 => Just(Start),
        1 => few.clone().prop_map(|turn| StartAgain { turn }),
        3 => Just(Cancel),
        1 => few.clone().prop_map(|turn| CancelOther { turn }),
        2 => Just(Resume),
        1 => proptest::option::of(few.clone()).prop_map(|turn| Truncate { turn }),
    ];
    let queue = prop_oneof![
        4 => (flag, few.clone()).prop_map(|(steering, message)| Pend { steering, message }),
        2 => (flag, few.clone()).prop_map(|(steering, message)| Unpend { steering, message }),
        1 => proptest::collection::vec(few.clone(), 0..4).prop_map(|order| Reorder { order }),
    ];
    let tools = prop_oneof![
        5 => (few.clone(), flag, flag)
            .prop_map(|(call, approved, edited)| Confirm { call, approved, edited }),
        1 => (few.clone(), flag).prop_map(|(call, approved)| ConfirmResult { call, approved }),
        2 => few.clone().prop_map(|call| Complete { call }),
        3 => (flag, flag).prop_map(|(draft, fits)| Answer { draft, fits }),
    ];
    let settings = prop_oneof![
        1 => flag.prop_map(|text| Draft { text }),
        1 => (0..4_usize, flag).prop_map(|(kind, on)| Flag { kind, on }),
        1 => Just(Rename),
        1 => few.clone().prop_map(|values| Configure { values }),
        3 => (0..5_usize, few).prop_map(|(kind, directory)| Directory { kind, directory }),
        4 => (0..4_usize, flag).prop_map(|(file, reviewed)| Review { file, reviewed }),
        2 => (flag, flag).prop_map(|(leave, other)| TakePart { leave, other }),
        1 => (0..4_usize).prop_map(|kind| Nonsense { kind }),
    ];
    prop_oneof![2 => turns, 2 => queue, 4 => tools, 2 => settings]
}

fn agent_step() -> impl Strategy<Value = AgentStep> {
    let few = 0..3_usize;
    prop_oneof![
        3 => Just(AgentStep::Text),
        5 => few.clone().prop_map(|call| AgentStep::AskToRun { call }),
        2 => (few.clone(), few.clone()).prop_map(|(call, client)| AgentStep::RunAtClient { call, client }),
        1 => (few.clone(), any::<bool>()).prop_map(|(call, confirm)| AgentStep::Ran { call, confirm }),
        2 => Just(AgentStep::Ask),
        2 => few.clone().prop_map(|call| AgentStep::Discard { call }),
        1 => few.clone().prop_map(|items| AgentStep::Todo { items }),
        2 => few.clone().prop_map(|work| AgentStep::Work { work }),
        1 => few.clone().prop_map(|work| AgentStep::WorkDone { work }),
        2 => few.prop_map(|message| AgentStep::Steered { message }),
        1 => Just(AgentStep::Title),
        2 => Just(AgentStep::Complete),
        1 => Just(AgentStep::Crash),
    ]
}

impl ClientAction {
    /// Returns the channel and the action. `counter` is unique; `turn` is the latest turn that
    /// the agent was prompted for, `calls` its calls.
    pub(super) fn to_action(
        &self,
        client: usize,
        counter: usize,
        turn: &str,
        calls: &[usize],
    ) -> (ActionChannel, Value) {
        if let Self::Review { file, reviewed } = self {
            let kind = "changeset/filesReviewChanged";
            let action = json!({"type": kind, "files": [file_uri(*file)], "reviewed": reviewed});
            return (ActionChannel::Changeset, action);
        }
        let (on_chat, action) = self.to_chat_or_session(client, counter, turn, calls);
        (if on_chat { ActionChannel::Chat } else { ActionChannel::Session }, action)
    }

    /// Returns whether the action goes to the chat's channel, and the action.
    fn to_chat_or_session(
        &self,
        client: usize,
        counter: usize,
        turn: &str,
        calls: &[usize],
    ) -> (bool, Value) {
        let own = CLIENTS[client].0;
        // Prefers a call of the turn.
        let call_id = |number: usize| call_id(calls.get(number).copied().unwrap_or(number));
        match self {
            Self::Start => (true, started(&format!("t{counter}"))),
            Self::StartAgain { turn } => (true, started(&format!("t{turn}"))),
            Self::Cancel => (true, cancelled(turn)),
            Self::CancelOther { turn } => (true, cancelled(&format!("t{turn}"))),
            Self::Resume => (true, json!({"type": "chat/turnResume", "turnId": turn})),
            Self::Truncate { turn: None } => (true, json!({"type": "chat/truncated"})),
            Self::Truncate { turn: Some(turn) } => {
                (true, json!({"type": "chat/truncated", "turnId": format!("t{turn}")}))
            }
            Self::Pend { steering, message } => {
                (true, pending(pending_kind(*steering), &message_id(*message), WAITING_TEXT))
            }
            Self::Unpend { steering, message } => {
                let (kind, id) = (pending_kind(*steering), message_id(*message));
                (true, json!({"type": "chat/pendingMessageRemoved", "kind": kind, "id": id}))
            }
            Self::Reorder { order } => {
                let order: Vec<String> = order.iter().map(|number| message_id(*number)).collect();
                (true, json!({"type": "chat/queuedMessagesReordered", "order": order}))
            }
            Self::Draft { text: true } => (true, json!({"type": "chat/draftChanged", "draft": message(own)})),
            Self::Draft { text: false } => (true, json!({"type": "chat/draftChanged"})),
            Self::Confirm { call, approved, edited } => {
                let mut action = confirmed(turn, &call_id(*call));
                action["approved"] = json!(approved);
                if *edited {
                    action["editedToolInput"] = json!("ls -l");
                }
                (true, action)
            }
            Self::ConfirmResult { call, approved } => {
                let kind = "chat/toolCallResultConfirmed";
                (
                    true,
                    json!({"type": kind, "turnId": turn, "toolCallId": call_id(*call), "approved": approved}),
                )
            }
            Self::Complete { call } => (true, tool_complete(turn, &call_id(*call))),
            Self::Answer { draft, fits } => (true, answer(*draft, *fits)),
            Self::Flag { .. }
            | Self::Rename
            | Self::Configure { .. }
            | Self::TakePart { .. }
            | Self::Directory { .. }
            | Self::Review { .. }
            | Self::Nonsense { .. } => self.setting(own, counter),
        }
    }

    fn setting(&self, own: &str, counter: usize) -> (bool, Value) {
        match self {
            Self::Flag { kind: 0, on } => (false, json!({"type": "session/isReadChanged", "isRead": on})),
            Self::Flag { kind: 1, on } => {
                (false, json!({"type": "session/isArchivedChanged", "isArchived": on}))
            }
            Self::Flag { kind: 2, on } => (true, json!({"type": "chat/isReadChanged", "isRead": on})),
            Self::Flag { on, .. } => (true, json!({"type": "chat/isArchivedChanged", "isArchived": on})),
            Self::Rename => {
                (false, json!({"type": "session/titleChanged", "title": format!("named {counter}")}))
            }
            Self::Configure { values } => {
                let values =
                    [json!({"mode": "bold"}), json!({"mode": 7}), json!({"fixed": "x"})][*values].clone();
                (false, json!({"type": "session/configChanged", "config": values}))
            }
            Self::TakePart { leave, other } => {
                let client = if *other { "another client" } else { own };
                let action = if *leave {
                    json!({"type": "session/activeClientRemoved", "clientId": client})
                } else {
                    json!({"type": "session/activeClientSet", "activeClient": {"clientId": client, "tools": []}})
                };
                (false, action)
            }
            Self::Directory { kind, directory } => directory_action(*kind, *directory),
            _ => {
                let kinds = ["chat/delta", "session/ready", "unheard/of", "chat/turnStarted"];
                let Self::Nonsense { kind } = self else { return (true, json!({"type": "unheard/of"})) };
                (kind % 2 == 0, json!({"type": kinds[*kind]}))
            }
        }
    }
}

fn directory_action(kind: usize, directory: usize) -> (bool, Value) {
    let name = |number: usize| format!("file:///d{}", number % 3);
    let (on_chat, kind) = [
        (false, "session/workingDirectorySet"),
        (false, "session/workingDirectoryRemoved"),
        (false, "session/workingDirectoryReplaced"),
        (true, "chat/workingDirectorySet"),
        (true, "chat/workingDirectoryRemoved"),
    ][kind];
    (on_chat, json!({"type": kind, "directory": name(directory), "replacement": name(directory + 1)}))
}

fn pending_kind(steering: bool) -> &'static str {
    if steering { "steering" } else { "queued" }
}

fn answer(draft: bool, fits: bool) -> Value {
    let value =
        if fits { json!({"kind": "text", "value": "x"}) } else { json!({"kind": "boolean", "value": true}) };
    if draft {
        let answer = json!({"state": "draft", "value": value});
        json!({"type": "chat/inputAnswerChanged", "requestId": "q", "questionId": "name", "answer": answer})
    } else {
        let answers = json!({"name": {"state": "submitted", "value": value}});
        json!({"type": "chat/inputCompleted", "requestId": "q", "response": "accept", "answers": answers})
    }
}
