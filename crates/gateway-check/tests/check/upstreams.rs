//! The endpoint check on every proxied upstream, with the demo model as the final upstream.

use std::sync::Arc;

use innkeeper_gateway::{
    AnthropicConfig, AnthropicUpstream, BetaFilter, ClientOptions, CopilotConfig, CopilotUpstream,
    DemoUpstream, Discovery, Endpoint, Gateway, GatewayConfig, GatewayHandle, Upstream,
};
use innkeeper_gateway_check::{CheckOptions, CheckTarget, Credentials, check};
use innkeeper_testkit::fakes::{FakeAnthropic, FakeCopilot};
use secrecy::ExposeSecret;

async fn gateway(upstream: Arc<dyn Upstream>) -> GatewayHandle {
    let listen = ([127, 0, 0, 1], 0).into();
    Gateway::start(GatewayConfig { listen, upstream }).await.unwrap()
}

fn endpoint(url: &str) -> Endpoint {
    Endpoint::from_environment(url).unwrap()
}

/// The names of the checks that failed.
async fn failed(upstream: Arc<dyn Upstream>) -> Vec<String> {
    let gateway = gateway(upstream).await;
    let target = CheckTarget {
        base_url: gateway.base_url().to_owned(),
        credentials: Credentials::Bearer(gateway.bearer_for("check")),
        model: None,
    };
    let prompts = vec!["#demo\nthink a\ntext b\ntool Bash {\"command\":\"ls\"}".to_owned()];
    let report = check(target, CheckOptions { prompts, ..CheckOptions::default() }).await.unwrap();
    report.failed().map(|finding| format!("{finding:?}")).collect()
}

#[tokio::test]
async fn anthropic_upstream_has_no_defects() {
    let demo = gateway(Arc::new(DemoUpstream::new())).await;
    let bearer = demo.bearer_for("fake");
    let fake = FakeAnthropic::in_front_of(demo.base_url(), bearer.expose_secret()).await.unwrap();
    let config = AnthropicConfig {
        api: endpoint(&fake.url()),
        key: Some("key".to_owned().into()),
        client: ClientOptions::default(),
    };
    assert_eq!(failed(Arc::new(AnthropicUpstream::new(config))).await, [""; 0]);
}

#[tokio::test]
async fn copilot_upstream_has_no_defects() {
    let demo = gateway(Arc::new(DemoUpstream::new())).await;
    let bearer = demo.bearer_for("fake");
    let fake = FakeCopilot::in_front_of(demo.base_url(), bearer.expose_secret()).await.unwrap();
    let config = CopilotConfig {
        github_api: endpoint(&fake.github.url()),
        copilot_api: None,
        discovery: Discovery::Always,
        token: Some("token".to_owned().into()),
        betas: BetaFilter::default(),
        integration_id: None,
        client: ClientOptions::default(),
    };
    assert_eq!(failed(Arc::new(CopilotUpstream::new(config))).await, [""; 0]);
}
