//! Plays a recording through the turn machine and the mapper, as the driver and core would.

use std::path::PathBuf;

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::{
    ChatToolCallConfirmedAction, ChatToolCallReadyAction, ChatTurnCompleteAction, ChatTurnStartedAction,
    ChatUsageAction,
};
use ahp_types::state::{ChatState, ToolCallConfirmationReason, ToolInput};
use innkeeper_claude::turns::{EndReason, PromptKind, TurnKey, TurnMachine, Verdict};
use innkeeper_claude::wire::decode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

pub(super) const VERSIONS: [&str; 2] = ["0.2.112", "0.3.325"];

const START: &str = "2026-11-15T09:00:05.000Z";

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The scenarios that a version recorded, sorted.
pub(super) fn scenarios(version: &str) -> Vec<String> {
    let folder = root().join("recordings").join(version);
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

pub(super) fn empty_chat() -> ChatState {
    let chat = json!({"resource": "ahp-chat:/1", "title": "", "status": 1, "modifiedAt": START, "turns": []});
    serde_json::from_value(chat).unwrap()
}

fn started(turn: &str) -> StateAction {
    let message = json!({"text": turn, "origin": {"kind": "user"}});
    StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: turn.to_owned(),
        started_at: START.to_owned(),
        message: serde_json::from_value(message).unwrap(),
        queued_message_id: None,
        meta: None,
    })
}

fn completed(turn: &str) -> StateAction {
    let turn_id = turn.to_owned();
    StateAction::ChatTurnComplete(ChatTurnCompleteAction { turn_id, duration: 1500, meta: None })
}

/// One step of a recording, as clients would see it.
#[derive(Debug)]
pub(super) enum SeenStep {
    /// The user or the runtime started a turn.
    Began(String),
    /// The mapper's event.
    Event(AgentEvent),
    /// The driver asked for a permission.
    Asked(StateAction),
    /// The recorded host answered.
    Answered(StateAction),
    /// The turn ended.
    Ended(String, TurnOutcome, Option<String>),
}

/// A recording that was played.
#[derive(Debug)]
pub(super) struct RecordedPlay {
    pub(super) seen: Vec<SeenStep>,
    /// All actions, with those of core.
    pub(super) actions: Vec<StateAction>,
    pub(super) chat: ChatState,
    mapper: Mapper,
    turns: TurnMachine,
    /// The running turns: the requested one and the runtime's own.
    requested: Option<(TurnKey, String)>,
    background: Option<(TurnKey, String)>,
    /// The turn whose first message was mapped.
    mapped: Option<TurnKey>,
    /// Messages without an echo.
    unechoed: Vec<Uuid>,
    prompts: u128,
    /// Open permission requests: request id, tool call.
    asked: HashMap<String, String>,
}

/// Plays a recording. The recordings have no echoes, and most have no uuids, so an echo is added
/// for each message.
pub(super) fn play(version: &str, scenario: &str) -> RecordedPlay {
    let path = root().join("recordings").join(version).join(scenario).join("wire.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut play = RecordedPlay {
        seen: Vec::new(),
        actions: Vec::new(),
        chat: empty_chat(),
        mapper: Mapper::default(),
        turns: TurnMachine::default(),
        requested: None,
        background: None,
        mapped: None,
        unechoed: Vec::new(),
        prompts: 0,
        asked: HashMap::new(),
    };
    for line in text.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        match &frame["msg"] {
            Value::Null => {}
            message if frame["dir"] == "host->cli" => play.written(message),
            message => play.read(message),
        }
    }
    play
}

impl RecordedPlay {
    fn apply(&mut self, action: &StateAction) {
        apply_action_to_chat(&mut self.chat, action);
        self.actions.push(action.clone());
    }

    fn written(&mut self, message: &Value) {
        match message["type"].as_str() {
            Some("user") => self.prompt(message),
            Some("control_response") => self.answer(&message["response"]),
            _ => {}
        }
    }

    fn prompt(&mut self, message: &Value) {
        self.prompts += 1;
        let recorded = message["uuid"].as_str().and_then(|uuid| uuid.parse().ok());
        let uuid = recorded.unwrap_or(Uuid::from_u128(self.prompts));
        self.unechoed.push(uuid);
        if let Some((turn, _)) = &self.requested {
            self.turns.steer(*turn, uuid, PromptKind::Text).unwrap();
            return;
        }
        let text = message["message"]["content"][0]["text"].as_str().unwrap_or_default();
        let kind = if text.starts_with('/') { PromptKind::Command } else { PromptKind::Text };
        let name = format!("turn-{}", self.prompts);
        self.requested = Some((self.turns.open(uuid, kind), name.clone()));
        self.begin(name);
    }

    fn begin(&mut self, name: String) {
        // Core adds the output of a turn of the runtime's own to a running turn.
        if self.chat.active_turn.is_none() {
            self.apply(&started(&name));
        }
        self.seen.push(SeenStep::Began(name));
    }

    fn answer(&mut self, response: &Value) {
        let Some(tool_call_id) = self.asked.remove(response["request_id"].as_str().unwrap()) else { return };
        let Some(turn_id) = self.chat.active_turn.as_ref().map(|turn| turn.id.clone()) else { return };
        let approved = response["response"]["behavior"] == "allow";
        if !approved {
            self.mapper.denied(&tool_call_id);
        }
        let confirmed = StateAction::ChatToolCallConfirmed(ChatToolCallConfirmedAction {
            turn_id,
            tool_call_id,
            approved,
            confirmed: approved.then_some(ToolCallConfirmationReason::UserAction),
            ..serde_json::from_value(json!({"turnId": "", "toolCallId": "", "approved": approved})).unwrap()
        });
        self.apply(&confirmed);
        self.seen.push(SeenStep::Answered(confirmed));
    }

