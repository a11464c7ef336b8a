//! Permission queries: a tool call about which the session's policy decides.

use std::sync::Arc;

use ahp_types::common::StringOrMarkdown;
use ahp_types::state::FileEdit;

use crate::ids::TurnId;
use crate::policy::{PermissionRequest, ResolvedPath};

/// A tool call that needs a decision. The answer is `AgentCommand::PermissionVerdict`, or, if
/// a user was asked, `AgentCommand::ToolAnswer`.
#[derive(Clone, Debug)]
pub struct PermissionQuery {
    /// The turn that shows the call. `None` for a background task between turns, whose calls
    /// can be checked before their use and not be shown.
    pub turn: Option<TurnId>,
    /// The call.
    pub tool_call: String,
    /// Who else decides about the call.
    pub stage: PermissionStage,
    /// What the call does.
    pub request: PermissionRequest,
    /// The working directories.
    pub roots: Arc<[ResolvedPath]>,
    /// The digest of the call's input, for the audit records.
    pub input_digest: String,
    /// How the call is shown when a user is asked about it.
    pub question: PermissionQuestion,
}

/// Who else decides about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionStage {
    /// The agent is about to use the tool and has rules of its own. Only an objection counts.
    BeforeUse,
    /// The agent does not use the tool without permission.
    Required,
}

/// How a call is shown when a user is asked about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionQuestion {
    /// The question, such as "Run this command?".
    pub title: String,
    /// What the call does.
    pub invocation: StringOrMarkdown,
    /// The input of the call.
    pub input: String,
    /// Whether the user may change the input.
    pub editable: bool,
    /// Why the agent asks.
    pub agent_reason: Option<String>,
    /// Rules that the agent suggests to add.
    pub suggested_rules: Vec<String>,
    /// Whether the agent suggests to accept all edits.
    pub suggests_accepting_edits: bool,
    /// Whether the answer may become a rule.
    pub can_remember: bool,
    /// What the call would change in files.
    pub edits: Vec<FileEdit>,
}

/// The decision about a call that no user was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionVerdict {
    /// The policy does not object. Sent before the use of a tool: the agent's own rules apply.
    NoObjection,
    /// The agent must ask although its own rules allow the call. Sent before the use of a tool.
    MustAsk {
        /// Why.
        reason: String,
    },
    /// The call may run. Before the use of a tool: without further questions.
    Allowed,
    /// The call must not run.
    Denied {
        /// Why, as text for the model.
        reason: String,
    },
}
