//! Selects and orders the transcript entries that make up the conversation.
//!
//! A transcript is a forest: every entry names its parent, abandoned branches remain in the file, and a
//! compaction moves the entries it kept after its summary. Owns the path from the newest leaf to the
//! root. Pure, and bounded by the number of entries even if the parents form a cycle.

use std::collections::{HashMap, HashSet};

use super::entry::{EntryKind, Preserved, TranscriptEntry};

/// The conversation of the newest leaf, as indices into `entries`, oldest first.
pub(super) fn conversation(entries: &[TranscriptEntry]) -> Vec<usize> {
    let tree = Tree::new(entries);
    let Some(last) = tree.newest_message() else { return Vec::new() };
    let mut path = tree.path_to(last);
    tree.insert_siblings(&mut path);
    path
}

/// All entries on the path to the last message.
pub(super) fn path_to_last_message(entries: &[TranscriptEntry]) -> Vec<usize> {
    let tree = Tree::new(entries);
    entries.iter().rposition(TranscriptEntry::is_message).map(|last| tree.path_to(last)).unwrap_or_default()
}

struct Tree<'a> {
    entries: &'a [TranscriptEntry],
    /// Index by uuid; the last occurrence of a repeated entry counts.
    places: HashMap<&'a str, usize>,
    /// Parent of each entry, after moves by compactions.
    parents: Vec<Option<usize>>,
}

impl<'a> Tree<'a> {
    fn new(entries: &'a [TranscriptEntry]) -> Self {
        let places: HashMap<&str, usize> =
            entries.iter().enumerate().map(|(at, entry)| (entry.uuid.as_str(), at)).collect();
        let parent = |entry: &TranscriptEntry| places.get(entry.fields.parent_uuid.as_deref()?).copied();
        let parents = entries.iter().map(parent).collect();
        let mut tree = Self { entries, places, parents };
        for preserved in entries.iter().filter_map(TranscriptEntry::preserved) {
            tree.move_preserved(&preserved);
        }
        tree
    }

    /// Inserts the entries that a compaction kept between its anchor and the anchor's children.
    fn move_preserved(&mut self, preserved: &Preserved) {
        if let Some(messages) = &preserved.preserved_messages {
            let kept: Option<Vec<usize>> = messages.uuids.iter().map(|uuid| self.place(uuid)).collect();
            if let (Some(kept), Some(anchor)) = (kept, self.place(&messages.anchor_uuid))
                && let Some(tail) = kept.last().copied()
            {
                let mut previous = anchor;
                for at in &kept {
                    self.set_parent(*at, previous);
                    previous = *at;
                }
                self.move_children(anchor, tail, &kept);
            }
        } else if let Some(segment) = &preserved.preserved_segment
            && let Some(anchor) = self.place(&segment.anchor_uuid)
        {
            let head = self.place(&segment.head_uuid);
            if let Some(head) = head {
                self.set_parent(head, anchor);
            }
            if let Some(tail) = self.place(&segment.tail_uuid) {
                self.move_children(anchor, tail, head.as_slice());
            }
        }
    }

    fn move_children(&mut self, from: usize, to: usize, except: &[usize]) {
        for (at, parent) in self.parents.iter_mut().enumerate() {
            if *parent == Some(from) && !except.contains(&at) {
                *parent = Some(to);
            }
        }
    }

    fn set_parent(&mut self, at: usize, parent: usize) {
        if let Some(slot) = self.parents.get_mut(at) {
            *slot = Some(parent);
        }
    }

    fn place(&self, uuid: &str) -> Option<usize> {
        self.places.get(uuid).copied()
    }

    fn parent(&self, at: usize) -> Option<usize> {
        self.parents.get(at).copied().flatten()
    }

    fn is_current(&self, at: usize, entry: &TranscriptEntry) -> bool {
        self.place(&entry.uuid) == Some(at)
    }

