//! Runs a session with a runtime in the terminal: each line is a message, and Ctrl-C interrupts the turn.
//!
//! `cargo run -p innkeeper-claude --example session -- PATH-OF-THE-RUNTIME`
#![expect(clippy::wildcard_enum_match_arm, reason = "only some of the events are shown")]

use std::io::Write;
use std::process::ExitCode;

use innkeeper_claude::{
    ClaudeSession, Conversation, Directories, EventKind, LaunchOptions, Program, SessionOptions, TurnFailure,
    WardenProgram, warden,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    if first.as_ref().is_some_and(|first| first == "warden") {
        return warden::run(arguments);
    }
    let Some(program) = first else { return fail("missing argument: the path of the runtime") };
    let started = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let talked = started.map_err(Into::into).and_then(|runtime| runtime.block_on(talk(program.into())));
    match talked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(words: &str) -> ExitCode {
    writeln!(std::io::stderr(), "session: {words}").ok();
    ExitCode::FAILURE
}

async fn talk(program: std::path::PathBuf) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let warden = WardenProgram { path: std::env::current_exe()?, args: vec!["warden".into()] };
    let directories = Directories { cwd: std::env::current_dir()?, scratch: scratch.path().to_owned() };
    let conversation = Conversation::New(Uuid::new_v4());
    let launch = LaunchOptions {
        environment: std::env::vars_os().collect(),
        ..LaunchOptions::new(Program::from_path(program), warden, conversation, directories)
    };
    let session = ClaudeSession::start(SessionOptions::new(launch), CancellationToken::new()).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        answer(&session, line).await?;
    }
    session.terminate().await;
    Ok(())
}

async fn answer(session: &ClaudeSession, line: String) -> Result<()> {
    let mut out = std::io::stdout();
    let mut turn = session.send(line)?;
    loop {
        tokio::select! {
            event = turn.next() => match event {
                None => break,
                Some(event) => match &event?.kind {
                    EventKind::TextDelta { text } => write!(out, "{text}")?,
                    EventKind::ToolUse { name, .. } => write!(out, "[{name}] ")?,
                    _ => {}
                },
            },
            interrupt = tokio::signal::ctrl_c() => {
                interrupt?;
                session.interrupt().await;
            }
        }
        out.flush()?;
    }
    match turn.result().await {
        Ok(_) => writeln!(out)?,
        Err(TurnFailure::Interrupted) => writeln!(out, " (interrupted)")?,
        Err(error) => writeln!(out, " ({error})")?,
    }
    Ok(())
}
