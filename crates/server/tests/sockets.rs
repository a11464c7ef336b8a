//! Hostile clients over real sockets: invalid frames and headers, and no free descriptors.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig};
use innkeeper_server::{
    Admission, ClientConnections, Listen, Server, ServerConfig, ServerLimits, ServerOptions,
};
use innkeeper_testkit::in_time;
use innkeeper_workspace::{FilesConfig, LocalFiles};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Timeout of operations that the server answers at once.
const SOON: Duration = Duration::from_secs(20);

struct TestServer {
    _server: Server,
    address: SocketAddr,
}

impl TestServer {
    async fn start(limits: ServerLimits) -> Self {
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
            listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            admission: Admission::open(),
            version: "0".to_owned(),
            default_directory: None,
            files: Arc::new(LocalFiles::new(FilesConfig::sessions_of(&host))),
            clients: Arc::new(ClientConnections::default()),
        };
        let options = ServerOptions { limits, ..ServerOptions::default() };
        let server = Server::start_with(config, options, host).await.unwrap();
        let Listen::Tcp(address) = server.places()[0] else { panic!("{:?}", server.places()) };
        Self { _server: server, address }
    }

    /// Sends a request over a new connection and returns the status.
    async fn status(&self, path: &str, headers: &str) -> u16 {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        status(&mut socket, path, headers).await
    }

    /// Opens a WebSocket.
    async fn upgraded(&self) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let host = format!("host: {}\r\n{UPGRADE}", self.address);
        assert_eq!(status(&mut socket, "/", &host).await, 101);
        socket
    }

    async fn metric(&self, line: &str) -> bool {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer.lines().any(|each| each == line)
    }
}

const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// Sends a request and reads the head of the response.
async fn status(socket: &mut TcpStream, path: &str, headers: &str) -> u16 {
    socket.write_all(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(in_time(SOON, "a response", socket.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// A masked frame with a zero mask, which leaves the payload unchanged.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => frame.push(0x80 | length),
        (_, Ok(length)) => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
        _ => panic!("the test needs small frames only"),
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Reads until the close frame and returns its code.
async fn close_code(socket: &mut TcpStream) -> u16 {
    let mut text = Vec::new();
    in_time(SOON, "the end of the connection", socket.read_to_end(&mut text)).await.unwrap().unwrap();
    let close =
        text.iter().position(|byte| *byte == 0x88).unwrap_or_else(|| panic!("no close frame: {text:?}"));
    u16::from_be_bytes([text[close + 2], text[close + 3]])
}

#[tokio::test]
async fn protocol_violations_close_with_their_code() {
    let server = TestServer::start(ServerLimits::default()).await;
    for (what, bytes, code) in [
        ("reserved opcode", frame(0x83, b""), 1002),
        ("reserved bit", frame(0xc1, b"{}"), 1002),
        ("unmasked frame", vec![0x81, 2, b'{', b'}'], 1002),
        ("continuation without a start", frame(0x80, b"{}"), 1002),
        ("fragmented ping", frame(0x09, b""), 1002),
        ("ping above 125 bytes", frame(0x89, &[0; 126]), 1002),
        ("text that is not UTF-8", frame(0x81, &[0xff, 0xfe]), 1007),
        ("fragments that are not UTF-8", [frame(0x01, b"a"), frame(0x80, &[0xff])].concat(), 1007),
    ] {
        let mut socket = server.upgraded().await;
        socket.write_all(&bytes).await.unwrap();
        assert_eq!(close_code(&mut socket).await, code, "{what}");
    }
    let mut socket = server.upgraded().await;
    socket.write_all(&[0x81, 0x80 | 127, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    assert_eq!(close_code(&mut socket).await, 1009, "frame of 4 GiB");
    assert!(server.metric("innkeeper_connections_closed_total{reason=\"protocol_violation\"} 6").await);
    assert!(server.metric("innkeeper_connections_closed_total{reason=\"invalid_text\"} 2").await);
}

#[tokio::test]
async fn every_path_rejects_foreign_and_ambiguous_addresses() {
    let server = TestServer::start(ServerLimits::default()).await;
    for (path, upgrade, accepted) in
        [("/", UPGRADE, 101), ("/", "", 200), ("/healthz", "", 200), ("/metrics", "", 200)]
    {
        let good = format!("host: {}\r\norigin: http://localhost:1\r\n{upgrade}", server.address);
        assert_eq!(server.status(path, &good).await, accepted, "{path}");
        for bad in [
            "host: evil.example\r\n",
            "host: evil@127.0.0.1\r\n",
            "host: 127.0.0.1:x\r\n",
            "host: 127.0.0.1\r\nhost: 127.0.0.1\r\n",
            "host: 127.0.0.1\r\norigin: http://evil.example\r\n",
            "host: 127.0.0.1\r\norigin: http://evil@127.0.0.1\r\n",
            "host: 127.0.0.1\r\norigin: http://127.0.0.1\r\norigin: http://127.0.0.1\r\n",
            "",
        ] {
            let status = server.status(path, &format!("{bad}{upgrade}")).await;
            assert_eq!(status, 403, "{path} {bad:?}");
        }
    }
}

#[tokio::test]
async fn client_is_rejected_while_descriptors_are_scarce_and_others_are_served() {
    let free = {
        let probe = std::fs::File::open("/dev/null").unwrap();
        usize::try_from(std::os::fd::AsRawFd::as_raw_fd(&probe)).unwrap()
    };
    let server = TestServer::start(ServerLimits { descriptors: free + 32, ..ServerLimits::default() }).await;
    let host = format!("host: {}\r\n", server.address);
    let client = server.upgraded().await;
    let taken: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    assert_eq!(server.status("/", &format!("{host}{UPGRADE}")).await, 503);
    assert_eq!(server.status("/healthz", &host).await, 200);
    drop(taken);
    assert_eq!(server.status("/", &format!("{host}{UPGRADE}")).await, 101);
    drop(client);
}
