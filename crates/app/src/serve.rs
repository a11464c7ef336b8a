//! `innkeeper serve`: runs the host until a signal arrives or its only client on stdio
//! disconnects.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use innkeeper_core::clock::SystemClock;
use innkeeper_server::{Admission, Listen, ServerOptions, TlsIdentity, WireLog};

use crate::cli::ServeArguments;
use crate::config::{self, Config, Upstreams};
use crate::directories::DataDirectories;
use crate::failure::CommandFailure;
use crate::open_files::OpenFiles;
use crate::ready::{ReadyLine, Scheme};
use crate::running_host::{self, RunningHost, Settings};
use crate::shutdown::Signals;
use crate::{announce, browser, freed_memory, permissions, secrets, stdio, token};

/// Timeout of a graceful shutdown. Stopping a runtime takes at most 8 s.
const SHUTDOWN_TIME: Duration = Duration::from_millis(9_500);

pub(crate) async fn run(arguments: ServeArguments) -> Result<(), CommandFailure> {
    let mut signals = Signals::listen().map_err(CommandFailure::work)?;
    let listen = places(&arguments).map_err(CommandFailure::usage)?;
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    directories.create().map_err(CommandFailure::usage)?;
    let token = admission_token(&arguments, &directories).map_err(CommandFailure::usage)?;
    let mut server =
        server_options(&arguments, &directories, token.as_deref()).map_err(CommandFailure::usage)?;
    let open_files = OpenFiles::raise();
    open_files.limit_server(&mut server.limits);
    let scheme = if server.tls.is_some() { Scheme::Tls } else { Scheme::Plain };
    let registry = registry(&arguments, &listen, scheme).map_err(CommandFailure::usage)?;
    let admission = token.clone().map_or_else(Admission::open, Admission::with_token);
    let mut upstreams = Upstreams::load(&arguments.upstream, &directories).map_err(CommandFailure::usage)?;
    open_files.limit_gateway(&mut upstreams.limits);
    let config =
        Config::load(arguments.upstream.config.as_deref(), &directories).map_err(CommandFailure::usage)?;
    let roots = config.file_roots().map_err(CommandFailure::usage)?;
    let trusted = config.trusted_folders().map_err(CommandFailure::usage)?;
    let administrator_rules = config.administrator_rules().map_err(CommandFailure::usage)?;
    let edits = config.edits().map_err(CommandFailure::usage)?;
    let lifetimes = config.lifetimes().map_err(CommandFailure::usage)?;
    let model_refresh = config.model_refresh().map_err(CommandFailure::usage)?;
    let start_timeout = config::start_timeout().map_err(CommandFailure::usage)?;
    let queued_bytes = config.queued_bytes().map_err(CommandFailure::usage)?;
    let (upstream, opener) = (upstreams.name, directories.page_link());
    let claude = arguments.claude.clone();
    let settings = Settings {
        directories,
        listen,
        admission,
        server,
        upstreams,
        claude,
        roots,
        trusted,
        administrator_rules,
        edits,
        start_timeout,
        lifetimes,
        model_refresh,
    };
    let running = running_host::start(settings).await.map_err(CommandFailure::work)?;
    if let Some(bytes) = queued_bytes {
        running.host().store().limit_outboxes(bytes);
    }
    let ready = ReadyLine { places: running.server.places().to_vec(), scheme, token, upstream };
    let announced = registry.and_then(|registry| announce::write(&registry, &ready));
    ready.print(arguments.json).map_err(CommandFailure::work)?;
    if ready.places.contains(&Listen::Stdio) {
        running.server.open_stdio(tokio::io::stdin(), stdio::take_stdout().map_err(CommandFailure::work)?);
    }
    if wants_page(&arguments)
        && let Some(page) = ready.page()
        && let Err(error) = browser::open(&page, &opener)
    {
        tracing::warn!(%error, "cannot open the page in a browser; open its address yourself");
    }
    tokio::select! {
        () = signals.next() => drain(&running, arguments.drain, &mut signals).await,
        () = running.server.deserted() => tracing::info!("shutting down: the client disconnected"),
        never = freed_memory::return_to_system(running.host()) => match never {},
    }
    // Removes the record first, so that no further clients are directed to this host.
    drop(announced);
    tokio::select! {
        stopped = tokio::time::timeout(SHUTDOWN_TIME, running.stop()) => {
            if stopped.is_err() {
                tracing::warn!("shutdown timed out");
            }
            Ok(())
        }
        () = signals.next() => Err(CommandFailure::Interrupted),
    }
}

/// Waits for running turns, if the user wants that. A second signal ends the wait.
async fn drain(running: &RunningHost, seconds: Option<u32>, signals: &mut Signals) {
    if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
        tracing::info!(seconds, "stopping after the running turns; a second signal stops them");
        tokio::select! {
            () = running.host().drain(Duration::from_secs(seconds.into())) => {}
            () = signals.next() => {}
        }
    }
    tracing::info!("shutting down; another signal exits immediately");
}

