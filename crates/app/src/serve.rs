//! `innkeeper serve`: run the host until a signal ends it.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ahp_types::version::SUPPORTED_PROTOCOL_VERSIONS;
use anyhow::{Context as _, anyhow};
use innkeeper_server::{Admission, Listen};
use serde_json::json;

use crate::browser;
use crate::cli::{ServeArguments, UpstreamName};
use crate::config::{Config, Upstreams};
use crate::directories::Directories;
use crate::failure::Failure;
use crate::shutdown::Signals;
use crate::token;
use crate::wire::{self, Settings};

/// How long an orderly end may take. The stop ladder of a runtime takes 8 s at most.
const SHUTDOWN_TIME: Duration = Duration::from_millis(9_500);

/// The variable that holds the token, if no flag says otherwise.
const TOKEN_VARIABLE: &str = "INNKEEPER_TOKEN";

pub(crate) async fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let mut signals = Signals::listen().map_err(Failure::work)?;
    let listen = arguments.listen.iter().map(|text| listen_place(text)).collect::<anyhow::Result<_>>();
    let listen: Vec<Listen> = listen.map_err(Failure::usage)?;
    let directories = Directories::resolve(&arguments.data).map_err(Failure::usage)?;
    directories.create().map_err(Failure::usage)?;
    let token = admission_token(&arguments, &directories).map_err(Failure::usage)?;
    let admission = token.clone().map_or_else(Admission::open, Admission::with_token);
    let upstreams = Upstreams::load(&arguments.upstream, &directories).map_err(Failure::usage)?;
    let config = Config::load(arguments.upstream.config.as_deref(), &directories);
    let roots = config.and_then(|config| config.file_roots()).map_err(Failure::usage)?;
    let (upstream, opener) = (upstreams.name, directories.page_link());
    let claude = arguments.claude.clone();
    let settings = Settings { directories, listen, admission, upstreams, claude, roots };
    let running = wire::start(settings).await.map_err(Failure::work)?;
    let ready = Ready { places: running.server.places().to_vec(), token, upstream };
    ready.print(&arguments).map_err(Failure::work)?;
    if wants_page(&arguments)
        && let Some(page) = ready.page()
        && let Err(error) = browser::open(&page, &opener)
    {
        tracing::warn!(%error, "the page could not be opened; open its address yourself");
    }
    signals.next().await;
    tracing::info!("stopping; a second signal stops at once");
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

/// Reads `ADDR:PORT` or `unix:PATH`.
fn listen_place(text: &str) -> anyhow::Result<Listen> {
    match text.strip_prefix("unix:") {
        Some("") => Err(anyhow!("unix: needs a path, as in unix:/run/user/1000/innkeeper.sock")),
        Some(path) => Ok(Listen::Unix(std::path::absolute(path).context("the socket has no absolute path")?)),
        None => listen_address(text).map(Listen::Tcp),
    }
}

/// Reads `ADDR:PORT`.
pub(crate) fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let address: SocketAddr = text
        .parse()
        .with_context(|| format!("{text:?} is no place to listen; use 127.0.0.1:PORT or unix:PATH"))?;
    if !address.ip().is_loopback() {
        return Err(anyhow!("{address} can be reached from other machines; use 127.0.0.1:PORT"));
    }
    Ok(address)
}

fn admission_token(arguments: &ServeArguments, directories: &Directories) -> anyhow::Result<Option<String>> {
    if arguments.no_token {
        return Ok(None);
    }
    if let Some(given) = &arguments.token {
        return token::validate(given).map(Some);
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

/// What a client needs to know to connect.
struct Ready {
    places: Vec<Listen>,
    token: Option<String>,
    upstream: UpstreamName,
}

impl Ready {
    /// The page's address, if it can be reached by one.
    fn page(&self) -> Option<String> {
        let address = self.places.iter().find_map(|place| match place {
            Listen::Tcp(address) => Some(address),
            Listen::Unix(_) => None,
        })?;
        Some(match &self.token {
            Some(token) => format!("http://{address}/?tkn={token}"),
            None => format!("http://{address}/"),
        })
    }

    fn print(&self, arguments: &ServeArguments) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if arguments.json {
            writeln!(out, "{}", self.as_json())?;
            return Ok(out.flush()?);
        }
        let model = match self.upstream {
            UpstreamName::Demo => "demo (built in, offline)",
            UpstreamName::Copilot => "copilot",
            UpstreamName::Anthropic => "anthropic",
        };
        writeln!(out, "Innkeeper {} is ready.", env!("CARGO_PKG_VERSION"))?;
        if let Some(page) = self.page() {
            writeln!(out, "  page    {page}")?;
        }
        for place in &self.places {
            match place {
                Listen::Tcp(address) => writeln!(out, "  socket  ws://{address}/")?,
                Listen::Unix(path) => writeln!(out, "  socket  {}", path.display())?,
            }
        }
        writeln!(out, "  model   {model}")?;
        writeln!(out, "Press Ctrl-C to stop.")?;
        Ok(out.flush()?)
    }

    fn as_json(&self) -> serde_json::Value {
        let endpoint = |place: &Listen| match place {
            Listen::Tcp(address) => json!({"transport": "ws", "url": format!("ws://{address}/")}),
            Listen::Unix(path) => json!({"transport": "unix", "path": path}),
        };
        json!({
            "event": "ready",
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": SUPPORTED_PROTOCOL_VERSIONS,
            "endpoints": self.places.iter().map(endpoint).collect::<Vec<_>>(),
            "token": self.token,
            "page": self.page(),
        })
    }
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
