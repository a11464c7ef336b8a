//! Which variables the runtime sees.
//!
//! Owns the lists of variables that are taken away or added, and nothing else. Without an endpoint the
//! user's own keys and addresses stay; with one they never reach the runtime.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use secrecy::ExposeSecret;

use super::LaunchOptions;

/// Variables with which a settings file could lead requests past the endpoint or add a key to them. They
/// are emptied in our own settings; both runtimes read an empty value as none.
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

/// `ANTHROPIC_…` variables that only choose a model, which the user may go on doing.
const MODEL_CHOICES: &[&str] =
    &["ANTHROPIC_CUSTOM_MODEL_OPTION", "ANTHROPIC_DEFAULT_", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"];

/// Variables of whoever started the host (an editor, a test run, another runtime) that mean nothing, or the
/// wrong thing, to the runtime.
const FOREIGN: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
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

/// Names the runtime that a process belongs to. Whatever a runtime starts inherits it, so that leftovers can
/// be told from everything else on the machine.
pub(crate) const MARK: &str = "INNKEEPER_RUNTIME";

/// Addresses that are never reached through a proxy.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// The runtime's whole environment.
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
    // Without it a runtime tells a turn's result up to a tenth of a second before it has written its transcript:
    // one that is killed in between forgets a turn that every client has seen end.
    set("CLAUDE_CODE_EAGER_FLUSH", "1");
    set("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
    set("CLAUDE_CODE_ENTRYPOINT", "sdk-rust");
    if options.file_checkpoints {
        set("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
    }
    if let Some(endpoint) = &options.endpoint {
        // The settings file alone is not enough: in the older runtime a user's settings that set this very
        // switch, or a unix socket, make it ignore addresses in every settings file that follows. With the
        // switch set from outside, addresses and keys in settings files are ignored from the start.
        set("CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST", "1");
        set("ANTHROPIC_BASE_URL", &endpoint.base_url);
        set("ANTHROPIC_AUTH_TOKEN", endpoint.bearer.expose_secret());
    }
    environment.extend(options.overrides.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment
}

/// The inherited list of hosts without proxy, with loopback in it.
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

/// Whether the variable holds, or leads to, an account or address of the user's.
fn is_personal(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let chooses_model = MODEL_CHOICES.iter().any(|prefix| name.starts_with(prefix));
    DIVERTING.contains(&&*name) || (name.starts_with("ANTHROPIC_") && !chooses_model)
}
