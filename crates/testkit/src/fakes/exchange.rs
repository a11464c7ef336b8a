//! Sends one reply, piece by piece, until it ends or the client disconnects.

use anyhow::{Context as _, Result, bail};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::http::{self, ReceivedRequest};
use super::reply::{Ending, Gate, Reply, ReplyBody};

/// Whether the connection stays open after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    Close,
}

/// Sends a reply. An error means that the client disconnected.
pub(super) async fn send_reply(
    socket: &mut TcpStream,
    request: &ReceivedRequest,
    reply: &Reply,
    mut sent: impl FnMut(usize),
) -> Result<After> {
    let gate = reply.gate.as_ref();
    match &reply.kind {
        ReplyBody::Whole(head, body) => {
            pass(socket, gate).await?;
            write(socket, http::head_text(head, Some(body.len())).as_bytes()).await?;
            write(socket, body).await?;
            sent(body.len());
        }
        ReplyBody::Pieces(head, pieces) => {
            write(socket, http::head_text(head, None).as_bytes()).await?;
            for piece in pieces {
                pass(socket, gate).await?;
                write(socket, &http::chunk(piece)).await?;
                sent(piece.len());
            }
        }
        ReplyBody::Raw(bytes) => {
            pass(socket, gate).await?;
            write(socket, bytes).await?;
        }
        ReplyBody::Relay { address, bearer } => return relay(socket, request, address, bearer).await,
    }
    end(socket, reply, gate).await
}

async fn end(socket: &mut TcpStream, reply: &Reply, gate: Option<&Gate>) -> Result<After> {
    match reply.ending {
        Ending::Whole => {
            if matches!(reply.kind, ReplyBody::Pieces(..)) {
                write(socket, b"0\r\n\r\n").await?;
            }
            Ok(if matches!(reply.kind, ReplyBody::Raw(_)) { After::Close } else { After::Keep })
        }
        Ending::Cut => {
            pass(socket, gate).await?;
            Ok(After::Close)
        }
        Ending::Reset => {
            pass(socket, gate).await?;
            // Closing a socket with a zero linger time sends a reset.
            setsockopt(socket, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
            Ok(After::Close)
        }
        Ending::Silence => {
            http::client_disconnected(socket).await;
            bail!("the client disconnected");
        }
    }
}

async fn pass(socket: &TcpStream, gate: Option<&Gate>) -> Result<()> {
    let Some(gate) = gate else { return Ok(()) };
    tokio::select! {
        biased;
        () = http::client_disconnected(socket) => bail!("the client disconnected"),
        () = gate.pass() => Ok(()),
    }
}

async fn write(socket: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    socket.write_all(bytes).await.context("the client disconnected")
}

/// Sends the request to another gateway and relays its response unchanged.
async fn relay(
    socket: &mut TcpStream,
    request: &ReceivedRequest,
    address: &str,
    bearer: &str,
) -> Result<After> {
    let mut other = TcpStream::connect(address).await?;
    let mut text = format!(
        "{} {} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {bearer}\r\nconnection: close\r\ncontent-length: {}\r\n",
        request.method,
        request.target,
        request.body.len()
    );
    let own = ["host", "authorization", "connection", "content-length", "x-api-key"];
    for (name, value) in request.headers.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    other.write_all(text.as_bytes()).await?;
    other.write_all(&request.body).await?;
    let mut piece = Vec::with_capacity(16 * 1024);
    loop {
        piece.clear();
        let count = tokio::select! {
            biased;
            () = http::client_disconnected(socket) => bail!("the client disconnected"),
            count = other.read_buf(&mut piece) => count?,
        };
        if count == 0 {
            return Ok(After::Close);
        }
        write(socket, &piece).await?;
    }
}
