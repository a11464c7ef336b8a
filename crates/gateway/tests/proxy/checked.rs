//! The endpoint check on every proxied upstream, with the demo model as the final upstream.

use std::sync::Arc;

use innkeeper_gateway::check::{CheckOptions, CheckTarget, Credentials, check};
use innkeeper_gateway::{
    AnthropicConfig, AnthropicUpstream, ClientOptions, CopilotUpstream, DemoUpstream, Upstream,
};
use innkeeper_testkit::fakes::{FakeAnthropic, FakeCopilot};
use secrecy::ExposeSecret;

use crate::support::{KEY, TestGateway, copilot_config, endpoint};

/// The names of the checks that failed.
async fn failed(upstream: Arc<dyn Upstream>) -> Vec<String> {
    let gateway = TestGateway::before(upstream).await;
    let target = CheckTarget {
        base_url: gateway.handle.base_url().to_owned(),
        credentials: Credentials::Bearer(gateway.handle.bearer_for("check")),
        model: None,
    };
    let prompts = vec!["#demo\nthink a\ntext b\ntool Bash {\"command\":\"ls\"}".to_owned()];
    let report = check(target, CheckOptions { prompts, ..CheckOptions::default() }).await.unwrap();
    report.failed().map(|finding| format!("{finding:?}")).collect()
}

#[tokio::test]
async fn anthropic_upstream_has_no_defects() {
    let demo = TestGateway::before(Arc::new(DemoUpstream::new())).await;
    let bearer = demo.handle.bearer_for("fake");
    let fake = FakeAnthropic::in_front_of(demo.handle.base_url(), bearer.expose_secret()).await.unwrap();
    let config = AnthropicConfig {
        api: endpoint(&fake.url()),
        key: Some(KEY.to_owned().into()),
        client: ClientOptions::default(),
    };
    assert_eq!(failed(Arc::new(AnthropicUpstream::new(config))).await, [""; 0]);
}

#[tokio::test]
async fn copilot_upstream_has_no_defects() {
    let demo = TestGateway::before(Arc::new(DemoUpstream::new())).await;
    let bearer = demo.handle.bearer_for("fake");
    let fake = FakeCopilot::in_front_of(demo.handle.base_url(), bearer.expose_secret()).await.unwrap();
    assert_eq!(failed(Arc::new(CopilotUpstream::new(copilot_config(&fake)))).await, [""; 0]);
}
