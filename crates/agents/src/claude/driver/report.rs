//! What the session is told about the runtime's messages.

use ahp_types::state::{Message as UserInput, MessageKind, MessageOrigin};
use innkeeper_claude::Message;
use innkeeper_claude::turns::{EndReason, QUIET, TurnEnd, TurnKey, Verdict};
use innkeeper_claude::wire::SystemMessage;
use innkeeper_core::agent::{AgentEvent, History, MessageLink, TurnOutcome};
use innkeeper_core::ids::TurnId;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Driver, End, Identity};

/// A turn that the session knows.
#[derive(Debug)]
pub(super) struct Current {
    /// The name that the turn machine gave it.
    pub(super) key: TurnKey,
    /// The session's name of it.
    pub(super) turn: TurnId,
    /// The id of the last message that the model wrote in it.
    answer: Option<String>,
    /// Whether its first message was mapped.
    begun: bool,
}

impl Current {
    pub(super) fn new(key: TurnKey, turn: TurnId) -> Self {
        Self { key, turn, answer: None, begun: false }
    }
}

impl Driver {
    /// Tells the session what follows from a message of the runtime.
    pub(super) fn message(&mut self, message: &Message) -> Result<(), End> {
        if let Some(id) = message.conversation() {
            let is_reset = matches!(message, Message::ConversationReset(_));
            self.identify(Identity { id, has_messages: self.identity.has_messages && !is_reset })?;
        }
        if let Message::System(SystemMessage::TaskNotification(task)) = message {
            self.notice = task.summary.clone();
        }
        let verdicts = self.turns.judge(self.generation, message);
        self.quiet_at = self.turns.awaits_quiet().then(|| Instant::now() + QUIET);
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Belongs(_))) {
            self.mapper.unowned(message);
        }
        self.verdicts(verdicts, Some(message))
    }

    pub(super) fn verdicts(&mut self, verdicts: Vec<Verdict>, message: Option<&Message>) -> Result<(), End> {
        for verdict in verdicts {
            self.verdict(verdict, message)?;
        }
        self.advance()
    }

    fn verdict(&mut self, verdict: Verdict, message: Option<&Message>) -> Result<(), End> {
        match verdict {
            Verdict::Begins { turn, .. } => self.begin_unasked(turn),
            Verdict::TakenUp { .. } => self.has_messages(),
            Verdict::Belongs(key) => match message {
                Some(message) => self.report(key, message),
                None => Ok(()),
            },
            Verdict::Ends(TurnEnd { turn: key, reason, .. }) => {
                let asked = self.asked.take_if(|current| current.key == key);
                match asked.or_else(|| self.unasked.take_if(|current| current.key == key)) {
                    Some(current) => {
                        let outcome = self.outcome(&reason);
                        self.end_turn(current, outcome)
                    }
                    None => Ok(()),
                }
            }
            Verdict::Drained(_) => {
                self.drain = None;
                self.quiet_at = None;
                Ok(())
            }
        }
    }

    /// Ends a turn for the session.
    pub(super) fn end_turn(&mut self, current: Current, outcome: TurnOutcome) -> Result<(), End> {
        let turn = current.turn.clone();
        self.link_answer(current);
        Ok(self.outgoing.push(AgentEvent::TurnEnded { turn, outcome })?)
    }

    /// Tells the session which message the turn ended with, if the model wrote one.
    pub(super) fn link_answer(&mut self, current: Current) {
        let Current { turn, answer: Some(answer), .. } = current else { return };
        let link = MessageLink::Answer(answer);
        // If the session is gone, nobody looks for the message.
        self.outgoing.push(AgentEvent::MessageLinked { turn, link }).ok();
    }

    /// Starts a turn for the session that the runtime started by itself.
    fn begin_unasked(&mut self, key: TurnKey) -> Result<(), End> {
        let turn = TurnId::new(&format!("background-{}", Uuid::new_v4()));
        let text = self.notice.take().unwrap_or_else(|| "Background work continues".to_owned());
        let message = UserInput {
            text,
            origin: MessageOrigin { kind: MessageKind::SystemNotification },
            attachments: None,
            model: None,
            agent: None,
            meta: None,
        };
        self.unasked = Some(Current::new(key, turn.clone()));
        Ok(self.outgoing.push(AgentEvent::TurnStarted { turn, message })?)
    }

    fn report(&mut self, key: TurnKey, message: &Message) -> Result<(), End> {
        let turns = [self.asked.as_mut(), self.unasked.as_mut()];
        let Some(current) = turns.into_iter().flatten().find(|current| current.key == key) else {
            return Ok(());
        };
        if !std::mem::replace(&mut current.begun, true) {
            self.mapper.begin_turn();
        }
        if let Message::Assistant(assistant) = message
            && assistant.parent_tool_use_id.is_none()
        {
            current.answer = assistant.uuid.clone().or_else(|| current.answer.take());
        }
        for action in self.mapper.map(&current.turn, message) {
            self.outgoing.push(AgentEvent::Action(Box::new(action)))?;
        }
        Ok(())
    }

    /// The runtime has taken up a message, so there is something to continue.
    fn has_messages(&mut self) -> Result<(), End> {
        self.history = History::Resume;
        self.identify(Identity { has_messages: true, ..self.identity })
    }

    fn identify(&mut self, identity: Identity) -> Result<(), End> {
        if self.identity != identity {
            self.identity = identity;
            self.outgoing.push(AgentEvent::ResumeToken(identity.token()))?;
        }
        Ok(())
    }

    fn outcome(&self, reason: &EndReason) -> TurnOutcome {
        match reason {
            EndReason::Result(result) => self.mapper.outcome(result),
            EndReason::Dropped => TurnOutcome::Cancelled,
            EndReason::NoResult | EndReason::Merged | EndReason::Exited => TurnOutcome::Completed,
        }
    }
}
