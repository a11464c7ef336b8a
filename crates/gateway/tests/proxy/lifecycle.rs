//! The shared gateway: start, stop and restart.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_gateway::{
    AnthropicConfig, AnthropicUpstream, ClientOptions, GatewayConfig, GatewayError, GatewayLimits,
    SharedGateway,
};
use innkeeper_testkit::fakes::{EventStream, FakeAnthropic, Gate, Outcome, Reply};
use secrecy::ExposeSecret;

use crate::support::{KEY, client, endpoint, streamed};

async fn shared(fake: &FakeAnthropic, listen: &str) -> Arc<SharedGateway> {
    let config = AnthropicConfig {
        api: endpoint(&fake.url()),
        key: Some(KEY.to_owned().into()),
        client: ClientOptions::default(),
    };
    let upstream = Arc::new(AnthropicUpstream::new(config));
    let config = GatewayConfig { listen: listen.parse().unwrap(), upstream };
    Arc::new(SharedGateway::new(config, GatewayLimits::default()))
}

async fn is_served(base_url: &str) -> bool {
    client().get(base_url).send().await.is_ok_and(|response| response.status() == 200)
}

/// Waits until the address no longer accepts connections.
async fn freed(base_url: &str) {
    let gone = async {
        while is_served(base_url).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
}

#[tokio::test]
async fn concurrent_acquires_share_one_listener_and_last_drop_frees_port() {
    let fake = FakeAnthropic::start().await.unwrap();
    let shared = shared(&fake, "127.0.0.1:0").await;
    let (one, two, three) = tokio::join!(shared.acquire(), shared.acquire(), shared.acquire());
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    let base_url = one.base_url().to_owned();
    assert!(Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&two, &three));
    assert!(base_url.starts_with("http://127.0.0.1:"));
    drop(one);
    drop(two);
    assert!(is_served(&base_url).await, "a handle still exists");
    let again = shared.acquire().await.unwrap();
    assert_eq!(again.base_url(), base_url);
    drop((three, again));
    freed(&base_url).await;
}

#[tokio::test]
async fn restart_uses_new_port_and_nonce() {
    let fake = FakeAnthropic::start().await.unwrap();
    let shared = shared(&fake, "127.0.0.1:0").await;
    let first = shared.acquire().await.unwrap();
    let (url, nonce) = (first.base_url().to_owned(), first.nonce().expose_secret().to_owned());
    drop(first);
    // Occupy the port, so that the restart cannot reuse it by chance.
    freed(&url).await;
    let _taken = std::net::TcpListener::bind(url.trim_start_matches("http://"));
    let second = shared.acquire().await.unwrap();
    assert_ne!(second.base_url(), url);
    assert_ne!(second.nonce().expose_secret(), nonce);
}

#[tokio::test]
async fn fixed_port_can_be_acquired_again_immediately() {
    let fake = FakeAnthropic::start().await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let shared = shared(&fake, &listen).await;
    for _ in 0..5 {
        let handle = shared.acquire().await.unwrap();
        assert!(is_served(handle.base_url()).await);
    }
}

#[tokio::test]
async fn dispose_aborts_requests_and_rejects_acquire() {
    let fake = FakeAnthropic::start().await.unwrap();
    let shared = shared(&fake, "127.0.0.1:0").await;
    let handle = shared.acquire().await.unwrap();
    let gate = Gate::new();
    fake.script_messages(Reply::events(&EventStream::of("claude-x", &["x"])).gated(&gate));
    gate.open(1);
    let request = client().post(format!("{}/v1/messages", handle.base_url()));
    let request =
        request.bearer_auth(handle.bearer_for("s").expose_secret()).body(streamed("hi").to_string());
    let response = request.send().await.unwrap();
    shared.dispose().await;
    response.bytes().await.unwrap_err();
    fake.wait_for("the cancellation", |requests| requests[0].outcome == Outcome::Cancelled).await.unwrap();
    assert!(!is_served(handle.base_url()).await);
    assert!(matches!(shared.acquire().await, Err(GatewayError::Ended)));
    shared.dispose().await;
}
