//! A raw protocol connection over a WebSocket or over stdin and stdout, for messages that
//! the official client never sends.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Timeout for the next message, generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A raw connection.
#[derive(Debug)]
pub struct RawClient {
    transport: RawTransport,
    next_id: u64,
}

/// The transport.
#[derive(Debug)]
enum RawTransport {
    Socket(Box<WebSocketStream<Box<dyn RawStream>>>),
    Lines { stdin: Option<ChildStdin>, stdout: Lines<BufReader<ChildStdout>> },
}

/// Any byte stream.
pub trait RawStream: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Sync + Unpin> RawStream for S {}

impl RawClient {
    /// Connects over TCP without sending a message.
    pub async fn connect(address: &str) -> Result<Self> {
        let request = address.into_client_request()?;
        let authority = request.uri().authority().context("no host in the address")?.to_string();
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        Self::over(address, Box::new(stream)).await
    }

    /// Connects to a unix socket without sending a message.
    pub async fn connect_unix(path: &Path) -> Result<Self> {
        Self::over("ws://localhost/", Box::new(UnixStream::connect(path).await?)).await
    }

    /// Performs the WebSocket handshake on a stream.
    pub async fn over(address: &str, stream: Box<dyn RawStream>) -> Result<Self> {
        let (socket, _) = client_async(address, stream).await?;
        Ok(Self { transport: RawTransport::Socket(Box::new(socket)), next_id: 1 })
    }

    /// Exchanges lines with a child process.
    pub(crate) fn over_stdio(stdin: ChildStdin, stdout: Lines<BufReader<ChildStdout>>) -> Self {
        Self { transport: RawTransport::Lines { stdin: Some(stdin), stdout }, next_id: 1 }
    }

    /// Sends a text frame or a line unchanged.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        match &mut self.transport {
            RawTransport::Socket(socket) => Ok(socket.send(Message::text(text)).await?),
            RawTransport::Lines { stdin, .. } => {
                let stdin = stdin.as_mut().context("stdin is closed")?;
                stdin.write_all(text.as_bytes()).await?;
                Ok(stdin.write_all(b"\n").await?)
            }
        }
    }

    /// Sends a binary frame or a line unchanged.
    pub async fn send_binary(&mut self, bytes: Vec<u8>) -> Result<()> {
        match &mut self.transport {
            RawTransport::Socket(socket) => Ok(socket.send(Message::Binary(Bytes::from(bytes))).await?),
            RawTransport::Lines { stdin, .. } => {
                let stdin = stdin.as_mut().context("stdin is closed")?;
                stdin.write_all(&bytes).await?;
                Ok(stdin.write_all(b"\n").await?)
            }
        }
    }

    /// Closes the host's stdin; its output can still be read.
    pub fn end_input(mut self) -> Result<Self> {
        match &mut self.transport {
            RawTransport::Socket(_) => bail!("cannot close one direction of a WebSocket"),
            RawTransport::Lines { stdin, .. } => drop(stdin.take()),
        }
        Ok(self)
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) -> Result<()> {
        self.send_text(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await
    }

    /// Sends a request and returns its response; discards messages received before it.
    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
            .await?;
        loop {
            let message = self.receive().await?;
            if message["id"] == json!(id) {
                return Ok(message);
            }
        }
    }

    /// Sends `initialize` like a regular client.
    pub async fn initialize(&mut self, client_id: &str, subscriptions: &[&str]) -> Result<Value> {
        self.request(
            "initialize",
            json!({
                "channel": "ahp-root://", "protocolVersions": ["1.0.0"], "clientId": client_id,
                "initialSubscriptions": subscriptions,
            }),
        )
        .await
    }

    /// Receives the next message.
    pub async fn receive(&mut self) -> Result<Value> {
        match self.frame().await? {
            Message::Text(text) => Ok(serde_json::from_str(text.as_str())?),
            other => bail!("not a text frame: {other:?}"),
        }
    }

    /// Receives the next published action; discards other messages.
    pub async fn next_action(&mut self) -> Result<Value> {
        loop {
            let message = self.receive().await?;
            if message["method"] == "action" {
                return Ok(message["params"].clone());
            }
        }
    }

    /// Reads until the host closes the connection; returns the close frame, if there is
    /// one.
    pub async fn closed(&mut self) -> Result<Option<CloseFrame>> {
        loop {
            match self.frame().await {
                Ok(Message::Close(frame)) => return Ok(frame),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn frame(&mut self) -> Result<Message> {
        let next = async {
            match &mut self.transport {
                RawTransport::Socket(socket) => {
                    Ok(socket.next().await.context("the connection closed")??)
                }
                RawTransport::Lines { stdout, .. } => {
                    Ok(stdout.next_line().await?.map_or(Message::Close(None), Message::text))
                }
            }
        };
        tokio::time::timeout(TIMEOUT, next).await.context("timed out waiting for a message")?
    }
}
