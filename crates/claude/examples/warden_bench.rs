//! Measures the cost of a warden: the time that it adds to a start, and its memory.
//!
//! Starts an idle runtime many times, alternately with and without a warden, and compares the medians. This program
//! also acts as the warden and as the runtime; `--warden PROGRAM` uses another program as the warden, called with
//! `warden` as its first argument. With `--check` it fails above 5 ms and 4 MiB. Run it with `--release`; `--rounds N`
//! sets the number of rounds.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

#[path = "support/figure.rs"]
mod figure;

use std::error::Error;
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use figure::{Figure, number, report};
use innkeeper_claude::{
    BoxFuture, ByteStream, Conversation, Directories, LaunchOptions, Peer, PeerExit, PeerSignal, Program,
    Runtime, StreamLaunch, StreamTransport, Transport, WardenProgram, warden,
};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const TIME_LIMIT: f64 = 5.0;
const MEMORY_LIMIT: f64 = 4.0;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == "warden" => return warden::run(arguments),
        // The first argument of every runtime.
        Some(first) if first == "--print" => return finish(be_a_runtime()),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(measure())))
}

fn finish(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be reported if stderr is closed.
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

async fn measure() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = number(&arguments, "--rounds", 100)?;
    let place = tempfile::tempdir()?;
    let itself = std::env::current_exe()?;
    let given = arguments.iter().skip_while(|argument| *argument != "--warden").nth(1);
    let warden = given.map_or_else(|| itself.clone(), PathBuf::from);
    let direct = Transport::Stream(Arc::new(Direct));
    let (mut with, mut without, mut memory) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..rounds {
        let (time, used) = one_start(&itself, &warden, place.path(), &Transport::LocalProcess).await?;
        with.push(time);
        memory = memory.max(used.ok_or("the system does not report the memory of a process")?);
        without.push(one_start(&itself, &warden, place.path(), &direct).await?.0);
    }
    let (with, without) = (median(with), median(without));
    let title = format!("warden: {rounds} starts, {with:.2} ms with it and {without:.2} ms without");
    let figures = [
        Figure {
            name: "added to a start",
            value: with - without,
            unit: "ms",
            limit: f64::NEG_INFINITY..=TIME_LIMIT,
        },
        Figure { name: "memory (PSS)", value: memory, unit: "MiB", limit: 0.0..=MEMORY_LIMIT },
    ];
    report(&title, &figures, &arguments)
}

/// Starts and stops a runtime; returns the milliseconds to its handshake and the memory of its warden in MiB.
async fn one_start(
    runtime: &Path,
    warden: &Path,
    place: &Path,
    transport: &Transport,
) -> Result<(f64, Option<f64>), Box<dyn Error>> {
    let warden = WardenProgram { path: warden.to_owned(), args: vec!["warden".into()] };
    let directories = Directories { cwd: place.to_owned(), scratch: place.join("scratch") };
    let program = Program::Native(runtime.to_owned());
    let options = LaunchOptions::new(program, warden, Conversation::New(Uuid::new_v4()), directories);
    let start = Instant::now();
    let (runtime, events) = Runtime::start_over(options, transport, CancellationToken::new()).await?;
    let time = start.elapsed().as_secs_f64() * 1000.0;
    let memory = runtime.pid().and_then(parent).and_then(memory);
    runtime.stop().await;
    drop(events);
    Ok((time, memory))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Proportional set size of a process in MiB.
fn memory(pid: u32) -> Option<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kibibytes| kibibytes / 1024.0)
}

/// Acknowledges the handshake and waits for the end of its input.
fn be_a_runtime() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let id = request.get("request_id");
        let response = json!({ "subtype": "success", "request_id": id, "response": {} });
        writeln!(io::stdout(), "{}", json!({ "type": "control_response", "response": response }))?;
    }
    Ok(())
}

/// Transport that starts runtimes as direct children of this process, without a warden.
struct Direct;

impl StreamTransport for Direct {
    fn open<'a>(&'a self, launch: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>> {
        Box::pin(async move {
            #[expect(clippy::disallowed_methods, reason = "the baseline is a start without a warden")]
            let mut command = tokio::process::Command::new(&launch.plan.executable);
            let mut child = command
                .args(launch.plan.arguments(launch.files))
                .env_clear()
                .envs(&launch.plan.environment)
                .current_dir(launch.cwd)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            Ok(ByteStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                peer: Box::new(DirectChild(child)),
            })
        })
    }
}

struct DirectChild(Child);

impl Peer for DirectChild {
    fn signal(&mut self, signal: PeerSignal) {
        if matches!(signal, PeerSignal::Terminate | PeerSignal::Kill) {
            // Fails only if the child has already exited.
            self.0.start_kill().ok();
        }
    }

    fn exited(&mut self) -> BoxFuture<'_, PeerExit> {
        Box::pin(async {
            let status = self.0.wait().await;
            status.ok().and_then(|status| status.code()).map_or(PeerExit::Unknown, PeerExit::Code)
        })
    }
}
