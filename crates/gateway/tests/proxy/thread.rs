//! The gateway on a thread of its own.

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

/// Asks without letting anything else run on this thread.
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
async fn it_answers_while_the_rest_of_the_process_is_busy() {
    let gateway = start("127.0.0.1:0", Arc::new(DemoUpstream::new())).await.unwrap();
    let answer = ask_and_block(gateway.base_url());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn its_end_leaves_nothing_behind() {
    let upstream = Arc::new(DemoUpstream::new());
    let shut_down = start("127.0.0.1:0", upstream.clone()).await.unwrap();
    let dropped = start("127.0.0.1:0", upstream.clone()).await.unwrap();
    let open = TcpStream::connect(dropped.base_url().trim_start_matches("http://")).unwrap();
    shut_down.shutdown().await;
    drop(dropped);
    // What runs there holds the upstream.
    let gone = || Arc::strong_count(&upstream) == 1;
    eventually(Duration::from_secs(20), "a thread still holds the upstream", gone).await.unwrap();
    drop(open);
}

#[tokio::test]
async fn why_it_does_not_start_is_told_as_ever() {
    let error = start("0.0.0.0:0", Arc::new(DemoUpstream::new())).await.unwrap_err();
    assert!(matches!(error, GatewayError::NotLoopback(_)), "{error}");
    let gateway = start("127.0.0.1:0", Arc::new(DemoUpstream::new())).await.unwrap();
    let taken = gateway.base_url().trim_start_matches("http://");
    let error = start(taken, Arc::new(DemoUpstream::new())).await.unwrap_err();
    assert!(matches!(error, GatewayError::Listen { .. }), "{error}");
}
