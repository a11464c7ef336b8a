//! A minimal WebSocket client for benchmarks: it splits frames by hand and parses no
//! JSON.
//!
//! For local hosts that follow the protocol only; tests of invalid input use
//! [`RawClient`](crate::RawClient).

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Read buffer size.
const READ: usize = 64 * 1024;

/// Kernel receive buffer of a slow client's connection. Larger than a loopback segment (64 KiB): a smaller one may
/// be refilled by the sender's window probes only, a few KiB at a time, after the client resumes reading.
const SMALL_RECEIVE_BUFFER: u32 = 128 * 1024;

/// The host closed the connection.
#[derive(Debug, thiserror::Error)]
#[error("the host closed the connection with code {code}")]
pub struct SocketClosed {
    /// The close code; 1006 if the host sent no close frame.
    pub code: u16,
}

/// A WebSocket connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    /// Bytes read but not yet processed.
    buffer: Vec<u8>,
    next_id: u64,
}

impl Socket {
    /// Connects and performs the WebSocket upgrade.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        Self::upgrade(TcpStream::connect(address).await.context("cannot connect")?, address).await
    }

    /// Connects with a small receive buffer, so that the host soon notices a client that
    /// does not read.
    pub async fn connect_narrow(address: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(SMALL_RECEIVE_BUFFER)?;
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
            bail!("upgrade failed: {}", String::from_utf8_lossy(&buffer));
        }
        buffer.drain(..head);
        Ok(Self { stream, buffer, next_id: 1 })
    }

    /// Connects and sends `initialize` with subscriptions to `channels`. Returns the
    /// response too.
    pub async fn open(address: SocketAddr, client: &str, channels: &[&str]) -> Result<(Self, Value)> {
        let mut socket = Self::connect(address).await?;
        let response = socket.introduce(client, channels).await?;
        Ok((socket, response))
    }

    /// Sends `initialize` with subscriptions to `channels`.
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
        // A zero mask leaves the payload unchanged.
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        Ok(self.stream.write_all(&frame).await?)
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await
    }

    /// Sends a request and returns its result; discards messages received before the
    /// response.
    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let response: Value = serde_json::from_slice(&self.request_bytes(method, params).await?)?;
        if let Some(error) = response.get("error") {
            bail!("{method} failed: {error}");
        }
        Ok(response["result"].clone())
    }

    /// Sends a request and returns the raw response.
    pub async fn request_bytes(&mut self, method: &str, params: Value) -> Result<Vec<u8>> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
            .await?;
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        let mut response = None;
        while response.is_none() {
            self.read(|text| {
                if text.starts_with(head.as_bytes()) {
                    response = Some(text.to_vec());
                }
            })
            .await?;
        }
        response.context("no response")
    }

    /// Reads until at least one frame is complete; calls `each` for every complete text
    /// frame.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut shown = 0;
        loop {
            while let Some(frame) = FrameBounds::at(&self.buffer[shown..]) {
                let payload = &self.buffer[shown + frame.start..shown + frame.end];
                match frame.opcode {
                    1 => each(payload),
                    8 => {
                        let code = payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
                        bail!(SocketClosed { code });
                    }
                    _ => {}
                }
                shown += frame.end;
            }
            if shown > 0 {
                self.buffer.drain(..shown);
                return Ok(());
            }
            self.buffer.reserve(READ.max(FrameBounds::size(&self.buffer).saturating_sub(self.buffer.len())));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!(SocketClosed { code: 1006 });
            }
        }
    }
}

/// The position of a frame's payload.
struct FrameBounds {
    opcode: u8,
    start: usize,
    end: usize,
}

impl FrameBounds {
    /// The first frame, if it is complete.
    fn at(bytes: &[u8]) -> Option<Self> {
        let frame = Self::parse_header(bytes)?;
        (bytes.len() >= frame.end).then_some(frame)
    }

    /// Size of the first frame, which may be incomplete; 0 if its length is not known
    /// yet.
    fn size(bytes: &[u8]) -> usize {
        Self::parse_header(bytes).map_or(0, |frame| frame.end)
    }

    fn parse_header(bytes: &[u8]) -> Option<Self> {
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
    fn complete_frame_is_found_for_each_length_encoding() {
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
            assert!(FrameBounds::at(&bytes[..bytes.len() - 1]).is_none());
            assert_eq!(FrameBounds::size(&bytes), bytes.len());
            let frame = FrameBounds::at(&bytes).unwrap();
            assert_eq!((frame.opcode, frame.start, frame.end), (1, head, bytes.len()));
        }
    }
}
