//! A WebSocket for measuring: it takes frames apart by hand and parses none of them.
//!
//! Only for hosts on this machine that speak correctly; tests of what is incorrect use
//! the raw client.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Room for what is read at once.
const READ: usize = 64 * 1024;

/// Room that the system gives to a narrow connection.
const NARROW: u32 = 4 * 1024;

/// The host ended the connection, with this code.
#[derive(Debug, thiserror::Error)]
#[error("the host closed the connection with code {code}")]
pub struct Closed {
    /// The code of its close frame; 1006 if it sent none.
    pub code: u16,
}

/// A connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    /// What was read and not looked at yet.
    buffer: Vec<u8>,
    next_id: u64,
}

impl Socket {
    /// Connects, and asks for an upgrade.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        Self::upgrade(TcpStream::connect(address).await.context("cannot connect")?, address).await
    }

    /// Connects with so little room for what is not read yet that the host soon notices.
    pub async fn connect_narrow(address: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(NARROW)?;
        Self::upgrade(socket.connect(address).await.context("cannot connect")?, address).await
    }

    async fn upgrade(mut stream: TcpStream, address: SocketAddr) -> Result<Self> {
        stream.set_nodelay(true)?;
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = Vec::with_capacity(READ);
        let head = loop {
            if stream.read_buf(&mut buffer).await? == 0 {
                bail!("the host closed the connection instead of upgrading it");
            }
            if let Some(end) = memchr::memmem::find(&buffer, b"\r\n\r\n") {
                break end + 4;
            }
        };
        if !buffer.starts_with(b"HTTP/1.1 101 ") {
            bail!("no upgrade: {}", String::from_utf8_lossy(&buffer));
        }
        buffer.drain(..head);
        Ok(Self { stream, buffer, next_id: 1 })
    }

    /// Connects and introduces itself, subscribed to these channels. Answers the answer, too.
    pub async fn open(address: SocketAddr, client: &str, channels: &[&str]) -> Result<(Self, Value)> {
        let mut socket = Self::connect(address).await?;
        let answer = socket.introduce(client, channels).await?;
        Ok((socket, answer))
    }

    /// Introduces itself, subscribed to these channels.
    pub async fn introduce(&mut self, client: &str, channels: &[&str]) -> Result<Value> {
        let params =
            json!({"protocolVersions": ["1.0.0"], "clientId": client, "initialSubscriptions": channels});
        self.request("initialize", params).await
    }

    /// Sends a text frame.
    pub async fn send(&mut self, text: &str) -> Result<()> {
        let mut frame = vec![0x81];
        match (u8::try_from(text.len()), u16::try_from(text.len())) {
            (Ok(small), _) if small < 126 => frame.push(0x80 | small),
            (_, Ok(middle)) => {
                frame.push(0x80 | 126);
                frame.extend(middle.to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((text.len() as u64).to_be_bytes());
            }
        }
        // A mask of zeros leaves the text as it is.
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        Ok(self.stream.write_all(&frame).await?)
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await
    }

    /// Sends a request and waits for its answer; skips what comes before it.
    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let answer: Value = serde_json::from_slice(&self.request_bytes(method, params).await?)?;
        if let Some(error) = answer.get("error") {
            bail!("{method} failed: {error}");
        }
        Ok(answer["result"].clone())
    }

    /// The same, without a look at what the answer says.
    pub async fn request_bytes(&mut self, method: &str, params: Value) -> Result<Vec<u8>> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
            .await?;
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        let mut answer = None;
        while answer.is_none() {
            self.read(|text| {
                if text.starts_with(head.as_bytes()) {
                    answer = Some(text.to_vec());
                }
            })
            .await?;
        }
        answer.context("no answer")
    }

    /// Waits for bytes and shows each whole text frame among them.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut shown = 0;
        loop {
            while let Some(frame) = Frame::at(&self.buffer[shown..]) {
                let payload = &self.buffer[shown + frame.start..shown + frame.end];
                match frame.opcode {
                    1 => each(payload),
                    8 => {
                        let code = payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
                        bail!(Closed { code });
                    }
                    _ => {}
                }
                shown += frame.end;
            }
            if shown > 0 {
                self.buffer.drain(..shown);
                return Ok(());
            }
            self.buffer.reserve(READ.max(Frame::size(&self.buffer).saturating_sub(self.buffer.len())));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!(Closed { code: 1006 });
            }
        }
    }
}

/// Where a frame's payload is.
struct Frame {
    opcode: u8,
    start: usize,
    end: usize,
}

impl Frame {
    /// The frame at the beginning of some bytes, if it is there as a whole.
    fn at(bytes: &[u8]) -> Option<Self> {
        let frame = Self::begun(bytes)?;
        (bytes.len() >= frame.end).then_some(frame)
    }

    /// How many bytes the frame takes that has begun.
    fn size(bytes: &[u8]) -> usize {
        Self::begun(bytes).map_or(0, |frame| frame.end)
    }

    fn begun(bytes: &[u8]) -> Option<Self> {
        let (opcode, length) = (bytes.first()? & 0x0f, bytes.get(1)? & 0x7f);
        let (start, length) = match length {
            126 => (4, usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?))),
            127 => (10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?),
            small => (2, usize::from(small)),
        };
        Some(Self { opcode, start, end: start.checked_add(length)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_three_lengths_are_found_once_they_are_whole() {
        for (head, size) in [(2, 125), (4, 126), (4, 65_535), (10, 65_536)] {
            let mut bytes = vec![0x81];
            match size {
                0..126 => bytes.push(size as u8),
                126..65_536 => {
                    bytes.push(126);
                    bytes.extend((size as u16).to_be_bytes());
                }
                _ => {
                    bytes.push(127);
                    bytes.extend((size as u64).to_be_bytes());
                }
            }
            bytes.extend(vec![b'x'; size]);
            assert!(Frame::at(&bytes[..bytes.len() - 1]).is_none());
            assert_eq!(Frame::size(&bytes), bytes.len());
            let frame = Frame::at(&bytes).unwrap();
            assert_eq!((frame.opcode, frame.start, frame.end), (1, head, bytes.len()));
        }
    }
}
