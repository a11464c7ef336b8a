//! The chat's activity: what the runtime does when no text arrives.
//!
//! Of several activities at once, the most important one is shown. Core clears the activity at the
//! end of a turn.

use ahp_types::actions::{ChatActivityChangedAction, StateAction};

/// Most hooks and tasks that are tracked.
const MAX_ENTRIES: usize = 64;

/// What a turn waits for while the runtime is silent.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct WaitNote {
    pub(in super::super) text: String,
    /// Whether the runtime may hang, which is more important than what it last said.
    pub(in super::super) is_alarm: bool,
}

/// The runtime's activities, by importance.
#[derive(Debug, Default)]
pub(super) struct ChatActivity {
    /// A failed request that is repeated.
    pub(super) retry: Option<String>,
    /// A compaction of the conversation.
    pub(super) compaction: Option<String>,
    /// A transient message of the runtime.
    pub(super) notice: Option<String>,
    /// Running hooks, by id.
    hooks: Vec<(String, String)>,
    /// What the turn waits for.
    pub(super) wait: Option<WaitNote>,
    /// Progress of a tool.
    pub(super) tool: Option<String>,
    /// Tasks that the turn waits for, by their calls.
    tasks: Vec<(String, String)>,
    /// The activity that was sent last.
    shown: Option<String>,
    /// Whether core may have cleared the activity since.
    stale: bool,
}

impl ChatActivity {
    pub(super) fn set_hook(&mut self, id: &str, text: String) {
        set(&mut self.hooks, id, text);
    }

    pub(super) fn remove_hook(&mut self, id: &str) {
        self.hooks.retain(|(hook, _)| hook != id);
    }

    pub(super) fn set_task(&mut self, call: &str, text: String) {
        set(&mut self.tasks, call, text);
    }

    pub(super) fn remove_task(&mut self, call: &str) {
        self.tasks.retain(|(task, _)| task != call);
    }

    /// Starts a turn. What the runtime does before a turn's first message belongs to the turn.
    pub(super) fn begin_turn(&mut self) {
        self.answer_continues();
        self.wait = None;
        self.tasks.clear();
        self.stale = self.shown.is_some();
    }

    /// Ends what cannot go on while the model answers.
    pub(super) fn answer_continues(&mut self) {
        self.retry = None;
        self.notice = None;
        self.tool = None;
    }

    /// The action for a change since the last call.
    pub(super) fn changed(&mut self) -> Option<StateAction> {
        let newest = |entries: &[(String, String)]| entries.last().map(|(_, text)| text.clone());
        let wait = |is_alarm| {
            let note = self.wait.as_ref().filter(|note| note.is_alarm == is_alarm);
            note.map(|note| note.text.clone())
        };
        let activity = wait(true)
            .or_else(|| self.retry.clone())
            .or_else(|| self.compaction.clone())
            .or_else(|| self.notice.clone())
            .or_else(|| newest(&self.hooks))
            .or_else(|| wait(false))
            .or_else(|| self.tool.clone())
            .or_else(|| newest(&self.tasks));
        if activity == self.shown && !std::mem::take(&mut self.stale) {
            return None;
        }
        self.stale = false;
        self.shown.clone_from(&activity);
        Some(StateAction::ChatActivityChanged(ChatActivityChangedAction { activity }))
    }
}

fn set(entries: &mut Vec<(String, String)>, id: &str, text: String) {
    if let Some((_, old)) = entries.iter_mut().find(|(entry, _)| entry == id) {
        *old = text;
    } else if entries.len() < MAX_ENTRIES {
        entries.push((id.to_owned(), text));
    }
}
