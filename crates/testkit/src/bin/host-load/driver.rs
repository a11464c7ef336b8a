//! The client that says what happens in the host under load.

use std::net::SocketAddr;

use anyhow::Result;
use innkeeper_core::ChannelUri;
use innkeeper_testkit::load::{PROVIDER, Reader, Socket, Watch};
use serde_json::json;

/// A session and the client that drives it.
#[derive(Debug)]
pub(crate) struct Driver {
    socket: Socket,
    reader: Reader,
    pub(crate) chat: String,
    turns: u64,
}

impl Driver {
    /// Creates a session and watches its chat.
    pub(crate) async fn new(address: SocketAddr) -> Result<Self> {
        let (mut socket, _) = Socket::open(address, "driver", &[]).await?;
        let session = format!("{PROVIDER}:/5f0c7f66-2d3b-4b8e-9d2c-5a3d5b0a7c11");
        socket.request("createSession", json!({"channel": session, "provider": PROVIDER})).await?;
        let chat = ChannelUri::default_chat_of(&ChannelUri::new(&session)).as_str().to_owned();
        socket.request("subscribe", json!({"channel": chat})).await?;
        Ok(Self { socket, reader: Reader::default(), chat, turns: 0 })
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, text: &str) -> Result<()> {
        self.turns += 1;
        let action = json!({"type": "chat/turnStarted", "turnId": format!("turn-{}", self.turns),
            "startedAt": "2026-11-15T09:00:05.000Z", "message": {"text": text, "origin": {"kind": "user"}}});
        let params = json!({"channel": self.chat, "clientSeq": self.turns, "action": action});
        self.socket.notify("dispatchAction", params).await
    }

    /// Reads until the turn has ended.
    pub(crate) async fn finish(&mut self) -> Result<Watch> {
        let mut watch = Watch::default();
        self.reader.watch(&mut self.socket, &mut watch).await?;
        Ok(watch)
    }
}
