//! Collects the commands and paths of a line while it is read.

use super::operands::{self, Operand};
use super::variables::{is_harmless_for_command, is_harmless_in_shell};
use super::word::ShellWord;
use super::wrappers::{self, Unwrapped};
use super::{PathAccess, ShellLine, ShellPath, SubCommand, find, syntax};

/// Most commands and paths of a line; a longer line is not understood.
const MAX_COMMANDS: usize = 256;
const MAX_PATHS: usize = 512;
/// Most directories in which a command of the line may run.
const MAX_DIRECTORIES: usize = 8;
/// Deepest nesting of commands in arguments, such as `bash -c "bash -c …"`.
pub(super) const MAX_NESTING: usize = 8;

/// Devices that do not store what is written to them.
const SINKS: [&str; 4] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];

/// Builtins that change how later words are read, or what a name runs.
const REDEFINING: [&str; 9] =
    ["alias", "bind", "complete", "coproc", "enable", "hash", "pushd", "popd", "shopt"];

/// Reserved words, which are a command's name only if the parser misread the line.
const RESERVED: [&str; 20] = [
    "!", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "until", "while", "{", "}",
];

#[derive(Debug)]
pub(super) struct LineBuilder {
    commands: Vec<SubCommand>,
    paths: Vec<ShellPath>,
    not_understood: Option<&'static str>,
    not_by_rule: Option<&'static str>,
    /// The directories in which the next command may run, relative to the line's; `None` if unknown.
    /// A `cd` may fail or not be reached, so the earlier directories stay possible.
    directories: Option<Vec<String>>,
    /// Loops and functions around the next command.
    pub(super) repeats: usize,
}

impl Default for LineBuilder {
    fn default() -> Self {
        Self {
            commands: Vec::new(),
            paths: Vec::new(),
            not_understood: None,
            not_by_rule: None,
            directories: Some(vec![String::new()]),
            repeats: 0,
        }
    }
}

impl LineBuilder {
    /// Records that the line may run commands that are not known. The first reason is kept.
    pub(super) fn not_understood(&mut self, reason: &'static str) {
        self.not_understood.get_or_insert(reason);
    }

    /// Records that a rule for the line's commands does not cover all that the line does.
    pub(super) fn not_by_rule(&mut self, reason: &'static str) {
        self.not_by_rule.get_or_insert(reason);
    }

    pub(super) fn finish(self, text: &str) -> ShellLine {
        ShellLine {
            text: text.to_owned(),
            commands: self.commands,
            paths: self.paths,
            not_understood: self.not_understood,
            not_by_rule: self.not_by_rule,
        }
    }

    /// Adds a command, and the commands that it runs.
    pub(super) fn command(&mut self, command: SubCommand, depth: usize) {
        if self.commands.len() >= MAX_COMMANDS || depth > MAX_NESTING {
            return self.not_understood("it has too many commands");
        }
        let index = self.commands.len();
        self.commands.push(command.clone());
        let Some(name) = command.name() else {
            return self.not_understood("the name of a command is only known when the line runs");
        };
        // A path to a program is a command with that program's behaviour.
        let base = name.rsplit('/').next().unwrap_or(name);
        if name.is_empty() || RESERVED.contains(&name) {
            return self.not_understood("its syntax is not supported");
        }
        if REDEFINING.contains(&base) {
            return self.not_understood("it can change the meaning of the commands that follow");
        }
        if name == "cd" {
            return self.change_directory(index, &command);
        }
        self.check_builtin(base, &command.words);
        self.unwrap(index, base, &command, depth);
        self.operands(index, base, &command);
    }

    fn unwrap(&mut self, index: usize, base: &str, command: &SubCommand, depth: usize) {
        let unwrapped = match base {
            "find" => find::unwrap(self, index, &command.words),
            "git" => self.git(index, &command.words),
            _ => wrappers::unwrap(self, base, &command.words),
        };
        let inner = |words| SubCommand { words, wrapper: Some(index), ..SubCommand::default() };
        match unwrapped {
            Unwrapped::Plain => {}
            Unwrapped::Unknown(reason) => self.not_understood(reason),
            Unwrapped::Commands { commands, has_more, is_transparent } => {
                self.set_transparent(index, is_transparent);
                for words in commands {
                    self.command(
                        SubCommand { has_more: has_more || command.has_more, ..inner(words) },
                        depth + 1,
                    );
                }
            }
            Unwrapped::Script { text, is_transparent } => {
                self.set_transparent(index, is_transparent);
                let first = self.commands.len();
                syntax::read_script(&text, depth + 1, self);
                for command in self.commands.iter_mut().skip(first) {
                    command.wrapper.get_or_insert(index);
                }
            }
        }
    }

    /// A program in a directory can have any behaviour, whatever its name is.
    fn set_transparent(&mut self, index: usize, is_transparent: bool) {
        if let Some(command) = self.commands.get_mut(index) {
            let is_from_path = command.name().is_some_and(|name| !name.contains('/'));
            command.is_transparent = is_transparent && is_from_path;
        }
    }

