//! Accounts for every message of a chat, from the actions that the host published.

use std::collections::BTreeMap;

use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{PendingMessageKind, ResponsePart};
use anyhow::{Result, ensure};

use super::plan::token_in;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It started a turn.
    Turn,
    /// It became a part of the turn that it steered.
    Part,
    /// It still waits.
    Waiting,
    /// A client replaced it before it was sent.
    Replaced,
    /// A client took it back.
    TakenBack,
    /// The host rejected it.
    Rejected,
}

/// A waiting message.
#[derive(Debug)]
struct WaitingMessage {
    kind: PendingMessageKind,
    id: String,
    token: String,
}

/// The messages of one chat.
#[derive(Debug, Default)]
pub(super) struct MessageLedger {
    waiting: Vec<WaitingMessage>,
    /// A message that the host has removed and must publish again.
    moving: Option<WaitingMessage>,
    fates: BTreeMap<String, Vec<Fate>>,
    /// How each turn ended; `None` while it runs.
    turns: BTreeMap<String, Option<&'static str>>,
    problems: Vec<String>,
}

impl MessageLedger {
    /// Applies an action that the host accepted or sent, in the order of publication.
    pub(super) fn apply(&mut self, envelope: &ActionEnvelope) {
        match &envelope.action {
            StateAction::ChatTurnStarted(started) => {
                self.turns.insert(started.turn_id.clone(), None);
                let token = token_in(&started.message.text);
                if let Some(id) = &started.queued_message_id {
                    let waited = self.take(None, id).map(|waited| waited.token);
                    if waited.as_deref() != token {
                        self.problems.push(format!("turn of {id}: {token:?}, but {waited:?} was waiting"));
                    }
                }
                if let Some(token) = token {
                    self.record(token, Fate::Turn);
                }
            }
            StateAction::ChatTurnResume(resumed) => {
                self.turns.insert(resumed.turn_id.clone(), None);
            }
            StateAction::ChatTurnComplete(ended) => self.end(&ended.turn_id, "answered"),
            StateAction::ChatTurnCancelled(ended) => self.end(&ended.turn_id, "cancelled"),
            StateAction::ChatError(ended) => self.end(&ended.turn_id, "failed"),
            StateAction::ChatPendingMessageSet(set) => {
                let (kind, id) = (set.kind, set.id.clone());
                self.set(kind, id, &set.message.text, envelope.origin.is_some());
            }
            StateAction::ChatPendingMessageRemoved(removed) => {
                let Some(message) = self.take(Some(removed.kind), &removed.id) else {
                    self.problems.push(format!("{} was removed but did not wait", removed.id));
                    return;
                };
                if envelope.origin.is_some() {
                    self.record(&message.token, Fate::TakenBack);
                } else if !self.has(&message.token, &Fate::Part) {
                    self.moving = Some(message);
                }
            }
            StateAction::ChatResponsePart(part) => {
                if let ResponsePart::SystemNotification(note) = &part.part
                    && note.meta.as_ref().is_some_and(|meta| meta.contains_key("innkeeper.steering"))
                {
                    let (StringOrMarkdown::Plain(text) | StringOrMarkdown::Markdown { markdown: text }) =
                        &note.content;
                    match token_in(text) {
                        Some(token) => self.record(token, Fate::Part),
                        None => self.problems.push(format!("a part of steering without a message: {text:?}")),
                    }
                }
            }
            _ => {}
        }
    }

    /// Records a message that the host rejected.
    pub(super) fn reject(&mut self, envelope: &ActionEnvelope) {
        let text = match &envelope.action {
            StateAction::ChatTurnStarted(started) => &started.message.text,
            StateAction::ChatPendingMessageSet(set) => &set.message.text,
            _ => return,
        };
        if let Some(token) = token_in(text) {
            self.record(token, Fate::Rejected);
        }
    }

    fn set(&mut self, kind: PendingMessageKind, id: String, text: &str, by_client: bool) {
        let Some(token) = token_in(text).map(str::to_owned) else { return };
        if !by_client {
            let moved = self.moving.take();
            if moved.as_ref().is_none_or(|moved| moved.id != id || moved.token != token) {
                self.problems.push(format!("the host published {token}, but {moved:?} was to be moved"));
            }
        }
        let replaces = |waiting: &WaitingMessage| {
            waiting.kind == kind && (waiting.id == id || kind == PendingMessageKind::Steering)
        };
        if let Some(index) = self.waiting.iter().position(replaces) {
            let replaced = self.waiting.remove(index);
            self.record(&replaced.token, Fate::Replaced);
        }
        self.waiting.push(WaitingMessage { kind, id, token });
    }

    fn take(&mut self, kind: Option<PendingMessageKind>, id: &str) -> Option<WaitingMessage> {
        let matches =
            |waiting: &WaitingMessage| waiting.id == id && kind.is_none_or(|kind| kind == waiting.kind);
        let index = self.waiting.iter().position(matches)?;
        Some(self.waiting.remove(index))
    }

    fn end(&mut self, turn: &str, outcome: &'static str) {
        self.turns.insert(turn.to_owned(), Some(outcome));
    }

    fn record(&mut self, token: &str, fate: Fate) {
        self.fates.entry(token.to_owned()).or_default().push(fate);
    }

    fn has(&self, token: &str, fate: &Fate) -> bool {
        self.fates.get(token).is_some_and(|fates| fates.contains(fate))
    }

    /// Checks that each message has exactly one fate and that no turn is running. Counts the
    /// fates, and the turns by their outcomes.
    pub(super) fn close(mut self, sent: &[String]) -> Result<BTreeMap<String, usize>> {
        for message in std::mem::take(&mut self.waiting) {
            self.record(&message.token, Fate::Waiting);
        }
        ensure!(self.problems.is_empty(), "{:#?}", self.problems);
        ensure!(self.moving.is_none(), "the host removed a message: {:?}", self.moving);
        let mut counts = BTreeMap::new();
        for token in sent {
            let mut fates = self.fates.remove(token).unwrap_or_default();
            fates.sort();
            // A message that the runtime already had cannot be taken back or replaced.
            if let [Fate::Part, Fate::Replaced | Fate::TakenBack] = fates.as_slice() {
                fates.truncate(1);
            }
            let [fate] = fates.as_slice() else { anyhow::bail!("message {token} has the fates {fates:?}") };
            *counts.entry(format!("{fate:?}")).or_default() += 1;
        }
        ensure!(self.fates.is_empty(), "messages that no client sent: {:?}", self.fates);
        for (turn, outcome) in &self.turns {
            let Some(outcome) = outcome else { anyhow::bail!("turn {turn} has no end") };
            *counts.entry((*outcome).to_owned()).or_default() += 1;
        }
        Ok(counts)
    }
}
