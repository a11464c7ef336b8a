//! Runs the Claude Code runtime: launch, stream-json messages, control protocol and long-lived sessions.
//!
//! This crate does not depend on the protocol between its callers and their clients. Invariants: no process
//! it starts outlives it, its readers never wait for a consumer, and unknown messages are neither lost nor
//! fatal.
//!
//! # Layers
//!
//! - [`ClaudeSession`] is a conversation at the level of turns: ordered sends, steering, timeouts,
//!   interrupts, hooks, forks, and a restart when the runtime exits.
//! - [`Runtime`] is one runtime process at the level of messages. [`turns`] assigns messages to turns and
//!   detects the end of a turn; [`Controls`] sends control requests.
//! - [`wire`] defines the message types; [`classify`] maps them to events.
//! - [`transcript`] reads the runtimes' transcripts, [`install`] downloads runtimes, and
//!   [`process_registry`] records running ones and kills the leftover processes of crashed hosts.
//!
//! # Example
//!
//! Every runtime runs under a [`warden`], a small process that terminates the runtime and its descendants
//! when the host exits for any reason. A program can serve as its own warden:
//!
//! ```standalone_crate
//! use std::process::ExitCode;
//!
//! use innkeeper_claude::{
//!     ClaudeSession, Conversation, Directories, EventKind, LaunchOptions, Program, SessionOptions,
//!     WardenProgram, warden,
//! };
//! use tokio_util::sync::CancellationToken;
//! use uuid::Uuid;
//!
//! fn main() -> ExitCode {
//!     let mut arguments = std::env::args_os().skip(1);
//!     if arguments.next().is_some_and(|first| first == "warden") {
//!         return warden::run(arguments);
//!     }
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//!     match runtime.block_on(talk()) {
//!         Ok(()) => ExitCode::SUCCESS,
//!         Err(error) => {
//!             eprintln!("{error}");
//!             ExitCode::FAILURE
//!         }
//!     }
//! }
//!
//! async fn talk() -> Result<(), Box<dyn std::error::Error>> {
//! #   let home = tempfile::tempdir()?;
//! #   let path = home.path().join("claude");
//! #   // A minimal runtime that answers one message.
//! #   std::fs::write(&path, r#"#!/usr/bin/env bash
//! # while read -r line; do
//! #   id=${line#*\"request_id\":\"}; id=${id%%\"*}
//! #   case $line in
//! #     *'"initialize"'*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"'$id'"}}' ;;
//! #     *'"type":"user"'*) echo "${line%\}},\"isReplay\":true}"
//! #       echo '{"type":"result","subtype":"success","result":"Welcome!","terminal_reason":"completed"}' ;;
//! #   esac
//! # done"#)?;
//! #   let mut mode = std::fs::metadata(&path)?.permissions();
//! #   std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
//! #   std::fs::set_permissions(&path, mode)?;
//! #   let (claude, cwd, scratch) = (path, home.path().to_owned(), home.path().join("scratch"));
//!     let warden = WardenProgram { path: std::env::current_exe()?, args: vec!["warden".into()] };
//!     let launch = LaunchOptions {
//!         environment: std::env::vars_os().collect(),
//!         append_system_prompt: Some("You keep an inn.".to_owned()),
//!         ..LaunchOptions::new(
//!             Program::from_path(claude),
//!             warden,
//!             Conversation::New(Uuid::new_v4()),
//!             Directories { cwd, scratch },
//!         )
//!     };
//!     let session = ClaudeSession::start(SessionOptions::new(launch), CancellationToken::new()).await?;
//!     let mut turn = session.send("Is there a room left?")?;
//!     while let Some(event) = turn.next().await {
//!         if let EventKind::TextDelta { text } = &event?.kind {
//!             print!("{text}");
//!         }
//!     }
//!     let result = turn.result().await?;
//! #   assert_eq!(result.text, "Welcome!");
//!     println!("\n{} tokens", result.tokens.output);
//!     session.terminate().await;
//!     Ok(())
//! }
//! ```

mod clock;
mod control;
mod controls;
mod countdown;
mod event;
mod inherited_fd;
pub mod install;
mod intake;
mod lines;
mod options;
mod process;
mod process_mark;
pub mod process_registry;
mod process_table;
pub mod project;
mod queue;
mod running_commands;
mod runtime;
mod session;
pub mod transcript;
mod transport;
pub mod turns;
pub mod warden;
pub mod wire;

pub use clock::{Clock, SystemClock};
pub use control::{RequestError, SendError};
pub use controls::{
    Controls, DynamicMcpServer, InterruptAnswer, McpServerStatus, McpServersChange, McpStatus, OtherRequest,
    PermissionModeAnswer, Queued, ReloadedPlugins, RewindMode, RewindResult, SettingsAnswer, SideAnswer,
    Title, Toggle,
};
pub use event::{EventKind, SessionEvent, Tokens, classify};
pub use options::{
    AgentDefinition, ApiEndpoint, BypassPermissions, Conversation, Directories, Effort, HookRegistration,
    LaunchFiles, LaunchOptions, LaunchPlan, McpOptions, McpServer, McpSources, PermissionMode, Program,
    SettingSource, SystemPrompt, Thinking, Tools, WardenProgram, is_reserved_variable,
};
pub use process::{Exit, ExitReason};
pub use running_commands::RunningCommand;
pub use runtime::{
    Initialized, ModelInfo, Priority, Runtime, RuntimeEvent, RuntimeEvents, RuntimeVersion, StartError,
    StopOptions, UserContent, UserMessage,
};
pub use session::{
    Artifact, ClaudeSession, EnqueueError, ForkError, HookError, Interrupted, Lagged, PermissionAnswer,
    Prompt, RefuseAll, RequestHandler, RestartError, SessionOptions, SessionSubscription, Status, SteerError,
    SteeringOutcome, Turn, TurnEnding, TurnFailure, TurnResult, UnexpectedExit,
};
pub use transport::{
    BoxFuture, ByteStream, Peer, PeerExit, PeerSignal, StreamLaunch, StreamOnlyPeer, StreamTransport,
    Transport,
};
pub use wire::{IncomingRequest, Message};
