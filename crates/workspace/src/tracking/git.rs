//! Runs git to learn which files are unchanged since they were added, and to read their contents.
//!
//! Only plumbing commands that change nothing and run no hooks, filters or network requests. If
//! git cannot be used (it is not installed, another user owns the repository, the repository is
//! bare), the callers read the files instead.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::time::Instant;

use crate::stop_flag::StopFlag;

/// Time limit of one command.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often the stop flag is checked, in milliseconds.
const POLL_INTERVAL: u8 = 100;

/// Maximum size of a list of files: more than 200,000 files need.
pub(crate) const MAX_LIST: usize = 64 * 1024 * 1024;

/// Maximum size of the names in a configuration.
const MAX_CONFIGURATION: usize = 1024 * 1024;

/// Maximum number of filters in a configuration.
const MAX_FILTERS: usize = 64;

/// Bytes of contents that are requested from one process.
const MAX_CONTENTS: u64 = 32 * 1024 * 1024;

/// Number of objects that are requested from one process.
const MAX_OBJECTS: usize = 4096;

/// Files whose content in the working directory may differ from git's object in other ways than
/// line ends are left out.
pub(crate) const WITHOUT_FILTERS: &str = ":(attr:!filter !ident !working-tree-encoding)";

/// Variables of git that stay set. The others may refer to another repository.
const KEPT_VARIABLES: [&str; 4] =
    ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"];

/// Runs git in a directory.
#[derive(Debug)]
pub(crate) struct GitRunner<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) stop: &'a StopFlag,
}

/// The tracked files below a directory, with relative paths.
#[derive(Debug, Default)]
pub(super) struct TrackedFiles {
    /// All files in git's index.
    pub(super) all: HashSet<PathBuf>,
    /// Files whose content is that of an object, if they still have its size.
    pub(super) clean: HashMap<PathBuf, GitObject>,
}

/// An object with the content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitObject {
    pub(crate) id: Arc<str>,
    pub(crate) size: u64,
}

