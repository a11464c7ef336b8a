//! The compiled rules of one scope.
//!
//! Invariant: a rule that restricts and cannot be compiled makes its tool ask, or all tools if the
//! tool is not known. It never has no effect.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::client_rules::ClientApprovals;
use super::command_pattern::{CommandForms, CommandPattern, PatternMatch};
use super::path_pattern::{PathPattern, PatternBase};
use super::path_subject::{PathSubject, PatternBases};
use super::protected::Protection;
use super::shell::PathAccess;
use super::{PermissionRule, PolicyContext, RuleBehavior, RuleError, RuleProblem, RuleScope};

/// The compiled rules of one scope.
#[derive(Clone, Debug)]
pub struct RuleSet {
    scope: RuleScope,
    base: Option<PathBuf>,
    allow: RuleGroup,
    ask: RuleGroup,
    deny: RuleGroup,
    /// What a client approves in its own format.
    pub(super) client: ClientApprovals,
}

/// The rules with one behaviour, by the kind of access that they match.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleGroup {
    /// The text of a rule that matches every tool.
    everything: Option<String>,
    /// Rules for tools of which only the name is compared.
    tools: HashMap<String, String>,
    shell: Vec<ShellRule>,
    paths: Vec<PathRule>,
    fetch: Vec<FetchRule>,
    mcp: Vec<McpRule>,
}

#[derive(Clone, Debug)]
struct ShellRule {
    text: String,
    /// `None` matches every command.
    pattern: Option<CommandPattern>,
}

#[derive(Clone, Debug)]
struct PathRule {
    text: String,
    access: PathAccess,
    /// The only tool that the rule matches; `None` for all with this access.
    tool: Option<String>,
    /// `None` matches every path.
    pattern: Option<PathPattern>,
}

#[derive(Clone, Debug)]
struct FetchRule {
    text: String,
    /// `None` matches every address.
    domain: Option<String>,
}

#[derive(Clone, Debug)]
struct McpRule {
    text: String,
    /// The name of a server or a tool, or its start.
    name: String,
    is_start: bool,
}

impl RuleSet {
    /// Compiles rules. `base` is the directory of relative path patterns; without one, they are relative
    /// to each root.
    pub fn compile(
        scope: RuleScope,
        base: Option<&Path>,
        allow: &[String],
        ask: &[String],
        deny: &[String],
    ) -> (Self, Vec<RuleError>) {
        let mut rules = Self { base: base.map(Path::to_owned), ..Self::empty(scope) };
        let mut errors = Vec::new();
        let texts = [(RuleBehavior::Allow, allow), (RuleBehavior::Ask, ask), (RuleBehavior::Deny, deny)];
        for (behavior, text) in
            texts.iter().flat_map(|(behavior, texts)| texts.iter().map(|text| (*behavior, text)))
        {
            if let Err(problem) = rules.add(behavior, text) {
                if behavior != RuleBehavior::Allow {
                    rules.ask.add_fallback(text);
                }
                errors.push(RuleError { text: text.clone(), behavior, scope, problem });
            }
        }
        (rules, errors)
    }

    /// A set without rules.
    pub fn empty(scope: RuleScope) -> Self {
        Self {
            scope,
            base: None,
            allow: RuleGroup::default(),
            ask: RuleGroup::default(),
            deny: RuleGroup::default(),
            client: ClientApprovals::default(),
        }
    }

    /// The scope of all rules in the set.
    pub fn scope(&self) -> RuleScope {
        self.scope
    }

    /// The directories of the set's relative patterns.
    pub(super) fn bases(&self, context: &PolicyContext<'_>) -> PatternBases {
        PatternBases::new(self.base.as_ref(), context)
    }

    pub(super) fn group(&self, behavior: RuleBehavior) -> &RuleGroup {
        match behavior {
            RuleBehavior::Allow => &self.allow,
            RuleBehavior::Ask => &self.ask,
            RuleBehavior::Deny => &self.deny,
        }
    }

    fn add(&mut self, behavior: RuleBehavior, text: &str) -> Result<(), RuleProblem> {
        let rule: PermissionRule = text.parse()?;
        let group = match behavior {
            RuleBehavior::Allow => &mut self.allow,
            RuleBehavior::Ask => &mut self.ask,
            RuleBehavior::Deny => &mut self.deny,
        };
        group.add(&rule, behavior != RuleBehavior::Allow)
    }
}

