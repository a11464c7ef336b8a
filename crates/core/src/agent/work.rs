//! Work that can be stopped without ending the turn: tool calls, commands and subagents.

/// The work that a client wants to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// All work in the background. The session cancels the running turn itself.
    Background,
    /// The work of a running tool call, by its id.
    ToolCall(String),
    /// Work in the background, by its id in the chat's list.
    Work(String),
}

/// Work that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedWork {
    /// The kind of work.
    pub kind: WorkKind,
    /// What the work was, as text for the user.
    pub label: String,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A turn.
    Turn,
    /// A command.
    Command,
    /// A subagent.
    Subagent,
}

impl WorkKind {
    /// The name of the kind for clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Command => "command",
            Self::Subagent => "subagent",
        }
    }
}
