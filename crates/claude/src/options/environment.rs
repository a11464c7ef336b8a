//! The environment of the runtime.
//!
//! Owns the lists of removed and added variables. Without an endpoint, the user's keys and addresses are
//! kept; with an endpoint, they never reach the runtime.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use secrecy::ExposeSecret;

use super::LaunchOptions;

/// Variables that a settings file could use to redirect requests away from the endpoint or to add a key.
/// The host's settings set them to empty, which both runtimes treat as unset.
pub(super) const DIVERTING: &[&str] = &[
    "ANTHROPIC_API_HOST",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_CONFIG_DIR",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_FEDERATION_RULE_ID",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_API_BASE_URL",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    "CLAUDE_CODE_CUSTOM_OAUTH_URL",
    "CLAUDE_CODE_HOST_AUTH_ENV_VAR",
    "CLAUDE_CODE_HOST_CREDS_FILE",
    "CLAUDE_CODE_HTTPS_PROXY",
    "CLAUDE_CODE_HTTP_PROXY",
    "CLAUDE_CODE_OAUTH_REFRESH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
    "CLAUDE_CODE_REMOTE",
    "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
];

/// `ANTHROPIC_…` variables that only choose a model; they are kept.
const MODEL_CHOICES: &[&str] =
    &["ANTHROPIC_CUSTOM_MODEL_OPTION", "ANTHROPIC_DEFAULT_", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"];

/// Variables of the host's parent (an editor, a test run, another runtime) that are meaningless or wrong
/// for the runtime.
const FOREIGN: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_PID",
    "DEBUG",
    "GITHUB_ACTIONS",
    "NODE_OPTIONS",
];

/// Prefixes of such variables.
const FOREIGN_PREFIXES: &[&str] = &["CLAUDE_AGENT_SDK_", "ELECTRON_", "INNKEEPER_", "VSCODE_"];

/// Identifies the runtime that a process belongs to. Inherited by all descendants of a runtime, so that
/// leftover processes can be identified.
pub(crate) const MARK: &str = "INNKEEPER_RUNTIME";

/// The program that created a conversation, as recorded in transcripts.
pub(crate) const ENTRYPOINT: &str = "sdk-rust";

/// Addresses that bypass the proxy.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// Variables that the host sets itself, or that say where the runtime keeps its transcripts.
const RESERVED: &[&str] = &[
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_EAGER_FLUSH",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST",
    "CLAUDE_CONFIG_DIR",
    "HOME",
    MARK,
    "NO_PROXY",
    "no_proxy",
];

/// Whether a user must not choose the variable for a single conversation: its turns could not be followed,
/// or its transcript would not be found again.
pub fn is_reserved_variable(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The complete environment of the runtime.
pub(super) fn launch_environment(options: &LaunchOptions) -> BTreeMap<OsString, OsString> {
    let has_endpoint = options.endpoint.is_some();
    let mut environment: BTreeMap<OsString, OsString> = options
        .environment
        .iter()
        .filter(|(name, _)| !(is_foreign(name) || has_endpoint && is_personal(name)))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut set = |name: &str, value: &str| environment.insert(name.into(), value.into());
    let no_proxy = no_proxy(&options.environment);
    set("NO_PROXY", &no_proxy);
    set("no_proxy", &no_proxy);
    set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    // Otherwise a runtime reports a turn's result up to 100 ms before it has written the transcript. If
    // it is killed in between, the transcript lacks a turn that clients have seen end.
    set("CLAUDE_CODE_EAGER_FLUSH", "1");
    set("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
    set("CLAUDE_CODE_ENTRYPOINT", ENTRYPOINT);
    if options.file_checkpoints {
        set("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
    }
    if let Some(endpoint) = &options.endpoint {
        // The settings file alone is not enough: in the older runtime, user settings that set this
        // variable or a unix socket make it ignore addresses in all later settings files. If the variable
        // is set in the environment, addresses and keys in all settings files are ignored.
        set("CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST", "1");
        set("ANTHROPIC_BASE_URL", &endpoint.base_url);
        set("ANTHROPIC_AUTH_TOKEN", endpoint.bearer.expose_secret());
    }
    environment.extend(options.overrides.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment
}

/// The inherited proxy exceptions plus the loopback addresses.
pub(super) fn no_proxy(inherited: &BTreeMap<OsString, OsString>) -> String {
    let mut hosts: Vec<String> = Vec::new();
    for name in ["NO_PROXY", "no_proxy"] {
        let value = inherited.get(OsStr::new(name)).map(|value| value.to_string_lossy()).unwrap_or_default();
        for host in value.split([',', ' ']).filter(|host| !host.is_empty()) {
            if !hosts.iter().any(|known| known == host) {
                hosts.push(host.to_owned());
            }
        }
    }
    for host in LOOPBACK {
        if !hosts.iter().any(|known| known == host) {
            hosts.push(host.to_owned());
        }
    }
    hosts.join(",")
}

fn is_foreign(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    FOREIGN.contains(&&*name) || FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the variable contains or refers to the user's account or address.
fn is_personal(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let chooses_model = MODEL_CHOICES.iter().any(|prefix| name.starts_with(prefix));
    DIVERTING.contains(&&*name) || (name.starts_with("ANTHROPIC_") && !chooses_model)
}
