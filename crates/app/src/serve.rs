//! `innkeeper serve`: run the host until a signal ends it.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ahp_types::version::SUPPORTED_PROTOCOL_VERSIONS;
use anyhow::{Context as _, anyhow};
use innkeeper_server::Admission;
use serde_json::json;

use crate::browser;
use crate::cli::{ServeArguments, UpstreamName};
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
    let listen = listen_address(&arguments.listen).map_err(Failure::usage)?;
    let directories = Directories::resolve(&arguments.data).map_err(Failure::usage)?;
    directories.create().map_err(Failure::usage)?;
    let token = admission_token(&arguments, &directories).map_err(Failure::usage)?;
    let admission = token.clone().map_or_else(Admission::open, Admission::with_token);
    let opener = directories.page_link();
    let settings = Settings {
        directories,
        listen,
        admission,
        upstream: arguments.upstream,
        claude: arguments.claude.clone(),
    };
    let running = wire::start(settings).await.map_err(Failure::work)?;
    let ready = Ready { address: running.server.address(), token };
    ready.print(&arguments).map_err(Failure::work)?;
    if wants_page(&arguments)
        && let Err(error) = browser::open(&ready.page(), &opener)
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

/// Reads `ADDR:PORT`; other ways in are not there yet.
pub(crate) fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let address: SocketAddr =
        text.parse().with_context(|| format!("{text:?} is no address to listen on; use 127.0.0.1:PORT"))?;
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
    address: SocketAddr,
    token: Option<String>,
}

impl Ready {
    fn page(&self) -> String {
        match &self.token {
            Some(token) => format!("http://{}/?tkn={token}", self.address),
            None => format!("http://{}/", self.address),
        }
    }

    fn print(&self, arguments: &ServeArguments) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if arguments.json {
            let line = json!({
                "event": "ready",
                "pid": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "protocol": SUPPORTED_PROTOCOL_VERSIONS,
                "endpoints": [{"transport": "ws", "url": format!("ws://{}/", self.address)}],
                "token": self.token,
                "page": self.page(),
            });
            writeln!(out, "{line}")?;
        } else {
            let model = match arguments.upstream {
                UpstreamName::Demo => "demo (built in, offline)",
            };
            writeln!(out, "Innkeeper {} is ready.", env!("CARGO_PKG_VERSION"))?;
            writeln!(out, "  page    {}", self.page())?;
            writeln!(out, "  socket  ws://{}/", self.address)?;
            writeln!(out, "  model   {model}")?;
            writeln!(out, "Press Ctrl-C to stop.")?;
        }
        Ok(out.flush()?)
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
