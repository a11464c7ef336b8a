//! `innkeeper serve`: run the host until a signal ends it, or its only client on
//! stdio is gone.

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
use crate::directories::Directories;
use crate::failure::Failure;
use crate::ready::{Ready, Scheme};
use crate::shutdown::Signals;
use crate::wire::{self, Settings};
use crate::{announce, browser, stdio, token};

/// How long an orderly end may take. The stop ladder of a runtime takes 8 s at most.
const SHUTDOWN_TIME: Duration = Duration::from_millis(9_500);

/// The variable that holds the token, if no flag says otherwise.
const TOKEN_VARIABLE: &str = "INNKEEPER_TOKEN";

pub(crate) async fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let mut signals = Signals::listen().map_err(Failure::work)?;
    let listen = places(&arguments).map_err(Failure::usage)?;
    let directories = Directories::resolve(&arguments.data).map_err(Failure::usage)?;
    directories.create().map_err(Failure::usage)?;
    let token = admission_token(&arguments, &directories).map_err(Failure::usage)?;
    let server = server_options(&arguments, &directories, token.as_deref()).map_err(Failure::usage)?;
    let scheme = if server.tls.is_some() { Scheme::Tls } else { Scheme::Plain };
    let registry = registry(&arguments, &listen, scheme).map_err(Failure::usage)?;
    let admission = token.clone().map_or_else(Admission::open, Admission::with_token);
    let upstreams = Upstreams::load(&arguments.upstream, &directories).map_err(Failure::usage)?;
    let config = Config::load(arguments.upstream.config.as_deref(), &directories);
    let roots = config.and_then(|config| config.file_roots()).map_err(Failure::usage)?;
    let (upstream, opener) = (upstreams.name, directories.page_link());
    let claude = arguments.claude.clone();
    let settings = Settings { directories, listen, admission, server, upstreams, claude, roots };
    let running = wire::start(settings).await.map_err(Failure::work)?;
    let ready = Ready { places: running.server.places().to_vec(), scheme, token, upstream };
    let announced = registry.and_then(|registry| announce::write(&registry, &ready));
    ready.print(arguments.json).map_err(Failure::work)?;
    if ready.places.contains(&Listen::Stdio) {
        running.server.open_stdio(tokio::io::stdin(), stdio::take_stdout().map_err(Failure::work)?);
    }
    if wants_page(&arguments)
        && let Some(page) = ready.page()
        && let Err(error) = browser::open(&page, &opener)
    {
        tracing::warn!(%error, "the page could not be opened; open its address yourself");
    }
    tokio::select! {
        () = signals.next() => tracing::info!("stopping; a second signal stops at once"),
        () = running.server.deserted() => tracing::info!("stopping, since the client is gone"),
    }
    // Nobody is sent here any more.
    drop(announced);
    tokio::select! {
        stopped = tokio::time::timeout(SHUTDOWN_TIME, running.stop()) => {
            if stopped.is_err() {
                tracing::warn!("not everything ended in time");
            }
            Ok(())
        }
        () = signals.next() => Err(Failure::Interrupted),
    }
}

/// Reads the places to listen. Beyond the loopback it takes TLS and a token.
fn places(arguments: &ServeArguments) -> anyhow::Result<Vec<Listen>> {
    let places: Vec<Listen> =
        arguments.listen.iter().map(|text| listen_place(text)).collect::<anyhow::Result<_>>()?;
    if places.iter().filter(|place| **place == Listen::Stdio).count() > 1 {
        return Err(anyhow!("there is one stdin and stdout; name stdio once"));
    }
    for place in &places {
        let Listen::Tcp(address) = place else { continue };
        if address.ip().is_loopback() {
            continue;
        }
        if arguments.tls_cert.is_none() {
            return Err(anyhow!(
                "{address} can be reached from other machines; use 127.0.0.1:PORT, or give a certificate with --tls-cert and --tls-key"
            ));
        }
        if arguments.no_token {
            return Err(anyhow!(
                "{address} can be reached from other machines, which must bring a token; leave --no-token out"
            ));
        }
    }
    Ok(places)
}

/// Reads `ADDR:PORT`, `unix:PATH` or `stdio`.
fn listen_place(text: &str) -> anyhow::Result<Listen> {
    match text.strip_prefix("unix:") {
        Some("") => Err(anyhow!("unix: needs a path, as in unix:/run/user/1000/innkeeper.sock")),
        Some(path) => Ok(Listen::Unix(std::path::absolute(path).context("the socket has no absolute path")?)),
        None if text == "stdio" => Ok(Listen::Stdio),
        None => address(text, "127.0.0.1:PORT, unix:PATH or stdio").map(Listen::Tcp),
    }
}

/// Reads an address, or the one name that is known without asking anybody.
fn address(text: &str, wanted: &str) -> anyhow::Result<SocketAddr> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric
        .as_deref()
        .unwrap_or(text)
        .parse()
        .with_context(|| format!("{text:?} is no place to listen; use {wanted}"))
}

/// Reads `ADDR:PORT` of the loopback.
pub(crate) fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let address = address(text, "127.0.0.1:PORT")?;
    if !address.ip().is_loopback() {
        return Err(anyhow!("{address} can be reached from other machines; use 127.0.0.1:PORT"));
    }
    Ok(address)
}

fn server_options(
    arguments: &ServeArguments,
    directories: &Directories,
    token: Option<&str>,
) -> anyhow::Result<ServerOptions> {
    let limits = Config::load(arguments.upstream.config.as_deref(), directories)?.server_limits()?;
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsIdentity::load(certificate, key)?),
        _ => None,
    };
    let wire_log = match &arguments.wire_log {
        Some(path) => {
            let log = WireLog::open(path, token, Arc::new(SystemClock));
            Some(log.with_context(|| format!("the wire log {} cannot be written", path.display()))?)
        }
        None => None,
    };
    Ok(ServerOptions { tls, limits, wire_log })
}

/// Where the host is announced, if it is to be.
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
            "--announce needs a place that VS Code can dial: 127.0.0.1:PORT without TLS, or unix:PATH"
        ));
    }
    let directory = announce::user_data_directory(arguments.announce_dir.as_deref(), &config::of_process);
    directory.map(Some).ok_or_else(|| anyhow!("there is no home directory; name a place with --announce-dir"))
}

fn admission_token(arguments: &ServeArguments, directories: &Directories) -> anyhow::Result<Option<String>> {
    if arguments.no_token {
        return Ok(None);
    }
    if let Some(given) = &arguments.token {
        return token::from_flag(given).map(Some);
    }
    if let Some(file) = &arguments.token_file {
        return token::read(file).map(Some);
    }
    // Only now: a flag wins over the environment, whichever of the three it is.
    match std::env::var(TOKEN_VARIABLE) {
        Ok(given) => token::validate(&given).with_context(|| format!("{TOKEN_VARIABLE} cannot be used")),
        Err(_) => token::kept_at(&directories.token()),
    }
    .map(Some)
}

/// Unless told otherwise, the page opens for a person at a desktop.
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
