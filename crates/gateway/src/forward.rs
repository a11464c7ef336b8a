//! Forwards a messages request to an upstream and returns its response.
//!
//! The response status is decided when the first event arrives; then chunks
//! are passed on as the client reads them. Nothing is read ahead of the
//! client; dropping the stream closes the connection to the upstream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::client::{HttpClient, HttpRequest, HttpResponse, HttpSendError, ResponseData};
use crate::endpoint::Endpoint;
use crate::envelope::{self, ErrorEnvelope};
use crate::error::{self, ApiError};
use crate::head::{self, Edit};
use crate::headers;
use crate::relay::{Closing, Relay, RelayOptions};
use crate::tap::Tap;
use crate::upstream::{Cut, UpstreamBody, UpstreamResponse};
use crate::usage_ledger::{OpenRequest, RequestEnd};

/// Largest response that is not streamed. Model output is far smaller; a
/// larger response is rejected.
const MAX_WHOLE: usize = 32 * 1024 * 1024;

/// Largest error body that is passed on; a larger one is replaced by its status.
const MAX_ERROR: usize = 256 * 1024;

/// Comments that are buffered while waiting for the first event. After this
/// many the status is sent without an event.
const MAX_COMMENTS: usize = 64;

/// A messages request that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Forward<'a> {
    pub(crate) client: &'a HttpClient,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) outgoing: HttpRequest,
    pub(crate) options: RelayOptions,
    /// Selects the response headers for the client.
    pub(crate) response_headers: fn(&HeaderMap) -> HeaderMap,
    /// Usage accounting of this request.
    pub(crate) open: OpenRequest,
}

impl Forward<'_> {
    /// Sends the request; returns when the response status is decided.
    pub(crate) async fn run(mut self) -> Result<UpstreamResponse, ApiError> {
        let response = match self.client.send(self.endpoint, &self.outgoing).await {
            Ok(response) => response,
            Err(error) => return Err(self.fail(unreachable_upstream(&error))),
        };
        // The body was kept only for a retry.
        self.outgoing.body = Bytes::new();
        if headers::is_encoded(&response.headers) {
            return Err(self.fail(ApiError::bad_gateway(
                "the upstream sent a compressed response that was not requested",
            )));
        }
        if !response.status.is_success() {
            return Ok(self.pass_failure(response).await);
        }
        if headers::is_event_stream(&response.headers) {
            return Ok(self.stream(response).await);
        }
        self.whole(response).await
    }

    fn fail(&mut self, error: ApiError) -> ApiError {
        self.open.end(RequestEnd::Failed(error.clone()));
        error
    }

    /// Returns an error response, unchanged if it is an Anthropic error object.
    async fn pass_failure(&mut self, response: HttpResponse) -> UpstreamResponse {
        let (response, error) =
            failure_response(response, self.response_headers, &self.options, self.client.idle_timeout())
                .await;
        self.open.end(RequestEnd::Failed(error));
        response
    }

    /// Returns a response that is not streamed.
    async fn whole(mut self, response: HttpResponse) -> Result<UpstreamResponse, ApiError> {
        let headers = (self.response_headers)(&response.headers);
        let body = match read_all(response.data, MAX_WHOLE, self.client.idle_timeout()).await {
            Ok(body) => body,
            Err(error) => return Err(self.fail(error)),
        };
        let mut tap = Tap::default();
        let place = tap.read_whole(&body);
        self.open.update(tap.reading().clone());
        self.open.end(RequestEnd::Completed);
        self.open.settle();
        let renamed = place.and_then(|place| {
            let name = self.options.name_model.as_ref()?(&place.model)?;
            Some(Edit { span: place.span, text: head::quoted(&name) })
        });
        let body = head::splice(&body, renamed.into_iter().collect());
        Ok(UpstreamResponse { status: response.status, headers, body: UpstreamBody::Full(body) })
    }

    /// Returns an event stream. If the first event is an error, it is returned
    /// as a response with an error status instead.
    async fn stream(mut self, response: HttpResponse) -> UpstreamResponse {
        let idle_timeout = self.client.idle_timeout();
        let HttpResponse { status, headers, mut data } = response;
        let mut headers = (self.response_headers)(&headers);
        let mut relay = Relay::new(self.options);
        while !relay.has_begun() && relay.closing().is_none() && relay.waiting() < MAX_COMMENTS {
            match timeout(idle_timeout, data.next()).await {
                Ok(Some(Ok(chunk))) => relay.push(&chunk),
                Ok(Some(Err(error))) => relay.end(Some(interrupted(&error))),
                Ok(None) => relay.end(None),
                Err(_) => relay.end(Some(idle_timed_out(idle_timeout))),
            }
        }
        if !relay.has_begun()
            && let Some(Closing::Failed { error, object }) = relay.closing().cloned()
        {
            headers::mark_json(&mut headers);
            let status = error.status();
            self.open.end(RequestEnd::Failed(error));
            return UpstreamResponse { status, headers, body: UpstreamBody::Full(object) };
        }
        headers::mark_stream(&mut headers);
        let stream = ForwardedStream {
            relay,
            data: Some(data),
            open: self.open,
            idle_timeout,
            last_chunk: Instant::now(),
            idle_timer: Box::pin(sleep_until(Instant::now() + idle_timeout)),
        };
        UpstreamResponse { status, headers, body: UpstreamBody::Stream(stream.boxed()) }
    }
}

