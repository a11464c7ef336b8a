//! The path operands of known file commands.

use super::PathAccess;
use super::word::ShellWord;

/// A path operand of a command.
#[derive(Debug)]
pub(super) struct Operand {
    /// The path; `None` if it is only known when the line runs.
    pub(super) path: Option<String>,
    pub(super) access: PathAccess,
    /// Whether the access includes everything below the path.
    pub(super) is_tree: bool,
}

/// The operands of a command.
#[derive(Debug, Default)]
pub(super) struct Operands {
    pub(super) operands: Vec<Operand>,
    /// Whether further operands would be written.
    pub(super) writes: bool,
}

/// What a command does with its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Reads all of them.
    Read,
    /// The first is not a path; reads the others.
    ReadAfterFirst,
    /// Writes all of them.
    Write,
    /// Writes or deletes all of them with everything below.
    WriteTree,
    /// The first is not a path; writes the others with everything below.
    WriteTreeAfterFirst,
    /// Reads all but the last, which is written.
    Copy,
    /// Like `Copy`, and the others are deleted.
    Move,
}

struct FileCommand {
    names: &'static [&'static str],
    role: Role,
    /// Short options with a value that is not an operand.
    values: &'static str,
    /// Options whose value is a path that is written.
    written: &'static [&'static str],
}

const COMMANDS: &[FileCommand] = &[
    FileCommand {
        names: &[
            "cat",
            "tac",
            "nl",
            "less",
            "more",
            "bat",
            "wc",
            "file",
            "stat",
            "du",
            "ls",
            "cmp",
            "comm",
            "diff",
            "md5sum",
            "sha1sum",
            "sha256sum",
            "sha512sum",
            "xxd",
            "od",
            "hexdump",
            "strings",
            "readlink",
            "realpath",
            "base64",
            "source",
            ".",
        ],
        role: Role::Read,
        values: "",
        written: &[],
    },
    FileCommand { names: &["head", "tail"], role: Role::Read, values: "nc", written: &[] },
    FileCommand { names: &["cut"], role: Role::Read, values: "bcdf", written: &[] },
    FileCommand { names: &["sort"], role: Role::Read, values: "kSTto", written: &["-o", "--output"] },
    FileCommand { names: &["curl"], role: Role::ReadAfterFirst, values: "", written: &["-o", "--output"] },
    FileCommand {
        names: &["wget"],
        role: Role::ReadAfterFirst,
        values: "",
        written: &["-O", "--output-document"],
    },
    FileCommand {
        names: &["grep", "egrep", "fgrep", "rg"],
        role: Role::ReadAfterFirst,
        values: "efABCmdgtT",
        written: &[],
    },
    FileCommand { names: &["awk", "gawk", "mawk"], role: Role::ReadAfterFirst, values: "Fvf", written: &[] },
    FileCommand {
        names: &["rmdir", "mkdir", "tee", "mkfifo", "unlink", "shred"],
        role: Role::Write,
        values: "m",
        written: &[],
    },
    FileCommand { names: &["touch"], role: Role::Write, values: "dtr", written: &[] },
    FileCommand { names: &["truncate"], role: Role::Write, values: "sr", written: &[] },
    FileCommand { names: &["rm"], role: Role::WriteTree, values: "", written: &[] },
    FileCommand {
        names: &["chmod", "chown", "chgrp"],
        role: Role::WriteTreeAfterFirst,
        values: "",
        written: &[],
    },
    FileCommand {
        names: &["cp", "install"],
        role: Role::Copy,
        values: "Smgo",
        written: &["-t", "--target-directory"],
    },
    FileCommand { names: &["ln"], role: Role::Copy, values: "S", written: &["-t", "--target-directory"] },
    FileCommand { names: &["mv"], role: Role::Move, values: "S", written: &["-t", "--target-directory"] },
];

/// Finds the path operands of a command. `name` is its name without a directory.
pub(super) fn of_command(name: &str, words: &[ShellWord]) -> Operands {
    match name {
        "dd" => return dd(words),
        "sed" => return sed(words),
        _ => {}
    }
    let Some(command) = COMMANDS.iter().find(|command| command.names.contains(&name)) else {
        return Operands::default();
    };
    let (operands, mut found) = split(command, words);
    let has_target = !found.operands.is_empty();
    found.writes = !matches!(command.role, Role::Read | Role::ReadAfterFirst);
    match command.role {
        Role::Read => found.add(&operands, PathAccess::Read, false),
        Role::ReadAfterFirst => found.add(operands.get(1..).unwrap_or_default(), PathAccess::Read, false),
        Role::Write => found.add(&operands, PathAccess::Write, false),
        Role::WriteTree => found.add(&operands, PathAccess::Write, true),
        Role::WriteTreeAfterFirst => {
            found.add(operands.get(1..).unwrap_or_default(), PathAccess::Write, true);
        }
        Role::Copy | Role::Move => found.copy(&operands, command.role == Role::Move, has_target),
    }
    found
}

impl Operands {
    fn add(&mut self, words: &[&ShellWord], access: PathAccess, is_tree: bool) {
        self.operands.extend(words.iter().map(|word| Operand { path: word.path(), access, is_tree }));
    }

