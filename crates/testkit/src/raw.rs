//! A bare WebSocket, to send what the official client would never send.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// How long an answer may take, also on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// A raw connection.
#[derive(Debug)]
pub struct RawClient {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next_id: u64,
}

impl RawClient {
    /// Connects, and sends nothing.
    pub async fn connect(address: &str) -> Result<Self> {
        let (socket, _) = connect_async(address).await?;
        Ok(Self { socket, next_id: 1 })
    }

    /// Sends a text frame as it is.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        Ok(self.socket.send(Message::text(text)).await?)
    }

    /// Sends a binary frame as it is.
    pub async fn send_binary(&mut self, bytes: Vec<u8>) -> Result<()> {
        Ok(self.socket.send(Message::Binary(Bytes::from(bytes))).await?)
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) -> Result<()> {
        self.send_text(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await
    }

    /// Sends a request and waits for its answer; skips what comes in between.
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

    /// The handshake of an ordinary client.
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

    /// The next message.
    pub async fn receive(&mut self) -> Result<Value> {
        match self.frame().await? {
            Message::Text(text) => Ok(serde_json::from_str(text.as_str())?),
            other => bail!("not a text frame: {other:?}"),
        }
    }

    /// The next action that the host publishes.
    pub async fn next_action(&mut self) -> Result<Value> {
        loop {
            let message = self.receive().await?;
            if message["method"] == "action" {
                return Ok(message["params"].clone());
            }
        }
    }

    /// Reads until the host closes the connection; answers the close frame.
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
        let frame =
            tokio::time::timeout(ANSWER, self.socket.next()).await.context("the host says nothing")?;
        Ok(frame.context("the connection is closed")??)
    }
}
