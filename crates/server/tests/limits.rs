//! Server limits over real sockets: a client that reaches one gets an error or is delayed;
//! other clients are not affected.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig};
use innkeeper_server::{
    Admission, ClientConnections, Listen, Server, ServerConfig, ServerError, ServerLimits, ServerOptions,
};
use innkeeper_workspace::{FilesConfig, LocalFiles};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A server with a host that has no agents.
struct TestServer {
    server: Server,
    address: SocketAddr,
}

async fn start_at(
    listen: Vec<Listen>,
    limits: ServerLimits,
    admission: Admission,
) -> Result<Server, ServerError> {
    let config = HostConfig {
        providers: Vec::new(),
        clock: Arc::new(SystemClock),
        storage: Arc::new(Nowhere),
        permissions: PermissionConfig::default(),
        edits: EditConfig::none(),
        lifetimes: AgentLifetimes::default(),
        services: HostServices::default(),
    };
    let host = Host::start(config).await.unwrap();
    let config = ServerConfig {
        listen,
        admission,
        version: "0".to_owned(),
        default_directory: None,
        files: Arc::new(LocalFiles::new(FilesConfig::sessions_of(&host))),
        clients: Arc::new(ClientConnections::default()),
    };
    let options = ServerOptions { limits, ..ServerOptions::default() };
    Server::start_with(config, options, host).await
}

