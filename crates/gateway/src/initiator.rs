//! Decides whether the user or the agent initiated a request.
//!
//! Owns the turns of one session and whether each had its one successful
//! request with the user as initiator. Pure: no clock, no I/O. A turn is
//! consumed by a successful request; after a failure the retry has the user as
//! initiator again.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use http::HeaderMap;

use crate::head::RequestHead;
use crate::request::{self, RequestContent};

/// Turns that wait for their request. A host marks one at a time, or a handful
/// while messages are queued; past the limit the oldest is dropped.
const MAX_WAITING: usize = 16;

/// Conversation states remembered as already requested, for sessions without
/// marks. Repeats follow within seconds; the oldest is dropped first.
const MAX_REMEMBERED: usize = 16;

/// Header in which the runtime names the requesting subagent.
const AGENT_ID: &str = "x-claude-code-agent-id";

/// Marker in the first system block of a subagent's request.
const SUBAGENT_MARK: &str = "cc_is_subagent=true";

/// The marker is searched in this many bytes of the system prompt: it is in the
/// first line, and the same words in a user's text must not match.
const SUBAGENT_MARK_WITHIN: usize = 512;

/// The initiator of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    User,
    Agent,
}

impl Initiator {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
        }
    }
}

/// A user message that is about to be sent to the runtime.
#[derive(Clone, Debug)]
pub struct TurnMark {
    text: String,
}

impl TurnMark {
    /// Marks the turn of a message with this text; empty for a message without text.
    pub fn with_text(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

/// The properties of a request that determine its initiator.
#[derive(Debug)]
pub(crate) struct RequestTraits {
    /// User-written texts in the last message.
    texts: Vec<String>,
    /// Whether the last message has user content, text or other.
    human: bool,
    /// Sent by a subagent, for a summary or as a probe.
    housekeeping: bool,
    /// A helper call of the runtime, which offers no tools.
    helper: bool,
    fingerprint: u64,
}

impl RequestTraits {
    pub(crate) fn read(head: &RequestHead<'_>, headers: &HeaderMap) -> Self {
        let last = head.last_message.as_ref().filter(|message| message.role == "user");
        let content: RequestContent =
            last.and_then(|message| serde_json::from_str(message.content.get()).ok()).unwrap_or_default();
        let blocks = content.0.as_slice();
        let own = |text: &&str| !request::is_runtime_text(text) && !text.trim().is_empty();
        let texts: Vec<String> =
            blocks.iter().filter_map(|block| block.as_text()).filter(own).map(str::to_owned).collect();
        let other = blocks.iter().any(|block| block.kind != "text" && block.kind != "tool_result");
        let subagent =
            headers.contains_key(AGENT_ID) || head.system_begins_with(SUBAGENT_MARK_WITHIN, SUBAGENT_MARK);
        let summary = texts.iter().any(|text| request::is_summary_request(text));
        let mut hasher = DefaultHasher::new();
        (head.message_count, last.map(|message| message.content.get())).hash(&mut hasher);
        Self {
            human: other || !texts.is_empty(),
            texts,
            housekeeping: subagent || summary || head.max_tokens == Some(1),
            helper: is_runtime(headers) && !head.offers_tools,
            fingerprint: hasher.finish(),
        }
    }
}

fn is_runtime(headers: &HeaderMap) -> bool {
    let agent = headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| agent.starts_with("claude-cli/"))
}

/// What a request reserves until it is settled.
#[derive(Debug, Default)]
pub(crate) struct TurnReservation {
    /// Numbers of the marked turns that the request contains.
    turns: Vec<u64>,
    /// Fingerprint of the conversation's state, for sessions without marks.
    state: Option<u64>,
}

impl TurnReservation {
    /// An empty reservation.
    pub(crate) fn none() -> Self {
        Self::default()
    }
}

/// The turns of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionTurns {
    /// Whether the host marks turns; after the first mark only marks count.
    marked: bool,
    waiting: VecDeque<PendingTurn>,
    next: u64,
    /// States whose user-initiated request succeeded, oldest first.
    asked: VecDeque<u64>,
}

#[derive(Debug)]
struct PendingTurn {
    number: u64,
    text: String,
    /// A user-initiated request is in flight.
    in_flight: bool,
}

impl SessionTurns {
    /// Lets only marks count, before the first one.
    pub(crate) fn expect_marks(&mut self) {
        self.marked = true;
    }

    /// Records a user message.
    pub(crate) fn mark(&mut self, mark: TurnMark) {
        self.marked = true;
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(PendingTurn { number, text: mark.text.trim().to_owned(), in_flight: false });
    }

    /// Decides the initiator of a request.
    pub(crate) fn decide(&mut self, traits: &RequestTraits) -> (Initiator, TurnReservation) {
        if traits.housekeeping || !traits.human {
            return (Initiator::Agent, TurnReservation::none());
        }
        if !self.marked {
            if traits.helper || self.asked.contains(&traits.fingerprint) {
                return (Initiator::Agent, TurnReservation::none());
            }
            return (Initiator::User, TurnReservation { turns: Vec::new(), state: Some(traits.fingerprint) });
        }
        let mut turns = Vec::new();
        for turn in self.waiting.iter_mut().filter(|turn| !turn.in_flight && turn.is_in(traits)) {
            turn.in_flight = true;
            turns.push(turn.number);
        }
        let initiator = if turns.is_empty() { Initiator::Agent } else { Initiator::User };
        (initiator, TurnReservation { turns, state: None })
    }

    /// Consumes the turns of a successful request.
    pub(crate) fn settle_success(&mut self, reservation: TurnReservation) {
        self.waiting.retain(|turn| !reservation.turns.contains(&turn.number));
        if let Some(state) = reservation.state {
            if self.asked.len() == MAX_REMEMBERED {
                self.asked.pop_front();
            }
            self.asked.push_back(state);
        }
    }

    /// Releases the turns of a failed or aborted request for the retry.
    pub(crate) fn settle_failure(&mut self, reservation: &TurnReservation) {
        for turn in &mut self.waiting {
            if reservation.turns.contains(&turn.number) {
                turn.in_flight = false;
            }
        }
    }
}

impl PendingTurn {
    /// Whether a request contains this turn. The runtime expands a command and
    /// an image has no text, so these match the next request with user content.
    fn is_in(&self, traits: &RequestTraits) -> bool {
        if self.text.is_empty() || self.text.starts_with('/') {
            return true;
        }
        traits.texts.iter().any(|text| text.contains(&self.text))
    }
}

#[cfg(test)]
#[path = "initiator_tests.rs"]
mod tests;
