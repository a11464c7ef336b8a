//! `innkeeper gateway`: runs only the gateway, for any Anthropic client.

use std::io::Write as _;

use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::cli::GatewayArguments;
use crate::config::Upstreams;
use crate::directories::DataDirectories;
use crate::failure::CommandFailure;
use crate::open_files::OpenFiles;
use crate::running_host;
use crate::serve::listen_address;
use crate::shutdown::Signals;

pub(crate) async fn run(arguments: GatewayArguments) -> Result<(), CommandFailure> {
    let mut signals = Signals::listen().map_err(CommandFailure::work)?;
    let listen = listen_address(&arguments.listen).map_err(CommandFailure::usage)?;
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    let mut upstreams = Upstreams::load(&arguments.upstream, &directories).map_err(CommandFailure::usage)?;
    OpenFiles::raise().limit_gateway(&mut upstreams.limits);
    let gateway = running_host::start_gateway(upstreams, listen).await.map_err(CommandFailure::work)?;
    let nonce = gateway.nonce();
    let mut out = std::io::stdout().lock();
    let printed = if arguments.json {
        let line = json!({
            "event": "ready",
            "base_url": gateway.base_url(),
            "nonce": nonce.expose_secret(),
        });
        writeln!(out, "{line}")
    } else {
        writeln!(
            out,
            "The gateway is ready. For any Anthropic client:\n  ANTHROPIC_BASE_URL={}\n  ANTHROPIC_AUTH_TOKEN={}",
            gateway.base_url(),
            gateway.bearer_for("terminal").expose_secret(),
        )
    };
    printed.and_then(|()| out.flush()).map_err(CommandFailure::work)?;
    drop(out);
    signals.next().await;
    tokio::select! {
        () = gateway.shutdown() => Ok(()),
        () = signals.next() => Err(CommandFailure::Interrupted),
    }
}
