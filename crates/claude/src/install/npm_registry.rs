//! The npm registry that packages are downloaded from.
//!
//! Owns the lookup order of the registry settings and the addresses within a registry. There is no
//! built-in registry: if none is configured, the error explains how to configure one. Credentials in an
//! address are used but never displayed.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use url::{Host, Url};

/// Timeout of `npm config get registry`; npm starts in about a second on a slow machine.
const NPM_PATIENCE: Duration = Duration::from_secs(20);
/// The `.npmrc` key for a registry specific to the packages' scope.
const SCOPED_KEY: &str = "@anthropic-ai:registry";

/// An npm registry.
#[derive(Clone, PartialEq, Eq)]
pub struct NpmRegistry {
    /// Base address; its path ends in a slash.
    base: Url,
}

impl NpmRegistry {
    /// Parses an address.
    ///
    /// # Errors
    /// If it is not an http or https address.
    pub fn parse(address: &str) -> Result<Self, RegistryError> {
        Self::named_by("the address", address)
    }

    /// Parses an address from the given setting.
    fn named_by(origin: &'static str, address: &str) -> Result<Self, RegistryError> {
        let unusable = |reason: String| RegistryError::Unusable { origin, reason };
        let mut base = Url::parse(address.trim()).map_err(|error| unusable(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(unusable(format!("unsupported scheme {}", base.scheme())));
        }
        base.set_query(None);
        base.set_fragment(None);
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self { base })
    }

    /// The address of a path relative to the registry, which may itself have a path.
    pub(super) fn join(&self, relative: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{relative}", self.base.path()));
        url
    }

    /// Whether the address has the same origin as the registry.
    pub(super) fn is_origin_of(&self, url: &Url) -> bool {
        self.base.origin() == url.origin()
    }

    /// Whether the registry runs on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        match self.base.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl fmt::Display for NpmRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = &self.base;
        write!(f, "{}://", url.scheme())?;
        if !url.username().is_empty() || url.password().is_some() {
            f.write_str("***@")?;
        }
        f.write_str(url.host_str().unwrap_or_default())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(url.path())
    }
}

impl fmt::Debug for NpmRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NpmRegistry({self})")
    }
}

/// Why no registry is available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No registry is configured.
    #[error(
        "no npm registry is configured; use `--registry URL`, set npm_config_registry, \
         or put `registry=URL` into ~/.npmrc"
    )]
    Missing,
    /// The configured address is invalid.
    #[error("invalid registry address in {origin} ({reason}); expected an http or https address")]
    Unusable {
        /// The setting that contains the address.
        origin: &'static str,
        /// Why the address is invalid.
        reason: String,
    },
    /// A settings file exists but cannot be read.
    #[error("cannot read {path} ({reason}); make it readable or choose a registry with `--registry URL`")]
    Settings {
        /// Path of the file.
        path: String,
        /// The system error.
        reason: String,
    },
}

/// The settings that may configure a registry.
///
/// Precedence: command line, environment, `.npmrc` files (nearest first; the scoped setting before the
/// general one), `npm config get registry`.
#[derive(Clone, Default)]
pub struct RegistrySearch {
    /// The value of `--registry`.
    pub option: Option<String>,
    /// The value of `npm_config_registry`.
    pub variable: Option<String>,
    /// `.npmrc` files in the order of precedence. Missing files are skipped.
    pub npmrc: Vec<PathBuf>,
    /// The command to run last, normally `npm config get registry`; empty to skip it.
    pub npm: Vec<OsString>,
    /// Names of environment variables that the command does not inherit.
    pub withheld: Vec<OsString>,
}

impl RegistrySearch {
    /// The settings of this process: its environment, `.npmrc` in the current folder and in the home
    /// folder, and `npm` from `PATH`.
    pub fn of_process(option: Option<String>) -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = std::env::home_dir().map(|home| home.join(".npmrc"));
        let user = std::env::var_os("npm_config_userconfig")
            .or_else(|| std::env::var_os("NPM_CONFIG_USERCONFIG"))
            .map(PathBuf::from)
            .or(home);
        let here = std::env::current_dir().ok().map(|dir| dir.join(".npmrc"));
        Self {
            option,
            variable: variable("npm_config_registry").or_else(|| variable("NPM_CONFIG_REGISTRY")),
            npmrc: here.into_iter().chain(user).collect(),
            npm: ["npm", "config", "get", "registry"].map(OsString::from).to_vec(),
            withheld: Vec::new(),
        }
    }

    /// Finds the registry.
    ///
    /// # Errors
    /// If no registry is configured, or the first configured address is invalid.
    pub async fn find(&self) -> Result<NpmRegistry, RegistryError> {
        if let Some(address) = &self.option {
            return NpmRegistry::named_by("`--registry`", address);
        }
        if let Some(address) = &self.variable {
            return NpmRegistry::named_by("npm_config_registry", address);
        }
        for path in &self.npmrc {
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    if let Some(address) = registry_in_npmrc(&text) {
                        return NpmRegistry::named_by("`.npmrc`", address);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(RegistryError::Settings {
                        path: path.display().to_string(),
                        reason: error.to_string(),
                    });
                }
            }
        }
        match ask_npm(&self.npm, &self.withheld).await {
            Some(address) => NpmRegistry::named_by("`npm config get registry`", &address),
            None => Err(RegistryError::Missing),
        }
    }
}

impl fmt::Debug for RegistrySearch {
    /// Omits the addresses, which may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrySearch")
            .field("option", &self.option.is_some())
            .field("variable", &self.variable.is_some())
            .field("npmrc", &self.npmrc)
            .field("npm", &self.npm)
            .field("withheld", &self.withheld)
            .finish()
    }
}

/// The registry in the text of an `.npmrc` file.
///
/// Skips values that contain variables: npm, which is queried last, can expand them.
fn registry_in_npmrc(text: &str) -> Option<&str> {
    let settings = || {
        text.lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with('['))
            .filter(|line| !line.starts_with([';', '#']))
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches(['"', '\''])))
            .filter(|(_, value)| !value.is_empty() && !value.contains("${"))
    };
    // As in npm, the last line of a key wins.
    let last = |wanted| settings().filter(|(key, _)| *key == wanted).last();
    last(SCOPED_KEY).or_else(|| last("registry")).map(|(_, value)| value)
}

/// Runs `npm config get registry` and returns its output, unless it fails or is empty.
async fn ask_npm(command_line: &[OsString], withheld: &[OsString]) -> Option<String> {
    let (npm, arguments) = command_line.split_first()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "a short settings query without state, killed when this future is dropped"
    )]
    let mut command = tokio::process::Command::new(npm);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    for name in withheld {
        command.env_remove(name);
    }
    let output = match tokio::time::timeout(NPM_PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot start npm");
            return None;
        }
        Err(_) => {
            tracing::warn!("`npm config get registry` timed out");
            return None;
        }
    };
    let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let said_something = output.status.success() && !matches!(&*answer, "" | "undefined" | "null");
    said_something.then_some(answer)
}

#[cfg(test)]
#[path = "npm_registry_tests.rs"]
mod tests;
