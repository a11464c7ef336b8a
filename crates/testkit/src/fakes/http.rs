//! The subset of HTTP/1.1 that a fake server needs.

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::reply::Head;

/// Maximum size of a request head.
const MAX_HEAD: usize = 256 * 1024;

/// Maximum size of a request body.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// A parsed request.
#[derive(Debug)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Reads a request; `None` if the client disconnected between requests.
pub(super) async fn read_request(socket: &mut TcpStream) -> Result<Option<ReceivedRequest>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD {
            bail!("request head too long");
        }
        if socket.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let mut body = bytes.split_off(end + 4);
    let text = String::from_utf8(bytes).context("request head is not UTF-8")?;
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else { bail!("no request line") };
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = match headers.iter().find(|(name, _)| name == "content-length") {
        Some((_, length)) => length.parse().context("invalid content-length")?,
        None => 0,
    };
    if length > MAX_BODY {
        bail!("request body too long");
    }
    while body.len() < length {
        if socket.read_buf(&mut body).await? == 0 {
            bail!("the client disconnected during a request");
        }
    }
    Ok(Some(ReceivedRequest { method: method.to_owned(), target: target.to_owned(), headers, body }))
}

/// Formats a response head; without a length the body is chunked.
pub(super) fn head_text(head: &Head, length: Option<usize>) -> String {
    let mut text = format!("HTTP/1.1 {} Fake\r\n", head.status);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    match length {
        Some(length) => text.push_str(&format!("content-length: {length}\r\n\r\n")),
        None => text.push_str("transfer-encoding: chunked\r\n\r\n"),
    }
    text
}

/// Formats one chunk.
pub(super) fn chunk(piece: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Waits until the client disconnects. Does not consume data that the client sends
/// meanwhile.
pub(super) async fn client_disconnected(socket: &TcpStream) {
    let mut byte = [0];
    match socket.peek(&mut byte).await {
        Ok(0) | Err(_) => {}
        // With unread data pending, a disconnect cannot be detected.
        Ok(_) => std::future::pending().await,
    }
}