impl GitRunner<'_> {
    /// The tracked files; `None` if git cannot tell.
    pub(super) fn tracked_files(&self) -> Option<TrackedFiles> {
        self.directory.ancestors().find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())?;
        let tags = self.run(&["ls-files", "-v", "-z"], &[], MAX_LIST)?;
        let mut files = TrackedFiles::default();
        let mut checked = HashSet::new();
        for (tag, path) in records(&tags).filter_map(|line| split_once(line, b' ')) {
            let path = PathBuf::from(OsStr::from_bytes(path));
            // Other tags: git does not compare the file, or it has conflicts.
            if tag == b"H" {
                checked.insert(path.clone());
            }
            files.all.insert(path);
        }
        let changed =
            ["diff-files", "--name-only", "--ignore-submodules", "-z", "--relative", "--", WITHOUT_FILTERS];
        for path in records(&self.run(&changed, &[], MAX_LIST)?) {
            checked.remove(Path::new(OsStr::from_bytes(path)));
        }
        let format = "--format=%(objectmode) %(objectname) %(objectsize) %(stage)%x09%(path)";
        let objects = self.run(&["ls-files", "-z", format, "--", WITHOUT_FILTERS], &[], MAX_LIST)?;
        for line in records(&objects) {
            if let Some((path, object)) = clean_file(line)
                && checked.contains(&path)
            {
                files.clean.insert(path, object);
            }
        }
        Some(files)
    }

    /// The contents of objects. Missing ones are left out.
    pub(crate) fn contents(&self, objects: &[GitObject]) -> HashMap<Arc<str>, Vec<u8>> {
        let mut contents = HashMap::new();
        let mut rest = objects;
        while !rest.is_empty() {
            let mut bytes = 0_u64;
            let fitting = rest.iter().take(MAX_OBJECTS).take_while(|object| {
                let is_first = bytes == 0;
                bytes = bytes.saturating_add(object.size).saturating_add(1);
                is_first || bytes <= MAX_CONTENTS
            });
            let Some((batch, later)) = rest.split_at_checked(fitting.count()) else { break };
            rest = later;
            let input: Vec<u8> =
                batch.iter().flat_map(|object| [object.id.as_bytes(), b"\n"].concat()).collect();
            let max_output = batch.iter().fold(0_usize, |sum, object| {
                sum.saturating_add(usize::try_from(object.size).unwrap_or(usize::MAX)).saturating_add(128)
            });
            let Some(output) = self.run(&["cat-file", "--batch", "--buffer"], &input, max_output) else {
                break;
            };
            parse_objects(&output, batch, &mut contents);
        }
        contents
    }

    /// Options that disable the filters in the configuration, which are programs. `None` if git
    /// fails or a filter cannot be disabled.
    pub(crate) fn without_filters(&self) -> Option<Vec<String>> {
        let keys = self.run(&["config", "--null", "--list", "--name-only"], &[], MAX_CONFIGURATION)?;
        let mut drivers = BTreeSet::new();
        for key in records(&keys).filter(|key| key.starts_with(b"filter.")) {
            let key = std::str::from_utf8(key).ok()?;
            let (driver, _) = key.rsplit_once('.')?;
            // Git ends the name of an option's key at the first equals sign.
            if driver.contains('=') || drivers.len() == MAX_FILTERS {
                return None;
            }
            drivers.insert(driver.to_owned());
        }
        let disabled = |driver: String| {
            ["clean=", "smudge=", "process=", "required=false"].map(|set| format!("{driver}.{set}"))
        };
        Some(drivers.into_iter().flat_map(disabled).flat_map(|set| ["-c".to_owned(), set]).collect())
    }

    /// Runs a command and returns its output; `None` if it fails, takes too long or prints more
    /// than `max_output`.
    pub(crate) fn run(&self, arguments: &[&str], input: &[u8], max_output: usize) -> Option<Vec<u8>> {
        let mut command = self.command(arguments);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut process = GitProcess(command.spawn().ok()?);
        let stdin = process.0.stdin.take();
        std::thread::scope(|scope| {
            // Git may print before it has read everything.
            let writer = stdin.map(|mut stdin| scope.spawn(move || stdin.write_all(input)));
            let output = self.read_output(&mut process, max_output);
            // Ends the writer, too, if git still runs.
            let is_done = process.finish(output.is_some());
            let is_written = writer.is_none_or(|writer| writer.join().is_ok_and(|written| written.is_ok()));
            output.filter(|_| is_done && is_written)
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that starts git; waited for and killed here"
    )]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            let is_kept = KEPT_VARIABLES.iter().any(|kept| name == *kept);
            if name.as_bytes().starts_with(b"GIT_") && !is_kept {
                command.env_remove(name);
            }
        }
        command
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            // A partial clone must not fetch missing objects.
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("LC_ALL", "C")
            .arg("--no-pager")
            .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
            // Files with another stamp than in git's index must be compared.
            .args(["-c", "core.trustctime=true", "-c", "core.checkStat=default"])
            .arg("-C")
            .arg(self.directory)
            .args(arguments)
            .current_dir("/")
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn read_output(&self, process: &mut GitProcess, max_output: usize) -> Option<Vec<u8>> {
        let mut stdout = process.0.stdout.take()?;
        let deadline = Instant::now() + TIMEOUT;
        let mut output = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if self.stop.is_requested() || Instant::now() >= deadline || output.len() > max_output {
                return None;
            }
            let mut waits = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if poll(&mut waits, PollTimeout::from(POLL_INTERVAL)).ok()? == 0 {
                continue;
            }
            match stdout.read(&mut buffer) {
                Ok(0) => return Some(output),
                Ok(count) => output.extend(buffer.iter().take(count)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

/// A running git. Killed when dropped.
#[derive(Debug)]
struct GitProcess(Child);

impl GitProcess {
    /// Waits for a process that closed its output, or kills it. Returns whether it succeeded.
    fn finish(&mut self, is_done: bool) -> bool {
        if !is_done {
            self.0.kill().ok();
        }
        self.0.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for GitProcess {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }
}

/// The parts of a list that are terminated by NUL.
pub(crate) fn records(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output.split(|byte| *byte == 0).filter(|record| !record.is_empty())
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let position = text.iter().position(|byte| *byte == separator)?;
    Some((text.get(..position)?, text.get(position.saturating_add(1)..)?))
}

/// Parses a regular file without conflicts: `100644 ID SIZE 0<tab>PATH`.
fn clean_file(line: &[u8]) -> Option<(PathBuf, GitObject)> {
    let (object, path) = split_once(line, b'\t')?;
    let mut fields = std::str::from_utf8(object).ok()?.split_ascii_whitespace();
    let is_file = fields.next()?.starts_with("100");
    let id = fields.next()?;
    let size = fields.next()?.parse().ok()?;
    let is_merged = fields.next()? == "0";
    (is_file && is_merged)
        .then(|| (PathBuf::from(OsStr::from_bytes(path)), GitObject { id: id.into(), size }))
}

/// Parses the output of `cat-file --batch`: `ID blob SIZE\nCONTENT\n` or `ID missing\n`.
fn parse_objects(output: &[u8], objects: &[GitObject], contents: &mut HashMap<Arc<str>, Vec<u8>>) {
    let mut rest = output;
    for object in objects {
        let Some((header, after)) = split_once(rest, b'\n') else { return };
        rest = after;
        let mut fields = std::str::from_utf8(header).unwrap_or_default().split_ascii_whitespace();
        let is_object = fields.next() == Some(&*object.id);
        let is_blob = fields.next() == Some("blob");
        let Some(size) = fields.next().and_then(|size| size.parse::<usize>().ok()) else { continue };
        let Some((content, after)) = rest.split_at_checked(size) else { return };
        rest = after.strip_prefix(b"\n").unwrap_or(after);
        if is_object && is_blob && u64::try_from(size) == Ok(object.size) {
            contents.insert(Arc::clone(&object.id), content.to_vec());
        }
    }
}