    fn read(&mut self, message: &Value) {
        if message["type"] == "control_request" {
            return self.request(message);
        }
        let message = decode(message.to_string().as_bytes()).unwrap();
        let mut verdicts = Vec::new();
        if message.kind() == "system/init" {
            for uuid in std::mem::take(&mut self.unechoed) {
                let echo = json!({"type": "user", "uuid": uuid, "isReplay": true, "message": {}});
                let echo = decode(echo.to_string().as_bytes()).unwrap();
                verdicts.extend(self.turns.judge(self.turns.generation(), &echo));
            }
        }
        verdicts.extend(self.turns.judge(self.turns.generation(), &message));
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Belongs(_))) {
            let events = self.mapper.unowned(&message);
            self.report(events);
        }
        for verdict in verdicts {
            match verdict {
                Verdict::Begins { turn, .. } => {
                    let name = format!("background-{}", self.seen.len());
                    self.background = Some((turn, name.clone()));
                    self.begin(name);
                }
                Verdict::Belongs(key) => self.map(key, &message),
                Verdict::Ends(end) => self.end(end.turn, &end.reason),
                Verdict::TakenUp { .. } | Verdict::Drained(_) => {}
            }
        }
    }

    fn map(&mut self, key: TurnKey, message: &Message) {
        let turns = [&self.requested, &self.background];
        let Some((_, name)) = turns.into_iter().flatten().find(|(turn, _)| *turn == key) else { return };
        if self.mapped.replace(key) != Some(key) {
            self.mapper.begin_turn();
        }
        // Core adds the output of a turn of the runtime's own to a running turn.
        let name = self.chat.active_turn.as_ref().map_or(name, |turn| &turn.id);
        let events = self.mapper.map(&TurnId::new(name), message);
        self.report(events);
    }

    fn report(&mut self, events: Vec<AgentEvent>) {
        for event in events {
            match &event {
                AgentEvent::Action(action) => self.apply(action),
                AgentEvent::PartsDiscarded { parts, .. } => self.discard(parts),
                AgentEvent::Used { turn, report } => self.used(turn.as_ref(), report),
                AgentEvent::TodoChanged { .. } => {}
                other => panic!("unexpected event {other:?}"),
            }
            self.seen.push(SeenStep::Event(event));
        }
    }

    /// Shows what the runtime reported; the model endpoint's counts are not recorded.
    fn used(&mut self, turn: Option<&TurnId>, report: &UsageReport) {
        let Some(active) = self.chat.active_turn.as_ref().filter(|_| turn.is_some() && !report.is_empty())
        else {
            return;
        };
        let usage = report.added_to(active.usage.as_ref(), &active.message.origin.kind);
        let action = ChatUsageAction { turn_id: active.id.clone(), usage, meta: None };
        self.apply(&StateAction::ChatUsage(action));
    }

    /// Starts the turn again, with the parts that stay.
    fn discard(&mut self, parts: &[String]) {
        let turn = self.chat.active_turn.clone().unwrap();
        self.apply(&started(&turn.id));
        for part in turn.response_parts {
            let value = serde_json::to_value(&part).unwrap();
            let id = value["id"].as_str().or(value["toolCall"]["toolCallId"].as_str());
            if id.is_none_or(|id| !parts.iter().any(|part| part == id)) {
                self.apply(&text::response_part(&TurnId::new(&turn.id), part));
            }
        }
    }

    fn request(&mut self, message: &Value) {
        let (request, Some(turn)) = (&message["request"], &self.chat.active_turn) else { return };
        if request["subtype"] != "can_use_tool" {
            return;
        }
        let (turn, id) = (TurnId::new(&turn.id), request["tool_use_id"].as_str().unwrap());
        let (name, input) = (request["tool_name"].as_str().unwrap(), &request["input"]);
        let mut actions = self.mapper.permission_requested(&turn, id, name, input);
        let shown = Mapper::describe(name, input);
        actions.push(StateAction::ChatToolCallReady(ChatToolCallReadyAction {
            turn_id: turn.as_str().to_owned(),
            tool_call_id: id.to_owned(),
            invocation_message: shown.invocation,
            tool_input: Some(ToolInput::Inline(shown.tool_input)),
            confirmation_title: Some(shown.question.into()),
            ..serde_json::from_value(json!({"turnId": "", "toolCallId": "", "invocationMessage": ""}))
                .unwrap()
        }));
        for action in actions {
            self.apply(&action);
            self.seen.push(SeenStep::Asked(action));
        }
        self.asked.insert(message["request_id"].as_str().unwrap().to_owned(), id.to_owned());
    }

    fn end(&mut self, key: TurnKey, reason: &EndReason) {
        let requested = self.requested.take_if(|(turn, _)| *turn == key);
        let Some((_, name)) = requested.or_else(|| self.background.take_if(|(turn, _)| *turn == key)) else {
            return;
        };
        let (outcome, answer) = match reason {
            EndReason::Result(result) => (self.mapper.outcome(result, || None), result.result.clone()),
            EndReason::Dropped => (TurnOutcome::Cancelled, None),
            EndReason::NoResult | EndReason::Merged | EndReason::Exited => (TurnOutcome::Completed, None),
        };
        if self.chat.active_turn.as_ref().is_some_and(|turn| turn.id == name) {
            self.apply(&completed(&name));
        }
        self.seen.push(SeenStep::Ended(name, outcome, answer));
    }
}
