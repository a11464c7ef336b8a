//! Shell command lines.

/// How a command accesses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathAccess {
    Read,
    Write,
}

/// A path in a shell line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellPath {
    /// The path as in the line, without quotes.
    pub text: String,
    pub access: PathAccess,
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct ShellLine {
    text: String,
    paths: Vec<ShellPath>,
}

impl ShellLine {
    /// Parses a bash command line. Never fails: see the decision for lines that are not understood.
    pub fn parse(command: &str) -> Self {
        Self { text: command.to_owned(), paths: Vec::new() }
    }

    /// The targets of redirections, and the path operands of known file commands.
    pub fn paths(&self) -> &[ShellPath] {
        &self.paths
    }

    /// The command line as given.
    pub fn text(&self) -> &str {
        &self.text
    }
}
