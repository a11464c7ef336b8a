//! Reading request bodies within a cap.
//!
//! Owns the limits on what a client may send. A body above the cap is still
//! read to its end, within bounds, because a socket closed over unread bytes
//! resets the connection and the client would never see why.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::error::ApiError;

/// Largest request body: Anthropic's own limit for the Messages API.
pub(crate) const BODY_CAP: usize = 32 * 1024 * 1024;

/// How much of a refused body is read and thrown away before giving up on
/// telling the client why.
const DRAIN_CAP: usize = 2 * BODY_CAP;

/// How long a refused body may keep arriving.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a whole body.
pub(crate) async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        if first.len() + joined.len() + data.len() > BODY_CAP {
            drain(body).await;
            let message = format!("the request body is larger than {} MiB", BODY_CAP / (1024 * 1024));
            return Err(ApiError::too_large(message));
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
pub(crate) async fn drain(mut body: Body) {
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

async fn next_data(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::invalid_request(format!("the request body broke off: {error}")))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
