//! A client of the real host with one chat, which measures its turns.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use innkeeper_bench::load::Socket;
use innkeeper_bench::monotonic_nanos;
use innkeeper_core::ChannelUri;
use innkeeper_testkit::TestHost;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::turn_times::TurnTimes;

/// A client with one chat.
#[derive(Debug)]
pub(crate) struct TurnClient {
    socket: Socket,
    session: String,
    chat: String,
    dispatches: u64,
}

impl TurnClient {
    /// Creates a session in the host's working directory and subscribes to its chat.
    pub(crate) async fn connect(host: &TestHost) -> Result<Self> {
        let address = host.socket()?.trim_start_matches("ws://").trim_end_matches('/').parse::<SocketAddr>();
        let address = address.context("invalid address in the ready line")?;
        let (mut socket, _) = Socket::open(address, &format!("turn-{}", Uuid::new_v4()), &[]).await?;
        let session = format!("claude:/{}", Uuid::new_v4());
        let params =
            json!({"channel": session, "provider": "claude", "workingDirectories": [host.work_uri()]});
        socket.request("createSession", params).await?;
        let chat = ChannelUri::default_chat_of(&ChannelUri::new(&session)).as_str().to_owned();
        socket.request("subscribe", json!({"channel": chat})).await?;
        Ok(Self { socket, session, chat, dispatches: 0 })
    }

    /// Deletes the session, which ends its runtime.
    pub(crate) async fn dispose(mut self) -> Result<()> {
        self.socket.request("disposeSession", json!({"channel": self.session})).await?;
        Ok(())
    }

    /// Changes the draft of the chat's next message.
    pub(crate) async fn write_draft(&mut self, text: &str) -> Result<()> {
        let draft = json!({"text": text, "origin": {"kind": "user"}});
        self.dispatch(json!({"type": "chat/draftChanged", "draft": draft})).await
    }

    /// Starts a turn and waits for its first delta, but not for its end.
    pub(crate) async fn start_turn(&mut self, text: &str) -> Result<()> {
        self.send_message(text).await?;
        let mut seen = false;
        while !seen {
            self.socket
                .read(|text| seen |= memchr::memmem::find(text, br#""type":"chat/delta""#).is_some())
                .await?;
        }
        Ok(())
    }

    /// Runs a turn.
    pub(crate) async fn turn(&mut self, text: &str) -> Result<TurnTimes> {
        let since = monotonic_nanos();
        self.send_message(text).await?;
        let (mut first_delta, mut end, mut failed) = (None, None, None);
        while end.is_none() {
            let each = |text: &[u8]| {
                let is = |kind: &[u8]| memchr::memmem::find(text, kind).is_some();
                if first_delta.is_none() && is(br#""type":"chat/delta""#) {
                    first_delta = Some(monotonic_nanos());
                }
                if is(br#""type":"chat/turnComplete""#) {
                    end = Some(monotonic_nanos());
                }
                if is(br#""type":"chat/error""#) || is(br#""rejectionReason""#) {
                    failed = Some(String::from_utf8_lossy(text).into_owned());
                }
            };
            self.socket.read(each).await?;
            if let Some(frame) = &failed {
                bail!("the turn failed: {frame}");
            }
        }
        let first_delta = first_delta.context("the turn ended without a delta")?;
        Ok(TurnTimes::new(since, first_delta, end.context("the turn has not ended")?))
    }

    async fn send_message(&mut self, text: &str) -> Result<()> {
        let turn = format!("turn-{}", self.dispatches);
        self.dispatch(json!({"type": "chat/turnStarted", "turnId": turn,
            "startedAt": "2025-11-15T09:00:05.000Z", "message": {"text": text, "origin": {"kind": "user"}}}))
            .await
    }

    async fn dispatch(&mut self, action: Value) -> Result<()> {
        self.dispatches += 1;
        let params = json!({"channel": self.chat, "clientSeq": self.dispatches, "action": action});
        self.socket.notify("dispatchAction", params).await
    }
}