fn any_port() -> Listen {
    Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

async fn start(limits: ServerLimits, admission: Admission) -> TestServer {
    let server = start_at(vec![any_port()], limits, admission).await.unwrap();
    let Listen::Tcp(address) = server.places()[0] else { panic!("{:?}", server.places()) };
    TestServer { server, address }
}

async fn open(limits: ServerLimits) -> TestServer {
    start(limits, Admission::open()).await
}

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl TestServer {
    async fn try_client(&self) -> Result<Client, u16> {
        match connect_async(format!("ws://{}/", self.address)).await {
            Ok((socket, _)) => Ok(Client(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn client(&self) -> Client {
        self.try_client().await.unwrap_or_else(|status| panic!("rejected with {status}"))
    }

    /// Sends a `GET` over a new connection.
    async fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Client {
    async fn send(&mut self, text: String) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()).await;
        self.receive().await
    }

    async fn receive(&mut self) -> Value {
        let frame = self.0.next().await.unwrap().unwrap();
        serde_json::from_str(frame.to_text().unwrap()).unwrap_or_else(|error| panic!("{error}: {frame:?}"))
    }

    async fn initialize(&mut self, client_id: &str, channels: &[&str]) -> Value {
        let params =
            json!({"protocolVersions": ["1.0.0"], "clientId": client_id, "initialSubscriptions": channels});
        self.request("initialize", params).await
    }

    async fn close_code(&mut self) -> Option<u16> {
        loop {
            if let Message::Close(frame) = self.0.next().await?.unwrap() {
                return frame.map(|frame| frame.code.into());
            }
        }
    }
}

#[track_caller]
fn assert_error(answer: &Value, code: i32, words: &str) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|message| message.contains(words)), "{answer}");
}

#[tokio::test]
async fn connection_above_limit_is_rejected_until_another_closes() {
    let server = open(ServerLimits { connections: 2, ..ServerLimits::default() }).await;
    let (mut first, second) = (server.client().await, server.client().await);
    assert_eq!(server.try_client().await.err(), Some(503));
    assert!(server.get("/healthz").await.ends_with("ok"), "other requests are still answered");
    assert_eq!(first.request("ping", json!({})).await["result"], Value::Null);
    drop(second);
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.try_client().await.is_err() {
        assert!(Instant::now() < deadline, "the slot is not released");
    }
}

#[tokio::test]
async fn connection_without_handshake_is_closed_even_if_it_pings() {
    let handshake = Duration::from_secs(60);
    let server = open(ServerLimits { handshake, ..ServerLimits::default() }).await;
    let mut known = server.client().await;
    known.initialize("known", &[]).await;
    let mut silent = server.client().await;
    assert_eq!(silent.request("ping", json!({})).await["result"], Value::Null);
    // Advances the clock past the deadline; sockets work in real time.
    tokio::time::pause();
    tokio::time::advance(handshake + Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(silent.close_code().await, Some(4004));
    assert_eq!(
        known.request("listSessions", json!({})).await["result"]["items"],
        json!([]),
        "a client that completed the handshake stays connected"
    );
}

#[tokio::test]
async fn socket_without_complete_request_is_closed() {
    let server =
        open(ServerLimits { handshake: Duration::from_millis(300), ..ServerLimits::default() }).await;
    for said in ["", "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(said.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "still open after {said:?}");
    }
}

#[tokio::test]
async fn client_above_rate_limit_is_delayed_and_fully_answered() {
    let limits = ServerLimits { messages_per_second: 50, message_burst: 5, ..ServerLimits::default() };
    let server = open(limits).await;
    let mut client = server.client().await;
    client.initialize("c1", &[]).await;
    let start = Instant::now();
    for id in 0..30 {
        client.send(json!({"jsonrpc": "2.0", "id": id, "method": "listSessions"}).to_string()).await;
    }
    for id in 0..30 {
        assert_eq!(client.receive().await["id"], id);
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(450), "30 messages, burst of 5, 50 per second: {took:?}");
}

#[tokio::test]
async fn rejects_subscriptions_above_limit_per_connection() {
    let server = open(ServerLimits { subscriptions: 1, ..ServerLimits::default() }).await;
    let mut client = server.client().await;
    let words = "too many subscriptions (limit 1)";
    assert_error(&client.initialize("c1", &["ahp-root://", "x:/1"]).await, -32600, words);
    assert_eq!(client.initialize("c1", &["ahp-root://"]).await["result"]["protocolVersion"], "1.0.0");
    assert_error(&client.request("subscribe", json!({"channel": "x:/1"})).await, -32600, words);
    client.send(json!({"jsonrpc": "2.0", "method": "unsubscribe", "params": {}}).to_string()).await;
    let again = client.request("subscribe", json!({})).await;
    assert_eq!(again["result"]["snapshot"]["resource"], "ahp-root://", "{again}");
}

#[tokio::test]
async fn rejects_names_above_length_limit() {
    let server = open(ServerLimits::default()).await;
    let mut client = server.client().await;
    let (long, fits) = ("x".repeat(1025), "x".repeat(1024));
    assert_error(&client.initialize(&long, &[]).await, -32602, "1024 bytes");
    let initialized = client.initialize(&fits, &[&format!("x:{long}"), "ahp-root://"]).await;
    assert_eq!(initialized["result"]["snapshots"].as_array().map(Vec::len), Some(1), "{initialized}");
    let channel = json!({"channel": format!("x:{long}")});
    for method in ["subscribe", "createSession", "disposeSession", "disposeChat", "fetchTurns"] {
        assert_error(&client.request(method, channel.clone()).await, -32602, "1024 bytes");
    }
    let (long, fits) = (format!("x:{long}"), "x:/1");
    for params in [
        json!({"channel": long, "chat": fits}),
        json!({"channel": fits, "chat": long}),
        json!({"channel": fits, "chat": fits, "source": {"kind": "fork", "chat": long, "turnId": "t"}}),
        json!({"channel": fits, "chat": fits, "source": {"kind": "sideChat", "chat": long, "turnId": "t"}}),
    ] {
        assert_error(&client.request("createChat", params).await, -32602, "1024 bytes");
    }
    for params in [
        json!({"channel": long, "destination": {"kind": "newSession"}}),
        json!({"channel": fits, "destination": {"kind": "session", "session": long}}),
        json!({"channel": fits, "destination": {"kind": "session", "session": fits, "after": long}}),
    ] {
        assert_error(&client.request("moveChat", params).await, -32602, "1024 bytes");
    }
    let params = json!({"channel": long, "kind": "userMessage", "text": "/", "offset": 1});
    assert_error(&client.request("completions", params).await, -32602, "1024 bytes");
}

#[tokio::test]
async fn rejects_deeply_nested_message_without_publishing_it() {
    let server = open(ServerLimits::default()).await;
    let mut watcher = server.client().await;
    watcher.initialize("watcher", &["ahp-root://"]).await;
    let mut client = server.client().await;
    client.initialize("c1", &[]).await;
    let dispatch = |value: &str| {
        let before = r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"action":"#;
        format!(r#"{before}{{"type":"root/configChanged","config":{{"a":1}},"unknown":{value}}}}}}}"#)
    };
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    client.send(dispatch(&nested(1_000_000))).await;
    assert_error(&client.receive().await, -32600, "nested too deeply");
    client.send(dispatch(&nested(50))).await;
    let echo = watcher.receive().await;
    assert_eq!(echo["params"]["serverSeq"], 1, "the first published action: {echo}");
}

#[tokio::test]
async fn metrics_require_token_and_count_events() {
    let server = start(ServerLimits::default(), Admission::with_token("secret".to_owned())).await;
    assert!(server.get("/metrics").await.starts_with("HTTP/1.1 403"));
    assert!(server.get("/metrics?tkn=wrong").await.starts_with("HTTP/1.1 403"));
    let (socket, _) = connect_async(format!("ws://{}/?tkn=secret", server.address)).await.unwrap();
    let mut client = Client(socket);
    client.initialize("c1", &["ahp-root://"]).await;
    let metrics = server.get("/metrics?tkn=secret").await;
    for line in [
        "innkeeper_connections 1",
        "innkeeper_subscriptions 1",
        "innkeeper_sessions 0",
        "innkeeper_frames_total{direction=\"in\"} 1",
        "innkeeper_frames_total{direction=\"out\"} 1",
        "innkeeper_requests_refused_total 2",
    ] {
        assert!(metrics.lines().any(|each| each == line), "{line} is missing in:\n{metrics}");
    }
    for _ in 0..16 {
        client.send("garbage".to_owned()).await;
    }
    assert_eq!(client.close_code().await, Some(4002));
    drop(client);
    let closed = "innkeeper_connections_closed_total{reason=\"too_much_garbage\"} 1";
    let deadline = Instant::now() + Duration::from_secs(10);
    while !server.get("/metrics?tkn=secret").await.contains(closed) {
        assert!(Instant::now() < deadline, "the closed connection is not counted");
    }
    server.server.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_listener_accepts_connections_if_one_cannot_be_bound() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("first");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Many addresses, so that there is time between the first bind and the last.
    let last = Listen::Tcp(taken.local_addr().unwrap());
    let places = std::iter::once(Listen::Unix(path.clone())).chain(vec![any_port(); 200]).chain([last]);
    let (tasks, listen) = (TaskTracker::new(), places.collect());
    let tried = CancellationToken::new();
    let over = tried.clone();
    let early = tasks.spawn(async move {
        let mut socket = loop {
            match UnixStream::connect(&path).await {
                Ok(socket) => break socket,
                // The socket was never there when this task tried to connect.
                Err(_) if over.is_cancelled() => return String::new(),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let mut answer = String::new();
        // The connection may be reset at any time.
        if socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.is_ok() {
            socket.read_to_string(&mut answer).await.ok();
        }
        answer
    });
    let refused = start_at(listen, ServerLimits::default(), Admission::open()).await;
    assert!(matches!(refused, Err(ServerError::Taken(_))), "{refused:?}");
    tried.cancel();
    assert_eq!(early.await.unwrap(), "");
}
