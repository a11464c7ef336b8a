//! Reads request bodies up to a size limit.
//!
//! Owns the limits on the size of a request. A body above the limit is still
//! drained, within bounds: closing a socket that has unread bytes resets the
//! connection, and the client would not receive the error response.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::error::ApiError;

/// Default limit of a request body: Anthropic's own limit for the Messages
/// API. A larger body is rejected with 413.
pub(crate) const DEFAULT_BODY_CAP: usize = 32 * MEBIBYTE;

/// How many bytes of a rejected body are drained. Past it the connection is
/// closed and the client may not see the error response.
const DRAIN_CAP: usize = 2 * DEFAULT_BODY_CAP;

const MEBIBYTE: usize = 1024 * 1024;

/// How long a rejected body is drained.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a whole body.
pub(crate) async fn read(mut body: Incoming, cap: usize) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        if first.len() + joined.len() + data.len() > cap {
            drain(body).await;
            return Err(ApiError::too_large(format!("the request body is larger than {}", size(cap))));
        }
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        if joined.is_empty() {
            joined.extend_from_slice(&first);
            first = Bytes::new();
        }
        joined.extend_from_slice(&data);
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}

/// Discards the rest of a rejected body.
pub(crate) async fn drain(mut body: Incoming) {
    let rest = async {
        let mut seen = 0;
        while let Ok(Some(data)) = next_data(&mut body).await {
            seen += data.len();
            if seen > DRAIN_CAP {
                return;
            }
        }
    };
    if timeout(DRAIN_TIME, rest).await.is_err() {
        tracing::debug!(waited = ?DRAIN_TIME, "rejected request body was not drained in time");
    }
}

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::invalid_request(format!("cannot read the request body: {error}")))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn size(bytes: usize) -> String {
    if bytes >= MEBIBYTE && bytes.is_multiple_of(MEBIBYTE) {
        format!("{} MiB", bytes / MEBIBYTE)
    } else {
        format!("{bytes} bytes")
    }
}
