//! The real runtimes through each upstream, against fakes of the services.
//!
//! `scripts/test` runs these in a network namespace that has only a loopback device, which
//! proves that no request goes anywhere else.

use std::sync::Arc;

use ahp_types::state::TurnState;
use anyhow::Result;
use innkeeper_gateway::{DemoUpstream, Gateway, GatewayConfig, GatewayHandle};
use innkeeper_testkit::fakes::{FakeAnthropic, FakeCopilot, RecordedRequest};
use innkeeper_testkit::{HostOptions, TestHost, runtimes};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{Opened, options};

/// A key in the user's settings that must never be sent.
const USER_KEY: &str = "users-own-key";

/// Starts the demo model, which answers for the fake services.
pub(crate) async fn start_model() -> Result<GatewayHandle> {
    let config =
        GatewayConfig { listen: ([127, 0, 0, 1], 0).into(), upstream: Arc::new(DemoUpstream::new()) };
    Ok(Gateway::start(config).await?)
}

/// Runs a turn with a tool call on a host with hostile user settings.
async fn run_turn_with_tool(mut options: HostOptions) -> Result<()> {
    options.user_settings = Some(json!({
        "apiKeyHelper": format!("echo {USER_KEY}"),
        "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": USER_KEY},
    }));
    let host = TestHost::start(options).await?;
    std::fs::write(host.work_dir().join("note.txt"), "remember the milk")?;
    let Opened { mut client, chat, .. } = Opened::new(&host).await?;
    let note = host.work_dir().join("note.txt");
    let script = format!("#demo\ntool Read {{\"file_path\":\"{}\"}}\ntext all read", note.display());
    client.say(&chat, "turn-1", &script).await?;
    client.until_turn_over(&chat, "turn-1").await?;
    let turn = &client.chat(&chat)?.turns[0];
    assert_eq!(turn.state, TurnState::Complete, "{turn:#?}");
    let said = serde_json::to_string(turn)?;
    assert!(said.contains("remember the milk") && said.contains("all read"), "{said}");
    Ok(())
}

fn contain_no_user_key(requests: &[RecordedRequest]) {
    assert!(requests.len() >= 2, "expected the call and its result: {requests:?}");
    assert!(!format!("{requests:?}").contains(USER_KEY));
}

#[tokio::test]
async fn demo_upstream_works_with_both_runtimes() -> Result<()> {
    for claude in runtimes()? {
        run_turn_with_tool(options(claude)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn anthropic_receives_only_the_key_of_the_host() -> Result<()> {
    for claude in runtimes()? {
        let model = start_model().await?;
        let service =
            FakeAnthropic::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
        let mut options = options(claude)
            .with_variable("ANTHROPIC_API_KEY", "the-hosts-key")
            .with_variable("INNKEEPER_ANTHROPIC_URL", &service.url());
        options.upstream = "anthropic".to_owned();
        run_turn_with_tool(options).await?;
        let requests = service.messages();
        contain_no_user_key(&requests);
        for request in &requests {
            assert_eq!(request.header("x-api-key"), Some("the-hosts-key"));
            assert_eq!(request.header("authorization"), None);
        }
    }
    Ok(())
}

#[tokio::test]
async fn copilot_receives_the_github_token_and_the_initiator_of_each_request() -> Result<()> {
    for claude in runtimes()? {
        let model = start_model().await?;
        let service =
            FakeCopilot::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
        let mut options = options(claude)
            .with_variable("INNKEEPER_GITHUB_TOKEN", "the-github-token")
            .with_variable("INNKEEPER_GITHUB_API_URL", &service.github.url());
        options.upstream = "copilot".to_owned();
        run_turn_with_tool(options).await?;
        let requests = service.messages();
        contain_no_user_key(&requests);
        let initiators: Vec<Option<&str>> =
            requests.iter().map(|request| request.header("x-initiator")).collect();
        let by_the_user = initiators.iter().filter(|initiator| **initiator == Some("user")).count();
        assert_eq!(by_the_user, 1, "expected one request initiated by the user: {initiators:?}");
        assert!(initiators.contains(&Some("agent")), "{initiators:?}");
        for request in &requests {
            assert_eq!(request.header("authorization"), Some("Bearer the-github-token"));
        }
        assert_eq!(service.discoveries().len(), 1, "the account was looked up more than once");
    }
    Ok(())
}
