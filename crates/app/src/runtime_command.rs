//! `innkeeper runtime`: install, list and remove Claude runtimes.

use std::io::{IsTerminal as _, Write as _};

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use innkeeper_claude::install::{InstallError, InstallProgress, RegistrySearch, RuntimeVersion, Runtimes};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cli::{RuntimeArguments, RuntimeCommand};
use crate::directories::DataDirectories;
use crate::failure::CommandFailure;
use crate::secrets;
use crate::shutdown::Signals;

pub(crate) async fn run(arguments: RuntimeArguments) -> Result<(), CommandFailure> {
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    let runtimes = Runtimes::new(directories.runtimes());
    match arguments.command {
        RuntimeCommand::Install { version, registry } => {
            install(&runtimes, version.unwrap_or(RuntimeVersion::PINNED_NATIVE), registry).await
        }
        RuntimeCommand::List { json } => list(&runtimes, json),
        RuntimeCommand::Path { version } => path(&runtimes, version.unwrap_or(RuntimeVersion::PINNED_NATIVE)),
        RuntimeCommand::Remove { version } => runtimes.remove(version).map_err(CommandFailure::work),
    }
}

async fn install(
    runtimes: &Runtimes,
    version: RuntimeVersion,
    registry: Option<String>,
) -> Result<(), CommandFailure> {
    let mut signals = Signals::listen().map_err(CommandFailure::work)?;
    if let Some(program) = runtimes.path(version) {
        return print(&format!("{}", program.display()));
    }
    let withheld = secrets::VARIABLES.map(Into::into).to_vec();
    let search = RegistrySearch { withheld, ..RegistrySearch::of_process(registry) };
    let registry = search.find().await.map_err(CommandFailure::usage)?;
    let bar = progress_bar(version);
    let cancel = CancellationToken::new();
    let show = |progress| show(&bar, progress);
    let installing = runtimes.install(version, &registry, &show, &cancel);
    let installed = tokio::select! {
        installed = installing => installed,
        // Dropping the future leaves the directory unchanged.
        () = signals.next() => Err(InstallError::Cancelled),
    };
    bar.finish_and_clear();
    match installed {
        Ok(installed) => print(&format!("{}", installed.program.display())),
        Err(InstallError::Cancelled) => Err(CommandFailure::Interrupted),
        Err(error) => Err(CommandFailure::work(error)),
    }
}

fn list(runtimes: &Runtimes, as_json: bool) -> Result<(), CommandFailure> {
    let installed = runtimes.list().map_err(CommandFailure::work)?;
    if as_json {
        let rows: Vec<_> = installed
            .iter()
            .map(|runtime| {
                json!({
                    "version": runtime.version.to_string(),
                    "program": runtime.program,
                    "size": runtime.size,
                    "default": runtime.version == RuntimeVersion::PINNED_NATIVE,
                })
            })
            .collect();
        return print(&json!(rows).to_string());
    }
    if installed.is_empty() {
        return print("No runtimes installed. Install one with: innkeeper runtime install");
    }
    for runtime in installed {
        let megabytes = runtime.size / 1_000_000;
        let mark = if runtime.version == RuntimeVersion::PINNED_NATIVE { "  (default)" } else { "" };
        print(&format!(
            "{:<10} {megabytes:>4} MB  {}{mark}",
            runtime.version.to_string(),
            runtime.program.display()
        ))?;
    }
    Ok(())
}

fn path(runtimes: &Runtimes, version: RuntimeVersion) -> Result<(), CommandFailure> {
    match runtimes.path(version) {
        Some(program) => print(&format!("{}", program.display())),
        None => Err(CommandFailure::work(anyhow!(
            "runtime {version} is not installed; install it with: innkeeper runtime install {version}"
        ))),
    }
}

fn progress_bar(version: RuntimeVersion) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        tracing::info!(%version, "installing Claude runtime");
        return ProgressBar::hidden();
    }
    let style = "Claude {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style.progress_chars("=> ")).with_message(version.to_string())
}

fn show(bar: &ProgressBar, progress: InstallProgress) {
    match progress {
        InstallProgress::Waiting => bar.set_message("waiting for another installation"),
        InstallProgress::Downloading { received, total } => {
            if let Some(total) = total {
                bar.set_length(total);
            }
            bar.set_position(received);
        }
        InstallProgress::Unpacking => bar.set_message("unpacking"),
    }
}

fn print(line: &str) -> Result<(), CommandFailure> {
    writeln!(std::io::stdout(), "{line}").map_err(CommandFailure::work)
}
