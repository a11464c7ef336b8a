//! Commands that run other commands: `env`, `sudo`, `xargs`, `bash -c` and similar.

use super::builder::LineBuilder;
use super::word::{ShellWord, Splitting};

/// The commands that a command runs.
#[derive(Debug)]
pub(super) enum Unwrapped {
    /// None that are visible in the line.
    Plain,
    /// These, each as words. `is_transparent`: the command itself does nothing else.
    Commands { commands: Vec<Vec<ShellWord>>, has_more: bool, is_transparent: bool },
    /// A script.
    Script { text: String, is_transparent: bool },
    /// Not known, for this reason.
    Unknown(&'static str),
}

/// How a command line of a wrapper is read.
struct Wrapper {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    values: &'static str,
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Long options with a value.
    long_values: &'static [&'static str],
    /// Operands before the command.
    skip: usize,
    kind: WrapperKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WrapperKind {
    /// Runs the words and does nothing else.
    Transparent,
    /// Runs the words with another environment.
    Environment,
    /// Runs the words with more rights.
    Privileged,
    /// Runs the words with more arguments.
    Arguments,
    /// Joins the words to a script.
    Script,
}

const NONE: &[&str] = &[];

const WRAPPERS: &[Wrapper] = &[
    wrapper("builtin", "", "", 0, WrapperKind::Transparent),
    wrapper("command", "p", "", 0, WrapperKind::Transparent),
    wrapper("exec", "cl", "a", 0, WrapperKind::Transparent),
    wrapper("ionice", "t", "cn", 0, WrapperKind::Transparent),
    wrapper("nohup", "", "", 0, WrapperKind::Transparent),
    wrapper("setsid", "cfw", "", 0, WrapperKind::Transparent),
    wrapper("time", "p", "", 0, WrapperKind::Transparent),
    wrapper("doas", "nL", "u", 0, WrapperKind::Privileged),
    wrapper("sudo", "AbEHknS", "ghpTu", 0, WrapperKind::Privileged),
    wrapper("ssh", "46AaCfgKkMNnqTtVvXxYy", "bcDEIilLmpQRSWw", 1, WrapperKind::Script),
    wrapper("watch", "bcegtw", "nq", 0, WrapperKind::Script),
    Wrapper {
        long_values: &["adjustment"],
        ..wrapper("nice", "0123456789", "n", 0, WrapperKind::Transparent)
    },
    Wrapper {
        long_values: &["error", "input", "output"],
        ..wrapper("stdbuf", "", "eio", 0, WrapperKind::Transparent)
    },
    Wrapper {
        long_flags: &["foreground", "preserve-status", "verbose"],
        long_values: &["kill-after", "signal"],
        ..wrapper("timeout", "fpv", "ks", 1, WrapperKind::Transparent)
    },
    Wrapper {
        long_flags: &["debug", "ignore-environment", "null"],
        long_values: &["unset"],
        ..wrapper("env", "0iv", "u", 0, WrapperKind::Environment)
    },
    Wrapper {
        long_flags: &["exit", "interactive", "no-run-if-empty", "null", "verbose"],
        long_values: &["arg-file", "delimiter", "max-args", "max-chars", "max-lines", "max-procs", "replace"],
        ..wrapper("xargs", "0oprtx", "adEILnPs", 0, WrapperKind::Arguments)
    },
];

const fn wrapper(
    name: &'static str,
    flags: &'static str,
    values: &'static str,
    skip: usize,
    kind: WrapperKind,
) -> Wrapper {
    Wrapper { name, flags, values, long_flags: NONE, long_values: NONE, skip, kind }
}

/// Commands that run other commands in ways that are not read here.
const NOT_READ: [&str; 33] = [
    "at",
    "batch",
    "busybox",
    "bwrap",
    "chroot",
    "chrt",
    "doit",
    "entr",
    "expect",
    "fakeroot",
    "firejail",
    "flock",
    "gdb",
    "ltrace",
    "nsenter",
    "numactl",
    "parallel",
    "pkexec",
    "proot",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "start-stop-daemon",
    "strace",
    "su",
    "systemd-run",
    "taskset",
    "tmux",
    "toybox",
    "unbuffer",
    "unshare",
];

const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];

const UNKNOWN_OPTION: Unwrapped =
    Unwrapped::Unknown("the options of a command that runs another command are not known");

/// Finds the commands that a command runs. `name` is its name without a directory.
pub(super) fn unwrap(line: &mut LineBuilder, name: &str, words: &[ShellWord]) -> Unwrapped {
    match name {
        "eval" => return eval(words),
        "trap" => return trap(words),
        "command" if words.get(1).is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) => {
            return Unwrapped::Plain;
        }
        name if SHELLS.contains(&name) => return shell(words),
        name if NOT_READ.contains(&name) && words.len() > 1 => {
            return Unwrapped::Unknown("it runs a command through a program whose options are not known");
        }
        _ => {}
    }
    match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        Some(wrapper) => wrapped(line, wrapper, words),
        None => Unwrapped::Plain,
    }
}

fn eval(words: &[ShellWord]) -> Unwrapped {
    let parts: Option<Vec<&str>> = words.iter().skip(1).map(ShellWord::literal).collect();
    match parts {
        Some(parts) => Unwrapped::Script { text: parts.join(" "), is_transparent: true },
        None => Unwrapped::Unknown("it evaluates text that is only known when the line runs"),
    }
}