impl RuleGroup {
    fn add(&mut self, rule: &PermissionRule, restricts: bool) -> Result<(), RuleProblem> {
        let text = rule.to_string();
        let access = match rule.tool() {
            "Bash" => {
                let pattern = rule.specifier().and_then(CommandPattern::parse);
                self.shell.push(ShellRule { text, pattern });
                return Ok(());
            }
            "WebFetch" => return self.add_fetch(rule),
            tool if tool.starts_with("mcp__") => return self.add_mcp(rule),
            "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => PathAccess::Write,
            "Read" | "Glob" | "Grep" | "LS" | "NotebookRead" => PathAccess::Read,
            tool if rule.specifier().is_none() => {
                self.tools.insert(tool.to_owned(), text);
                return Ok(());
            }
            _ => return Err(RuleProblem::UnexpectedSpecifier),
        };
        let tool = (!matches!(rule.tool(), "Edit" | "Read")).then(|| rule.tool().to_owned());
        let pattern = rule.specifier().map(|pattern| PathPattern::parse(pattern, restricts)).transpose()?;
        self.paths.push(PathRule { text, access, tool, pattern });
        Ok(())
    }

    fn add_fetch(&mut self, rule: &PermissionRule) -> Result<(), RuleProblem> {
        let domain = match rule.specifier() {
            None | Some("*") => None,
            Some(specifier) => {
                let domain = specifier.strip_prefix("domain:").ok_or(RuleProblem::Domain)?.trim();
                let domain = domain.strip_prefix("*.").unwrap_or(domain).trim_end_matches('.');
                let is_valid = !domain.is_empty() && !domain.contains(['*', '/', ' ', ':', '?']);
                Some(is_valid.then(|| domain.to_lowercase()).ok_or(RuleProblem::Domain)?)
            }
        };
        self.fetch.push(FetchRule { text: rule.to_string(), domain });
        Ok(())
    }

    fn add_mcp(&mut self, rule: &PermissionRule) -> Result<(), RuleProblem> {
        if rule.specifier().is_some() {
            return Err(RuleProblem::UnexpectedSpecifier);
        }
        let (name, is_start) = match rule.tool().strip_suffix('*') {
            Some(start) => (start, true),
            None => (rule.tool(), false),
        };
        self.mcp.push(McpRule { text: rule.to_string(), name: mcp_name(name), is_start });
        Ok(())
    }

    /// Adds a rule for everything that an invalid rule could have meant.
    fn add_fallback(&mut self, text: &str) {
        let tool = text.split('(').next().unwrap_or_default().trim();
        let whole = tool.parse::<PermissionRule>().ok().filter(|rule| rule.specifier().is_none());
        let is_added = whole.is_some_and(|rule| self.add(&rule, true).is_ok());
        if !is_added {
            self.everything.get_or_insert_with(|| text.to_owned());
        }
    }

    /// The rule that matches every tool, except for tools without effect.
    pub(super) fn everything(&self) -> Option<&str> {
        self.everything.as_deref()
    }

    /// The rule for a tool by name alone.
    pub(super) fn tool(&self, tool: &str) -> Option<&str> {
        self.tools.get(tool).map(String::as_str)
    }

    /// The rule that restricts a path, if any.
    pub(super) fn restricting_path(
        &self,
        tool: &str,
        access: PathAccess,
        subject: &PathSubject<'_>,
        bases: &PatternBases,
    ) -> Option<&str> {
        self.path_rules(tool, access)
            .find(|rule| rule.pattern.as_ref().is_none_or(|pattern| subject.is_restricted_by(pattern, bases)))
            .map(|rule| rule.text.as_str())
    }

    /// The rule that allows a path, if any.
    pub(super) fn allowing_path(
        &self,
        tool: &str,
        access: PathAccess,
        subject: &PathSubject<'_>,
        bases: &PatternBases,
        need: RuleNeed<'_>,
    ) -> Option<&str> {
        self.path_rules(tool, access)
            .find(|rule| {
                let pattern = rule.pattern.as_ref();
                let matches = pattern.is_none_or(|pattern| subject.is_allowed_by(pattern, bases));
                matches && need.is_met_by(pattern)
            })
            .map(|rule| rule.text.as_str())
    }

    fn path_rules(&self, tool: &str, access: PathAccess) -> impl Iterator<Item = &PathRule> {
        self.paths.iter().filter(move |rule| {
            rule.access == access && rule.tool.as_ref().is_none_or(|wanted| wanted == tool)
        })
    }

    /// The rule that restricts a shell command.
    pub(super) fn restricting_command(&self, command: &CommandForms) -> Option<(&str, PatternMatch)> {
        let mut best: Option<(&str, PatternMatch)> = None;
        for rule in &self.shell {
            let found = rule.pattern.as_ref().map_or(PatternMatch::Yes, |pattern| pattern.restricts(command));
            if found == PatternMatch::Yes {
                return Some((&rule.text, found));
            }
            if found == PatternMatch::Maybe {
                best.get_or_insert((&rule.text, found));
            }
        }
        best
    }

