//! The environment of a running runtime.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, TestHost, runtimes};

use crate::{Opened, options};

/// Secrets in the host's environment, which runtimes must not inherit.
const SECRETS: [(&str, &str); 5] = [
    ("ANTHROPIC_API_KEY", "hosts-own-anthropic-key"),
    ("ANTHROPIC_AUTH_TOKEN", "hosts-own-auth-token"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "hosts-own-oauth-token"),
    ("INNKEEPER_GITHUB_TOKEN", "hosts-own-github-token"),
    ("INNKEEPER_TOKEN", "hosts-own-client-token"),
];

/// Returns the environment that a process was started with.
fn environment_of(pid: u32) -> Result<BTreeMap<String, String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ"))?;
    let text = String::from_utf8(bytes)?;
    Ok(text
        .split('\0')
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

#[tokio::test]
async fn runtime_environment_has_the_gateway_and_no_secrets_of_the_host() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(SECRETS.iter().fold(
            options(claude).with_variable("INNKEEPER_LOG", "error").with_variable("OF_THE_USER", "kept"),
            |options: HostOptions, (name, value)| options.with_variable(name, value),
        ))
        .await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", "#demo\ntext done").await?;
        client.until_turn_over(&chat, "turn-1").await?;

        let runtimes = host.runtimes();
        let [runtime] = runtimes.as_slice() else { panic!("{runtimes:?}") };
        let environment = environment_of(*runtime)?;
        let variable = |name: &str| environment.get(name).map(String::as_str);
        let gateway = variable("ANTHROPIC_BASE_URL").context("no gateway")?;
        assert!(gateway.starts_with("http://127.0.0.1:"), "{gateway}");
        let bearer = variable("ANTHROPIC_AUTH_TOKEN").context("no bearer")?;
        let (nonce, conversation) = bearer.split_once('.').context("no conversation in the bearer")?;
        assert!(nonce.len() >= 32, "{nonce}");
        assert!(!conversation.is_empty());
        for (name, value) in [
            ("CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_EAGER_FLUSH", "1"),
            ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
            ("CLAUDE_CODE_ENTRYPOINT", "sdk-rust"),
            ("OF_THE_USER", "kept"),
        ] {
            assert_eq!(variable(name), Some(value), "{name}");
        }
        for no_proxy in ["NO_PROXY", "no_proxy"] {
            assert!(variable(no_proxy).is_some_and(|hosts| hosts.contains("127.0.0.1")), "{no_proxy}");
        }
        let own: Vec<&String> = environment.keys().filter(|name| name.starts_with("INNKEEPER_")).collect();
        assert_eq!(own, ["INNKEEPER_RUNTIME"], "unexpected variables of the host");
        no_secret_reaches(&host)?;
        client.dispose_session(&session).await?;
    }
    Ok(())
}

/// Checks the environments and command lines of all processes of a host.
fn no_secret_reaches(host: &TestHost) -> Result<()> {
    let processes = host.processes();
    assert!(processes.len() >= 2, "expected a runtime and its warden: {processes:?}");
    for process in processes {
        let seen = format!("{:?} {:?}", process.arguments, environment_of(process.pid)?);
        for (name, secret) in SECRETS {
            assert!(!seen.contains(secret), "{name} is visible to {:?}", process.arguments);
        }
    }
    Ok(())
}
