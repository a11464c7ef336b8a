//! Reading request bodies within a cap.
//!
//! Owns the limits on what a client may send. A body above the cap is still
//! read to its end, within bounds, because a socket closed over unread bytes
//! resets the connection and the client would never see why.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::error::ApiError;

/// Largest request body unless configured: Anthropic's own limit for the
/// Messages API. A larger one is answered with 413.
pub(crate) const DEFAULT_BODY_CAP: usize = 32 * MEBIBYTE;

/// How much of a refused body is read and thrown away before giving up on
/// telling the client why.
const DRAIN_CAP: usize = 2 * DEFAULT_BODY_CAP;

const MEBIBYTE: usize = 1024 * 1024;

/// How long a refused body may keep arriving.
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

/// Throws away what a refused client is still sending.
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
        tracing::debug!("a refused request body was still arriving after {DRAIN_TIME:?}");
    }
}

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::invalid_request(format!("the request body broke off: {error}")))?;
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
