//! The permission policy: whether an agent may run a tool, must ask, or is denied.
//!
//! Owns the rules, the parsing of shell command lines and the decision. Agent-neutral and pure: no
//! I/O, no clock; the caller resolves paths with a [`PathResolver`] before it asks for a decision.
//!
//! Invariant: input that the policy does not understand is never allowed by a rule.

mod client_rules;
mod command_pattern;
mod decide;
mod decide_shell;
mod decision;
mod path_pattern;
mod path_subject;
mod protected;
mod rule;
mod rule_set;
mod shell;
mod suggest;

use std::path::{Path, PathBuf};

pub use decide::decide;
pub use decision::{PolicyContext, PolicyDecision, PolicyLayer, PolicyVerdict};
pub use rule::{PermissionRule, RuleBehavior, RuleError, RuleProblem, RuleScope};
pub use rule_set::RuleSet;
pub use shell::{PathAccess, ShellLine, ShellPath};

/// How much an agent may do without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PermissionMode {
    /// Reads inside the roots are free; everything else asks.
    #[default]
    Default,
    /// Writes inside the roots are free, too.
    AcceptEdits,
    /// The agent only plans; it restricts itself.
    Plan,
    /// The agent classifies its requests itself.
    Auto,
    /// Everything is free, except for hard denies and ask rules.
    BypassPermissions,
}

impl PermissionMode {
    /// All modes, in the order in which clients show them.
    pub const ALL: [Self; 5] =
        [Self::Default, Self::AcceptEdits, Self::Plan, Self::Auto, Self::BypassPermissions];

    /// Reads the value of the session configuration.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The value in the session configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::Auto => "auto",
            Self::BypassPermissions => "bypassPermissions",
        }
    }
}

/// A tool call that needs a decision.
#[derive(Clone, Debug)]
pub struct PermissionRequest {
    /// The agent's name of the tool, as rules name it.
    pub tool: String,
    pub access: ToolAccess,
}

/// What a tool call would access.
#[derive(Clone, Debug)]
pub enum ToolAccess {
    /// Changes nothing outside the conversation.
    Internal,
    Read(Vec<ResolvedPath>),
    Write(Vec<ResolvedPath>),
    /// A bash command line.
    Shell(Box<ShellAccess>),
    Fetch {
        url: String,
    },
    Mcp {
        server: String,
        tool: String,
    },
    /// Anything else.
    Other,
}

/// A path of a request, with links resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The path as the agent gave it.
    pub given: String,
    /// The absolute path without `.` and `..`; links are not resolved.
    pub lexical: PathBuf,
    /// The path with links resolved, of the nearest existing ancestor if the file does not exist.
    /// `None`: could not be resolved; such a path is treated as outside of all roots.
    pub real: Option<PathBuf>,
}

/// A shell command line with its resolved paths.
#[derive(Clone, Debug)]
pub struct ShellAccess {
    pub line: ShellLine,
    /// The resolved form of [`ShellLine::paths`], in the same order.
    pub paths: Vec<ResolvedPath>,
}

/// Resolves the paths of requests. Blocking: call it outside of async threads.
pub trait PathResolver: Send + Sync {
    /// Resolves a path relative to an absolute directory. Never fails; see [`ResolvedPath::real`].
    fn resolve(&self, path: &str, base: &Path) -> ResolvedPath;
}
