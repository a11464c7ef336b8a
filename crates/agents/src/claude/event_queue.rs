//! Queue of events from the driver to its session. Pushing never blocks.
//!
//! While the session keeps up, every event is sent unchanged. When it falls behind,
//! adjacent deltas of the same part are merged.

use std::collections::VecDeque;

use ahp_types::actions::StateAction;
use innkeeper_core::agent::AgentEvent;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Maximum number of queued events. When reached, the driver stops reading the
/// runtime's output until there is room; the output limit of `innkeeper-claude`
/// eventually stops the runtime.
const MAX_WAITING: usize = 4_096;

/// Queue of events to a session.
#[derive(Debug)]
pub(super) struct EventQueue {
    session: mpsc::Sender<AgentEvent>,
    waiting: VecDeque<AgentEvent>,
}

/// The session was dropped.
#[derive(Debug)]
pub(super) struct SessionGone;

impl EventQueue {
    /// Creates an empty queue to a session.
    pub(super) fn new(session: mpsc::Sender<AgentEvent>) -> Self {
        Self { session, waiting: VecDeque::new() }
    }

    /// Whether another event may be pushed.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Whether events are queued.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends an event, or queues it until the session has room.
    pub(super) fn push(&mut self, event: AgentEvent) -> Result<(), SessionGone> {
        if self.waiting.is_empty() {
            match self.session.try_send(event) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(SessionGone),
                Err(TrySendError::Full(event)) => self.waiting.push_back(event),
            }
            return Ok(());
        }
        let unmerged = match self.waiting.back_mut() {
            Some(last) => merge(last, event),
            None => Some(event),
        };
        self.waiting.extend(unmerged);
        Ok(())
    }

    /// Sends one queued event. Cancel-safe.
    pub(super) async fn flush_one(&mut self) -> Result<(), SessionGone> {
        let permit = self.session.reserve().await.map_err(|_| SessionGone)?;
        if let Some(event) = self.waiting.pop_front() {
            permit.send(event);
        }
        Ok(())
    }

    /// Sends all queued events, then a last one.
    pub(super) async fn finish(mut self, last: AgentEvent) {
        self.waiting.push_back(last);
        while self.is_behind() {
            if self.flush_one().await.is_err() {
                return;
            }
        }
    }
}

/// Merges an event into the previous one, or returns it if they cannot be merged.
fn merge(last: &mut AgentEvent, event: AgentEvent) -> Option<AgentEvent> {
    if let (AgentEvent::Action(last), AgentEvent::Action(next)) = (&mut *last, &event) {
        match (last.as_mut(), next.as_ref()) {
            (StateAction::ChatDelta(last), StateAction::ChatDelta(next))
                if last.turn_id == next.turn_id && last.part_id == next.part_id =>
            {
                last.content.push_str(&next.content);
                return None;
            }
            (StateAction::ChatReasoning(last), StateAction::ChatReasoning(next))
                if last.turn_id == next.turn_id && last.part_id == next.part_id =>
            {
                last.content.push_str(&next.content);
                return None;
            }
            _ => {}
        }
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use ahp_types::actions::ChatDeltaAction;

    use super::*;

    fn delta(part: &str, content: &str) -> AgentEvent {
        AgentEvent::Action(Box::new(StateAction::ChatDelta(ChatDeltaAction {
            turn_id: "t".to_owned(),
            part_id: part.to_owned(),
            content: content.to_owned(),
            meta: None,
        })))
    }

    fn shown(event: AgentEvent) -> (String, String) {
        match event {
            AgentEvent::Action(action) => match *action {
                StateAction::ChatDelta(delta) => (delta.part_id, delta.content),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn only_adjacent_deltas_are_merged_while_session_is_behind() {
        let (sender, mut session) = mpsc::channel(2);
        let mut queue = EventQueue::new(sender);
        for (part, content) in [("p", "1"), ("p", "2"), ("p", "3"), ("p", "4"), ("q", "5"), ("p", "6")] {
            queue.push(delta(part, content)).unwrap();
        }
        assert!(queue.is_behind());
        let mut seen = vec![shown(session.recv().await.unwrap()), shown(session.recv().await.unwrap())];
        let finish = queue.finish(delta("z", "end"));
        let receive = async {
            while let Some(event) = session.recv().await {
                seen.push(shown(event));
            }
        };
        tokio::join!(finish, receive);
        let expected = [("p", "1"), ("p", "2"), ("p", "34"), ("q", "5"), ("p", "6"), ("z", "end")];
        assert_eq!(seen, expected.map(|(part, content)| (part.to_owned(), content.to_owned())));
    }

    #[tokio::test]
    async fn push_fails_after_session_is_dropped() {
        let (sender, session) = mpsc::channel(1);
        drop(session);
        assert!(EventQueue::new(sender).push(delta("p", "1")).is_err());
    }
}
