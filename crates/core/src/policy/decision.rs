//! The input and the result of a decision.

use std::path::{Path, PathBuf};

use super::{PermissionMode, ResolvedPath, RuleScope, RuleSet};

/// What a decision depends on, besides the request.
#[derive(Clone, Copy, Debug)]
pub struct PolicyContext<'a> {
    /// The rules of all scopes, in any order.
    pub rules: &'a [&'a RuleSet],
    /// The session's directories.
    pub roots: &'a [ResolvedPath],
    pub mode: PermissionMode,
    /// Directories and files of the host, with links resolved. Writes to them are always denied.
    pub guarded: &'a [PathBuf],
    /// Directories inside of the guarded ones in which sessions work.
    pub unguarded: &'a [PathBuf],
    /// The user's home directory.
    pub home: Option<&'a Path>,
}

/// A decision with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDecision {
    pub verdict: PolicyVerdict,
    /// Which part of the policy decided.
    pub layer: PolicyLayer,
    /// The text of the rule that decided.
    pub rule: Option<String>,
    /// One sentence for the user: why the request is asked or denied.
    pub reason: String,
    /// Rules that would allow this request, best first, at most three. For a shell line with several
    /// commands: the rules that allow it together. Empty if no rule can allow it.
    pub would_allow: Vec<String>,
    /// The user must be asked although the agent would not ask by itself.
    pub overrides_agent: bool,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyVerdict {
    Allow,
    Ask,
    Deny,
}

impl PolicyVerdict {
    /// A stable name for the audit table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The part of the policy that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyLayer {
    /// A write to the host's own files.
    GuardedPath,
    /// A write to the internals of a Git repository.
    GitInternals,
    /// A rule of this scope.
    Rule(RuleScope),
    /// The permission mode.
    Mode,
    /// A read inside the roots.
    WorkspaceRead,
    /// A write inside the roots.
    WorkspaceWrite,
    /// A write to a file that can run programs or contains secrets.
    ProtectedPath,
    /// A tool that changes nothing outside the conversation.
    Internal,
    /// A shell line that the parser does not understand completely.
    NotUnderstood,
    /// No other part decided.
    Default,
}

impl PolicyLayer {
    /// A stable name for the audit table.
    pub fn name(self) -> &'static str {
        match self {
            Self::GuardedPath => "guarded-path",
            Self::GitInternals => "git-internals",
            Self::Rule(RuleScope::Session) => "rule-session",
            Self::Rule(RuleScope::Workspace) => "rule-workspace",
            Self::Rule(RuleScope::Always) => "rule-always",
            Self::Rule(RuleScope::Client) => "rule-client",
            Self::Rule(RuleScope::Administrator) => "rule-administrator",
            Self::Mode => "mode",
            Self::WorkspaceRead => "workspace-read",
            Self::WorkspaceWrite => "workspace-write",
            Self::ProtectedPath => "protected-path",
            Self::Internal => "internal",
            Self::NotUnderstood => "not-understood",
            Self::Default => "default",
        }
    }
}
