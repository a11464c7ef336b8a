//! The decision about a shell line.

use super::command_pattern::PatternMatch;
use super::decide::{Judge, WriteVerdict, allowed_by, ask, decision};
use super::path_subject::PatternBases;
use super::rule_set::RuleGroup;
use super::shell::{PathAccess, ShellLine, ShellWord, SubCommand};
use super::{PolicyDecision, PolicyLayer, PolicyVerdict, RuleBehavior, RuleScope, suggest};

/// Most rules that a decision suggests. The user accepts them together.
const MAX_SUGGESTIONS: usize = 3;

/// A rule that allows a command.
struct Allowing {
    scope: RuleScope,
    rule: String,
    /// Whether the rule names the command with all its arguments, and so the commands that it runs.
    is_exact: bool,
}

/// Commands that only read, whatever their arguments are.
const READING_COMMANDS: [&str; 27] = [
    "basename", "cat", "cd", "cmp", "cut", "df", "diff", "dirname", "du", "echo", "grep", "head", "id", "ls",
    "printf", "pwd", "readlink", "realpath", "stat", "tail", "test", "tr", "true", "uname", "wc", "which",
    "whoami",
];

/// Sub-commands of Git that only read.
const READING_GIT_COMMANDS: [&str; 8] =
    ["blame", "diff", "log", "ls-files", "rev-parse", "show", "shortlog", "status"];

