//! Human-readable logs on stderr.

use std::io::IsTerminal as _;

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Initializes logging. `INNKEEPER_LOG` is a filter, such as `debug`.
pub(crate) fn init() {
    let filter =
        EnvFilter::try_from_env("INNKEEPER_LOG").unwrap_or_else(|_| EnvFilter::new("warn,innkeeper=info"));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false);
    tracing_subscriber::registry().with(filter).with(filter_fn(is_safe)).with(lines).init();
}

/// Whether an event contains no secrets. Libraries log whole messages and headers at the levels `debug`
/// and `trace`, including tokens.
fn is_safe(event: &Metadata<'_>) -> bool {
    event.target().starts_with("innkeeper") || *event.level() <= Level::INFO
}
