//! Links the turns of a chat to the agent's own messages.
//!
//! The agent reports the ids of its messages while it works. They are stored at once, so
//! that fork, truncation and restore find a turn in the agent's record. Turns from before
//! ids were stored are matched by order and marked accordingly.

use std::collections::{HashMap, HashSet};

use ahp_types::state::Turn;

use super::chats::Chat;
use super::publisher::Publisher;
use crate::agent::{MessageLink, RecordedTurn, TurnLink};
use crate::ids::TurnId;
use crate::state::ChannelState;
use crate::storage::{Change, StoredTurn};

/// The agent's messages, by turn id.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnLinks {
    by_turn: HashMap<String, TurnLink>,
    /// Whether turns without a link have been searched in the agent's record.
    pub(super) tried: bool,
}

impl TurnLinks {
    /// Adds a message to a turn and returns the complete link, to be stored.
    pub(super) fn add(&mut self, turn: &str, link: MessageLink) -> TurnLink {
        let links = self.by_turn.entry(turn.to_owned()).or_default();
        links.add(link);
        links.clone()
    }

    /// Sets the link of a turn, if it has none. Returns whether it was set.
    pub(super) fn fill(&mut self, turn: &str, link: TurnLink) -> bool {
        if self.by_turn.contains_key(turn) {
            return false;
        }
        self.by_turn.insert(turn.to_owned(), link);
        true
    }

    /// The link of a turn.
    pub(super) fn get(&self, turn: &str) -> Option<&TurnLink> {
        self.by_turn.get(turn)
    }

    /// The links of these turns.
    pub(super) fn of_turns(&self, turns: &[StoredTurn]) -> Self {
        let known = |turn: &StoredTurn| Some((turn.id.clone(), self.by_turn.get(&turn.id)?.clone()));
        Self { by_turn: turns.iter().filter_map(known).collect(), tried: self.tried }
    }

    /// Drops the links of turns that the chat no longer has, and returns those turns.
    pub(super) fn retain(&mut self, has: impl Fn(&str) -> bool) -> Vec<String> {
        let gone: Vec<String> = self.by_turn.keys().filter(|turn| !has(turn)).cloned().collect();
        for turn in &gone {
            self.by_turn.remove(turn);
        }
        gone
    }

    /// Whether each of these turns has a link.
    pub(super) fn cover(&self, turns: &[StoredTurn]) -> bool {
        turns.iter().all(|turn| self.by_turn.contains_key(&turn.id))
    }

    /// Every link, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &TurnLink)> {
        self.by_turn.iter()
    }
}

impl From<Vec<(String, TurnLink)>> for TurnLinks {
    fn from(links: Vec<(String, TurnLink)>) -> Self {
        Self { by_turn: links.into_iter().collect(), tried: false }
    }
}

impl Chat {
    /// Links a message that the agent reported to its turn, and stores the link.
    pub(super) fn record_message_link(
        &mut self,
        turn: &TurnId,
        message: MessageLink,
        publisher: &mut Publisher,
    ) {
        let is_folded = self.agent.folded.as_ref().is_some_and(|folded| folded.turn == *turn);
        let look = |state: &ChannelState| {
            let doc = state.chat_doc()?;
            let running = doc.open().active_turn.as_ref().map(|active| active.id.as_str());
            // An agent's own turn that is folded into a running one is linked to that one.
            let turn = if is_folded { running? } else { turn.as_str() };
            (running == Some(turn) || doc.position(turn).is_some()).then(|| turn.to_owned())
        };
        if let Some(turn) = publisher.store().read(&self.uri, look).flatten() {
            let link = self.links.add(&turn, message);
            publisher.write_soon(Change::PutTurnLink { chat: self.uri.clone(), turn, link });
        }
    }

    /// Links turns without a link by their order in the agent's record.
    pub(super) fn link_by_order(&mut self, record: &[RecordedTurn], publisher: &mut Publisher) {
        let turns = |state: &ChannelState| state.chat_doc().map(|doc| doc.turns().to_vec());
        let Some(turns) = publisher.store().read(&self.uri, turns).flatten() else { return };
        self.links.tried = true;
        for (turn, link) in match_by_order(&turns, &self.links, record) {
            if self.links.fill(&turn, link.clone()) {
                publisher.write_soon(Change::PutTurnLink { chat: self.uri.clone(), turn, link });
            }
        }
    }

    /// Drops the links of turns that the chat no longer has.
    pub(super) fn drop_links_of_removed_turns(&mut self, publisher: &mut Publisher) {
        let turns = |state: &ChannelState| {
            state.chat_doc().map(|doc| doc.turns().iter().map(|turn| turn.id.clone()).collect::<HashSet<_>>())
        };
        let Some(left) = publisher.store().read(&self.uri, turns).flatten() else { return };
        self.retain_links(|turn| left.contains(turn), publisher);
    }