    /// The rule that restricts a whole shell line, whatever its commands are.
    pub(super) fn restricting_line(&self, line: &[char]) -> Option<&str> {
        self.shell
            .iter()
            .find(|rule| rule.pattern.as_ref().is_none_or(|pattern| pattern.restricts_line(line)))
            .map(|rule| rule.text.as_str())
    }

    /// The rule that allows a shell command, and whether it names the command with all its arguments.
    pub(super) fn allowing_command(&self, command: &CommandForms) -> Option<(&str, bool)> {
        self.shell
            .iter()
            .find(|rule| rule.pattern.as_ref().is_none_or(|pattern| pattern.allows(command)))
            .map(|rule| (rule.text.as_str(), rule.pattern.as_ref().is_some_and(CommandPattern::is_exact)))
    }

    /// Whether a rule matches some shell commands, but not all.
    pub(super) fn has_command_patterns(&self) -> bool {
        self.shell.iter().any(|rule| rule.pattern.is_some())
    }

    /// The rule that matches an address.
    pub(super) fn fetch(&self, host: Option<&str>) -> Option<&str> {
        let matches = |rule: &&FetchRule| match (&rule.domain, host) {
            (None, _) => true,
            (Some(domain), Some(host)) => {
                host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Some(_), None) => false,
        };
        self.fetch.iter().find(matches).map(|rule| rule.text.as_str())
    }

    /// The rule that matches a tool of an MCP server.
    pub(super) fn mcp(&self, server: &str, tool: &str) -> Option<&str> {
        let server = format!("mcp__{}", mcp_name(server));
        let tools = format!("{server}__");
        let tool = format!("{tools}{}", mcp_name(tool));
        let matches = |rule: &&McpRule| match rule.is_start {
            true => rule.name.starts_with(&tools) && tool.starts_with(&rule.name),
            false => rule.name == server || rule.name == tool,
        };
        self.mcp.iter().find(matches).map(|rule| rule.text.as_str())
    }

    /// The rule that restricts a tool whose access is not known.
    pub(super) fn restricting_unknown(&self, tool: &str) -> Option<(&str, PatternMatch)> {
        let of_pattern = |is_bare: bool| if is_bare { PatternMatch::Yes } else { PatternMatch::Maybe };
        let shell = self.shell.iter().filter(|_| tool == "Bash");
        let fetch = self.fetch.iter().filter(|_| tool == "WebFetch");
        let writes = matches!(tool, "Edit" | "Write" | "MultiEdit" | "NotebookEdit");
        let reads = matches!(tool, "Read" | "Glob" | "Grep" | "LS" | "NotebookRead");
        let paths = self
            .path_rules(tool, PathAccess::Write)
            .filter(|_| writes)
            .chain(self.path_rules(tool, PathAccess::Read).filter(|_| reads));
        let mcp = self.mcp.iter().filter(|rule| {
            let tools = format!("{}__", rule.name);
            tool == rule.name || tool.starts_with(if rule.is_start { &rule.name } else { &tools })
        });
        shell
            .map(|rule| (rule.text.as_str(), of_pattern(rule.pattern.is_none())))
            .chain(fetch.map(|rule| (rule.text.as_str(), of_pattern(rule.domain.is_none()))))
            .chain(paths.map(|rule| (rule.text.as_str(), of_pattern(rule.pattern.is_none()))))
            .chain(mcp.map(|rule| (rule.text.as_str(), PatternMatch::Yes)))
            .max_by_key(|(_, found)| *found)
    }

    /// Whether a rule matches some addresses, but not all.
    pub(super) fn first_domain(&self) -> Option<&str> {
        self.fetch.iter().find(|rule| rule.domain.is_some()).map(|rule| rule.text.as_str())
    }
}

/// What an allow rule must have to match a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RuleNeed<'a> {
    /// The path is protected: the pattern must name what makes it so, and not only match it.
    pub(super) protection: Option<&'a Protection>,
    /// The path is outside of the roots: the pattern must not be relative to a root.
    pub(super) is_absolute: bool,
}

impl RuleNeed<'_> {
    /// Whether a pattern is explicit enough; `None` stands for a rule without a pattern.
    pub(super) fn is_met_by(&self, pattern: Option<&PathPattern>) -> bool {
        let Some(pattern) = pattern else { return self.protection.is_none() && !self.is_absolute };
        let is_absolute = matches!(pattern.base(), PatternBase::FileSystem | PatternBase::Home);
        let names_protected = self.protection.is_none_or(|protection| match &protection.name {
            Some(name) => pattern.names(name),
            None => !pattern.is_broad(),
        });
        (is_absolute || !self.is_absolute) && names_protected
    }
}

/// A name as agents write it in the name of an MCP tool.
pub(super) fn mcp_name(name: &str) -> String {
    let is_kept = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    name.chars().map(|letter| if is_kept(letter) { letter } else { '_' }).collect()
}
