//! The gateway on its own thread.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_gateway::{
    DemoUpstream, Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits, Upstream,
};
use innkeeper_testkit::eventually;

async fn start(listen: &str, upstream: Arc<dyn Upstream>) -> Result<GatewayHandle, GatewayError> {
    let config = GatewayConfig { listen: listen.parse().unwrap(), upstream };
    Gateway::start_on_thread(config, GatewayLimits::default()).await
}

/// Sends a request and blocks this thread until the response arrives.
fn ask_and_block(base_url: &str) -> String {
    let address = base_url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn gateway_thread_responds_while_caller_thread_is_blocked() {
    let gateway = start("127.0.0.1:0", Arc::new(DemoUpstream::new())).await.unwrap();
    let answer = ask_and_block(gateway.base_url());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn gateway_thread_ends_after_shutdown_and_after_drop() {
    let upstream = Arc::new(DemoUpstream::new());
    let shut_down = start("127.0.0.1:0", upstream.clone()).await.unwrap();
    let dropped = start("127.0.0.1:0", upstream.clone()).await.unwrap();
    let open = TcpStream::connect(dropped.base_url().trim_start_matches("http://")).unwrap();
    shut_down.shutdown().await;
    drop(dropped);
    // The gateway's thread holds a reference to the upstream.
    let gone = || Arc::strong_count(&upstream) == 1;
    eventually(Duration::from_secs(20), "a thread still holds the upstream", gone).await.unwrap();
    drop(open);
}

#[tokio::test]
async fn start_on_thread_reports_listen_errors() {
    let error = start("0.0.0.0:0", Arc::new(DemoUpstream::new())).await.unwrap_err();
    assert!(matches!(error, GatewayError::NotLoopback(_)), "{error}");
    let gateway = start("127.0.0.1:0", Arc::new(DemoUpstream::new())).await.unwrap();
    let taken = gateway.base_url().trim_start_matches("http://");
    let error = start(taken, Arc::new(DemoUpstream::new())).await.unwrap_err();
    assert!(matches!(error, GatewayError::Listen { .. }), "{error}");
}
