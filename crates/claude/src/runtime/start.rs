//! Starts a runtime: checks, spawn and the `initialize` handshake.
//!
//! Owns the steps from options to a running runtime and their errors. Every failure waits until all
//! processes of the runtime are gone; if the caller drops the future, the process's owner task does so.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Runtime, RuntimeEvents, Shared};
use crate::control::{Control, PendingRequest, RequestError, ResponseValue};
use crate::intake::Intake;
use crate::options::{LaunchOptions, LaunchPlan, Program};
use crate::process::{Exit, PrivateFiles, Process, SessionLinks, Spawn, StartedReceiver};
use crate::process_registry::{Lease, LeaseError, ProcessRegistry};
use crate::queue::ByteQueue;
use crate::transport::{StreamLaunch, StreamTransport, Transport};
use crate::wire::Wire;
use crate::wire::fields::wire_struct;

/// Capacity of the queue to the runtime's stdin in bytes. Sufficient for prompts with many images; if it
/// is full, sending fails.
const OUTGOING_LIMIT: usize = 64 * 1024 * 1024;

/// Why a runtime did not start. All its processes are gone when this is returned.
#[derive(Debug, Error)]
pub enum StartError {
    /// The working directory is missing or not accessible.
    #[error("the working directory {} is not an accessible directory", path.display())]
    WorkingDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The runtime's program cannot be executed.
    #[error("cannot run the runtime {}", path.display())]
    Program {
        /// Path of the program or its script.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The warden cannot be executed.
    #[error("cannot run the warden {}", path.display())]
    Warden {
        /// Path of the warden program.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// A private file could not be written.
    #[error("cannot write a private file in {}", path.display())]
    Scratch {
        /// The scratch directory.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The conversation cannot be leased.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The stream to the runtime could not be opened.
    #[error("cannot open the stream to the runtime")]
    Transport(#[source] io::Error),
    /// The runtime exited before it was ready.
    #[error("the runtime {exit} before it was ready{}{}", printed(noise.as_deref()), said(&exit.stderr_tail))]
    Exited {
        /// How it exited.
        exit: Exit,
        /// Start of its first output that was not a message.
        noise: Option<String>,
    },
    /// The handshake timed out, and the runtime was killed.
    #[error(
        "the runtime was not ready after {} s and was killed{}{}",
        after.as_secs(),
        printed(noise.as_deref()),
        said(stderr_tail)
    )]
    TimedOut {
        /// The timeout.
        after: Duration,
        /// End of its stderr output.
        stderr_tail: String,
        /// Start of its first output that was not a message.
        noise: Option<String>,
    },
    /// The runtime rejected the handshake and was killed.
    #[error("the runtime rejected the handshake: {message}")]
    Refused {
        /// The error message from the runtime.
        message: String,
    },
    /// The start was cancelled.
    #[error("the start was cancelled")]
    Cancelled,
}

fn said(stderr_tail: &str) -> String {
    if stderr_tail.is_empty() { String::new() } else { format!("; stderr: {stderr_tail}") }
}

fn printed(noise: Option<&str>) -> String {
    noise.map(|noise| format!("; it printed {noise:?}")).unwrap_or_default()
}

wire_struct! {
    /// The runtime's response to the handshake.
    pub struct Initialized {
        /// Runtime version, in newer runtimes.
        claude_code_version: String = "claude_code_version",
        /// Available models.
        models: Vec<ModelInfo> = "models",
        /// Slash commands.
        commands: Box<RawValue> = "commands",
        /// Subagents.
        agents: Box<RawValue> = "agents",
        /// The account in use.
        account: Box<RawValue> = "account",
        /// Permission mode, in newer runtimes.
        current_permission_mode: String = "current_permission_mode",
        /// Capabilities, in newer runtimes.
        capabilities: Vec<String> = "capabilities",
    }
}

wire_struct! {
    /// An available model.
    pub struct ModelInfo {
        /// Name to select the model.
        value: String = "value",
        /// Display name.
        display_name: String = "displayName",
        /// Description of the model.
        description: String = "description",
        /// The model that an alias refers to, in newer runtimes.
        resolved_model: String = "resolvedModel",
        /// Whether the effort level can be selected.
        supports_effort: bool = "supportsEffort",
        /// Selectable effort levels.
        supported_effort_levels: Vec<String> = "supportedEffortLevels",
    }
}

impl Runtime {
    /// Starts a runtime as a local process and waits until it is ready for the first message, at most
    /// [`LaunchOptions::start_timeout`].
    ///
    /// Cancelling `cancel` terminates the runtime, during the start and later. Dropping the future leaves
    /// no process.
    pub async fn start(
        options: LaunchOptions,
        cancel: CancellationToken,
    ) -> Result<(Runtime, RuntimeEvents), StartError> {
        Self::start_over(options, &Transport::LocalProcess, cancel).await
    }

    /// Starts a runtime over a transport; otherwise like [`Runtime::start`].
    pub async fn start_over(
        options: LaunchOptions,
        transport: &Transport,
        cancel: CancellationToken,
    ) -> Result<(Runtime, RuntimeEvents), StartError> {
        let prepared = cancel.run_until_cancelled(prepare(&options, transport)).await;
        let (plan, files, lease) = prepared.ok_or(StartError::Cancelled)??;
        let outgoing = Arc::new(ByteQueue::new(OUTGOING_LIMIT));
        let intake = Arc::new(Intake::new(Arc::new(Control::new(Arc::clone(&outgoing)))));
        let links = SessionLinks { intake: Arc::clone(&intake), outgoing, cancel: cancel.clone() };
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
                // Queued before the runtime has started, so that it is read as early as possible.
                let asked = intake.control.ask("initialize", plan.initialize);
                let pid = started_pid(&process, started, &options, (&cancel, &intake)).await?;
                (process, asked, Some(pid))
            }
            Transport::Stream(transport) => {
                let process = attach(&**transport, &plan, &options, (files, lease), links).await?;
                let asked = intake.control.ask("initialize", plan.initialize);
                (process, asked, None)
            }
        };
        let answer = handshake(&process, asked, (&cancel, &intake), options.start_timeout).await?;
        let initialized = answer.and_then(|raw| Initialized::from_json(raw.get())).unwrap_or_default();
        let conversation = options.conversation.id();
        let shared = Arc::new(Shared { process, intake, conversation, pid, initialized });
        Ok((Runtime { shared: Arc::clone(&shared) }, RuntimeEvents { shared }))
    }
}

