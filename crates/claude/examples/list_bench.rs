//! Measures how fast many transcripts are listed: with a cold cache, with a warm cache, and watched.
//!
//! Writes transcripts to a temporary directory (1 GB by default), lists them, prints the times and removes them. With
//! `--check` it fails above one second, 50 ms and 5 ms. Run it with `--release`; `--sessions N` and `--kilobytes N`
//! set the number and size of the transcripts.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

#[path = "support/figure.rs"]
mod figure;

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use figure::{Figure, number, report};
use innkeeper_claude::transcript::{ListOptions, SessionSummary, Transcripts, WatchedTranscripts, rename};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// Number of directories that contain the transcripts.
const PROJECTS: usize = 40;
/// Every n-th session has a directory next to its transcript, as sessions with subagents do.
const WITH_FOLDER: usize = 10;
/// Number of lists with a cold cache; the fastest counts, since the others include delays by other programs.
const COLD_RUNS: usize = 5;
/// Number of the faster lists.
const RUNS: usize = 40;
const COLD_LIMIT: Duration = Duration::from_secs(1);
const WARM_LIMIT: Duration = Duration::from_millis(50);
const WATCHED_LIMIT: Duration = Duration::from_millis(5);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sessions = number(&arguments, "--sessions", 10_000)?;
    let kilobytes = number(&arguments, "--kilobytes", 100)?;
    let folder = tempfile::tempdir()?;
    for at in 0..sessions {
        write_session(folder.path(), at, kilobytes * 1000)?;
    }

    let all = ListOptions::default();
    let cold = fastest(COLD_RUNS, || timed(|| Transcripts::new(folder.path()).list(&all).len(), sessions))?;
    let known = Transcripts::new(folder.path());
    known.list(&all);
    let warm = fastest(RUNS, || timed(|| known.list(&all).len(), sessions))?;
    let watched = WatchedTranscripts::new(known);
    watched.all();
    if !watched.is_watching() {
        return Err("the system cannot watch this many directories".into());
    }
    let unchanged = fastest(RUNS, || timed(|| watched.all().len(), sessions))?;
    let changed = fastest(RUNS, || after_a_change(&watched))?;

    let figure = |name, time: Duration, limit: Duration| Figure {
        name,
        value: time.as_secs_f64() * 1000.0,
        unit: "ms",
        limit: 0.0..=limit.as_secs_f64() * 1000.0,
    };
    let figures = [
        figure("cold cache", cold, COLD_LIMIT),
        figure("warm cache", warm, WARM_LIMIT),
        figure("watched", unchanged, WATCHED_LIMIT),
        figure("watched, after a change", changed, WATCHED_LIMIT),
    ];
    report(&format!("list: {sessions} sessions of {kilobytes} KB"), &figures, &arguments)
}

fn timed(list: impl FnOnce() -> usize, sessions: usize) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let listed = list();
    let time = start.elapsed();
    if listed == sessions {
        Ok(time)
    } else {
        Err(format!("listed only {listed} of {sessions} sessions").into())
    }
}

fn fastest(
    runs: usize,
    run: impl Fn() -> Result<Duration, Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let times = (0..runs).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    times.into_iter().min().ok_or_else(|| "no runs".into())
}

/// Renames the oldest session and measures the first list that contains the change.
fn after_a_change(watched: &WatchedTranscripts) -> Result<Duration, Box<dyn Error>> {
    let oldest = watched.all().last().map(Arc::clone).ok_or("no sessions")?;
    let title = format!("renamed {}", Uuid::new_v4());
    rename(&oldest.path, &title)?;
    let shows = |listed: &[Arc<SessionSummary>]| listed.first().is_some_and(|first| first.summary == title);
    // The delay of the system's notification is not measured.
    for _ in 0..10_000 {
        let start = Instant::now();
        let listed = watched.all();
        let time = start.elapsed();
        if shows(&listed) {
            return Ok(time);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("the change never reached the list".into())
}

/// Writes a transcript like newer runtimes do: notes, prompts, responses, and long tool results.
fn write_session(root: &Path, at: usize, size: usize) -> Result<(), Box<dyn Error>> {
    let id = Uuid::from_u128(0x4000_8000_0000_0000_0000 + at as u128).to_string();
    let cwd = format!("/home/guest/project-{}", at % PROJECTS);
    let project = root.join("projects").join(cwd.replace('/', "-"));
    fs::create_dir_all(&project)?;
    if at.is_multiple_of(WITH_FOLDER) {
        fs::create_dir(project.join(&id))?;
        fs::write(
            project.join(&id).join("custom-title.json"),
            json!({"customTitle": format!("Title {at}")}).to_string(),
        )?;
    }
    let mut file = BufWriter::new(File::create(project.join(format!("{id}.jsonl")))?);
    let mut written = 0;
    let mut write = |line: Value| -> Result<usize, std::io::Error> {
        let line = line.to_string();
        // The runtime does not sort fields: the kind or the parent comes first.
        let first = if line.contains("\"parentUuid\":") { "parentUuid" } else { "type" };
        let line = with_first(&line, first);
        writeln!(file, "{line}")?;
        written += line.len() + 1;
        Ok(written)
    };
    write(
        json!({"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-11-15T08:41:12.753Z", "sessionId": id}),
    )?;
    let mut parent = Value::Null;
    for turn in 0_usize.. {
        for (kind, content) in [
            ("user", json!(format!("Please look at part {turn} of task {at}"))),
            (
                "assistant",
                json!([{"type": "text", "text": "I will read the file first, then change it. ".repeat(6)}]),
            ),
            (
                "assistant",
                json!([{"type": "tool_use", "id": format!("toolu_{turn}"), "name": "Read", "input": {"file_path": "src/main.rs"}}]),
            ),
            (
                "user",
                json!([{"type": "tool_result", "tool_use_id": format!("toolu_{turn}"), "content": "    let value = compute(\"input\")?;\n".repeat(90)}]),
            ),
            ("assistant", json!([{"type": "text", "text": "Done; the tests pass."}])),
        ] {
            let uuid = Uuid::new_v4().to_string();
            write(json!({
                "parentUuid": parent, "isSidechain": false, "type": kind, "uuid": uuid, "cwd": cwd, "sessionId": id,
                "message": {"id": format!("msg_{turn}"), "role": kind, "content": content}, "version": "2.1.325",
                "timestamp": "2026-11-15T08:41:13.072Z", "userType": "external", "gitBranch": "main",
            }))?;
            parent = uuid.into();
        }
        let prompt = format!("Please look at part {turn} of task {at}");
        if write(json!({"type": "last-prompt", "lastPrompt": prompt, "leafUuid": parent, "sessionId": id}))?
            >= size
        {
            break;
        }
    }
    file.flush()?;
    Ok(())
}

/// Moves a field with a plain value to the front of a line.
fn with_first(line: &str, key: &str) -> String {
    let start = format!(",\"{key}\":");
    let moved = line.split_once(&start).and_then(|(before, rest)| {
        let end = rest.find([',', '}'])?;
        let (value, after) = rest.split_at_checked(end)?;
        Some(format!("{{\"{key}\":{value},{}{after}", before.strip_prefix('{')?))
    });
    moved.unwrap_or_else(|| line.to_owned())
}