fn trap(words: &[ShellWord]) -> Unwrapped {
    match words.get(1).map(ShellWord::literal) {
        None | Some(Some("-" | "" | "-l" | "-p")) => Unwrapped::Plain,
        Some(Some(text)) if !text.starts_with('-') => {
            Unwrapped::Script { text: text.to_owned(), is_transparent: false }
        }
        Some(_) => Unwrapped::Unknown("it evaluates text that is only known when the line runs"),
    }
}

/// A shell with `-c` runs a script.
fn shell(words: &[ShellWord]) -> Unwrapped {
    let mut runs_script = false;
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        let Some(text) = word.literal() else {
            return Unwrapped::Unknown("it runs a shell whose arguments are only known when the line runs");
        };
        match text {
            "-o" | "+o" | "-O" | "+O" => {
                rest.next();
            }
            "--" => {}
            "--init-file" | "--rcfile" => return UNKNOWN_OPTION,
            text if text.starts_with("--") => {}
            text if text.starts_with('-') || text.starts_with('+') => {
                let takes_value = text.contains(['o', 'O']);
                if takes_value {
                    return UNKNOWN_OPTION;
                }
                runs_script |= text.contains('c');
            }
            text if runs_script => {
                return Unwrapped::Script { text: text.to_owned(), is_transparent: true };
            }
            _ => return Unwrapped::Plain,
        }
    }
    Unwrapped::Plain
}

/// Reads the options of a wrapper; the rest is the command.
fn wrapped(line: &mut LineBuilder, wrapper: &Wrapper, words: &[ShellWord]) -> Unwrapped {
    let mut at = 1;
    let mut skip = wrapper.skip;
    let mut replaced: Option<String> = None;
    let mut takes_options = true;
    loop {
        let Some(word) = words.get(at) else { return Unwrapped::Plain };
        let Some(text) = word.literal() else {
            // An unknown word may be an option, but an operand to skip has no effect.
            if skip > 0 && word.splitting == Splitting::One && !word.text.starts_with(['-', super::UNKNOWN]) {
                skip -= 1;
                at += 1;
                continue;
            }
            break;
        };
        if takes_options && text.len() > 1 && text.starts_with('-') {
            if text == "--" {
                takes_options = false;
                at += 1;
                continue;
            }
            let Some(option) = read_option(wrapper, text, words.get(at + 1)) else { return UNKNOWN_OPTION };
            if wrapper.kind == WrapperKind::Arguments && matches!(option.name, "I" | "replace") {
                replaced = Some(option.value.unwrap_or_default());
            }
            at += option.words;
        } else if let Some((name, _)) = assignment(wrapper, text) {
            line.assignment_for_command(name);
            at += 1;
        } else if skip > 0 {
            skip -= 1;
            at += 1;
        } else {
            break;
        }
    }
    let inner = words.get(at..).unwrap_or_default().to_vec();
    finish(wrapper, inner, replaced.as_deref())
}

fn finish(wrapper: &Wrapper, mut inner: Vec<ShellWord>, replaced: Option<&str>) -> Unwrapped {
    if let Some(replaced) = replaced {
        for word in &mut inner {
            if replaced.is_empty() || word.text.contains(replaced) {
                *word = ShellWord::unknown(&word.source);
            }
        }
    }
    match wrapper.kind {
        WrapperKind::Transparent | WrapperKind::Environment => {
            Unwrapped::Commands { commands: vec![inner], has_more: false, is_transparent: true }
        }
        WrapperKind::Privileged => {
            Unwrapped::Commands { commands: vec![inner], has_more: false, is_transparent: false }
        }
        WrapperKind::Arguments => {
            Unwrapped::Commands { commands: vec![inner], has_more: true, is_transparent: false }
        }
        WrapperKind::Script => {
            let parts: Option<Vec<&str>> = inner.iter().map(ShellWord::literal).collect();
            match parts {
                Some(parts) => Unwrapped::Script { text: parts.join(" "), is_transparent: false },
                None => Unwrapped::Unknown("it runs a script that is only known when the line runs"),
            }
        }
    }
}

/// A variable for the command.
fn assignment<'a>(wrapper: &Wrapper, text: &'a str) -> Option<(&'a str, &'a str)> {
    let takes_variables = matches!(wrapper.kind, WrapperKind::Environment | WrapperKind::Privileged);
    text.split_once('=').filter(|_| takes_variables)
}

/// An option that was read.
struct WrapperOption<'a> {
    name: &'a str,
    /// The value of an option that has one; `None` if it is not known.
    value: Option<String>,
    /// How many words it takes.
    words: usize,
}

/// Reads one word with options; `None` if an option is not in the table.
fn read_option<'a>(wrapper: &Wrapper, text: &'a str, next: Option<&ShellWord>) -> Option<WrapperOption<'a>> {
    let next = || next.and_then(ShellWord::literal).map(str::to_owned);
    if let Some(long) = text.strip_prefix("--") {
        if wrapper.long_flags.contains(&long) {
            return Some(WrapperOption { name: long, value: None, words: 1 });
        }
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        return wrapper.long_values.contains(&name).then(|| match value {
            Some(value) => WrapperOption { name, value: Some(value.to_owned()), words: 1 },
            None => WrapperOption { name, value: next(), words: 2 },
        });
    }
    let letters = text.strip_prefix('-')?;
    for (at, letter) in letters.char_indices() {
        let name = letters.get(at..at + letter.len_utf8())?;
        if wrapper.values.contains(letter) {
            let value = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            return Some(match value {
                "" => WrapperOption { name, value: next(), words: 2 },
                value => WrapperOption { name, value: Some(value.to_owned()), words: 1 },
            });
        }
        if !wrapper.flags.contains(letter) {
            return None;
        }
    }
    Some(WrapperOption { name: "", value: None, words: 1 })
}
