//! Starting a runtime: checks, spawn and the `initialize` handshake.
//!
//! Owns the steps between options and a live session, and what can go wrong in them. Every way out but
//! success waits until nothing of the runtime is left, or leaves the end to the process's owner task when
//! the caller drops the future.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Runtime, RuntimeEvents, Shared};
use crate::control::{Answer, Asked, Control, RequestError};
use crate::intake::Intake;
use crate::options::{LaunchOptions, LaunchPlan, Program};
use crate::process::{Exit, Links, PrivateFiles, Process, Spawn, Started};
use crate::queue::ByteQueue;
use crate::registry::{Lease, LeaseError, Registry};
use crate::transport::{StreamLaunch, StreamTransport, Transport};
use crate::wire::Wire;
use crate::wire::fields::wire_struct;

/// How long the handshake may take; hooks of the user's run within it.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(60);

/// The most bytes that wait for the runtime to read them. Enough for prompts full of images; when it is
/// full, sending fails with a clear error.
const OUTGOING_LIMIT: usize = 64 * 1024 * 1024;

/// Why a session did not start. Nothing of it is left when this is returned.
#[derive(Debug, Error)]
pub enum StartError {
    /// The working directory is not there.
    #[error("the working directory {} is not an accessible directory", path.display())]
    WorkingDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The runtime's program cannot be run.
    #[error("the runtime {} cannot be run", path.display())]
    Program {
        /// The program, or its script.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The warden cannot be run.
    #[error("the warden {} cannot be run", path.display())]
    Warden {
        /// The warden's program.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The settings file could not be written.
    #[error("a private file could not be written in {}", path.display())]
    Scratch {
        /// The scratch directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The conversation is not free.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The stream to the runtime could not be opened.
    #[error("the stream to the runtime could not be opened")]
    Transport(#[source] io::Error),
    /// The runtime ended before it was ready.
    #[error("the runtime {exit} before it was ready{}", said(&exit.stderr_tail))]
    Exited {
        /// How it ended.
        exit: Exit,
    },
    /// The runtime did not get ready in time, and was ended.
    #[error("the runtime was not ready after {} s and was ended{}", after.as_secs(), said(stderr_tail))]
    TimedOut {
        /// How long was waited.
        after: Duration,
        /// The last of what it wrote to stderr.
        stderr_tail: String,
    },
    /// The runtime refused the handshake, and was ended.
    #[error("the runtime refused the handshake: {message}")]
    Refused {
        /// The runtime's words.
        message: String,
    },
    /// The start was cancelled.
    #[error("the start was cancelled")]
    Cancelled,
}

fn said(stderr_tail: &str) -> String {
    if stderr_tail.is_empty() { String::new() } else { format!("; it said: {stderr_tail}") }
}

wire_struct! {
    /// What a runtime says about itself at its start.
    pub struct Initialized {
        /// The runtime's version, in newer runtimes.
        claude_code_version: String = "claude_code_version",
        /// The models to choose from.
        models: Vec<ModelInfo> = "models",
        /// The slash commands.
        commands: Box<RawValue> = "commands",
        /// The subagents.
        agents: Box<RawValue> = "agents",
        /// Whose account is used.
        account: Box<RawValue> = "account",
        /// The permission mode, in newer runtimes.
        current_permission_mode: String = "current_permission_mode",
        /// What the runtime can do beyond older ones, in newer runtimes.
        capabilities: Vec<String> = "capabilities",
    }
}

wire_struct! {
    /// A model to choose from.
    pub struct ModelInfo {
        /// The name to choose it by.
        value: String = "value",
        /// Its name for people.
        display_name: String = "displayName",
        /// What it is good for.
        description: String = "description",
        /// The model behind an alias, in newer runtimes.
        resolved_model: String = "resolvedModel",
        /// Whether its effort can be chosen.
        supports_effort: bool = "supportsEffort",
        /// The efforts to choose from.
        supported_effort_levels: Vec<String> = "supportedEffortLevels",
    }
}

impl Runtime {
    /// Starts a runtime as a process of this machine and waits until it is ready for the first message, at
    /// most 60 s.
    ///
    /// Cancelling `cancel` ends the runtime, during the start and at any time after it. Dropping the future
    /// leaves no process.
    pub async fn start(
        options: LaunchOptions,
        cancel: CancellationToken,
    ) -> Result<(Runtime, RuntimeEvents), StartError> {
        Self::start_over(options, &Transport::LocalProcess, cancel).await
    }

    /// Starts a runtime wherever the transport says; all else is as with [`Runtime::start`].
    pub async fn start_over(
        options: LaunchOptions,
        transport: &Transport,
        cancel: CancellationToken,
    ) -> Result<(Runtime, RuntimeEvents), StartError> {
        let prepared = cancel.run_until_cancelled(prepare(&options, transport)).await;
        let (plan, files, lease) = prepared.ok_or(StartError::Cancelled)??;
        let outgoing = Arc::new(ByteQueue::new(OUTGOING_LIMIT));
        let intake = Arc::new(Intake::new(Arc::new(Control::new(Arc::clone(&outgoing)))));
        let links = Links { intake: Arc::clone(&intake), outgoing, cancel: cancel.clone() };
        let (process, asked, pid) = match transport {
            Transport::LocalProcess => {
                let spawn = Spawn {
                    plan: &plan,
                    warden: &options.warden,
                    cwd: &options.cwd,
                    files,
                    mark: Uuid::new_v4(),
                    lease,
                    links,
                };
                let (process, started) = Process::spawn(spawn)
                    .map_err(|source| StartError::Warden { path: options.warden.path.clone(), source })?;
                // In the same breath as the start: the runtime reads it as soon as it can.
                let asked = intake.control.ask("initialize", plan.initialize);
                let pid = started_pid(&process, started, &options, &cancel).await?;
                (process, asked, Some(pid))
            }
            Transport::Stream(transport) => {
                let process = attach(&**transport, &plan, &options, (files, lease), links).await?;
                let asked = intake.control.ask("initialize", plan.initialize);
                (process, asked, None)
            }
        };
        let answer = handshake(&process, asked, &cancel).await?;
        let initialized = answer.and_then(|raw| Initialized::from_json(raw.get())).unwrap_or_default();
        let conversation = options.conversation.id();
        let shared = Arc::new(Shared { process, intake, conversation, pid, initialized });
        Ok((Runtime { shared: Arc::clone(&shared) }, RuntimeEvents { shared }))
    }
}

/// Everything before the process: what can be found out, written or taken without one.
async fn prepare(
    options: &LaunchOptions,
    transport: &Transport,
) -> Result<(LaunchPlan, PrivateFiles, Option<Lease>), StartError> {
    if matches!(transport, Transport::LocalProcess) {
        check_paths(options).await?;
    }
    let lease = match &options.registry {
        Some(directory) => Some(lease(directory.clone(), options.conversation.id()).await?),
        None => None,
    };
    let plan = LaunchPlan::new(options);
    let (files, plan) = private_files(plan, &options.scratch_dir).await?;
    Ok((plan, files, lease))
}

async fn attach(
    transport: &dyn StreamTransport,
    plan: &LaunchPlan,
    options: &LaunchOptions,
    (files, lease): (PrivateFiles, Option<Lease>),
    links: Links,
) -> Result<Process, StartError> {
    let cancel = links.cancel.clone();
    let launch = StreamLaunch { plan, files: files.as_launch_files(), cwd: &options.cwd };
    let opened = cancel.run_until_cancelled(transport.open(launch)).await;
    let stream = opened.ok_or(StartError::Cancelled)?.map_err(StartError::Transport)?;
    Ok(Process::attach(stream, files, lease, links))
}

/// Takes the conversation; waiting for what a host that is gone left behind may take some seconds.
async fn lease(directory: PathBuf, conversation: Uuid) -> Result<Lease, StartError> {
    let registry = Registry::new(directory.clone());
    let leased = tokio::task::spawn_blocking(move || registry.lease(conversation)).await;
    let leased = leased.unwrap_or_else(|_| {
        Err(LeaseError::Io { directory, source: io::Error::from(io::ErrorKind::Interrupted) })
    });
    Ok(leased?)
}

/// Finds out beforehand what the system's error for a failed spawn would not tell apart.
async fn check_paths(options: &LaunchOptions) -> Result<(), StartError> {
    let is_directory = tokio::fs::metadata(&options.cwd).await.is_ok_and(|metadata| metadata.is_dir());
    if !is_directory {
        return Err(StartError::WorkingDirectory { path: options.cwd.clone() });
    }
    let program = |path: &Path, source| StartError::Program { path: path.to_owned(), source };
    let executable = options.program.executable();
    if executable.as_os_str().is_empty() {
        return Err(program(executable, io::Error::from(io::ErrorKind::NotFound)));
    }
    // A bare name is looked up in `PATH` by the system; anything else must be a file.
    let mut files = Vec::new();
    if executable.components().count() > 1 {
        files.push(executable);
    }
    if let Program::Node { script, .. } = &options.program {
        files.push(script);
    }
    for path in files {
        let metadata = tokio::fs::metadata(path).await.map_err(|source| program(path, source))?;
        if metadata.is_dir() {
            return Err(program(path, io::Error::from(io::ErrorKind::IsADirectory)));
        }
    }
    Ok(())
}

async fn private_files(plan: LaunchPlan, directory: &Path) -> Result<(PrivateFiles, LaunchPlan), StartError> {
    if plan.settings.is_none() && plan.mcp.is_none() {
        return Ok((PrivateFiles::default(), plan));
    }
    let scratch = directory.to_owned();
    let write = move || PrivateFiles::write(&plan, &scratch).map(|files| (files, plan));
    let written = tokio::task::spawn_blocking(write).await;
    written
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Interrupted)))
        .map_err(|source| StartError::Scratch { path: directory.to_owned(), source })
}

/// Waits until the warden has started the runtime.
async fn started_pid(
    process: &Process,
    started: Started,
    options: &LaunchOptions,
    cancel: &CancellationToken,
) -> Result<u32, StartError> {
    match started.await {
        Ok(Ok(pid)) => Ok(pid),
        Ok(Err(number)) => {
            process.exited().await;
            let path = options.program.executable().to_owned();
            Err(StartError::Program { path, source: io::Error::from_raw_os_error(number) })
        }
        Err(_) => {
            let exit = process.exited().await;
            Err(if cancel.is_cancelled() { StartError::Cancelled } else { StartError::Exited { exit } })
        }
    }
}

async fn handshake(
    process: &Process,
    asked: Result<Asked, RequestError>,
    cancel: &CancellationToken,
) -> Result<Answer, StartError> {
    let answer = match asked {
        Ok(asked) => asked.answer(HANDSHAKE_DEADLINE).await,
        Err(error) => Err(error),
    };
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    if let RequestError::TimedOut { .. } | RequestError::Refused { .. } = error {
        process.kill();
    }
    let exit = process.exited().await;
    Err(match error {
        _ if cancel.is_cancelled() => StartError::Cancelled,
        RequestError::TimedOut { after } => StartError::TimedOut { after, stderr_tail: exit.stderr_tail },
        RequestError::Refused { message, .. } => StartError::Refused { message },
        RequestError::Send(_) | RequestError::Exited => StartError::Exited { exit },
    })
}