    /// Drops the references to a record that the agent does not have or will not use.
    pub(super) fn drop_record(&mut self, publisher: &mut Publisher) {
        self.resume_token = None;
        self.retain_links(|_| false, publisher);
    }

    fn retain_links(&mut self, has: impl Fn(&str) -> bool, publisher: &mut Publisher) {
        let turns = self.links.retain(has);
        if !turns.is_empty() {
            publisher.write_soon(Change::RemoveTurnLinks { chat: self.uri.clone(), turns });
        }
    }
}

/// Finds turns without a link in the agent's record, by order: such a turn is the next
/// recorded one with the same message, before the record of the next linked turn. A turn
/// that the agent never received has no match.
fn match_by_order(
    turns: &[StoredTurn],
    known: &TurnLinks,
    recorded: &[RecordedTurn],
) -> Vec<(String, TurnLink)> {
    let is_known = |record: &RecordedTurn| {
        known.iter().any(|(_, link)| link.prompts.iter().any(|prompt| record.link.prompts.contains(prompt)))
    };
    let mut rest = recorded;
    let mut found = Vec::new();
    for stored in turns {
        let link = known.get(&stored.id);
        let at = match link.and_then(|link| link.prompts.first()) {
            Some(prompt) => rest.iter().position(|record| record.link.prompts.contains(prompt)),
            None => {
                let Ok(turn) = serde_json::from_str::<Turn>(stored.body.get()) else { continue };
                let text = turn.message.text.trim();
                let free = rest.iter().take_while(|record| !is_known(record));
                free.map(|record| record.turn.message.text.trim()).position(|recorded| recorded == text)
            }
        };
        let Some((record, after)) = at.and_then(|at| rest.get(at..)?.split_first()) else { continue };
        rest = after;
        if link.is_none() {
            found.push((stored.id.clone(), TurnLink { by_order: true, ..record.link.clone() }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(id: &str, text: &str) -> serde_json::Value {
        json!({
            "id": id, "message": {"text": text, "origin": {"kind": "user"}}, "state": "complete",
            "responseParts": [],
        })
    }

    fn stored(id: &str, text: &str) -> StoredTurn {
        let body = serde_json::value::to_raw_value(&body(id, text)).unwrap();
        StoredTurn { id: id.to_owned(), body: body.into() }
    }

    fn recorded(prompt: &str, text: &str) -> RecordedTurn {
        let link = TurnLink { prompts: vec![prompt.to_owned()], ..TurnLink::default() };
        RecordedTurn { link, turn: serde_json::from_value(body(prompt, text)).unwrap() }
    }

    fn matched(turns: &[StoredTurn], known: &TurnLinks, records: &[RecordedTurn]) -> Vec<(String, String)> {
        let found = match_by_order(turns, known, records);
        assert!(found.iter().all(|(_, link)| link.by_order));
        found.into_iter().map(|(turn, link)| (turn, link.prompts.concat())).collect()
    }

    fn pair(turn: &str, prompt: &str) -> (String, String) {
        (turn.to_owned(), prompt.to_owned())
    }

    #[test]
    fn turns_with_the_same_message_are_matched_in_order() {
        let turns = [stored("1", "go on"), stored("2", "go on"), stored("3", "bye")];
        let records = [recorded("a", "go on"), recorded("b", "go on"), recorded("c", "bye")];
        let expected = [pair("1", "a"), pair("2", "b"), pair("3", "c")];
        assert_eq!(matched(&turns, &TurnLinks::default(), &records), expected);
    }

    #[test]
    fn turn_that_agent_never_received_is_not_matched() {
        let turns = [stored("1", "one"), stored("2", "lost"), stored("3", "three")];
        let records = [recorded("a", "one"), recorded("c", "three")];
        let found = matched(&turns, &TurnLinks::default(), &records);
        assert_eq!(found, [pair("1", "a"), pair("3", "c")]);
    }

    #[test]
    fn reported_ids_are_kept_and_limit_matching_by_order() {
        let turns = [stored("1", "go"), stored("2", "go"), stored("3", "go")];
        let records = [recorded("a", "go"), recorded("b", "go"), recorded("c", "go")];
        let mut known = TurnLinks::default();
        known.add("2", MessageLink::Prompt("b".to_owned()));
        assert_eq!(matched(&turns, &known, &records), [pair("1", "a"), pair("3", "c")]);
    }

    #[test]
    fn links_of_removed_turns_are_dropped() {
        let mut links = TurnLinks::default();
        links.add("1", MessageLink::Prompt("a".to_owned()));
        links.add("2", MessageLink::Prompt("b".to_owned()));
        let link = links.add("2", MessageLink::Answer("z".to_owned()));
        assert_eq!((link.prompts.len(), link.answer.as_deref()), (1, Some("z")));
        assert_eq!(links.retain(|turn| turn == "1"), ["2"]);
        assert!(links.cover(&[stored("1", "")]) && !links.cover(&[stored("2", "")]));
    }
}
