//! Rules in the root configuration that clients publish.
//!
//! Keys that are read: `terminalAutoApproveEnabled`, `terminalAutoApproveRules`,
//! `autoApprovePolicyRestricted`, `editAutoApprovePatterns`, and `permissions` with lists of rules.
//!
//! Invariant: an entry that cannot be read never approves anything; one that could have prevented
//! approvals prevents all of them.

use ahp_types::common::JsonObject;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::path_pattern::PathPattern;
use super::path_subject::{PathSubject, PatternBases};
use super::rule_set::RuleNeed;
use super::{RuleScope, RuleSet};

/// Most entries of a map.
const MAX_ENTRIES: usize = 2_000;
/// Longest key of an entry, in bytes, and the size of a compiled expression.
const MAX_KEY: usize = 2_048;
const MAX_REGEX: usize = 256 * 1_024;
/// Most alternatives of a pattern with braces.
const MAX_ALTERNATIVES: usize = 64;

/// What a client approves in its own format.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientApprovals {
    commands: Vec<CommandEntry>,
    edits: Vec<EditEntry>,
    /// Why a client approves no commands, or no edits.
    are_commands_blocked: bool,
    are_edits_blocked: bool,
}

#[derive(Clone, Debug)]
struct CommandEntry {
    text: String,
    matcher: CommandMatcher,
    approves: bool,
    is_for_line: bool,
}

#[derive(Clone, Debug)]
enum CommandMatcher {
    /// The start of a command, up to a word boundary.
    Start(String),
    Expression(Regex),
}

#[derive(Clone, Debug)]
struct EditEntry {
    text: String,
    patterns: Vec<PathPattern>,
    /// The same patterns in lower case, for entries that prevent an approval.
    lower: Vec<PathPattern>,
    approves: bool,
}

impl RuleSet {
    /// Reads the rules of the root configuration.
    pub fn of_client(root_config: &JsonObject) -> Self {
        let is_set = |key: &str, default: bool| match root_config.get(key) {
            None | Some(Value::Null) => default,
            Some(Value::Bool(value)) => *value,
            // A value that cannot be read restricts.
            Some(_) => !default,
        };
        let is_restricted = is_set("autoApprovePolicyRestricted", false);
        let list = |name: &str| strings(root_config.get("permissions").and_then(|rules| rules.get(name)));
        let allow = if is_restricted { Vec::new() } else { list("allow").0 };
        let (ask, ask_is_valid) = list("ask");
        let (mut deny, deny_is_valid) = list("deny");
        if !ask_is_valid || !deny_is_valid {
            // An invalid rule makes all tools ask.
            deny.push("unreadable permissions of the client".to_owned());
        }
        let (mut rules, _) = Self::compile(RuleScope::Client, None, &allow, &ask, &deny);
        let mut client = ClientApprovals {
            are_commands_blocked: is_restricted || !is_set("terminalAutoApproveEnabled", true),
            are_edits_blocked: is_restricted,
            ..ClientApprovals::default()
        };
        client.read_commands(root_config.get("terminalAutoApproveRules"));
        client.read_edits(root_config.get("editAutoApprovePatterns"));
        rules.client = client;
        rules
    }
}

/// A list of texts, and whether all of it could be read.
fn strings(value: Option<&Value>) -> (Vec<String>, bool) {
    match value {
        None | Some(Value::Null) => (Vec::new(), true),
        Some(Value::Array(values)) => {
            let texts: Vec<String> =
                values.iter().filter_map(Value::as_str).take(MAX_ENTRIES).map(str::to_owned).collect();
            let is_valid = texts.len() == values.len();
            (texts, is_valid)
        }
        Some(_) => (Vec::new(), false),
    }
}

/// The value of an entry.
enum Approval {
    Unset,
    Set { approves: bool, is_for_line: bool },
    Invalid,
}

impl Approval {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Unset,
            Value::Bool(approves) => Self::Set { approves: *approves, is_for_line: false },
            Value::Object(fields) => {
                let is_for_line = match fields.get("matchCommandLine") {
                    None | Some(Value::Null) => false,
                    Some(Value::Bool(value)) => *value,
                    Some(_) => return Self::Invalid,
                };
                match fields.get("approve") {
                    Some(Value::Bool(approves)) => Self::Set { approves: *approves, is_for_line },
                    Some(Value::Null) => Self::Unset,
                    Some(_) | None => Self::Invalid,
                }
            }
            Value::Number(_) | Value::String(_) | Value::Array(_) => Self::Invalid,
        }
    }
}

impl ClientApprovals {
    fn read_commands(&mut self, value: Option<&Value>) {
        let entries = match value {
            None | Some(Value::Null) => return,
            Some(Value::Object(entries)) if entries.len() <= MAX_ENTRIES => entries,
            Some(_) => {
                self.are_commands_blocked = true;
                return;
            }
        };
        for (key, value) in entries {
            let (approves, is_for_line) = match Approval::of(value) {
                Approval::Unset => continue,
                Approval::Set { approves, is_for_line } => (approves, is_for_line),
                Approval::Invalid => {
                    self.are_commands_blocked = true;
                    continue;
                }
            };
            match CommandMatcher::parse(key) {
                Some(matcher) => {
                    let text = key.clone();
                    self.commands.push(CommandEntry { text, matcher, approves, is_for_line });
                }
                None if !approves => self.are_commands_blocked = true,
                None => {}
            }
        }
    }

