//! Changes of the runtime's options, and its release.
//!
//! The runtime reads its directories, its environment and its agent when it starts. A change of
//! them ends the runtime between two turns; the session then starts another one, which resumes
//! the conversation with all changes. Nothing changes in the middle of a turn.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ahp_types::common::JsonObject;
use innkeeper_claude::Message;
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_core::agent::{OpenAgent, environment_of};

use super::{ClaudeDriver, End};

/// Tools that schedule work in the runtime's process. It would be lost with the process.
const SCHEDULING: [&str; 3] = ["CronCreate", "Monitor", "ScheduleWakeup"];

/// The options that the runtime was started with, and those that it should have.
#[derive(Debug)]
pub(super) struct LaunchSettings {
    started: Settings,
    wanted: Settings,
    /// Whether work is scheduled in the process, as far as known.
    has_schedule: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    directories: Vec<PathBuf>,
    environment: BTreeMap<String, String>,
}

impl LaunchSettings {
    pub(super) fn of(request: &OpenAgent) -> Self {
        let started = Settings {
            directories: request.working_directories.clone(),
            environment: request.environment.clone(),
        };
        Self { wanted: started.clone(), started, has_schedule: false }
    }

    pub(super) fn set_directories(&mut self, directories: Vec<PathBuf>) {
        self.wanted.directories = directories;
    }

    pub(super) fn configure(&mut self, values: &JsonObject) {
        self.wanted.environment = environment_of(values);
    }

    /// What the runtime has to be restarted for, as text for the user.
    pub(super) fn restart_cause(&self) -> Option<String> {
        let Settings { directories, environment } = &self.wanted;
        let has_directories = *directories != self.started.directories;
        let has_environment = *environment != self.started.environment;
        let cause = match (has_directories, has_environment) {
            (true, true) => "the changed working directories and environment",
            (true, false) => "the changed working directories",
            (false, true) => "the changed environment",
            (false, false) => return None,
        };
        Some(cause.to_owned())
    }
}

impl ClaudeDriver {
    /// Notes that the model schedules work.
    pub(super) fn note_schedule(&mut self, message: &Message) {
        let Message::Assistant(assistant) = message else { return };
        let schedules = |block: &ContentBlock| {
            matches!(block, ContentBlock::ToolUse(call)
                if call.name.as_deref().is_some_and(|name| SCHEDULING.contains(&name)))
        };
        let content = assistant.message.as_ref().and_then(|message| message.content.as_ref());
        self.launch.has_schedule |= content.is_some_and(|content| content.blocks().iter().any(schedules));
    }

    /// Ends the runtime, if it has nothing to do.
    pub(super) fn release(&mut self) -> Result<(), End> {
        if self.is_idle() { Err(End::Stop) } else { Ok(()) }
    }

    /// Ends the runtime, if it must be started with other options. Work in the background
    /// continues until there is a message.
    pub(super) fn restart_if_changed(&self) -> Result<(), End> {
        match self.launch.restart_cause() {
            Some(cause) if self.waiting.is_some() || self.is_idle() => Err(End::Restart(cause)),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the runtime has no turn, request, message, task and scheduled work.
    fn is_idle(&self) -> bool {
        self.turns.is_free()
            && self.requested.is_none()
            && self.background.is_none()
            && self.waiting.is_none()
            && self.requests.is_empty()
            && self.waiting_requests.is_empty()
            && self.preparing.is_empty()
            && self.held.is_none()
            && !self.edits.is_recording()
            && !self.edits.has_tasks()
            && !self.launch.has_schedule
    }
}
