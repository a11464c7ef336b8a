//! Sockets of other local processes: without a bearer, with half a request, or too many.
#![expect(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_gateway::{DemoUpstream, Gateway, GatewayConfig, GatewayHandle, GatewayLimits};
use innkeeper_testkit::in_time;
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The beginning of a request that is never completed.
const HALF_REQUEST: &[u8] = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ";

async fn start(limits: GatewayLimits) -> (GatewayHandle, SocketAddr) {
    let config = GatewayConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        upstream: Arc::new(DemoUpstream::new()),
    };
    let handle = Gateway::start_with(config, limits).await.unwrap();
    let address = handle.base_url().strip_prefix("http://").unwrap().parse().unwrap();
    (handle, address)
}

/// Fails the test if the future takes longer than a gateway should.
async fn soon<F: Future>(future: F) -> F::Output {
    in_time(Duration::from_secs(20), "the gateway", future).await.unwrap()
}

async fn connect(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request).await.unwrap();
    socket
}

/// Lists the models, keeps the connection open, and returns the status.
async fn list_models(socket: &mut TcpStream, gateway: &GatewayHandle) -> u16 {
    let bearer = gateway.bearer_for("session-1");
    let request = format!(
        "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\r\n",
        bearer.expose_secret()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !is_complete(&answer) {
        assert_ne!(soon(socket.read_buf(&mut answer)).await.unwrap(), 0, "closed without a response");
    }
    String::from_utf8(answer).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

fn is_complete(answer: &[u8]) -> bool {
    let Some((head, body)) = std::str::from_utf8(answer).unwrap().split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    body.len() >= length.parse().unwrap()
}

/// Whether the gateway closes the socket; an end of file and a reset both count.
async fn is_closed(socket: &mut TcpStream) -> bool {
    soon(socket.read(&mut [0])).await.unwrap_or(0) == 0
}

#[tokio::test]
async fn half_requests_leave_room_for_runtimes_and_oldest_is_closed_first() {
    let (gateway, address) = start(GatewayLimits { unauthenticated: 8, ..GatewayLimits::default() }).await;
    let mut runtime = connect(address, b"").await;
    assert_eq!(list_models(&mut runtime, &gateway).await, 200);
    let mut halves = Vec::new();
    for _ in 0..40 {
        halves.push(connect(address, HALF_REQUEST).await);
    }
    for half in halves.iter_mut().take(32) {
        assert!(is_closed(half).await);
    }
    assert_eq!(list_models(&mut runtime, &gateway).await, 200, "a known runtime is not evicted");
    let mut newcomer = connect(address, b"").await;
    assert_eq!(list_models(&mut newcomer, &gateway).await, 200);
}

#[tokio::test]
async fn socket_without_bearer_is_closed_after_timeout_and_runtime_is_not() {
    let (gateway, address) = start(GatewayLimits::default()).await;
    let mut runtime = connect(address, b"").await;
    assert_eq!(list_models(&mut runtime, &gateway).await, 200);
    let mut silent = connect(address, b"").await;
    let mut half = connect(address, HALF_REQUEST).await;
    let mut greeting = connect(address, b"HEAD / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await;
    assert_ne!(soon(greeting.read(&mut [0; 512])).await.unwrap(), 0);
    // Advances the clock past the timeout; sockets work in real time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    for socket in [&mut silent, &mut half, &mut greeting] {
        assert!(is_closed(socket).await);
    }
    assert_eq!(list_models(&mut runtime, &gateway).await, 200);
}

#[tokio::test]
async fn rejects_connection_with_bearer_above_limit_until_another_closes() {
    let (gateway, address) = start(GatewayLimits { connections: 1, ..GatewayLimits::default() }).await;
    let mut first = connect(address, b"").await;
    assert_eq!(list_models(&mut first, &gateway).await, 200);
    let mut second = connect(address, b"").await;
    assert_eq!(list_models(&mut second, &gateway).await, 503);
    assert_eq!(list_models(&mut first, &gateway).await, 200);
    drop(first);
    soon(async { while list_models(&mut second, &gateway).await != 200 {} }).await;
}
