//! Combines the configuration file, the environment and the flags.
//!
//! Owns `config.toml` and the precedence: flag, environment, file, default.
//! An unknown key is an error. The URL of a service that is not on this machine
//! is read only from the file, so that an environment variable cannot redirect
//! a credential to another server.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use innkeeper_core::policy::{RuleBehavior, RuleScope, RuleSet};
use innkeeper_core::{AdministratorRules, AgentLifetimes};
use innkeeper_gateway::{
    AnthropicConfig, AnthropicUpstream, BetaFilter, ClientOptions, CopilotConfig, CopilotUpstream,
    DEFAULT_CLIENT_ID, DemoUpstream, Discovery, Endpoint, GatewayLimits, GithubEndpoints, ProxyRules,
    Upstream,
};
use innkeeper_server::ServerLimits;
use innkeeper_workspace::TrackingLimits;
use secrecy::SecretString;
use serde::Deserialize;

use crate::cli::{UpstreamArguments, UpstreamName};
use crate::directories::DataDirectories;
use crate::{login_command, secrets};

/// Base URL of Anthropic's API.
const ANTHROPIC: &str = "https://api.anthropic.com";

/// Default URL for signing in; enterprises have their own.
const GITHUB: &str = "https://github.com";

/// All valid keys of the file.
const KEYS: [&str; 27] = [
    "upstream",
    "agents.idle_minutes",
    "agents.prewarm",
    "agents.prewarm_minutes",
    "anthropic.api_key",
    "anthropic.url",
    "copilot.api_url",
    "copilot.betas",
    "copilot.integration_id",
    "edits.max_file_size_kib",
    "edits.max_files",
    "edits.max_root_size_mib",
    "edits.quota_mib",
    "files.roots",
    "gateway.body_cap_mib",
    "gateway.idle_timeout_seconds",
    "github.api_url",
    "github.client_id",
    "github.url",
    "limits.connections",
    "limits.queued_mib",
    "limits.sessions",
    "models.refresh_minutes",
    "permissions.allow",
    "permissions.ask",
    "permissions.deny",
    "trust.folders",
];

/// Sets the time limit for the start of a runtime, in seconds.
const START_TIMEOUT_VARIABLE: &str = "INNKEEPER_START_TIMEOUT";

/// Time limit for the start of a runtime, unless configured.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two requests for the list of models, unless configured.
const MODEL_REFRESH: Duration = Duration::from_secs(15 * 60);

/// Maximum size of the configuration file.
const MAX_FILE: u64 = 1024 * 1024;

/// Longest lifetime of an agent without work that can be configured.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Largest size of all stored contents of edited files, compressed, unless configured.
const QUOTA: u64 = 2048 * 1024 * 1024;

/// Limits of the edit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EditSettings {
    /// Limits of the recorded contents of a working directory.
    pub(crate) limits: TrackingLimits,
    /// Largest size of all stored contents, compressed.
    pub(crate) quota_bytes: u64,
}

impl Default for EditSettings {
    fn default() -> Self {
        Self { limits: TrackingLimits::default(), quota_bytes: QUOTA }
    }
}

/// Contents of the configuration file.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    upstream: Option<String>,
    #[serde(default)]
    agents: AgentsSection,
    #[serde(default)]
    anthropic: AnthropicSection,
    #[serde(default)]
    copilot: CopilotSection,
    #[serde(default)]
    edits: EditsSection,
    #[serde(default)]
    files: FilesSection,
    #[serde(default)]
    gateway: GatewaySection,
    #[serde(default)]
    github: GithubSection,
    #[serde(default)]
    limits: LimitsSection,
    #[serde(default)]
    models: ModelsSection,
    #[serde(default)]
    permissions: PermissionsSection,
    #[serde(default)]
    trust: TrustSection,
}