/// A stream that is being forwarded to the client.
struct ForwardedStream {
    relay: Relay,
    /// `None` after the stream is closed.
    data: Option<ResponseData>,
    open: OpenRequest,
    /// How long the upstream may send nothing.
    idle_timeout: Duration,
    /// When the last chunk arrived.
    last_chunk: Instant,
    /// Timer for the idle timeout. Reset only when it fires, because most
    /// chunks arrive long before.
    idle_timer: Pin<Box<Sleep>>,
}

impl Stream for ForwardedStream {
    type Item = Result<Bytes, Cut>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            this.settle();
            if let Some(chunk) = this.relay.pop() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            let Some(data) = this.data.as_mut().filter(|_| this.relay.closing().is_none()) else {
                this.close();
                return Poll::Ready(None);
            };
            match data.poll_next(context) {
                Poll::Ready(Some(Ok(chunk))) => {
                    this.last_chunk = Instant::now();
                    this.relay.push(&chunk);
                }
                Poll::Ready(Some(Err(error))) => this.relay.end(Some(interrupted(&error))),
                Poll::Ready(None) => this.relay.end(None),
                Poll::Pending => {
                    if this.is_idle(context) {
                        this.relay.end(Some(idle_timed_out(this.idle_timeout)));
                    } else {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl ForwardedStream {
    fn is_idle(&mut self, context: &mut Context<'_>) -> bool {
        while self.idle_timer.as_mut().poll(context).is_ready() {
            let until = self.last_chunk + self.idle_timeout;
            if until <= Instant::now() {
                return true;
            }
            self.idle_timer.as_mut().reset(until);
        }
        false
    }

    /// Records usage and result once the upstream's response has ended: before its end is
    /// passed on, so that a client that has the response finds its usage in the account.
    fn settle(&mut self) {
        match self.relay.closing() {
            Some(Closing::Complete) => self.open.end(RequestEnd::Completed),
            Some(Closing::Failed { error, .. }) => self.open.end(RequestEnd::Failed(error.clone())),
            None => return,
        }
        self.open.update(self.relay.reading().clone());
        self.open.settle();
    }

    /// Releases the upstream's response once it has ended without being dropped.
    fn close(&mut self) {
        let Some(data) = self.data.take() else { return };
        if let Some(Closing::Complete) = self.relay.closing() {
            data.finish();
        }
    }
}

impl Drop for ForwardedStream {
    fn drop(&mut self) {
        self.open.update(self.relay.reading().clone());
    }
}

/// Builds the client's response from an upstream response with an error status.
pub(crate) async fn failure_response(
    response: HttpResponse,
    response_headers: fn(&HeaderMap) -> HeaderMap,
    options: &RelayOptions,
    idle_timeout: Duration,
) -> (UpstreamResponse, ApiError) {
    let mut headers = response_headers(&response.headers);
    // A client that can only reach the gateway cannot follow a redirect.
    let status = if response.status.is_redirection() || response.status.is_informational() {
        StatusCode::BAD_GATEWAY
    } else {
        response.status
    };
    let body = read_all(response.data, MAX_ERROR, idle_timeout).await.unwrap_or_default();
    let envelope = ErrorEnvelope::read(&body);
    let secret = options.secret.as_ref();
    let kind =
        envelope.kind.filter(|_| envelope.conforms).unwrap_or_else(|| error::kind_of(status).to_owned());
    let message = envelope.message.unwrap_or_else(|| format!("the upstream returned status {status}"));
    let error = ApiError::from_status(status, envelope::scrub(&message, secret))
        .with_kind(kind)
        .with_retry_after(headers::retry_after(&response.headers));
    let passes = envelope.conforms && !envelope::reveals(&body, secret);
    let body = if passes { body } else { error.body(&options.request_id) };
    headers::mark_json(&mut headers);
    (UpstreamResponse { status, headers, body: UpstreamBody::Full(body) }, error)
}

/// Reads a whole body.
pub(crate) async fn read_all(
    mut data: ResponseData,
    cap: usize,
    idle_timeout: Duration,
) -> Result<Bytes, ApiError> {
    let mut body = BytesMut::new();
    loop {
        match timeout(idle_timeout, data.next()).await {
            Ok(Some(Ok(chunk))) if body.len() + chunk.len() > cap => {
                return Err(ApiError::bad_gateway(format!(
                    "the upstream's response is larger than {cap} bytes"
                )));
            }
            Ok(Some(Ok(chunk))) => body.extend_from_slice(&chunk),
            Ok(Some(Err(error))) => return Err(interrupted(&error)),
            Ok(None) => return Ok(body.freeze()),
            Err(_) => return Err(idle_timed_out(idle_timeout)),
        }
    }
}

/// The client's error when the upstream sent no response.
pub(crate) fn unreachable_upstream(error: &HttpSendError) -> ApiError {
    let text = format!("upstream request failed: {error}");
    match error {
        HttpSendError::Silent { .. } => ApiError::timed_out(text),
        HttpSendError::Connect { .. } | HttpSendError::Reset { .. } | HttpSendError::Protocol { .. } => {
            ApiError::bad_gateway(text)
        }
    }
}

fn interrupted(error: &hyper::Error) -> ApiError {
    ApiError::bad_gateway(format!("the upstream's response was interrupted: {error}; send the request again"))
}

fn idle_timed_out(idle_timeout: Duration) -> ApiError {
    ApiError::timed_out(format!("the upstream sent nothing for {idle_timeout:?}; send the request again"))
}