    fn read_edits(&mut self, value: Option<&Value>) {
        let entries = match value {
            None | Some(Value::Null) => return,
            Some(Value::Object(entries)) if entries.len() <= MAX_ENTRIES => entries,
            Some(_) => {
                self.are_edits_blocked = true;
                return;
            }
        };
        for (key, value) in entries {
            let approves = match value {
                Value::Null => continue,
                Value::Bool(approves) => *approves,
                Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    self.are_edits_blocked = true;
                    continue;
                }
            };
            let parse = |ignore_case| edit_patterns(key, ignore_case);
            match (parse(false), parse(true)) {
                (Some(patterns), Some(lower)) => {
                    self.edits.push(EditEntry { text: key.clone(), patterns, lower, approves });
                }
                _ if !approves => self.are_edits_blocked = true,
                _ => {}
            }
        }
    }

    /// The entry that approves a command of a line, if no other entry prevents it. `texts` are the forms of
    /// the command; an entry that approves must match all of them.
    pub(super) fn approves_command(&self, texts: &[&str], line: &str) -> Option<&str> {
        if self.are_commands_blocked {
            return None;
        }
        let mut approved = None;
        for entry in &self.commands {
            let mut forms = texts.iter().copied();
            let matches = |text: &str| entry.matcher.matches(text);
            match (entry.approves, entry.is_for_line) {
                (false, false) if forms.any(matches) => return None,
                (false, true) if matches(line.trim()) => return None,
                (true, false) if forms.all(matches) => approved = approved.or(Some(entry.text.as_str())),
                (true, true) if matches(line.trim()) => approved = approved.or(Some(entry.text.as_str())),
                (true | false, _) => {}
            }
        }
        approved
    }

    /// The entry that approves a write, if no other entry prevents it. A protected path needs an entry
    /// that names it.
    pub(super) fn approves_edit(
        &self,
        subject: &PathSubject<'_>,
        bases: &PatternBases,
        need: RuleNeed<'_>,
    ) -> Option<&str> {
        if self.are_edits_blocked || !subject.is_inside() {
            return None;
        }
        let mut approved = None;
        for entry in &self.edits {
            if !entry.approves {
                if entry.lower.iter().any(|pattern| subject.is_restricted_by(pattern, bases)) {
                    return None;
                }
                continue;
            }
            // VS Code approves everything by default, which is not a decision of the user.
            if matches!(entry.text.as_str(), "**/*" | "**" | "*") {
                continue;
            }
            let allows = |pattern: &PathPattern| {
                need.is_met_by(Some(pattern)) && subject.is_allowed_by(pattern, bases)
            };
            if entry.patterns.iter().any(allows) {
                approved = approved.or(Some(entry.text.as_str()));
            }
        }
        approved
    }
}

impl CommandMatcher {
    /// Reads a key: a command, or an expression between slashes with flags. `None` if it is not valid.
    fn parse(key: &str) -> Option<Self> {
        if key.len() > MAX_KEY || key.trim().is_empty() {
            return None;
        }
        let expression = key.strip_prefix('/').and_then(|rest| rest.rsplit_once('/'));
        let Some((expression, flags)) =
            expression.filter(|(_, flags)| flags.chars().all(|flag| flag.is_ascii_lowercase()))
        else {
            return Some(Self::Start(key.trim().to_owned()));
        };
        if expression.is_empty()
            || !flags.chars().all(|flag| matches!(flag, 'd' | 'g' | 'i' | 'm' | 's' | 'u' | 'y'))
        {
            return None;
        }
        RegexBuilder::new(expression)
            .case_insensitive(flags.contains('i'))
            .multi_line(flags.contains('m'))
            .dot_matches_new_line(flags.contains('s'))
            .size_limit(MAX_REGEX)
            .dfa_size_limit(MAX_REGEX)
            .build()
            .ok()
            .map(Self::Expression)
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Start(start) => text.strip_prefix(start.as_str()).is_some_and(|rest| {
                rest.chars().next().is_none_or(|next| !next.is_alphanumeric() && !matches!(next, '_' | '-'))
            }),
            Self::Expression(expression) => expression.is_match(text),
        }
    }
}

/// Reads a pattern for edits with alternatives in braces. Relative patterns start at a root.
fn edit_patterns(key: &str, ignore_case: bool) -> Option<Vec<PathPattern>> {
    if key.len() > MAX_KEY {
        return None;
    }
    let mut open = vec![key.to_owned()];
    let mut patterns = Vec::new();
    while let Some(key) = open.pop() {
        if open.len() + patterns.len() > MAX_ALTERNATIVES {
            return None;
        }
        // The last opening brace does not contain another one.
        if let Some((before, rest)) = key.rsplit_once('{') {
            let (choices, after) = rest.split_once('}')?;
            open.extend(choices.split(',').map(|choice| format!("{before}{choice}{after}")));
            continue;
        }
        patterns.push(PathPattern::parse(&key, ignore_case).ok().filter(|_| !key.trim().is_empty())?);
    }
    Some(patterns)
}
