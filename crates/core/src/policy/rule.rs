//! One rule as text: a tool and an optional specifier, such as `Bash(npm test:*)`.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a rule in bytes.
const MAX_LENGTH: usize = 4 * 1_024;

/// What a rule does with a request that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleBehavior {
    Allow,
    Ask,
    Deny,
}

/// Where a rule comes from. The order is from the narrowest to the widest scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleScope {
    Session,
    Workspace,
    Always,
    /// The root configuration that a client published.
    Client,
    /// The host's configuration file.
    Administrator,
}

impl RuleScope {
    /// The scope in a sentence: "a rule of …".
    pub fn description(self) -> &'static str {
        match self {
            Self::Session => "this session",
            Self::Workspace => "this workspace",
            Self::Always => "the user",
            Self::Client => "the client",
            Self::Administrator => "the host's configuration",
        }
    }
}

/// A parsed rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PermissionRule {
    tool: String,
    specifier: Option<String>,
}

impl PermissionRule {
    /// The tool, as the agent names it.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The text in parentheses. `*` and `**` are the same as no specifier.
    pub fn specifier(&self) -> Option<&str> {
        self.specifier.as_deref()
    }
}

impl FromStr for PermissionRule {
    type Err = RuleProblem;

    fn from_str(text: &str) -> Result<Self, RuleProblem> {
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return Err(RuleProblem::TooLong);
        }
        if text.contains('\0') {
            return Err(RuleProblem::NulByte);
        }
        let (tool, specifier) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let specifier = rest.strip_suffix(')').ok_or(RuleProblem::Unclosed)?;
                (tool.trim_end(), Some(specifier))
            }
        };
        if specifier.is_some_and(|specifier| specifier.trim().is_empty()) {
            return Err(RuleProblem::EmptySpecifier);
        }
        check_tool(tool)?;
        Ok(Self { tool: tool.to_owned(), specifier: specifier.map(str::to_owned) })
    }
}

/// Checks the name of a tool. Only a name of an MCP tool may end with a star.
fn check_tool(tool: &str) -> Result<(), RuleProblem> {
    let has_tool_part = tool.strip_prefix("mcp__").is_some_and(|name| name.contains("__"));
    let name = if has_tool_part { tool.strip_suffix('*').unwrap_or(tool) } else { tool };
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | ':' | '/');
    if name.is_empty() || name == "mcp__" || name.starts_with("mcp____") || !name.chars().all(is_letter) {
        return Err(RuleProblem::Tool(tool.to_owned()));
    }
    Ok(())
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.specifier {
            None => formatter.write_str(&self.tool),
            Some(specifier) => write!(formatter, "{}({specifier})", self.tool),
        }
    }
}

/// Why the text of a rule is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    #[error("longer than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("contains a NUL byte")]
    NulByte,
    #[error("the parenthesis is not closed; expected Tool or Tool(specifier)")]
    Unclosed,
    #[error("the specifier is empty; write the tool without parentheses to match all its calls")]
    EmptySpecifier,
    #[error("{0:?} is not the name of a tool; expected a name such as Bash, Edit or mcp__server__tool")]
    Tool(String),
    #[error("a rule for this tool cannot have a specifier; write only the tool's name")]
    UnexpectedSpecifier,
    #[error("expected WebFetch(domain:example.com)")]
    Domain,
    #[error("invalid pattern: {0}")]
    Pattern(String),
}

/// A rule that could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rule {text:?}: {problem}")]
pub struct RuleError {
    /// The text as configured.
    pub text: String,
    pub behavior: RuleBehavior,
    pub scope: RuleScope,
    pub problem: RuleProblem,
}
