//! How fast recorded frames decode, compared with a `JSON.parse` loop in Node over the same file.
//!
//! Writes a file of recorded frames into a temporary folder, decodes it, lets Node parse it, prints one JSON
//! object and removes the file. `ratio` compares the times that the two threads ran, which other programs on the
//! machine do not change; `clock_ratio` compares by the clock. With `--check` it fails if the decoder is less than
//! twice as fast as Node, or if its memory grows with the file. Run it with `--release`; `--megabytes N` changes
//! the size of the file.

#![expect(clippy::print_stdout, reason = "the result of a bench is what it prints")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use innkeeper_claude::Message;
use innkeeper_claude::wire::decode;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

/// How many times as fast as Node the decoder has to be.
const RATIO: f64 = 2.0;
/// How much memory may grow after the first tenth of the file: a few of the longest lines.
const GROWTH_LIMIT: u64 = 8 << 20;
/// How often each side runs; the fastest run counts, as the others measure what else the machine did.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|argument| argument == "--check");
    let megabytes = arguments.iter().skip_while(|argument| *argument != "--megabytes").nth(1);
    let megabytes: u64 = megabytes.map_or(Ok(100), |number| number.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("stream.jsonl");
    let lines = write_stream(&path, megabytes << 20)?;

    let mut ours = None::<Decoded>;
    let mut node = None::<Times>;
    for _ in 0..RUNS {
        let decoded = decode_all(&path)?;
        if decoded.lines != lines {
            return Err(format!("{} of {lines} lines were decoded", decoded.lines).into());
        }
        if ours.as_ref().is_none_or(|best| decoded.times.thread < best.times.thread) {
            ours = Some(decoded);
        }
        let times = parse_with_node(&path, lines)?;
        if node.is_none_or(|best| times.thread < best.thread) {
            node = Some(times);
        }
    }
    let (Some(ours), Some(node)) = (ours, node) else { return Err("nothing was run".into()) };
    let size = fs::metadata(&path)?.len();
    let ratio = node.thread / ours.times.thread;
    let growth = ours.memory_at_end.saturating_sub(ours.memory_at_a_tenth);
    let rate = |seconds: f64| (size as f64 / (1 << 20) as f64 / seconds).round();
    println!(
        "{}",
        json!({
            "bench": "decode", "bytes": size, "lines": lines, "kinds": ours.kinds,
            "seconds": ours.times.clock, "node_seconds": node.clock, "clock_ratio": node.clock / ours.times.clock,
            "thread_seconds": ours.times.thread, "node_thread_seconds": node.thread, "ratio": ratio,
            "mib_per_second": rate(ours.times.thread), "node_mib_per_second": rate(node.thread),
            "peak_rss_bytes": memory("VmHWM:"), "growth_bytes": growth,
        })
    );
    if check && ratio < RATIO {
        return Err(format!("only {ratio:.2} times as fast as Node; {RATIO} are required").into());
    }
    if check && growth > GROWTH_LIMIT {
        return Err(format!("memory grew by {growth} bytes while decoding").into());
    }
    Ok(())
}

/// How long something took, in seconds.
#[derive(Default, Clone, Copy)]
struct Times {
    clock: f64,
    /// Without the time that other programs had the processor.
    thread: f64,
}

#[derive(Default)]
struct Decoded {
    times: Times,
    lines: u64,
    /// The lengths of the names of the kinds together, so that something is done with each message.
    kinds: u64,
    memory_at_a_tenth: u64,
    memory_at_end: u64,
}

/// Decodes a file line by line and lets go of each message.
fn decode_all(path: &Path) -> Result<Decoded, Box<dyn Error>> {
    let size = fs::metadata(path)?.len();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 2 << 20];
    let mut filled = 0;
    let mut decoded = Decoded::default();
    let mut bytes = 0;
    let (start, ran) = (Instant::now(), thread_seconds());
    loop {
        let count = file.read(buffer.get_mut(filled..).unwrap_or_default())?;
        if count == 0 {
            break;
        }
        filled += count;
        let mut rest = buffer.get(..filled).unwrap_or_default();
        while let Some((line, after)) =
            memchr::memchr(b'\n', rest).and_then(|end| rest.split_at_checked(end + 1))
        {
            decoded.count(&decode(line)?);
            rest = after;
        }
        let (start, left) = (filled - rest.len(), rest.len());
        buffer.copy_within(start..filled, 0);
        filled = left;
        bytes += count as u64;
        if decoded.memory_at_a_tenth == 0 && bytes > size / 10 {
            decoded.memory_at_a_tenth = memory("VmRSS:");
        }
    }
    let clock = start.elapsed().as_secs_f64();
    let thread = ran.zip(thread_seconds()).map_or(clock, |(before, after)| after - before);
    decoded.times = Times { clock, thread };
    decoded.memory_at_end = memory("VmRSS:");
    Ok(decoded)
}

impl Decoded {
    fn count(&mut self, message: &Message) {
        self.lines += 1;
        self.kinds += message.kind().len() as u64;
    }
}

#[expect(clippy::disallowed_methods, reason = "the one child of this program, which is waited for at once")]
fn parse_with_node(path: &Path, lines: u64) -> Result<Times, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/decode_bench.js");
    let output = std::process::Command::new("node").arg(script).arg(path).output();
    let output =
        output.map_err(|error| format!("node is needed to compare with, and did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("node failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let result: Value = serde_json::from_slice(&output.stdout)?;
    if result.get("lines").and_then(Value::as_u64) != Some(lines) {
        return Err("node did not parse every line".into());
    }
    let number = |key: &str| result.get(key).and_then(Value::as_f64).ok_or("node did not tell its time");
    Ok(Times { clock: number("seconds")?, thread: number("thread_seconds")? })
}

/// Writes what the runtimes wrote in all recordings, again and again, until the file has its size.
fn write_stream(path: &Path, size: u64) -> Result<u64, Box<dyn Error>> {
    let frames = recorded_frames()?;
    if frames.is_empty() {
        return Err("there are no recordings".into());
    }
    let mut file = BufWriter::new(File::create(path)?);
    let (mut written, mut lines) = (0, 0);
    for frame in frames.iter().cycle() {
        if written >= size {
            break;
        }
        file.write_all(frame.get().as_bytes())?;
        file.write_all(b"\n")?;
        written += frame.get().len() as u64 + 1;
        lines += 1;
    }
    file.flush()?;
    Ok(lines)
}

fn recorded_frames() -> Result<Vec<Box<RawValue>>, Box<dyn Error>> {
    #[derive(serde::Deserialize)]
    struct Line {
        dir: String,
        msg: Box<RawValue>,
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let mut frames = Vec::new();
    for version in ["0.2.112", "0.3.325"] {
        let mut scenarios: Vec<PathBuf> = fs::read_dir(root.join(version))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        scenarios.sort();
        for scenario in scenarios {
            for line in fs::read_to_string(scenario.join("wire.jsonl"))?.lines() {
                let line: Line = serde_json::from_str(line)?;
                if line.dir == "cli->host" {
                    frames.push(line.msg);
                }
            }
        }
    }
    Ok(frames)
}

/// A figure of this process's memory in bytes; 0 where the system does not tell.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// How long this thread has run, where the system tells.
fn thread_seconds() -> Option<f64> {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    statistics.split(' ').next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
}
