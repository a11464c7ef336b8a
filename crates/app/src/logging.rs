//! Human-readable logs on stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Initializes logging. `INNKEEPER_LOG` is a filter, such as `debug`.
pub(crate) fn init() {
    let filter =
        EnvFilter::try_from_env("INNKEEPER_LOG").unwrap_or_else(|_| EnvFilter::new("warn,innkeeper=info"));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
