//! Assigns the runtime's messages to turns and sends the mapped actions to the session.

use ahp_types::state::{Message as UserInput, MessageKind, MessageOrigin};
use innkeeper_claude::Message;
use innkeeper_claude::turns::{EndReason, QUIET, TurnEnd, TurnKey, Verdict};
use innkeeper_core::agent::{AgentEvent, History, MessageLink, TurnOutcome};
use innkeeper_core::ids::TurnId;
use innkeeper_core::usage::UsageReport;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::map::CallEdits;
use super::work::WorkNotice;
use super::{ClaudeDriver, ConversationIdentity, End};

/// A turn that the session was notified of.
#[derive(Debug)]
pub(super) struct Current {
    /// The turn machine's key.
    pub(super) key: TurnKey,
    /// The session's turn id.
    pub(super) turn: TurnId,
    /// Id of the model's last message in the turn.
    last_message: Option<String>,
    /// Whether the first message of the turn was mapped.
    begun: bool,
}

impl Current {
    pub(super) fn new(key: TurnKey, turn: TurnId) -> Self {
        Self { key, turn, last_message: None, begun: false }
    }
}

impl ClaudeDriver {
    /// Sends the events that follow from a message of the runtime, with the edits of the calls that
    /// it completes.
    pub(super) fn message(&mut self, message: &Message, edits: &CallEdits) -> Result<(), End> {
        if let Some(id) = message.conversation() {
            let is_reset = matches!(message, Message::ConversationReset(_));
            let mut identity = self.identity.clone().renamed(id);
            identity.has_messages &= !is_reset;
            self.identify(identity)?;
        }
        self.note_schedule(message);
        self.progressed(message)?;
        self.follow_work(message)?;
        self.note_mode(message)?;
        self.note_default_model(message);
        self.steering.activity.follow(message);
        let verdicts = self.turns.judge(self.generation, message);
        self.quiet_at = self.turns.awaits_quiet().then(|| Instant::now() + QUIET);
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Belongs(_))) {
            for event in self.mapper.unowned(message) {
                self.publish(event)?;
            }
        }
        self.verdicts(verdicts, Some((message, edits)))?;
        self.follow_answer(message)
    }

    pub(super) fn verdicts(
        &mut self,
        verdicts: Vec<Verdict>,
        message: Option<(&Message, &CallEdits)>,
    ) -> Result<(), End> {
        for verdict in verdicts {
            self.verdict(verdict, message)?;
        }
        self.advance()
    }

    fn verdict(&mut self, verdict: Verdict, message: Option<(&Message, &CallEdits)>) -> Result<(), End> {
        match verdict {
            Verdict::Begins { turn, .. } => self.begin_background_turn(turn),
            Verdict::TakenUp { message, origin, .. } => self.taken_up(message, origin),
            Verdict::Belongs(key) => match message {
                Some((message, edits)) => self.report(key, message, edits),
                None => Ok(()),
            },
            Verdict::Ends(TurnEnd { turn: key, reason, .. }) => {
                let requested = self.requested.take_if(|current| current.key == key);
                match requested.or_else(|| self.background.take_if(|current| current.key == key)) {
                    Some(current) => {
                        let outcome = self.outcome(&reason);
                        self.end_turn(current, outcome)?;
                        let asking = self.question_turn.clone();
                        self.end_question_turn(asking.as_ref())
                    }
                    None => {
                        self.edits.turn_drained(key);
                        Ok(())
                    }
                }
            }
            Verdict::Drained(key) => {
                self.edits.turn_drained(key);
                self.interrupt_retry = None;
                self.quiet_at = None;
                Ok(())
            }
        }
    }

    /// Reports the end of a turn.
    pub(super) fn end_turn(&mut self, current: Current, outcome: TurnOutcome) -> Result<(), End> {
        let turn = current.turn.clone();
        self.turn_ended = true;
        // The session sends what was not taken up as the next message.
        self.withdraw_steering(&turn);
        self.note_ended_work(&turn)?;
        let unanswered = self.turn_without_requests(&turn);
        self.edits.end_turn(turn.clone());
        self.link_answer(current);
        // What no call's end reported, for example after the runtime exited.
        self.report_usage(Some(turn.clone()), UsageReport::default())?;
        self.events.push(AgentEvent::TurnEnded { turn, outcome })?;
        self.ask_again(unanswered)
    }

    /// Reports the id of the model's last message in the turn, if there is one.
    pub(super) fn link_answer(&mut self, current: Current) {
        let Current { turn, last_message: Some(answer), .. } = current else { return };
        let link = MessageLink::Answer(answer);
        // A closed session does not need the link.
        self.events.push(AgentEvent::MessageLinked { turn, link }).ok();
    }

    /// Starts a turn that the runtime began without a prompt.
    fn begin_background_turn(&mut self, key: TurnKey) -> Result<(), End> {
        let notice = self.notices.next();
        // The turn would report that a subagent was stopped, after everything was stopped. If the next message
        // is already written, an interrupt could hit that message instead, so the turn is shown.
        if notice.as_ref().is_some_and(|notice| notice.is_silenced) && self.interrupt_abandoned(key) {
            return Ok(());
        }
        let turn = TurnId::new(&format!("background-{}", Uuid::new_v4()));
        let message = WorkNotice::message(notice);
        self.progress.begin_turn();
        self.edits.begin_turn(&turn);
        self.background = Some(Current::new(key, turn.clone()));
        Ok(self.events.push(AgentEvent::TurnStarted { turn, message })?)
    }

    fn report(&mut self, key: TurnKey, message: &Message, edits: &CallEdits) -> Result<(), End> {
        let turns = [self.requested.as_mut(), self.background.as_mut()];
        let Some(current) = turns.into_iter().flatten().find(|current| current.key == key) else {
            return Ok(());
        };
        if !std::mem::replace(&mut current.begun, true) {
            self.mapper.begin_turn();
        }
        if let Message::Assistant(assistant) = message
            && assistant.parent_tool_use_id.is_none()
        {
            current.last_message = assistant.uuid.clone().or_else(|| current.last_message.take());
        }
        for event in self.mapper.map_with(&current.turn, message, edits) {
            self.publish(event)?;
        }
        Ok(())
    }

    /// Sends a mapped event to the session.
    fn publish(&mut self, event: AgentEvent) -> Result<(), End> {
        match event {
            AgentEvent::Used { turn, report } => self.report_usage(turn, *report),
            event => Ok(self.events.push(event)?),
        }
    }

    /// Reports what was used since the last report, with the counts of the model endpoint.
    pub(super) fn report_usage(&mut self, turn: Option<TurnId>, mut report: UsageReport) -> Result<(), End> {
        if self.models.endpoint.is_free(self.conversation) {
            report.used.nano_dollars = None;
        }
        report.used = report.used.plus(self.models.endpoint.take_usage(self.conversation));
        if report.is_empty() {
            return Ok(());
        }
        Ok(self.events.push(AgentEvent::Used { turn, report: Box::new(report) })?)
    }

    /// Marks the conversation as resumable, since the runtime has accepted a message.
    pub(super) fn has_messages(&mut self) -> Result<(), End> {
        self.history = History::Resume;
        self.identify(ConversationIdentity { has_messages: true, ..self.identity.clone() })
    }

    fn identify(&mut self, identity: ConversationIdentity) -> Result<(), End> {
        if self.identity != identity {
            let token = identity.token();
            self.identity = identity;
            self.events.push(AgentEvent::ResumeToken(token))?;
        }
        Ok(())
    }

    fn outcome(&self, reason: &EndReason) -> TurnOutcome {
        match reason {
            EndReason::Result(result) => {
                self.mapper.outcome(result, || self.models.endpoint.last_failure(self.conversation))
            }
            EndReason::Dropped => TurnOutcome::Cancelled,
            EndReason::NoResult | EndReason::Merged | EndReason::Exited => TurnOutcome::Completed,
        }
    }
}

/// The message of a turn that the runtime started itself.
pub(super) fn system_message(text: String) -> UserInput {
    UserInput {
        text,
        origin: MessageOrigin { kind: MessageKind::SystemNotification },
        attachments: None,
        model: None,
        agent: None,
        meta: None,
    }
}
