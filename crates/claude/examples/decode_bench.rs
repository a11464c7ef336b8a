//! Measures how fast recorded frames decode, compared with a `JSON.parse` loop in Node over the same file.
//!
//! Writes a file of recorded frames to a temporary directory, decodes it, lets Node parse it, prints the ratio of the
//! times and removes the file. Compares wall-clock time and CPU time, which is independent of other programs on the
//! machine. With `--check` it fails if the decoder is less than twice as fast as Node, or if its memory grows with the
//! file. Run it with `--release`; `--megabytes N` sets the size of the file.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

#[path = "support/figure.rs"]
mod figure;

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use figure::{Figure, number, report};
use innkeeper_claude::wire::FrameDecoder;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Minimum speed relative to Node.
const RATIO: f64 = 2.0;
/// Maximum growth of memory in MiB after the first tenth of the file: a few of the longest lines.
const GROWTH_LIMIT: f64 = 8.0;
/// Number of runs; the fastest counts, since the others include delays by other programs.
const RUNS: usize = 5;
/// The same limits as the reader of a runtime's output.
const LINE_LIMIT: usize = 64 << 20;
const CHUNK: usize = 64 << 10;
const MEBIBYTE: f64 = (1 << 20) as f64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let megabytes = number(&arguments, "--megabytes", 100)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("stream.jsonl");
    let lines = write_stream(&path, (megabytes as u64) << 20)?;

    let mut ours = None::<Decoded>;
    let mut node = None::<ElapsedTime>;
    for _ in 0..RUNS {
        let decoded = decode_all(&path)?;
        if decoded.lines != lines {
            return Err(format!("decoded only {} of {lines} lines", decoded.lines).into());
        }
        ours = Some(ours.map_or(decoded, |best| best.or_better(decoded)));
        let times = parse_with_node(&path, lines)?;
        node = Some(node.map_or(times, |best| best.or_better(times)));
    }
    let (Some(ours), Some(node)) = (ours, node) else { return Err("no runs".into()) };
    let size = fs::metadata(&path)?.len() as f64 / MEBIBYTE;
    let title = format!(
        "decode: {lines} lines, {size:.0} MiB, {:.0} MiB/s; Node's JSON.parse {:.0} MiB/s; at most {:.1} MiB of memory",
        size / ours.times.clock,
        size / node.clock,
        memory("VmHWM:") as f64 / MEBIBYTE,
    );
    let ratio = |name, value| Figure { name, value, unit: "×", limit: RATIO..=f64::INFINITY };
    let figures = [
        ratio("Node's time, clock", node.clock / ours.times.clock),
        ratio("Node's time, processor", node.thread / ours.times.thread),
        Figure {
            name: "memory growth",
            value: ours.growth as f64 / MEBIBYTE,
            unit: "MiB",
            limit: 0.0..=GROWTH_LIMIT,
        },
    ];
    report(&title, &figures, &arguments)
}

/// Elapsed time in seconds.
#[derive(Default, Clone, Copy)]
struct ElapsedTime {
    clock: f64,
    /// CPU time of the thread.
    thread: f64,
}

impl ElapsedTime {
    /// Returns the minimum of both, since only other programs make a run slower.
    fn or_better(self, other: Self) -> Self {
        Self { clock: self.clock.min(other.clock), thread: self.thread.min(other.thread) }
    }
}

#[derive(Default, Clone, Copy)]
struct Decoded {
    times: ElapsedTime,
    lines: u64,
    /// Total length of the kind names, so that each message is used.
    kinds: u64,
    /// Memory growth in bytes over the last nine tenths of the file.
    growth: u64,
}

impl Decoded {
    fn or_better(self, other: Self) -> Self {
        let growth = self.growth.max(other.growth);
        Self { times: self.times.or_better(other.times), growth, ..other }
    }
}

/// Decodes a file like the reader of a runtime's output, dropping each message.
fn decode_all(path: &Path) -> Result<Decoded, Box<dyn Error>> {
    let size = fs::metadata(path)?.len();
    let mut file = File::open(path)?;
    let mut frames = FrameDecoder::new(LINE_LIMIT);
    let mut chunk = vec![0; CHUNK];
    let mut decoded = Decoded::default();
    let (mut bytes, mut memory_at_a_tenth) = (0, 0);
    let (start, ran) = (Instant::now(), thread_seconds());
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        frames.buffer().extend_from_slice(chunk.get(..count).unwrap_or_default());
        while let Some(frame) = frames.next_frame()? {
            decoded.lines += 1;
            decoded.kinds += frame.message?.kind().len() as u64;
        }
        bytes += count as u64;
        if memory_at_a_tenth == 0 && bytes > size / 10 {
            memory_at_a_tenth = memory("VmRSS:");
        }
    }
    let clock = start.elapsed().as_secs_f64();
    let thread = ran.zip(thread_seconds()).map_or(clock, |(before, after)| after - before);
    decoded.times = ElapsedTime { clock, thread };
    decoded.growth = memory("VmRSS:").saturating_sub(memory_at_a_tenth);
    if decoded.kinds == 0 {
        return Err("messages without kinds".into());
    }
    Ok(decoded)
}

#[expect(clippy::disallowed_methods, reason = "the only child of this program, waited for immediately")]
fn parse_with_node(path: &Path, lines: u64) -> Result<ElapsedTime, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/decode_bench.js");
    let output = std::process::Command::new("node").arg(script).arg(path).output();
    let output = output
        .map_err(|error| format!("cannot start node, which is required for the comparison: {error}"))?;
    if !output.status.success() {
        return Err(format!("node failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let result: Value = serde_json::from_slice(&output.stdout)?;
    if result.get("lines").and_then(Value::as_u64) != Some(lines) {
        return Err("node did not parse every line".into());
    }
    let number = |key: &str| result.get(key).and_then(Value::as_f64).ok_or("node did not report its time");
    Ok(ElapsedTime { clock: number("seconds")?, thread: number("thread_seconds")? })
}

/// Writes the output of the runtimes in all recordings repeatedly until the file has the given size.
fn write_stream(path: &Path, size: u64) -> Result<u64, Box<dyn Error>> {
    let frames = recorded_frames()?;
    if frames.is_empty() {
        return Err("no recordings found".into());
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
    struct RecordedLine {
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
                let line: RecordedLine = serde_json::from_str(line)?;
                if line.dir == "cli->host" {
                    frames.push(line.msg);
                }
            }
        }
    }
    Ok(frames)
}

/// Reads a memory figure of this process in bytes; 0 if the system does not report it.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// CPU time of this thread, if the system reports it.
fn thread_seconds() -> Option<f64> {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    statistics.split(' ').next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
}