/// The steps before the process starts: checks, files and lease.
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
    links: SessionLinks,
) -> Result<Process, StartError> {
    let cancel = links.cancel.clone();
    let launch = StreamLaunch { plan, files: files.as_launch_files(), cwd: &options.cwd };
    let opened = cancel.run_until_cancelled(transport.open(launch)).await;
    let stream = opened.ok_or(StartError::Cancelled)?.map_err(StartError::Transport)?;
    Ok(Process::attach(stream, files, lease, links))
}

/// Leases the conversation; may take some seconds if a dead host left a runtime running.
async fn lease(directory: PathBuf, conversation: Uuid) -> Result<Lease, StartError> {
    let registry = ProcessRegistry::new(directory.clone());
    let leased = tokio::task::spawn_blocking(move || registry.lease(conversation)).await;
    let leased = leased.unwrap_or_else(|_| {
        Err(LeaseError::Io { directory, source: io::Error::from(io::ErrorKind::Interrupted) })
    });
    Ok(leased?)
}

/// Checks paths beforehand, because the system error of a failed spawn does not tell the causes apart.
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
    // The system looks up a bare name in `PATH`; anything else must be a file.
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
    started: StartedReceiver,
    options: &LaunchOptions,
    (cancel, intake): (&CancellationToken, &Intake),
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
            let noise = intake.first_noise().map(str::to_owned);
            Err(if cancel.is_cancelled() {
                StartError::Cancelled
            } else {
                StartError::Exited { exit, noise }
            })
        }
    }
}

async fn handshake(
    process: &Process,
    asked: Result<PendingRequest, RequestError>,
    (cancel, intake): (&CancellationToken, &Intake),
    limit: Duration,
) -> Result<ResponseValue, StartError> {
    let answer = match asked {
        Ok(asked) => asked.answer(limit).await,
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
    let noise = intake.first_noise().map(str::to_owned);
    Err(match error {
        _ if cancel.is_cancelled() => StartError::Cancelled,
        RequestError::TimedOut { after } => {
            StartError::TimedOut { after, stderr_tail: exit.stderr_tail, noise }
        }
        RequestError::Refused { message, .. } => StartError::Refused { message },
        RequestError::Send(_) | RequestError::Exited => StartError::Exited { exit, noise },
    })
}
