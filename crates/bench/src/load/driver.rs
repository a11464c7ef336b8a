//! The client that starts the turns of a load test.

use std::net::SocketAddr;

use anyhow::Result;
use innkeeper_core::ChannelUri;
use serde_json::json;

use super::host::PROVIDER;
use super::socket::Socket;
use super::timed_frame_reader::{TimedFrameReader, Watch};

/// A session and the client that sends its messages.
#[derive(Debug)]
pub struct LoadDriver {
    socket: Socket,
    reader: TimedFrameReader,
    /// The session's chat channel.
    pub chat: String,
    turns: u64,
}

impl LoadDriver {
    /// Creates a session and subscribes to its chat.
    pub async fn new(address: SocketAddr) -> Result<Self> {
        let (mut socket, _) = Socket::open(address, "driver", &[]).await?;
        let session = format!("{PROVIDER}:/5f0c7f66-2d3b-4b8e-9d2c-5a3d5b0a7c11");
        socket.request("createSession", json!({"channel": session, "provider": PROVIDER})).await?;
        let chat = ChannelUri::default_chat_of(&ChannelUri::new(&session)).as_str().to_owned();
        socket.request("subscribe", json!({"channel": chat})).await?;
        Ok(Self { socket, reader: TimedFrameReader::default(), chat, turns: 0 })
    }

    /// Sends a message with a command for [`StreamingAgent`](super::StreamingAgent).
    pub async fn say(&mut self, text: &str) -> Result<()> {
        self.turns += 1;
        let action = json!({"type": "chat/turnStarted", "turnId": format!("turn-{}", self.turns),
            "startedAt": "2025-11-15T09:00:05.000Z", "message": {"text": text, "origin": {"kind": "user"}}});
        let params = json!({"channel": self.chat, "clientSeq": self.turns, "action": action});
        self.socket.notify("dispatchAction", params).await
    }

    /// Reads until the turn ends.
    pub async fn finish(&mut self) -> Result<Watch> {
        let mut watch = Watch::default();
        self.reader.watch(&mut self.socket, &mut watch).await?;
        Ok(watch)
    }
}
