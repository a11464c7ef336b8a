//! Shell command lines: the commands that a line runs and the paths that it accesses.
//!
//! Owns the parsing of bash. Does not know rules, roots or modes.
//!
//! Invariant: a line is understood only if the parser accepts it and `audit` has checked every byte of
//! it. The parser repairs invalid input and is tolerant in places where bash is not; without the second
//! check a command could be hidden in text that the parser skips.

mod audit;
mod builder;
mod find;
mod operands;
mod syntax;
mod variables;
mod word;
mod wrappers;

pub(super) use word::{ShellWord, Splitting, UNKNOWN, matches_wildcards};

use builder::LineBuilder;

/// Longest line that is parsed, in bytes.
const MAX_LENGTH: usize = 64 * 1_024;

/// How a command accesses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathAccess {
    Read,
    Write,
}

/// A path in a shell line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellPath {
    /// The path as in the line, without quotes; relative to the directory in which the line runs.
    pub text: String,
    pub access: PathAccess,
    /// The command whose operand it is; `None` for the target of a redirection.
    pub(super) command: Option<usize>,
    /// Whether the access includes everything below the path.
    pub(super) is_tree: bool,
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct ShellLine {
    text: String,
    pub(super) commands: Vec<SubCommand>,
    paths: Vec<ShellPath>,
    /// Why the line may run commands that are not in `commands`.
    pub(super) not_understood: Option<&'static str>,
    /// Why rules cannot allow the line, although its commands are known.
    pub(super) not_by_rule: Option<&'static str>,
}

/// One command of a line.
#[derive(Clone, Debug, Default)]
pub(super) struct SubCommand {
    /// The name and the arguments.
    pub(super) words: Vec<ShellWord>,
    /// The words without options between a tool and its sub-command, as in `git -C directory push`.
    pub(super) without_globals: Option<Vec<ShellWord>>,
    /// Whether more arguments are added when the command runs, as by `xargs`.
    pub(super) has_more: bool,
    /// Whether the command only runs the commands that follow from it, as `timeout 5 …` does.
    pub(super) is_transparent: bool,
    /// The command that runs this one, as in `sudo …`.
    pub(super) wrapper: Option<usize>,
    /// For `cd` with one known operand: the paths of the possible new directories.
    pub(super) enters: Vec<usize>,
}

impl SubCommand {
    /// The command as text, in a form that a rule can contain.
    pub(super) fn display(&self) -> String {
        self.words.iter().map(ShellWord::display).collect::<Vec<_>>().join(" ")
    }

    /// The command's name; `None` if it is only known when the line runs.
    pub(super) fn name(&self) -> Option<&str> {
        self.words.first()?.literal()
    }
}

impl ShellLine {
    /// Parses a bash command line. Never fails: the decision about a line that is not understood is to ask.
    pub fn parse(command: &str) -> Self {
        let mut line = LineBuilder::default();
        if command.len() > MAX_LENGTH {
            line.not_understood("it is too long");
        } else {
            syntax::read_script(command, 0, &mut line);
        }
        line.finish(command)
    }

    /// The targets of redirections, and the path operands of known file commands.
    pub fn paths(&self) -> &[ShellPath] {
        &self.paths
    }

    /// The command line as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all commands of the line are known.
    pub fn is_understood(&self) -> bool {
        self.not_understood.is_none()
    }
}
