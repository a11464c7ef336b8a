//! As much of HTTP/1.1 as a fake server needs.

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::reply::Head;

/// The longest head of a request.
const MAX_HEAD: usize = 256 * 1024;

/// The longest body of a request.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// A request as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Reads a request; nothing if the client has left between two.
pub(super) async fn read_request(socket: &mut TcpStream) -> Result<Option<Request>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD {
            bail!("the head of a request is too long");
        }
        if socket.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let mut body = bytes.split_off(end + 4);
    let text = String::from_utf8(bytes).context("a head that is no text")?;
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else { bail!("no request line") };
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = match headers.iter().find(|(name, _)| name == "content-length") {
        Some((_, length)) => length.parse().context("a length that is no number")?,
        None => 0,
    };
    if length > MAX_BODY {
        bail!("the body of a request is too long");
    }
    while body.len() < length {
        if socket.read_buf(&mut body).await? == 0 {
            bail!("the client left in the middle of its request");
        }
    }
    Ok(Some(Request { method: method.to_owned(), target: target.to_owned(), headers, body }))
}

/// The head of an answer; without a length the body comes in chunks.
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

/// One piece of a body in chunks.
pub(super) fn chunk(piece: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Waits until the client has gone away. What it sends meanwhile is left alone.
pub(super) async fn client_gone(socket: &TcpStream) {
    let mut byte = [0];
    match socket.peek(&mut byte).await {
        Ok(0) | Err(_) => {}
        // It has sent more: then it is not told apart from one that stays.
        Ok(_) => std::future::pending().await,
    }
}
