//! Response bodies for hyper.
//!
//! A full body has a content length. A stream is passed on chunk by chunk and
//! only as fast as the client reads. A cut stream ends with an error, so that
//! the client does not mistake it for a complete one.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body::{Body, Frame, SizeHint};

use crate::upstream::{Cut, UpstreamBody};

/// The body of a response to a client.
pub(crate) enum ResponseBody {
    Full(Bytes),
    Stream(BoxStream<'static, Result<Bytes, Cut>>),
}

impl From<UpstreamBody> for ResponseBody {
    fn from(body: UpstreamBody) -> Self {
        match body {
            UpstreamBody::Full(bytes) => Self::Full(bytes),
            UpstreamBody::Stream(stream) => Self::Stream(stream),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(stream) => stream.poll_next_unpin(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
