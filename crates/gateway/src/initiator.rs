//! Who started a request: a person, or the agent's own work.
//!
//! Owns the turns of one session and which of them have had their one
//! successful request in the user's name. Pure: no clock, no I/O. A turn is
//! spent by a request that succeeded; after a failure the retry is in the
//! user's name again.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use http::HeaderMap;

use crate::head::RequestHead;
use crate::request::{self, Content};

/// Turns that wait for their request. A host marks one at a time, and a
/// handful while messages are queued; past it the oldest is given up.
const MAX_WAITING: usize = 16;

/// Conversation states remembered as already asked, for a gateway without
/// marks. Repeats follow within seconds; the oldest is forgotten first.
const MAX_REMEMBERED: usize = 16;

/// Header by which the runtime names the subagent that asks.
const AGENT_ID: &str = "x-claude-code-agent-id";

/// What the runtime writes into its first system block for a subagent.
const SUBAGENT_MARK: &str = "cc_is_subagent=true";

/// How far into the system prompt that mark is looked for: it is in the first
/// line, and a user's own text further down must not be taken for it.
const SUBAGENT_MARK_WITHIN: usize = 512;

/// Who started a request.
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

/// A message of the user's that is about to be given to the runtime.
#[derive(Clone, Debug)]
pub struct TurnMark {
    text: String,
}

impl TurnMark {
    /// The turn of a message with this text; empty if it has none.
    pub fn with_text(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

/// What is to be known about a request to say who started it.
#[derive(Debug)]
pub(crate) struct Ask {
    /// What people wrote in the last message.
    texts: Vec<String>,
    /// Whether the last message has something of a person's, text or not.
    human: bool,
    /// Asked by a subagent, for a summary or as a probe.
    housekeeping: bool,
    /// The runtime's small helper calls offer no tools.
    helper: bool,
    fingerprint: u64,
}

impl Ask {
    pub(crate) fn read(head: &RequestHead<'_>, headers: &HeaderMap) -> Self {
        let last = head.last_message.as_ref().filter(|message| message.role == "user");
        let content: Content =
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

/// What a request holds until it is settled.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    /// Numbers of the marked turns that it asks for.
    turns: Vec<u64>,
    /// Identity of the conversation's state, without marks.
    state: Option<u64>,
}

impl Ticket {
    /// Holds nothing.
    pub(crate) fn none() -> Self {
        Self::default()
    }
}

/// The turns of one session.
#[derive(Debug, Default)]
pub(crate) struct TurnBook {
    /// Whether a host marks turns; from its first mark on only marks count.
    marked: bool,
    waiting: VecDeque<Turn>,
    next: u64,
    /// States whose request in the user's name succeeded, oldest first.
    asked: VecDeque<u64>,
}

#[derive(Debug)]
struct Turn {
    number: u64,
    text: String,
    /// A request in the user's name is on its way.
    in_flight: bool,
}

impl TurnBook {
    /// Notes that a person has said something.
    pub(crate) fn mark(&mut self, mark: TurnMark) {
        self.marked = true;
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(Turn { number, text: mark.text.trim().to_owned(), in_flight: false });
    }

    /// Says who started a request.
    pub(crate) fn decide(&mut self, ask: &Ask) -> (Initiator, Ticket) {
        if ask.housekeeping || !ask.human {
            return (Initiator::Agent, Ticket::none());
        }
        if !self.marked {
            if ask.helper || self.asked.contains(&ask.fingerprint) {
                return (Initiator::Agent, Ticket::none());
            }
            return (Initiator::User, Ticket { turns: Vec::new(), state: Some(ask.fingerprint) });
        }
        let mut turns = Vec::new();
        for turn in self.waiting.iter_mut().filter(|turn| !turn.in_flight && turn.is_in(ask)) {
            turn.in_flight = true;
            turns.push(turn.number);
        }
        let initiator = if turns.is_empty() { Initiator::Agent } else { Initiator::User };
        (initiator, Ticket { turns, state: None })
    }

    /// The request came to its end: its turns are spent.
    pub(crate) fn settle_success(&mut self, ticket: Ticket) {
        self.waiting.retain(|turn| !ticket.turns.contains(&turn.number));
        if let Some(state) = ticket.state {
            if self.asked.len() == MAX_REMEMBERED {
                self.asked.pop_front();
            }
            self.asked.push_back(state);
        }
    }

    /// The request failed or was left: its turns wait for the retry.
    pub(crate) fn settle_failure(&mut self, ticket: &Ticket) {
        for turn in &mut self.waiting {
            if ticket.turns.contains(&turn.number) {
                turn.in_flight = false;
            }
        }
    }
}

impl Turn {
    /// A command is replaced by its expansion and a picture has no text, so
    /// that these are taken for the first words of a person's that come.
    fn is_in(&self, ask: &Ask) -> bool {
        if self.text.is_empty() || self.text.starts_with('/') {
            return true;
        }
        ask.texts.iter().any(|text| text.contains(&self.text))
    }
}

#[cfg(test)]
#[path = "initiator_tests.rs"]
mod tests;
