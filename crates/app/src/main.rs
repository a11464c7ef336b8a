//! The `innkeeper` binary: parses the command line and runs the command.

mod announce;
mod browser;
mod check_command;
mod cli;
mod config;
mod directories;
mod failure;
mod freed_memory;
mod gateway_command;
mod logging;
mod login_command;
mod model_refresh;
mod open_files;
mod permissions;
mod ready;
mod running_host;
mod runtime_command;
mod secrets;
mod serve;
mod shutdown;
mod stdio;
mod titles;
mod token;
mod trust_command;
mod trusted_folders;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use cli::{Cli, CliCommand, GatewayArguments, GatewayCommand};
use failure::CommandFailure;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    // The warden must stay small and must not start threads, so it is handled first.
    if arguments.next_if(|argument| argument == running_host::WARDEN_COMMAND).is_some() {
        return innkeeper_claude::warden::run(arguments);
    }
    let protected = secrets::protect_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    logging::init();
    if let Err(error) = protected {
        tracing::warn!(%error, "cannot protect the memory of this process from other processes of the user");
    }
    let workers = worker_threads(std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(cli));
            // Tasks that are still running after shutdown are not needed.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => {
            Err(CommandFailure::work(anyhow::Error::new(error).context("cannot start the async runtime")))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A turn passes through several tasks. With few threads most of them run on the same one,
/// and the cores are left to the runtimes and their tools.
fn worker_threads(cores: usize) -> usize {
    (cores / 2).max(1)
}

async fn run(cli: Cli) -> Result<(), CommandFailure> {
    match cli.command {
        None => serve::run(cli.serve).await,
        Some(CliCommand::Serve(arguments)) => serve::run(arguments).await,
        Some(CliCommand::Gateway(GatewayArguments {
            command: Some(GatewayCommand::Check(check)), ..
        })) => check_command::run(check).await,
        Some(CliCommand::Gateway(arguments)) => gateway_command::run(arguments).await,
        Some(CliCommand::Login(arguments)) => login_command::login(arguments).await,
        Some(CliCommand::Logout(arguments)) => login_command::logout(arguments).await,
        Some(CliCommand::Whoami(arguments)) => login_command::whoami(arguments).await,
        Some(CliCommand::Runtime(arguments)) => runtime_command::run(arguments).await,
        Some(CliCommand::Trust(arguments)) => trust_command::run(&arguments),
    }
}

/// Prints a clap error. Help and version are a success, everything else is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    // Nothing can be reported if the terminal is closed.
    error.print().ok();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(failure::USAGE)
    }
}
