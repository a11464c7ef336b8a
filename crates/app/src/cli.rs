//! The command line, as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use innkeeper_claude::install::RuntimeVersion;

use crate::check_command::CheckArguments;
use crate::login_command::AccountArguments;

/// Keeps coding agents running and lets any number of clients drive them.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the host (the default command)
    Serve(ServeArguments),
    /// Run only the Anthropic-compatible gateway
    Gateway(GatewayArguments),
    /// Install, list and remove Claude runtimes
    Runtime(RuntimeArguments),
    /// Sign in to GitHub, for the models of GitHub Copilot
    Login(AccountArguments),
    /// Sign out of GitHub
    Logout(AccountArguments),
    /// Show who is signed in to GitHub
    Whoami(AccountArguments),
}

/// Where a model request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UpstreamName {
    /// The built-in demo model: offline, no account
    Demo,
    /// GitHub Copilot, with the account of `innkeeper login`
    Copilot,
    /// Anthropic, with the key in ANTHROPIC_API_KEY
    Anthropic,
}

#[derive(Debug, Args)]
pub(crate) struct UpstreamArguments {
    /// Where model requests go [default: copilot if signed in, else anthropic if a key is set, else demo]
    #[arg(long, value_name = "NAME", env = "INNKEEPER_UPSTREAM", value_enum)]
    pub(crate) upstream: Option<UpstreamName>,
    /// The configuration file [default: config.toml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DataArguments {
    /// Where Innkeeper keeps its data [default: the platform's data directory]
    #[arg(long, value_name = "DIR", env = "INNKEEPER_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where installed runtimes live [default: runtimes in the data directory]
    #[arg(long, value_name = "DIR", env = "INNKEEPER_RUNTIMES_DIR", hide = true)]
    pub(crate) runtimes_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Where to listen, repeatable: 127.0.0.1:PORT (0 for any free one), unix:PATH, or stdio (a JSON message a line)
    #[arg(
        long,
        value_name = "ADDR",
        env = "INNKEEPER_LISTEN",
        default_value = "127.0.0.1:7433",
        value_delimiter = ','
    )]
    pub(crate) listen: Vec<String>,
    #[command(flatten)]
    pub(crate) data: DataArguments,
    /// The token that clients must bring [env: INNKEEPER_TOKEN] [default: a random one, kept in the data directory]
    #[arg(long, value_name = "TOKEN", group = "admission", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// A file with the token
    #[arg(long, value_name = "FILE", group = "admission")]
    pub(crate) token_file: Option<PathBuf>,
    /// Admit everyone who reaches the loopback address
    #[arg(long, group = "admission")]
    pub(crate) no_token: bool,
    /// Listen with TLS: a PEM file with the certificate. Needed beyond loopback addresses
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Write the discovery record by which VS Code finds the host on this machine or over SSH
    #[arg(long)]
    pub(crate) announce: bool,
    /// The user data directory of VS Code for --announce [default: VS Code's own]
    #[arg(long, value_name = "DIR", requires = "announce")]
    pub(crate) announce_dir: Option<PathBuf>,
    /// Append every message from and to clients to a file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) wire_log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) upstream: UpstreamArguments,
    /// The Claude runtime to use; a .js file is run with Node [default: the installed one, else `claude` on PATH]
    #[arg(long, value_name = "PATH", env = "INNKEEPER_CLAUDE")]
    pub(crate) claude: Option<PathBuf>,
    /// Print the ready line as JSON; with stdio it is the first line before the protocol's
    #[arg(long)]
    pub(crate) json: bool,
    /// Open the page in a browser
    #[arg(long, overrides_with = "no_open")]
    pub(crate) open: bool,
    /// Do not open the page in a browser
    #[arg(long, overrides_with = "open")]
    pub(crate) no_open: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArguments {
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,
    /// Where to listen: 127.0.0.1:PORT, port 0 for any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) data: DataArguments,
    #[command(flatten)]
    pub(crate) upstream: UpstreamArguments,
    /// Print the ready line as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Check whether a Messages endpoint keeps to Anthropic's wire format
    Check(CheckArguments),
}

#[derive(Debug, Args)]
pub(crate) struct RuntimeArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    #[command(subcommand)]
    pub(crate) command: RuntimeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuntimeCommand {
    /// Install a Claude runtime
    Install {
        /// The version [default: the one that this Innkeeper is tested with]
        version: Option<RuntimeVersion>,
        /// The npm registry to install from [default: npm_config_registry, .npmrc, or what npm says]
        #[arg(long, value_name = "URL")]
        registry: Option<String>,
    },
    /// List the installed runtimes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the path of an installed runtime's program
    Path {
        /// The version [default: the one that this Innkeeper is tested with]
        version: Option<RuntimeVersion>,
    },
    /// Remove an installed runtime
    Remove {
        /// The version
        version: RuntimeVersion,
    },
}
