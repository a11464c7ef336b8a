//! The `innkeeper` binary: reads the command line, then hands over.

mod announce;
mod browser;
mod check_command;
mod cli;
mod config;
mod directories;
mod failure;
mod gateway_command;
mod logging;
mod login_command;
mod ready;
mod runtime_command;
mod serve;
mod shutdown;
mod stdio;
mod token;
mod wire;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use cli::{Cli, Command, GatewayArguments, GatewayCommand};
use failure::Failure;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    // The warden comes before everything else: it must stay small and start no thread.
    if arguments.next_if(|argument| argument == wire::WARDEN_COMMAND).is_some() {
        return innkeeper_claude::warden::run(arguments);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    logging::init();
    let outcome = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(cli));
            // What is still running after an orderly end is of no use to anybody.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => {
            Err(Failure::work(anyhow::Error::new(error).context("the async runtime could not start")))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => serve::run(cli.serve).await,
        Some(Command::Serve(arguments)) => serve::run(arguments).await,
        Some(Command::Gateway(GatewayArguments { command: Some(GatewayCommand::Check(check)), .. })) => {
            check_command::run(check).await
        }
        Some(Command::Gateway(arguments)) => gateway_command::run(arguments).await,
        Some(Command::Login(arguments)) => login_command::login(arguments).await,
        Some(Command::Logout(arguments)) => login_command::logout(arguments).await,
        Some(Command::Whoami(arguments)) => login_command::whoami(arguments).await,
        Some(Command::Runtime(arguments)) => runtime_command::run(arguments).await,
    }
}

/// Help and version are asked for; everything else is a wrong use.
fn usage(error: &clap::Error) -> ExitCode {
    // If even the terminal is gone there is nobody to tell.
    error.print().ok();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(failure::USAGE)
    }
}