    /// The last message of the conversation: the one that the newest leaf leads to. Later entries of
    /// other kinds belong to a turn that has no message yet.
    fn newest_message(&self) -> Option<usize> {
        let main =
            |at: usize, entry: &TranscriptEntry| self.is_current(at, entry) && !entry.fields.is_sidechain;
        let in_main = || self.entries.iter().enumerate().filter(|(at, entry)| main(*at, entry));
        let followed: HashSet<usize> = in_main().filter_map(|(at, _)| self.parent(at)).collect();
        let leaves: Vec<usize> = in_main().map(|(at, _)| at).filter(|at| !followed.contains(at)).collect();
        let wanted = |entry: &TranscriptEntry| !entry.fields.is_sidechain && entry.fields.team_name.is_none();
        leaves.into_iter().rev().find_map(|leaf| {
            let mut way = self.ancestors(leaf).filter_map(|at| self.entries.get(at).map(|entry| (at, entry)));
            way.find(|(_, entry)| entry.is_message() || entry.is_queued_prompt())
                .filter(|(_, entry)| wanted(entry))
                .map(|(at, _)| at)
        })
    }

    /// An entry and its ancestors, newest first.
    fn ancestors(&self, from: usize) -> impl Iterator<Item = usize> {
        let mut seen = HashSet::new();
        std::iter::successors(Some(from), |at| self.parent(*at)).take_while(move |at| seen.insert(*at))
    }

    fn path_to(&self, last: usize) -> Vec<usize> {
        let mut path: Vec<usize> = self.ancestors(last).collect();
        path.reverse();
        path
    }

    /// Parallel tool calls are entries of one answer, only one of which can be the parent of the next
    /// entry. Inserts the others and their results after the last block of the answer on the path.
    fn insert_siblings(&self, path: &mut Vec<usize>) {
        let on_path: HashSet<usize> = path.iter().copied().collect();
        let mut answers: HashMap<String, AnswerEntries> = HashMap::new();
        let mut answer_of_block: HashMap<&str, String> = HashMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let relevant = entry.kind == EntryKind::Assistant && !entry.fields.is_sidechain;
            if relevant
                && self.is_current(at, entry)
                && let Some(id) = entry.head().id
            {
                answer_of_block.insert(&entry.uuid, id.clone());
                let answer = answers.entry(id).or_default();
                if on_path.contains(&at) { answer.on_path.push(at) } else { answer.blocks.push(at) }
            }
        }
        answers.retain(|_, answer| !answer.on_path.is_empty());
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.kind != EntryKind::User || on_path.contains(&at) || !self.is_current(at, entry) {
                continue;
            }
            let fields = &entry.fields;
            let source = fields.source_tool_assistant_uuid.as_deref().or(fields.parent_uuid.as_deref());
            if let Some(answer) = source.and_then(|uuid| answers.get_mut(answer_of_block.get(uuid)?))
                && !fields.is_sidechain
                && entry.head().tool_result_of().is_some()
            {
                answer.results.push(at);
            }
        }
        let mut behind: HashMap<usize, Vec<usize>> = HashMap::new();
        for mut answer in answers.into_values() {
            let last = path.iter().rev().find(|at| answer.on_path.contains(at));
            answer.blocks.sort_by_key(|at| self.timestamp(*at));
            answer.results.sort_by_key(|at| self.timestamp(*at));
            answer.blocks.append(&mut answer.results);
            if let Some(last) = last {
                behind.insert(*last, answer.blocks);
            }
        }
        *path = path
            .iter()
            .flat_map(|at| std::iter::once(*at).chain(behind.remove(at).unwrap_or_default()))
            .collect();
    }

    fn timestamp(&self, at: usize) -> &str {
        self.entries.get(at).and_then(|entry| entry.fields.timestamp.as_deref()).unwrap_or_default()
    }
}

/// The entries of one model answer.
#[derive(Default)]
struct AnswerEntries {
    on_path: Vec<usize>,
    blocks: Vec<usize>,
    results: Vec<usize>,
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
