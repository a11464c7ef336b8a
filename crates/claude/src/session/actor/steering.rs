//! Messages for the running turn.

use tokio::sync::oneshot;
use uuid::Uuid;

use super::super::SENDS_LIMIT;
use super::super::steering::{SteerError, SteeringOutcome};
use super::{Actor, SessionStage};
use crate::SendError;
use crate::runtime::{Priority, UserContent, UserMessage};
use crate::turns::{Generation, PromptKind};

/// Notified of what became of a steering message.
pub(in super::super) type SteeringReply = oneshot::Sender<Result<SteeringOutcome, SteerError>>;

impl Actor {
    pub(super) fn steer(&mut self, content: UserContent, priority: Priority, reply: SteeringReply) {
        // The receiver may have been dropped.
        if let Err((error, reply)) = self.write_steering(content, priority, reply) {
            reply.send(Err(error)).ok();
        }
    }

    fn write_steering(
        &mut self,
        content: UserContent,
        priority: Priority,
        reply: SteeringReply,
    ) -> Result<(), (SteerError, SteeringReply)> {
        let (SessionStage::Turn(Some(_)), Some(turn), Some(live)) = (&self.stage, self.turn, &self.live)
        else {
            return Err((SteerError::NotRunning, reply));
        };
        if self.steering.len() >= SENDS_LIMIT {
            return Err((SteerError::Send(SendError::QueueFull), reply));
        }
        let message = UserMessage { priority: Some(priority), ..UserMessage::new(Uuid::new_v4(), content) };
        let kind = PromptKind::of(&message.content);
        if self.machine.steer(turn, message.uuid, kind).is_err() {
            return Err((SteerError::NotRunning, reply));
        }
        if let Err(error) = live.runtime.send(&message) {
            let verdicts = self.machine.withdraw(message.uuid);
            self.verdicts(verdicts);
            return Err((SteerError::Send(error), reply));
        }
        self.steering.insert(message.uuid, reply);
        Ok(())
    }

    /// Notifies the sender of a steering message that the runtime took up.
    pub(super) fn steering_taken_up(&mut self, message: Uuid) {
        if let Some(reply) = self.steering.remove(&message) {
            reply.send(Ok(SteeringOutcome::TakenUp(message))).ok();
        }
    }

    /// Notifies the senders of the messages that the ended turn did not take up.
    pub(super) fn steering_over(&mut self) {
        for (_, reply) in self.steering.drain() {
            reply.send(Ok(SteeringOutcome::NotTaken)).ok();
        }
    }

    /// Takes messages of an abandoned turn back. An older runtime would run them after the interrupt.
    pub(super) fn withdraw(&mut self, messages: Vec<Uuid>) {
        let Some(live) = &self.live else { return };
        for message in messages {
            let (answer, generation) = (live.runtime.controls().cancel_message(message), live.generation);
            self.withdrawing.spawn(async move {
                let is_withdrawn = answer.await.unwrap_or(false);
                is_withdrawn.then_some((generation, message))
            });
        }
    }

    /// Handles the runtime's response to the withdrawal of a message.
    pub(super) fn withdrawn(&mut self, withdrawn: Option<(Generation, Uuid)>) {
        if let Some((generation, message)) = withdrawn
            && generation == self.machine.generation()
        {
            let verdicts = self.machine.withdraw(message);
            self.verdicts(verdicts);
        }
    }
}