#[derive(Debug, Default, Deserialize)]
struct AgentsSection {
    #[serde(default)]
    idle_minutes: Option<f64>,
    #[serde(default)]
    prewarm: Option<bool>,
    #[serde(default)]
    prewarm_minutes: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct AnthropicSection {
    #[serde(default, deserialize_with = "secret")]
    api_key: Option<SecretString>,
    #[serde(default)]
    url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct CopilotSection {
    #[serde(default)]
    api_url: Option<String>,
    #[serde(default)]
    betas: Option<Vec<String>>,
    #[serde(default)]
    integration_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct EditsSection {
    #[serde(default)]
    max_file_size_kib: Option<u32>,
    #[serde(default)]
    max_files: Option<u32>,
    #[serde(default)]
    max_root_size_mib: Option<u32>,
    #[serde(default)]
    quota_mib: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
struct FilesSection {
    #[serde(default)]
    roots: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
struct GatewaySection {
    #[serde(default)]
    body_cap_mib: Option<u32>,
    #[serde(default)]
    idle_timeout_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
struct GithubSection {
    #[serde(default)]
    api_url: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct LimitsSection {
    #[serde(default)]
    connections: Option<u32>,
    #[serde(default)]
    queued_mib: Option<u32>,
    #[serde(default)]
    sessions: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
struct ModelsSection {
    #[serde(default)]
    refresh_minutes: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct PermissionsSection {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    ask: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct TrustSection {
    #[serde(default)]
    folders: Option<Vec<String>>,
}

impl Config {
    /// Returns the limits for clients.
    pub(crate) fn server_limits(&self) -> Result<ServerLimits> {
        let mut limits = ServerLimits::default();
        for (key, value, limit) in [
            ("limits.connections", self.limits.connections, &mut limits.connections),
            ("limits.sessions", self.limits.sessions, &mut limits.sessions),
        ] {
            match value {
                None => {}
                Some(0) => bail!("{key}: must be at least 1"),
                Some(value) => *limit = usize::try_from(value)?,
            }
        }
        Ok(limits)
    }

    /// Returns how many bytes may be queued for all clients together, if configured.
    pub(crate) fn queued_bytes(&self) -> Result<Option<usize>> {
        match self.limits.queued_mib {
            Some(0) => bail!("limits.queued_mib: must be at least 1"),
            Some(mebibytes) => Ok(Some(usize::try_from(mebibytes)?.saturating_mul(1024 * 1024))),
            None => Ok(None),
        }
    }

    /// Returns how long agents without work keep their processes.
    pub(crate) fn lifetimes(&self) -> Result<AgentLifetimes> {
        let AgentsSection { idle_minutes, prewarm, prewarm_minutes } = self.agents;
        let mut lifetimes = AgentLifetimes::default();
        if let Some(idle) = idle_minutes {
            lifetimes.idle = Some(minutes("agents.idle_minutes", idle)?).filter(|idle| !idle.is_zero());
        }
        lifetimes.prewarm = prewarm.unwrap_or(lifetimes.prewarm);
        if let Some(unused) = prewarm_minutes {
            lifetimes.unused = minutes("agents.prewarm_minutes", unused)?;
            if lifetimes.unused.is_zero() {
                bail!(
                    "agents.prewarm_minutes: must be more than 0; use agents.prewarm = false to turn it off"
                );
            }
        }
        Ok(lifetimes)
    }

    /// Returns the time between two requests for the list of models.
    pub(crate) fn model_refresh(&self) -> Result<Duration> {
        let Some(configured) = self.models.refresh_minutes else { return Ok(MODEL_REFRESH) };
        let refresh = minutes("models.refresh_minutes", configured)?;
        if refresh.is_zero() {
            bail!("models.refresh_minutes: must be more than 0");
        }
        Ok(refresh)
    }

    /// Returns the limits of the edit log.
    pub(crate) fn edits(&self) -> Result<EditSettings> {
        let EditsSection { max_file_size_kib, max_files, max_root_size_mib, quota_mib } = self.edits;
        let mut settings = EditSettings::default();
        let limits = &mut settings.limits;
        for (key, value, unit, limit) in [
            ("edits.max_file_size_kib", max_file_size_kib, 1024, &mut limits.max_file_size),
            ("edits.max_root_size_mib", max_root_size_mib, 1024 * 1024, &mut limits.max_root_size),
            ("edits.quota_mib", quota_mib, 1024 * 1024, &mut settings.quota_bytes),
        ] {
            match value {
                None => {}
                Some(0) => bail!("{key}: must be at least 1"),
                Some(value) => *limit = u64::from(value).saturating_mul(unit),
            }
        }
        match max_files {
            None => {}
            Some(0) => bail!("edits.max_files: must be at least 1"),
            Some(files) => limits.max_files = usize::try_from(files)?,
        }
        Ok(settings)
    }

    /// Reads the file at `named`, or `config.toml` in the data directory if it exists.
    pub(crate) fn load(named: Option<&Path>, directories: &DataDirectories) -> Result<Self> {
        let path = named.map_or_else(|| path_in_data_directory(directories, "config.toml"), Path::to_owned);
        let what = || format!("the configuration file {}", path.display());
        match std::fs::metadata(&path) {
            Ok(found) if found.len() > MAX_FILE => bail!("cannot read {}: larger than 1 MiB", what()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", what())),
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", what()))?;
        Self::parse(&text).with_context(|| format!("invalid {}", path.display()))
    }

    /// Returns the directories that clients may access in addition to those of sessions.
    pub(crate) fn file_roots(&self) -> Result<Vec<PathBuf>> {
        absolute_paths("files.roots", self.files.roots.as_deref())
    }

    /// Returns the folders whose agent settings may run programs.
    pub(crate) fn trusted_folders(&self) -> Result<Vec<PathBuf>> {
        absolute_paths("trust.folders", self.trust.folders.as_deref())
    }

    /// Returns the administrator's permission rules. An invalid rule is an error, since a
    /// misspelled `deny` rule would silently have no effect.
    pub(crate) fn administrator_rules(&self) -> Result<AdministratorRules> {
        let PermissionsSection { allow, ask, deny } = &self.permissions;
        let (_, errors) = RuleSet::compile(RuleScope::Administrator, None, allow, ask, deny);
        if let Some(error) = errors.first() {
            let key = match error.behavior {
                RuleBehavior::Allow => "permissions.allow",
                RuleBehavior::Ask => "permissions.ask",
                RuleBehavior::Deny => "permissions.deny",
            };
            bail!("{key}: {error}");
        }
        Ok(AdministratorRules { allow: allow.clone(), ask: ask.clone(), deny: deny.clone() })
    }

    /// Parses the text of a configuration file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // A syntax error quotes the line, which may contain a secret.
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| without_source(text, &error))?;
        check_keys(&table, "")?;
        // This error names the key and cannot quote the text.
        let wrong = |error: toml::de::Error| anyhow!("{}", error.to_string().trim().replace('\n', " "));
        toml::Value::Table(table).try_into().map_err(wrong)
    }
}

/// Converts a number of minutes, which may have a fraction.
fn minutes(key: &str, value: f64) -> Result<Duration> {
    let time = Duration::try_from_secs_f64(value * 60.0).ok().filter(|time| *time <= MAX_LIFETIME);
    time.ok_or_else(|| anyhow!("{key}: must be a number of minutes from 0 to 525600 (one year)"))
}

/// Parses a list of absolute paths, which may start with `~/`.
fn absolute_paths(key: &str, texts: Option<&[String]>) -> Result<Vec<PathBuf>> {
    let expand = |text: &str| match text.strip_prefix("~/") {
        Some(rest) => std::env::home_dir().map(|home| home.join(rest)),
        None => Some(PathBuf::from(text)),
    };
    let path = |text: &String| {
        expand(text)
            .filter(|path| path.is_absolute())
            .ok_or_else(|| anyhow!("{key}: {text:?} is not an absolute path"))
    };
    texts.unwrap_or_default().iter().map(path).collect()
}

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Looks up a variable in the environment of this process.
pub(crate) fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Time limit for the start of a runtime.
pub(crate) fn start_timeout() -> Result<Duration> {
    let Some(text) = of_process(START_TIMEOUT_VARIABLE) else { return Ok(START_TIMEOUT) };
    let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    let wrong = || anyhow!("invalid {START_TIMEOUT_VARIABLE} {text:?}; expected seconds from 1 to 3600");
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

/// Resolved settings of the upstreams.
#[derive(Debug)]
pub(crate) struct Upstreams {
    /// The upstream to use.
    pub(crate) name: UpstreamName,
    /// Limits of the gateway.
    pub(crate) limits: GatewayLimits,
    /// Where users sign in.
    pub(crate) github: GithubEndpoints,
    /// OAuth client id for signing in.
    pub(crate) client_id: String,
    /// Options for outgoing connections.
    pub(crate) client: ClientOptions,
    anthropic: Endpoint,
    anthropic_key: Option<SecretString>,
    copilot: Option<Endpoint>,
    /// Whether only Copilot's URL is overridden, in which case GitHub is not contacted.
    copilot_alone: bool,
    betas: Option<Vec<String>>,
    integration_id: Option<String>,
    github_token: Option<SecretString>,
}

impl Upstreams {
    /// Resolves the settings of this process.
    pub(crate) fn load(arguments: &UpstreamArguments, directories: &DataDirectories) -> Result<Self> {
        let config = Config::load(arguments.config.as_deref(), directories)?;
        let token = login_command::token(directories)?;
        Self::resolve(arguments.upstream, &of_process, config, token)
    }

    /// Resolves the settings from flag, environment and file.
    pub(crate) fn resolve(
        flag: Option<UpstreamName>,
        environment: Environment<'_>,
        config: Config,
        github_token: Option<SecretString>,
    ) -> Result<Self> {
        let anthropic_key =
            environment(secrets::ANTHROPIC_KEY).map(SecretString::from).or(config.anthropic.api_key);
        let anthropic =
            address(environment, "INNKEEPER_ANTHROPIC_URL", ("anthropic.url", config.anthropic.url))?;
        let copilot =
            address(environment, "INNKEEPER_COPILOT_API_URL", ("copilot.api_url", config.copilot.api_url))?;
        let api =
            address(environment, "INNKEEPER_GITHUB_API_URL", ("github.api_url", config.github.api_url))?;
        let web = match (config.github.url, &api) {
            (Some(url), _) => Endpoint::from_configuration(&url).context("github.url")?,
            // A fake on this machine replaces all of GitHub.
            (None, Some(api)) if api.is_loopback() => api.clone(),
            (None, _) => Endpoint::from_configuration(GITHUB)?,
        };
        let mut github = GithubEndpoints::of(web);
        let copilot_alone = copilot.is_some() && api.is_none();
        github.api = api.unwrap_or(github.api);
        let configured = match &config.upstream {
            Some(name) => Some(upstream_name(name)?),
            None => None,
        };
        let name = flag.or(configured).unwrap_or(match (&github_token, &anthropic_key) {
            (Some(_), _) => UpstreamName::Copilot,
            (None, Some(_)) => UpstreamName::Anthropic,
            (None, None) => UpstreamName::Demo,
        });
        Ok(Self {
            name,
            limits: limits(&config.gateway)?,
            github,
            client_id: config.github.client_id.unwrap_or_else(|| DEFAULT_CLIENT_ID.to_owned()),
            client: client_options(&config.gateway)?,
            anthropic: match anthropic {
                Some(anthropic) => anthropic,
                None => Endpoint::from_configuration(ANTHROPIC)?,
            },
            anthropic_key,
            copilot,
            copilot_alone,
            betas: config.copilot.betas,
            integration_id: config.copilot.integration_id,
            github_token,
        })
    }

    /// Creates the selected upstream.
    pub(crate) fn build(self) -> Result<Arc<dyn Upstream>> {
        Ok(match self.name {
            UpstreamName::Demo => Arc::new(DemoUpstream::new()),
            UpstreamName::Anthropic => Arc::new(AnthropicUpstream::new(AnthropicConfig {
                api: self.anthropic,
                key: self.anthropic_key,
                client: self.client,
            })),
            UpstreamName::Copilot => Arc::new(CopilotUpstream::new(CopilotConfig {
                github_api: self.github.api,
                copilot_api: self.copilot,
                discovery: if self.copilot_alone { Discovery::Never } else { Discovery::Always },
                token: self.github_token,
                betas: self.betas.map_or_else(BetaFilter::default, BetaFilter::new),
                integration_id: match self.integration_id {
                    Some(id) => Some(id.parse().map_err(|_| {
                        anyhow!("copilot.integration_id: {id:?} is not a valid header value")
                    })?),
                    None => None,
                },
                client: self.client,
            })),
        })
    }
}

/// Returns the path of a file in the data directory, which also holds the token.
pub(crate) fn path_in_data_directory(directories: &DataDirectories, name: &str) -> PathBuf {
    directories.token().with_file_name(name)
}

/// Returns the URL of a service: the environment's if it is a loopback address, otherwise
/// the file's.
fn address(
    environment: Environment<'_>,
    variable: &str,
    (key, value): (&str, Option<String>),
) -> Result<Option<Endpoint>> {
    if let Some(text) = environment(variable) {
        match Endpoint::from_environment(&text) {
            Ok(endpoint) => return Ok(Some(endpoint)),
            Err(error) => tracing::warn!(%error, "ignoring {variable}; set {key} in config.toml instead"),
        }
    }
    value.map(|text| Endpoint::from_configuration(&text)).transpose().with_context(|| key.to_owned())
}

fn upstream_name(text: &str) -> Result<UpstreamName> {
    <UpstreamName as clap::ValueEnum>::from_str(text, false)
        .map_err(|_| anyhow!("upstream: unknown upstream {text:?}; known: demo, copilot, anthropic"))
}

fn limits(section: &GatewaySection) -> Result<GatewayLimits> {
    match section.body_cap_mib {
        None => Ok(GatewayLimits::default()),
        Some(0) => bail!("gateway.body_cap_mib: must be at least 1"),
        Some(mebibytes) => {
            let body_cap = usize::try_from(mebibytes)?.saturating_mul(1024 * 1024);
            Ok(GatewayLimits { body_cap, ..GatewayLimits::default() })
        }
    }
}

fn client_options(section: &GatewaySection) -> Result<ClientOptions> {
    let mut options = ClientOptions { proxy: ProxyRules::of_environment(), ..ClientOptions::default() };
    match section.idle_timeout_seconds {
        None => {}
        Some(0) => bail!("gateway.idle_timeout_seconds: must be at least 1"),
        Some(seconds) => options.idle_timeout = Duration::from_secs(seconds.into()),
    }
    Ok(options)
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Into::into))
}

fn without_source(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let place = error.span().and_then(|span| text.get(..span.start));
    let line = place.map_or(1, |before| before.matches('\n').count() + 1);
    anyhow!("line {line}: {}", error.message())
}

/// Rejects unknown keys, since a misspelled key would silently have no effect.
fn check_keys(table: &toml::Table, section: &str) -> Result<()> {
    for (name, value) in table {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        let is_section = KEYS
            .iter()
            .any(|known| known.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.')));
        if !is_section && !KEYS.contains(&key.as_str()) {
            bail!("unknown key {key}; did you mean {}?", nearest(&key));
        }
        match value.as_table() {
            Some(inner) if is_section => check_keys(inner, &key)?,
            // Otherwise the items of a list would be accepted as the keys in order.
            None if is_section => bail!("{key}: must be a table, as in [{key}]"),
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn nearest(key: &str) -> &'static str {
    KEYS.iter().copied().min_by_key(|known| distance(key, known)).unwrap_or_default()
}

/// Levenshtein distance.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        for (cell, against) in row.iter_mut().skip(1).zip(other.chars()) {
            let changed = diagonal + usize::from(letter != against);
            diagonal = *cell;
            left = changed.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
