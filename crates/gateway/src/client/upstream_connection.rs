//! One connection to an upstream and the response read from it.
//!
//! Owns the connection's HTTP state and drives it from the future or stream
//! that waits for the response, not from a separate task. Records whether any
//! byte of the response arrived, which decides whether a retry is allowed.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};

use super::HttpClient;
use super::wake_filter::WakeFilter;
use crate::endpoint::Endpoint;

/// Largest buffer of a connection in each direction, also the longest response
/// head. At most this much is read ahead of a slow reader.
const BUFFER: usize = 32 * 1024;

/// How long the end of a response may arrive after its last event. The
/// connection can be reused only after that; the client does not wait for it.
const LAG: Duration = Duration::from_secs(2);

/// Why a request got no response.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// The connection closed before the first byte of a response.
    Reset,
    /// No byte was sent or received for too long.
    Silent,
    /// An error after the first byte.
    Protocol(hyper::Error),
}

/// One connection, driven by its user.
pub(crate) struct UpstreamConnection {
    sender: SendRequest<Full<Bytes>>,
    http: Connection<TokioIo<Counted>, Full<Bytes>>,
    traffic: Arc<Traffic>,
    /// The connection has ended and must not be polled again.
    ended: bool,
}

impl UpstreamConnection {
    /// Starts HTTP/1.1 on a byte stream.
    pub(super) async fn open(stream: Box<dyn UpstreamStream>) -> Result<Self, hyper::Error> {
        let traffic = Arc::new(Traffic::default());
        let counted = Counted { stream, traffic: Arc::clone(&traffic) };
        let (sender, http) =
            http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(counted)).await?;
        Ok(Self { sender, http, traffic, ended: false })
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        idle_timeout: Duration,
    ) -> Result<Response<Incoming>, RequestFailure> {
        let before = self.traffic.received.load(Ordering::Relaxed);
        let mut response = pin!(self.sender.send_request(request));
        let (http, ended, traffic) = (&mut self.http, &mut self.ended, &self.traffic);
        let mut moved = traffic.moved();
        let mut waiting = pin!(sleep_until(Instant::now() + idle_timeout));
        let answered = poll_fn(|context| {
            drive(http, ended, context);
            if let Poll::Ready(result) = response.as_mut().poll(context) {
                return Poll::Ready(Some(result));
            }
            while waiting.as_mut().poll(context).is_ready() {
                // While a large body is being sent, the upstream is not considered idle.
                if std::mem::replace(&mut moved, traffic.moved()) == traffic.moved() {
                    return Poll::Ready(None);
                }
                waiting.as_mut().reset(Instant::now() + idle_timeout);
            }
            Poll::Pending
        })
        .await;
        match answered {
            Some(Ok(response)) => Ok(response),
            Some(Err(_)) if self.traffic.received.load(Ordering::Relaxed) == before => {
                Err(RequestFailure::Reset)
            }
            Some(Err(error)) => Err(RequestFailure::Protocol(error)),
            None => Err(RequestFailure::Silent),
        }
    }

    /// Whether another request can be sent on this connection.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        drive(&mut self.http, &mut self.ended, &mut context);
        !self.ended && matches!(self.sender.poll_ready(&mut context), Poll::Ready(Ok(())))
    }
}

/// Polls a connection. Its error also reaches the response future or body, so
/// it is ignored here.
fn drive(http: &mut Connection<TokioIo<Counted>, Full<Bytes>>, ended: &mut bool, context: &mut Context<'_>) {
    if !*ended && Pin::new(http).poll(context).is_ready() {
        *ended = true;
    }
}

/// A response whose head was received.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) data: ResponseData,
}

impl HttpResponse {
    pub(super) fn new(
        response: Response<Incoming>,
        connection: UpstreamConnection,
        endpoint: Endpoint,
        client: HttpClient,
    ) -> Self {
        let (Parts { status, headers, .. }, body) = response.into_parts();
        let reusable = Some(Reusable { connection, endpoint, client });
        let data = ResponseData { body, reusable, ended: false, wake_filter: WakeFilter::new() };
        Self { status, headers, data }
    }
}

/// The body of a response. Dropping it closes the connection, unless the
/// response was read to its end.
pub(crate) struct ResponseData {
    body: Incoming,
    /// `None` after the connection was returned to the client's pool.
    reusable: Option<Reusable>,
    ended: bool,
    wake_filter: WakeFilter,
}

struct Reusable {
    connection: UpstreamConnection,
    endpoint: Endpoint,
    client: HttpClient,
}

impl ResponseData {
    /// The next chunk, or `None` at the end.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let Some(Reusable { connection, .. }) = &mut self.reusable else { return Poll::Ready(None) };
            let body = &mut self.body;
            let frame = self.wake_filter.poll(context, |context| {
                // The first poll tells the connection that there is room; the
                // second returns what the connection then read.
                if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
                    return Poll::Ready(frame);
                }
                drive(&mut connection.http, &mut connection.ended, context);
                Pin::new(&mut *body).poll_frame(context)
            });
            match ready!(frame) {
                Some(Ok(frame)) => {
                    // Trailers are ignored.
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    self.reusable = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.ended = true;
                    if let Some(Reusable { connection, endpoint, client }) = self.reusable.take() {
                        client.keep(endpoint, connection);
                    }
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Waits for the next chunk.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Releases the response when its reader needs no more data. The connection
    /// is reused if only the end of the response is missing, else closed.
    pub(crate) fn finish(mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if self.poll_next(&mut context).is_ready() {
            return;
        }
        let Some(client) = self.reusable.as_ref().map(|reusable| reusable.client.clone()) else {
            return;
        };
        client.finish_later(async move {
            // Both the end and further data finish this response.
            timeout(LAG, self.next()).await.ok();
        });
    }
}

impl fmt::Debug for ResponseData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ResponseData").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// A byte stream to an upstream, plain or encrypted.
pub(super) trait UpstreamStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> UpstreamStream for T {}

/// Byte counts of a connection.
#[derive(Debug, Default)]
struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    fn moved(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}

/// A byte stream that counts its traffic.
struct Counted {
    stream: Box<dyn UpstreamStream>,
    traffic: Arc<Traffic>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len().saturating_sub(before);
        self.traffic.received.fetch_add(count as u64, Ordering::Relaxed);
        result
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &result {
            self.traffic.sent.fetch_add(*count as u64, Ordering::Relaxed);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(count)) = &result {
            self.traffic.sent.fetch_add(*count as u64, Ordering::Relaxed);
        }
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
