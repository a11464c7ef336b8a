//! The command line arguments.

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
    pub(crate) command: Option<CliCommand>,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the host (the default command)
    Serve(ServeArguments),
    /// Run only the Anthropic-compatible gateway
    Gateway(GatewayArguments),
    /// Install, list and remove Claude runtimes
    Runtime(RuntimeArguments),
    /// List, add and remove folders whose agent settings may run programs
    Trust(TrustArguments),
    /// Sign in to GitHub, for the models of GitHub Copilot
    Login(AccountArguments),
    /// Sign out of GitHub
    Logout(AccountArguments),
    /// Show the GitHub account that is signed in
    Whoami(AccountArguments),
}

/// Upstream for model requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UpstreamName {
    /// Built-in demo model: offline, no account
    Demo,
    /// GitHub Copilot, with the account of `innkeeper login`
    Copilot,
    /// Anthropic, with the key in ANTHROPIC_API_KEY
    Anthropic,
}

impl UpstreamName {
    /// The name that users choose the upstream by.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Copilot => "copilot",
            Self::Anthropic => "anthropic",
        }
    }

    /// The name of the service, for sentences.
    pub(crate) fn service(self) -> &'static str {
        match self {
            Self::Demo => "The demo model",
            Self::Copilot => "GitHub Copilot",
            Self::Anthropic => "The Anthropic API",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct UpstreamArguments {
    /// Upstream for model requests [default: copilot if signed in, else anthropic if a key is set, else demo]
    #[arg(long, value_name = "NAME", env = "INNKEEPER_UPSTREAM", value_enum)]
    pub(crate) upstream: Option<UpstreamName>,
    /// Configuration file [default: config.toml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DataArguments {
    /// Data directory [default: the platform's data directory]
    #[arg(long, value_name = "DIR", env = "INNKEEPER_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Directory of installed runtimes [default: runtimes in the data directory]
    #[arg(long, value_name = "DIR", env = "INNKEEPER_RUNTIMES_DIR", hide = true)]
    pub(crate) runtimes_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Address to listen on, repeatable: 127.0.0.1:PORT (0 for any free port), unix:PATH, or stdio (one JSON message per line)
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
    /// Token that clients must present [env: INNKEEPER_TOKEN] [default: a random one, stored in the data directory]
    #[arg(long, value_name = "TOKEN", group = "admission", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// File that contains the token
    #[arg(long, value_name = "FILE", group = "admission")]
    pub(crate) token_file: Option<PathBuf>,
    /// Accept clients without a token (loopback only)
    #[arg(long, group = "admission")]
    pub(crate) no_token: bool,
    /// PEM file with the TLS certificate. Required for addresses other than loopback
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Write a discovery record so that VS Code finds the host on this machine or over SSH
    #[arg(long)]
    pub(crate) announce: bool,
    /// VS Code's user data directory for --announce [default: VS Code's own default]
    #[arg(long, value_name = "DIR", requires = "announce")]
    pub(crate) announce_dir: Option<PathBuf>,
    /// Append every message to and from clients to a file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) wire_log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) upstream: UpstreamArguments,
    /// Claude runtime to use; a .js file is run with Node [default: the installed one, else `claude` on PATH]
    #[arg(long, value_name = "PATH", env = "INNKEEPER_CLAUDE")]
    pub(crate) claude: Option<PathBuf>,
    /// When a signal stops the host, wait up to this many seconds for running turns; a second signal stops them
    #[arg(long, value_name = "SECONDS")]
    pub(crate) drain: Option<u32>,
    /// Print the ready line as JSON; with stdio, it is the first line on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Open the web page in a browser
    #[arg(long, overrides_with = "no_open")]
    pub(crate) open: bool,
    /// Do not open the web page in a browser
    #[arg(long, overrides_with = "open")]
    pub(crate) no_open: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArguments {
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,
    /// Address to listen on: 127.0.0.1:PORT, port 0 for any free port
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
    /// Check whether a Messages endpoint follows Anthropic's wire format
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
        /// Version to install [default: the one that this Innkeeper is tested with]
        version: Option<RuntimeVersion>,
        /// npm registry to install from [default: npm_config_registry, .npmrc, or the output of npm]
        #[arg(long, value_name = "URL")]
        registry: Option<String>,
    },
    /// List installed runtimes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the path of an installed runtime's executable
    Path {
        /// Version [default: the one that this Innkeeper is tested with]
        version: Option<RuntimeVersion>,
    },
    /// Remove an installed runtime
    Remove {
        /// Version to remove
        version: RuntimeVersion,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TrustArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    #[command(subcommand)]
    pub(crate) command: TrustCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// List the decisions about folders
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Trust a folder and its subfolders, with the settings that they have when they are first used
    Add {
        /// Folder to trust
        folder: PathBuf,
    },
    /// Forget the decisions about a folder and its subfolders, so that the user is asked again
    Remove {
        /// Folder to forget
        folder: PathBuf,
    },
}