impl Judge<'_> {
    /// Whether a line certainly changes nothing.
    pub(super) fn shell_only_reads(&self, line: &ShellLine) -> bool {
        let only_reads = |command: &SubCommand| match command.name() {
            Some("git") => {
                let second = command.words.get(1).and_then(ShellWord::literal);
                let writes = command.words.iter().any(|word| {
                    word.literal().is_none_or(|word| word.starts_with("-c") || word.starts_with("--output"))
                });
                !writes && second.is_some_and(|second| READING_GIT_COMMANDS.contains(&second))
            }
            Some(name) => READING_COMMANDS.contains(&name),
            None => false,
        };
        line.is_understood()
            && line.not_by_rule.is_none()
            && self.paths.iter().all(|path| path.access == PathAccess::Read)
            && line.commands.iter().all(only_reads)
    }

    /// The rule of a group that restricts a command or a path of the line.
    pub(super) fn shell_restricted_by<'r>(
        &self,
        group: &'r RuleGroup,
        bases: &PatternBases,
    ) -> Option<(&'r str, PatternMatch)> {
        if let Some(rule) = group.restricting_line(&self.line_text) {
            return Some((rule, PatternMatch::Yes));
        }
        let of_commands = self
            .commands
            .iter()
            .filter_map(|command| group.restricting_command(command))
            .max_by_key(|(_, found)| *found);
        if of_commands.is_some_and(|(_, found)| found == PatternMatch::Yes) {
            return of_commands;
        }
        let of_paths = self.paths.iter().find_map(|path| {
            let tool = match path.access {
                PathAccess::Read => "Read",
                PathAccess::Write => "Write",
            };
            group.restricting_path(tool, path.access, &path.subject, bases)
        });
        of_paths.map(|rule| (rule, PatternMatch::Yes)).or(of_commands)
    }

    /// Decides about a line that no rule restricts.
    pub(super) fn shell(&self, line: &ShellLine) -> PolicyDecision {
        if let Some(reason) = line.not_understood {
            let reason = format!("The command line is not understood: {reason}.");
            return decision(PolicyVerdict::Ask, PolicyLayer::NotUnderstood, reason);
        }
        if let Some(reason) = line.not_by_rule {
            let reason = format!("Rules cannot allow this command line, because {reason}.");
            return decision(PolicyVerdict::Ask, PolicyLayer::NotUnderstood, reason);
        }
        // A caller that did not resolve all paths gets no permission.
        if line.commands.is_empty() || self.paths.len() != line.paths().len() {
            return ask("Running a shell command needs a permission.", Vec::new());
        }
        let mut used: Vec<Allowing> = Vec::new();
        let mut missing: Vec<usize> = Vec::new();
        let mut is_exact = vec![false; line.commands.len()];
        for (index, command) in line.commands.iter().enumerate() {
            let covered = command.wrapper.and_then(|wrapper| is_exact.get(wrapper).copied()).unwrap_or(false);
            let allowing = self.allowing_command(index, line);
            let names_all = covered || allowing.as_ref().is_some_and(|allowing| allowing.is_exact);
            if let Some(place) = is_exact.get_mut(index) {
                *place = names_all;
            }
            match allowing {
                Some(allowing) => used.push(allowing),
                None if covered || command.is_transparent || self.is_free_cd(command) => {}
                None => missing.push(index),
            }
        }
        self.shell_writes(line, &used, &missing)
    }

    /// Checks the paths that an otherwise allowed line writes.
    fn shell_writes(&self, line: &ShellLine, used: &[Allowing], missing: &[usize]) -> PolicyDecision {
        let mut suggestions = self.command_suggestions(line, missing);
        let mut asked = None;
        for path in self.paths.iter().filter(|path| path.access == PathAccess::Write) {
            let WriteVerdict::Ask { layer, reason } = self.write_verdict("Write", &path.subject) else {
                continue;
            };
            // A rule for a command includes its operands inside of the roots.
            if path.command.is_some() && layer == PolicyLayer::WorkspaceWrite {
                continue;
            }
            let is_protected = layer == PolicyLayer::ProtectedPath;
            if asked.is_none() || is_protected {
                asked = Some((layer, reason));
            }
            let rule = suggest::for_write(&path.subject, is_protected, self.context).pop();
            match (&mut suggestions, rule) {
                (Some(suggestions), Some(rule)) if suggestions.contains(&rule) => {}
                (Some(suggestions), Some(rule)) => suggestions.push(rule),
                (suggestions, _) => *suggestions = None,
            }
        }
        let would_allow = suggestions.filter(|rules| rules.len() <= MAX_SUGGESTIONS).unwrap_or_default();
        if let Some((layer, reason)) = asked {
            return PolicyDecision {
                would_allow,
                overrides_agent: layer == PolicyLayer::ProtectedPath,
                ..decision(PolicyVerdict::Ask, layer, reason)
            };
        }
        if !missing.is_empty() {
            return ask("Running a shell command needs a permission.", would_allow);
        }
        let Some(first) = used.first() else {
            let reason = "Changing to one of the session's directories is allowed.".to_owned();
            return decision(PolicyVerdict::Allow, PolicyLayer::WorkspaceRead, reason);
        };
        let mut rules: Vec<&str> = used.iter().map(|allowing| allowing.rule.as_str()).collect();
        rules.dedup();
        allowed_by(first.scope, rules.join(", "))
    }

    /// The narrowest rule that allows a command, or the entry of a client.
    fn allowing_command(&self, index: usize, line: &ShellLine) -> Option<Allowing> {
        let forms = self.commands.get(index)?;
        let source = || {
            let words = line.commands.get(index).map(|command| command.words.as_slice()).unwrap_or_default();
            words.iter().map(|word| word.source.as_str()).collect::<Vec<_>>().join(" ")
        };
        self.sets.iter().find_map(|(set, _)| {
            let scope = set.scope();
            if let Some((rule, is_exact)) = set.group(RuleBehavior::Allow).allowing_command(forms) {
                return Some(Allowing { scope, rule: rule.to_owned(), is_exact });
            }
            let entry = set.client.approves_command(&[&forms.display, &source()], line.text())?;
            Some(Allowing { scope, rule: entry.to_owned(), is_exact: false })
        })
    }

    /// Whether a command only changes to a directory inside of the roots.
    fn is_free_cd(&self, command: &SubCommand) -> bool {
        let is_inside = |index: &usize| self.paths.get(*index).is_some_and(|path| path.subject.is_inside());
        !command.enters.is_empty() && command.enters.iter().all(is_inside)
    }

    /// The rules that would allow the commands; `None` if rules cannot.
    fn command_suggestions(&self, line: &ShellLine, missing: &[usize]) -> Option<Vec<String>> {
        let mut rules = Vec::new();
        let mut exact: Vec<usize> = Vec::new();
        for index in missing {
            let command = line.commands.get(*index)?;
            if command.wrapper.is_some_and(|wrapper| exact.contains(&wrapper)) {
                exact.push(*index);
                continue;
            }
            let rule = suggest::for_command(command)?;
            if !rule.ends_with(":*)") {
                exact.push(*index);
            }
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        Some(rules)
    }
}