    fn write(&mut self, path: Option<String>) {
        self.operands.push(Operand { path, access: PathAccess::Write, is_tree: false });
    }

    /// Adds the operands of a copy. A target that is a directory gets files with the names of the sources.
    fn copy(&mut self, operands: &[&ShellWord], deletes: bool, has_target: bool) {
        let (sources, target) = match operands {
            _ if has_target => (operands, self.operands.first().and_then(|operand| operand.path.clone())),
            // A single operand is linked into the current directory.
            [single] => (std::slice::from_ref(single), Some(".".to_owned())),
            [sources @ .., target] => {
                let path = target.path();
                self.write(path.clone());
                (sources, path)
            }
            [] => return,
        };
        let access = if deletes { PathAccess::Write } else { PathAccess::Read };
        self.add(sources, access, deletes);
        for source in sources {
            let name = source.path().and_then(|path| {
                Some(path.trim_end_matches('/').rsplit('/').next()?.to_owned())
                    .filter(|name| !name.is_empty())
            });
            let inside = target
                .as_ref()
                .zip(name)
                .map(|(target, name)| format!("{}/{name}", target.trim_end_matches('/')));
            self.write(inside);
        }
    }
}

/// Separates operands from options. The paths that options write are added to the result.
fn split<'a>(command: &FileCommand, words: &'a [ShellWord]) -> (Vec<&'a ShellWord>, Operands) {
    let mut operands = Vec::new();
    let mut found = Operands::default();
    let mut rest = words.iter().skip(1);
    let mut takes_options = true;
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if !takes_options || !text.starts_with('-') || text == "-" {
            if text != "-" {
                operands.push(word);
            }
            continue;
        }
        if text == "--" {
            takes_options = false;
        } else if let Some(option) = command.written.iter().find(|option| text.starts_with(**option)) {
            let attached = text.strip_prefix(option).unwrap_or_default();
            let path = match attached.strip_prefix('=').unwrap_or(attached) {
                "" => rest.next().and_then(ShellWord::path),
                attached => word.literal().map(|_| attached.to_owned()),
            };
            found.write(path);
        } else if !text.starts_with("--")
            && text.chars().next_back().is_some_and(|letter| command.values.contains(letter))
        {
            rest.next();
        }
    }
    (operands, found)
}

fn dd(words: &[ShellWord]) -> Operands {
    let mut found = Operands { writes: true, ..Operands::default() };
    for word in words.iter().skip(1) {
        if let Some(path) = word.text.strip_prefix("of=") {
            found.write(word.literal().map(|_| path.to_owned()));
        } else if let Some(path) = word.text.strip_prefix("if=") {
            let path = word.literal().map(|_| path.to_owned());
            found.operands.push(Operand { path, access: PathAccess::Read, is_tree: false });
        } else if word.literal().is_none() {
            found.write(None);
        }
    }
    found
}

/// `sed` writes its operands with `-i`. A script can write files and run commands, too.
fn sed(words: &[ShellWord]) -> Operands {
    let has_script_option = words.iter().skip(1).any(|word| {
        let text = word.text.as_str();
        text.starts_with("--expression") || text.starts_with("--file") || is_short_option(text, &['e', 'f'])
    });
    let writes = words.iter().skip(1).any(|word| {
        let text = word.text.as_str();
        text.starts_with("--in-place") || text.starts_with("-i") || is_short_option(text, &['i'])
    });
    let command = FileCommand { names: &[], role: Role::Read, values: "ef", written: &[] };
    let (operands, mut found) = split(&command, words);
    let skip = usize::from(!has_script_option);
    let access = if writes { PathAccess::Write } else { PathAccess::Read };
    found.add(operands.get(skip..).unwrap_or_default(), access, false);
    found.writes = writes;
    // Commands of a script that write to a file or run a program.
    let runs = |word: &ShellWord| word.literal().is_none() || has_sed_command(&word.text);
    let scripts = words.iter().skip(1).filter(|word| !word.text.starts_with('-'));
    if scripts.take(if has_script_option { usize::MAX } else { 1 }).any(runs) {
        found.write(None);
    }
    found
}

fn is_short_option(text: &str, letters: &[char]) -> bool {
    text.starts_with('-') && !text.starts_with("--") && text.contains(letters)
}

/// Whether a script of `sed` may contain the commands `w`, `W`, `e`, or these flags of `s`.
fn has_sed_command(script: &str) -> bool {
    let mut previous = ' ';
    for letter in script.trim().chars() {
        // A command follows an address, a separator or the end of a substitution.
        let is_start = matches!(previous, ' ' | ';' | '{' | '\n' | '/' | '|' | '#' | ',' | '$' | '!' | '}')
            || previous.is_ascii_digit();
        if is_start && matches!(letter, 'w' | 'W' | 'e') {
            return true;
        }
        previous = letter;
    }
    // Flags such as `gw file` after the last separator.
    let flags = script.rsplit(['/', '|', '#', ',']).next().unwrap_or_default();
    flags.len() < script.len()
        && flags.split_whitespace().next().is_some_and(|flags| flags.contains(['w', 'e']))
}
