//! The summary of a conversation, from the first and last bytes of its transcript.
//!
//! Owns the search for titles, times and directories in those bytes. Optimized for speed: lines are
//! identified by their beginning and rarely parsed. Does not know about caches and folders.

use std::path::PathBuf;
use std::time::SystemTime;

use memchr::{memchr, memchr2, memmem, memrchr};
use serde::Deserialize;
use uuid::Uuid;

use super::entry::lenient;
use super::prompt::{FirstPrompt, last_prompt_time};

/// The summary of a conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// Id of the conversation.
    pub id: Uuid,
    /// Path of the transcript.
    pub path: PathBuf,
    /// One line for display: the title or the best substitute.
    pub summary: String,
    /// The title set by the user or the runtime.
    pub title: Option<String>,
    /// The first prompt on one line, truncated.
    pub first_prompt: Option<String>,
    /// The git branch at the end of the conversation.
    pub git_branch: Option<String>,
    /// The working directory.
    pub cwd: Option<String>,
    /// Tag set by the user.
    pub tag: Option<String>,
    /// Start of the conversation.
    pub created_at: Option<SystemTime>,
    /// Last modification of the transcript.
    pub last_modified: SystemTime,
    /// Size of the transcript in bytes.
    pub size: u64,
    /// Whether it is archived; `None` if it never was.
    pub archived: Option<bool>,
}

/// The first and last bytes of a transcript, which overlap in a short file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) head: &'a [u8],
    pub(super) tail: &'a [u8],
    /// Offset of the tail in the file.
    pub(super) tail_start: u64,
}

/// Data from the sidecar files of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sidecars {
    /// The title in `custom-title.json`.
    pub(super) title: Option<String>,
    /// The flag in `archived.json`, with its timestamp.
    pub(super) archived: Option<(bool, String)>,
}

/// The data found in the window.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) summary: String,
    pub(super) title: Option<String>,
    pub(super) first_prompt: Option<String>,
    pub(super) git_branch: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) created_at: Option<SystemTime>,
    pub(super) archived: Option<bool>,
    /// The conversation that continues this one.
    pub(super) continued_in: Option<Uuid>,
}

impl Findings {
    /// Searches the window; `None` if there is nothing to list.
    pub(super) fn of(window: Window<'_>, sidecars: Sidecars) -> Option<Self> {
        let first_line = window.head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if memmem::find(first_line, b"\"isSidechain\":true").is_some() {
            return None;
        }
        let tail = Notes::of(whole_lines(window.tail, window.tail_start));
        // The tail search already covered this part of the head.
        let before_tail = usize::try_from(window.tail_start).unwrap_or(usize::MAX).min(window.head.len());
        let head = Notes::of(window.head.get(..before_tail).unwrap_or_default());
        let first = FirstPrompt::find(window.head);
        let title = [tail.custom_title, sidecars.title, head.custom_title, tail.ai_title, head.ai_title];
        let title = title.into_iter().flatten().find(|title| !title.is_empty());
        let candidates = [title.clone(), tail.last_prompt, tail.summary, first.text.clone()];
        let summary = candidates.into_iter().flatten().find(|text| !text.is_empty());
        let created_at = first_string(window.head, b"\"timestamp\":\"").and_then(|time| parse_time(&time));
        let relocated = tail.relocated_cwd.or(head.relocated_cwd);
        let continued = tail.continued_in.or(head.continued_in);
        Some(Self {
            summary: summary.or_else(|| first.media.map(str::to_owned))?,
            title,
            first_prompt: first.text,
            git_branch: last_string(window.tail, b"\"gitBranch\":\"")
                .or_else(|| first_string(window.head, b"\"gitBranch\":\"")),
            cwd: relocated.or_else(|| first_string(window.head, b"\"cwd\":\"")),
            tag: tail.tag.or(head.tag).filter(|tag| !tag.is_empty()),
            created_at,
            archived: sidecars
                .archived
                .map(|(archived, since)| archived && !prompted_after(window.tail, &since)),
            continued_in: continued.and_then(|id| id.parse().ok()),
        })
    }
}

/// Sending a prompt unarchives a conversation.
fn prompted_after(tail: &[u8], since: &str) -> bool {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    last_prompt_time(tail)
        .and_then(|last| time(&last))
        .zip(time(since))
        .is_some_and(|(last, since)| last > since)
}

pub(super) fn parse_time(text: &str) -> Option<SystemTime> {
    text.parse::<jiff::Timestamp>().ok().map(SystemTime::from)
}

/// The last note of each kind in a part of a transcript.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notes {
    #[serde(default, deserialize_with = "lenient")]
    custom_title: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    ai_title: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    last_prompt: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    summary: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    tag: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    relocated_cwd: Option<String>,
    #[serde(default, rename = "continuedInSessionId", deserialize_with = "lenient")]
    continued_in: Option<String>,
}

impl Notes {
    fn of(bytes: &[u8]) -> Self {
        let mut notes = Self::default();
        for line in lines_backward(bytes) {
            let Some(kind) = note_kind(line) else { continue };
            if let Some(slot) = notes.slot(kind)
                && slot.is_none()
                && let Ok(mut note) = serde_json::from_slice::<Self>(line)
            {
                *slot = note.slot(kind).and_then(Option::take);
            }
        }
        notes
    }

    /// The field for notes of this kind.
    fn slot(&mut self, kind: &[u8]) -> Option<&mut Option<String>> {
        Some(match kind {
            b"custom-title" => &mut self.custom_title,
            b"ai-title" => &mut self.ai_title,
            b"last-prompt" => &mut self.last_prompt,
            b"summary" => &mut self.summary,
            b"tag" => &mut self.tag,
            b"relocated" => &mut self.relocated_cwd,
            b"continued-in" => &mut self.continued_in,
            _ => return None,
        })
    }
}

/// The kind of a line that is not a conversation entry. In those lines the runtime writes the kind first,
/// in conversation entries the parent.
fn note_kind(line: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = line.strip_prefix(b"{\"type\":\"") {
        return rest.get(..memchr(b'"', rest)?);
    }
    if !line.starts_with(b"{") || line.starts_with(b"{\"parentUuid\":") {
        return None;
    }
    let at = memmem::find(line, b"\"type\":\"")? + b"\"type\":\"".len();
    let rest = line.get(at..)?;
    rest.get(..memchr(b'"', rest)?)
}

/// Skips the line that the start of the window truncates.
fn whole_lines(tail: &[u8], start: u64) -> &[u8] {
    if start == 0 {
        return tail;
    }
    memchr(b'\n', tail).and_then(|end| tail.get(end + 1..)).unwrap_or_default()
}

fn lines_backward(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let current = rest?;
        match memrchr(b'\n', current) {
            Some(end) => {
                rest = current.get(..end);
                current.get(end + 1..)
            }
            None => rest.take(),
        }
    })
}

/// The first string after `key`, which ends with the opening quote.
fn first_string(bytes: &[u8], key: &[u8]) -> Option<String> {
    json_string(bytes.get(memmem::find(bytes, key)? + key.len() - 1..)?)
}

/// The last string after `key`, which ends with the opening quote.
fn last_string(bytes: &[u8], key: &[u8]) -> Option<String> {
    json_string(bytes.get(memmem::rfind(bytes, key)? + key.len() - 1..)?)
}

/// The JSON string at the start of `bytes`.
fn json_string(bytes: &[u8]) -> Option<String> {
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return serde_json::from_slice(bytes.get(..=at)?).ok();
        }
        at += 2;
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