/// Parses the listen addresses. Addresses other than loopback require TLS and a token.
fn places(arguments: &ServeArguments) -> anyhow::Result<Vec<Listen>> {
    let places: Vec<Listen> =
        arguments.listen.iter().map(|text| listen_place(text)).collect::<anyhow::Result<_>>()?;
    if places.iter().filter(|place| **place == Listen::Stdio).count() > 1 {
        return Err(anyhow!("cannot listen on stdio twice; pass --listen stdio once"));
    }
    for place in &places {
        let Listen::Tcp(address) = place else { continue };
        if address.ip().is_loopback() {
            continue;
        }
        if arguments.tls_cert.is_none() {
            return Err(anyhow!(
                "{address} is reachable from other machines; use 127.0.0.1:PORT, or set --tls-cert and --tls-key"
            ));
        }
        if arguments.no_token {
            return Err(anyhow!(
                "{address} is reachable from other machines and requires a token; remove --no-token"
            ));
        }
    }
    Ok(places)
}

/// Parses `ADDR:PORT`, `unix:PATH` or `stdio`.
fn listen_place(text: &str) -> anyhow::Result<Listen> {
    match text.strip_prefix("unix:") {
        Some("") => Err(anyhow!("unix: requires a path, as in unix:/run/user/1000/innkeeper.sock")),
        Some(path) => Ok(Listen::Unix(std::path::absolute(path).context("cannot resolve the socket path")?)),
        None if text == "stdio" => Ok(Listen::Stdio),
        None => address(text, "127.0.0.1:PORT, unix:PATH or stdio").map(Listen::Tcp),
    }
}

/// Parses an IP address with port, or `localhost:PORT`, which needs no name resolution.
fn address(text: &str, wanted: &str) -> anyhow::Result<SocketAddr> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric
        .as_deref()
        .unwrap_or(text)
        .parse()
        .with_context(|| format!("invalid listen address {text:?}; expected {wanted}"))
}

/// Parses `ADDR:PORT` and rejects addresses other than loopback.
pub(crate) fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let address = address(text, "127.0.0.1:PORT")?;
    if !address.ip().is_loopback() {
        return Err(anyhow!("{address} is reachable from other machines; use 127.0.0.1:PORT"));
    }
    Ok(address)
}

fn server_options(
    arguments: &ServeArguments,
    directories: &DataDirectories,
    token: Option<&str>,
) -> anyhow::Result<ServerOptions> {
    let limits = Config::load(arguments.upstream.config.as_deref(), directories)?.server_limits()?;
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => {
            permissions::check_secret(key)?;
            Some(TlsIdentity::load(certificate, key)?)
        }
        _ => None,
    };
    let wire_log = match &arguments.wire_log {
        Some(path) => {
            let log = WireLog::open(path, token, Arc::new(SystemClock));
            Some(log.with_context(|| format!("cannot write the wire log {}", path.display()))?)
        }
        None => None,
    };
    Ok(ServerOptions { tls, limits, wire_log, usage: None })
}

/// Returns the user data directory for the discovery record, if `--announce` is set.
fn registry(
    arguments: &ServeArguments,
    places: &[Listen],
    scheme: Scheme,
) -> anyhow::Result<Option<PathBuf>> {
    if !arguments.announce {
        return Ok(None);
    }
    if !announce::can_announce(places, scheme) {
        return Err(anyhow!(
            "--announce requires an address that VS Code can connect to: 127.0.0.1:PORT without TLS, or unix:PATH"
        ));
    }
    let directory = announce::user_data_directory(arguments.announce_dir.as_deref(), &config::of_process);
    directory.map(Some).ok_or_else(|| anyhow!("cannot find the home directory; set --announce-dir"))
}

fn admission_token(
    arguments: &ServeArguments,
    directories: &DataDirectories,
) -> anyhow::Result<Option<String>> {
    if arguments.no_token {
        return Ok(None);
    }
    if let Some(given) = &arguments.token {
        return token::from_flag(given).map(Some);
    }
    if let Some(file) = &arguments.token_file {
        return token::read(file).map(Some);
    }
    // After the flags, since each of them overrides the environment.
    match std::env::var(secrets::CLIENT_TOKEN) {
        Ok(given) => token::validate(&given).with_context(|| format!("invalid {}", secrets::CLIENT_TOKEN)),
        Err(_) => token::load_or_create(&directories.token()),
    }
    .map(Some)
}

/// Whether to open the page. By default it opens for a user at a desktop terminal.
fn wants_page(arguments: &ServeArguments) -> bool {
    if arguments.open || arguments.no_open {
        return arguments.open;
    }
    let desktop = cfg!(target_os = "macos")
        || std::env::var_os("DISPLAY").is_some()
        || std::env::var_os("WAYLAND_DISPLAY").is_some();
    let at_a_terminal = std::io::stdout().is_terminal() && std::env::var_os("SSH_CONNECTION").is_none();
    !arguments.json && desktop && at_a_terminal
}
