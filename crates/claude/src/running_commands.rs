//! The shell commands that a runtime runs for its tools, found in the process table.
//!
//! Reads `/proc`; on systems without it, no command is known. A command writes its output to a file
//! that has the name of its task.

use std::collections::HashMap;
use std::path::Path;

use crate::process_table;

/// Maximum number of processes that are visited.
const MAX_PROCESSES: usize = 4096;

/// A shell command that a runtime runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCommand {
    /// Task id, for `stop_task`.
    pub task: String,
    /// The command line of the shell.
    line: String,
}

impl RunningCommand {
    /// Whether the shell runs exactly this command.
    pub fn is(&self, command: &str) -> bool {
        let command = command.trim();
        let Some(run) = command_in(&self.line) else { return false };
        // In a pipeline, the runtime puts the redirection after the first command.
        !command.is_empty() && (run.trim() == command || run.replacen(NO_INPUT, "", 1).trim() == command)
    }
}

/// The redirection that runtimes add to a command.
const NO_INPUT: &str = " < /dev/null";

/// The command in the command line of a shell. Runtimes pass it as the quoted argument of `eval`, with
/// other commands around it; otherwise it is the last argument.
fn command_in(line: &str) -> Option<String> {
    let script = line.trim_end_matches('\0').rsplit('\0').next()?;
    match script.strip_prefix("eval ").or_else(|| script.split_once(" eval ").map(|(_, rest)| rest)) {
        Some(quoted) => first_word(quoted),
        None => Some(script.to_owned()),
    }
}

/// The first word of a script, without its quotes. `None` if a quote is not closed.
fn first_word(script: &str) -> Option<String> {
    let mut word = String::new();
    let mut chars = script.trim_start().chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    other => word.push(other),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => match chars.next()? {
                        escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                        other => word.extend(['\\', other]),
                    },
                    other => word.push(other),
                }
            },
            '\\' => word.push(chars.next()?),
            other if other.is_whitespace() => break,
            other => word.push(other),
        }
    }
    Some(word)
}

/// The commands that a runtime with this process id runs. Blocks.
pub(crate) fn of(runtime: i32) -> Vec<RunningCommand> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in process_table::all().unwrap_or_default() {
        children.entry(process.parent).or_default().push(process.identity.pid);
    }
    let mut found: Vec<RunningCommand> = Vec::new();
    let mut unvisited = vec![runtime];
    for _ in 0..MAX_PROCESSES {
        let Some(pid) = unvisited.pop() else { break };
        unvisited.extend(children.remove(&pid).unwrap_or_default());
        // The children of a shell have the same output.
        let command = command_of(pid);
        found.extend(command.filter(|command| !found.iter().any(|known| known.task == command.task)));
    }
    found
}

fn command_of(pid: i32) -> Option<RunningCommand> {
    let output = std::fs::read_link(format!("/proc/{pid}/fd/1")).ok()?;
    let task = task_of(&output)?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(RunningCommand { task, line: String::from_utf8_lossy(&line).into_owned() })
}

/// The task of an output file such as `tasks/b1x2.output`.
fn task_of(output: &Path) -> Option<String> {
    let is_output = output.extension().is_some_and(|extension| extension == "output");
    let is_task = output.parent()?.file_name()? == "tasks";
    (is_output && is_task).then(|| output.file_stem()?.to_str().map(str::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_is_the_name_of_the_output_file() {
        let task = |path: &str| task_of(Path::new(path));
        assert_eq!(task("/project/5ac/tasks/b1x2.output"), Some("b1x2".to_owned()));
        assert_eq!(task("/project/5ac/tasks/b1x2"), None);
        assert_eq!(task("/project/other/b1x2.output"), None);
        assert_eq!(task("pipe:[123]"), None);
    }

    #[test]
    fn command_is_recognized_in_the_quoted_line_of_the_shell() {
        let line = "/bin/bash\0-c\0source x && eval 'until [ -e '\"'\"'a b'\"'\"' ]; do sleep 1; done' < /dev/null\0";
        let running = RunningCommand { task: "b1".to_owned(), line: line.to_owned() };
        assert!(running.is("until [ -e 'a b' ]; do sleep 1; done"));
        assert!(!running.is("until [ -e 'c' ]; do sleep 1; done"));
        assert!(!running.is(" "));
    }

    #[test]
    fn part_of_a_command_is_not_the_command() {
        let running = |line: &str| RunningCommand { task: "b1".to_owned(), line: line.to_owned() };
        let install = running("/bin/bash\0-c\0source x && eval 'make install' < /dev/null && pwd\0");
        assert!(install.is("make install"));
        assert!(!install.is("make"));
        assert!(!install.is("install"));
        assert!(!install.is("pwd"));
        let plain = running("/bin/bash\0-c\0source x && eval make \\< /dev/null && pwd\0");
        assert!(plain.is("make"));
        let pipeline = running("/bin/bash\0-c\0-l\0source x && eval 'make < /dev/null | tail' && pwd\0");
        assert!(pipeline.is("make | tail"));
        let double = running(r#"bash -c eval "echo 'a' \"b\" \$HOME" < /dev/null"#);
        assert!(double.is(r#"echo 'a' "b" $HOME"#));
        assert!(!running("bash\0-c\0eval 'make").is("make"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn command_of_a_descendant_is_found_by_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let tasks = folder.path().join("tasks");
        std::fs::create_dir(&tasks).unwrap();
        let output = std::fs::File::create(tasks.join("b1.output")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the test ends the process")]
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "read line; true"])
            .stdin(std::process::Stdio::piped())
            .stdout(output)
            .spawn()
            .unwrap();
        let own = std::process::id().cast_signed();
        let found = of(own);
        shell.kill().unwrap();
        shell.wait().unwrap();
        let commands: Vec<_> = found.iter().filter(|command| command.is("read line; true")).collect();
        assert_eq!(commands.len(), 1, "{found:?}");
        assert_eq!(commands[0].task, "b1");
    }
}
