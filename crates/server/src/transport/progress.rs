//! Measures whether a client reads, by the bytes that its socket accepts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a client may read nothing while data is being written to it. It can reconnect
/// without losing any; until then the data occupies memory.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of bytes that a socket has accepted. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteProgress(Arc<AtomicU64>);

impl WriteProgress {
    /// Resolves when the socket has accepted nothing for the timeout.
    pub(crate) async fn stalled(&self) {
        loop {
            let before = self.0.load(Ordering::Relaxed);
            tokio::time::sleep(STALL_TIMEOUT).await;
            if self.0.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    fn add(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.0.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

/// A socket that counts what it accepts.
#[derive(Debug)]
pub(crate) struct CountedSocket<S> {
    socket: S,
    progress: WriteProgress,
}

impl<S> CountedSocket<S> {
    pub(crate) fn new(socket: S, progress: &WriteProgress) -> Self {
        Self { socket, progress: progress.clone() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.progress.add(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.progress.add(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