    /// Finds the sub-command of `git` after its global options.
    fn git(&mut self, index: usize, words: &[ShellWord]) -> Unwrapped {
        const WITH_VALUE: [&str; 6] = ["-C", "-c", "--exec-path", "--git-dir", "--work-tree", "--config-env"];
        let mut rest = words.iter().skip(1);
        let mut skipped = 0;
        let mut script = None;
        let mut takes_value = "";
        for word in rest.by_ref() {
            let text = word.literal().unwrap_or_default();
            if !takes_value.is_empty() {
                if takes_value == "-c" {
                    script = text.split_once("=!").map(|(_, script)| script.to_owned()).or(script);
                }
                takes_value = "";
            } else if !text.starts_with('-') {
                break;
            } else {
                if text.starts_with("-c")
                    || text.starts_with("--config-env")
                    || text.starts_with("--exec-path=")
                {
                    self.not_by_rule("an option of git can run other programs");
                }
                takes_value = WITH_VALUE.into_iter().find(|option| *option == text).unwrap_or_default();
            }
            skipped += 1;
        }
        if skipped > 0 {
            let without =
                words.iter().take(1).chain(words.iter().skip(1 + skipped)).cloned().collect::<Vec<_>>();
            if let Some(command) = self.commands.get_mut(index) {
                command.without_globals = Some(without);
            }
        }
        match script {
            Some(text) => Unwrapped::Script { text, is_transparent: false },
            None => Unwrapped::Plain,
        }
    }

    /// Checks builtins that set variables by name. An index in a name is evaluated, so that
    /// `printf -v 'a[$(command)]'` runs a command.
    fn check_builtin(&mut self, name: &str, words: &[ShellWord]) {
        let arguments = || words.iter().skip(1);
        let has_option = |option: &str| arguments().any(|word| word.may_be(option));
        let sets_variables = match name {
            "read" | "mapfile" | "readarray" | "getopts" | "let" | "unset" | "export" | "declare"
            | "typeset" | "local" | "readonly" => true,
            "printf" => arguments().any(|word| word.text.starts_with("-v") || word.may_be("-v")),
            "test" | "[" => has_option("-v") || has_option("-R"),
            "wait" => has_option("-p"),
            _ => false,
        };
        let is_safe = |word: &ShellWord| {
            let text = word.literal().unwrap_or("?");
            let (text, value) = text.split_once('=').unwrap_or((text, ""));
            let is_option = text.starts_with('-') && !text.contains(['[', '$', '`']);
            (is_option || is_harmless_in_shell(text)) && !value.contains(['[', '$', '`'])
        };
        if sets_variables && !arguments().all(is_safe) {
            self.not_by_rule("it sets a variable that can change what other commands do");
        }
    }

    /// Adds an assignment for one command.
    pub(super) fn assignment_for_command(&mut self, name: &str) {
        if !is_harmless_for_command(name) {
            self.not_by_rule("it sets an environment variable for a command");
        }
    }

    /// Adds an assignment for the following commands.
    pub(super) fn assignment(&mut self, name: &str) {
        if !is_harmless_in_shell(name) {
            self.not_by_rule("it sets a variable that can change what other commands do");
        }
    }

    /// Adds the target of a redirection.
    pub(super) fn redirection(&mut self, target: &ShellWord, access: PathAccess) {
        match target.path() {
            Some(path) if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => {
                self.not_by_rule("it opens a network connection");
            }
            Some(path) if SINKS.contains(&path.as_str()) || path.starts_with("/dev/fd/") => {}
            Some(path) => {
                self.path(&path, access, None, false);
            }
            None if access == PathAccess::Write => self.unknown_write(),
            None => {}
        }
    }

    fn operands(&mut self, index: usize, base: &str, command: &SubCommand) {
        let found = operands::of_command(base, &command.words);
        if command.has_more && found.writes {
            self.unknown_write();
        }
        for Operand { path, access, is_tree } in found.operands {
            match path {
                Some(path) if SINKS.contains(&path.as_str()) => {}
                Some(path) => {
                    self.path(&path, access, Some(index), is_tree);
                }
                None if access == PathAccess::Write => self.unknown_write(),
                None => {}
            }
        }
    }

    pub(super) fn unknown_write(&mut self) {
        self.not_by_rule("it writes to a path that is only known when the line runs");
    }

    /// Adds a path in each possible directory. Returns the indexes.
    pub(super) fn path(
        &mut self,
        path: &str,
        access: PathAccess,
        command: Option<usize>,
        is_tree: bool,
    ) -> Vec<usize> {
        let is_absolute = path.starts_with('/') || path == "~" || path.starts_with("~/");
        let texts = match &self.directories {
            _ if is_absolute => vec![path.to_owned()],
            Some(directories) => directories.iter().map(|directory| join(directory, path)).collect(),
            None => {
                if access == PathAccess::Write {
                    self.unknown_write();
                }
                Vec::new()
            }
        };
        let first = self.paths.len();
        if first + texts.len() > MAX_PATHS {
            self.not_understood("it has too many paths");
            return Vec::new();
        }
        self.paths.extend(texts.into_iter().map(|text| ShellPath { text, access, command, is_tree }));
        (first..self.paths.len()).collect()
    }

    fn change_directory(&mut self, index: usize, command: &SubCommand) {
        if self.repeats > 0 {
            self.not_by_rule("it changes the directory in a loop or function");
        }
        let target = match command.words.get(1..) {
            Some([target]) if !target.text.starts_with('-') => target.path().filter(|path| !path.is_empty()),
            Some(_) | None => None,
        };
        let Some(target) = target.filter(|_| !command.has_more) else {
            self.directories = None;
            return;
        };
        let entered = self.path(&target, PathAccess::Read, Some(index), false);
        let texts: Vec<String> =
            entered.iter().filter_map(|index| self.paths.get(*index)).map(|path| path.text.clone()).collect();
        if let Some(command) = self.commands.get_mut(index) {
            command.enters = entered;
        }
        if let Some(directories) = &mut self.directories {
            directories.extend(texts);
            directories.dedup();
            if directories.len() > MAX_DIRECTORIES {
                self.directories = None;
            }
        }
    }
}

/// A path relative to a directory; both as in the line.
fn join(directory: &str, path: &str) -> String {
    if directory.is_empty() {
        return path.to_owned();
    }
    format!("{}/{path}", directory.trim_end_matches('/'))
}
