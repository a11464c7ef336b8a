//! Resources of the edit log: the stored contents of files, and their diffs.
//!
//! Their addresses do not name a file, so file access does not apply to them: a client that has
//! the digest of a content has seen the edit that refers to it.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ahp_types::commands::{ContentEncoding, ResourceReadResult, ResourceResolveResult, ResourceType};
use bytes::Bytes;
use innkeeper_core::Host;
use innkeeper_core::edits::{BlobUri, DiffUri};
use innkeeper_core::files::{FileChange, FileError, FileWatch};
use innkeeper_core::media;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::resource::{OUTPUT_RESERVATION, base64_size, encoded};
use crate::concurrent::ReservedResult;
use crate::connection::{Connection, ServerContext};
use crate::rpc::RpcError;

/// A resource of the edit log.
#[derive(Debug)]
pub(super) struct EditResource {
    uri: String,
    kind: EditResourceKind,
}

#[derive(Debug)]
enum EditResourceKind {
    Blob(BlobUri),
    Diff(DiffUri),
    /// Not the address of any resource.
    Malformed,
}

impl EditResource {
    /// Parses an address; `None` if it has another scheme.
    pub(super) fn parse(uri: &str) -> Option<Self> {
        let blob = BlobUri::parse(uri).map(|blob| blob.map(EditResourceKind::Blob));
        let diff = || DiffUri::parse(uri).map(|diff| diff.map(EditResourceKind::Diff));
        let kind = blob.or_else(diff)?.unwrap_or(EditResourceKind::Malformed);
        Some(Self { uri: uri.to_owned(), kind })
    }

    async fn read(&self, host: &Host) -> Result<Bytes, RpcError> {
        let found = match &self.kind {
            EditResourceKind::Blob(blob) => host.edit_log().read_blob(blob.digest).await?,
            EditResourceKind::Diff(diff) => host.edit_log().diff(diff.before, diff.after).await?,
            EditResourceKind::Malformed => None,
        };
        found.ok_or_else(|| FileError::NotFound(self.uri.clone()).into())
    }

    fn content_type(&self) -> Option<String> {
        match &self.kind {
            EditResourceKind::Blob(blob) => media::type_of(Path::new(&blob.name)).map(str::to_owned),
            EditResourceKind::Diff(_) => Some("application/json".to_owned()),
            EditResourceKind::Malformed => None,
        }
    }

    fn etag(&self) -> Option<String> {
        match &self.kind {
            EditResourceKind::Blob(blob) => Some(blob.digest.to_string()),
            EditResourceKind::Diff(_) | EditResourceKind::Malformed => None,
        }
    }

    /// A watch, if the resource exists. It never reports a change, because the content of an
    /// address does not change.
    pub(super) async fn watch(&self, shared: &ServerContext) -> Result<Box<dyn FileWatch>, RpcError> {
        let Ok(permit) = Arc::clone(&shared.content_watches).try_acquire_owned() else {
            let what = "the number of watched contents".to_owned();
            return Err(FileError::TooLarge { what, limit: "256 watches" }.into());
        };
        self.read(&shared.host).await?;
        Ok(Box::new(UnchangingWatch(permit)))
    }
}

/// A watch of a resource that does not change, with its share of the limit.
#[derive(Debug)]
struct UnchangingWatch(#[expect(dead_code, reason = "held until the watch ends")] OwnedSemaphorePermit);

impl FileWatch for UnchangingWatch {
    fn changes(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<FileChange>>> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

impl Connection {
    pub(super) async fn edit_read(
        &self,
        id: &RawValue,
        edit: EditResource,
        encoding: Option<ContentEncoding>,
    ) {
        let (shared, budget) = (Arc::clone(&self.shared), self.concurrent.budget());
        let work = async move {
            let mut reservation = budget.reserve(base64_size(OUTPUT_RESERVATION)).await;
            let content = edit.read(&shared.host).await?;
            let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
            if size > OUTPUT_RESERVATION {
                // Returned first: two requests could wait for each other's share.
                drop(reservation.take());
                reservation = budget.reserve(base64_size(size)).await;
            }
            let (data, encoding) = encoded(&content, encoding);
            let result = ResourceReadResult { data, encoding, content_type: edit.content_type() };
            Ok(ReservedResult { result, reservation })
        };
        self.concurrent.run(id, work).await;
    }

    pub(super) async fn edit_resolve(&self, id: &RawValue, edit: EditResource) {
        let shared = Arc::clone(&self.shared);
        let work = async move {
            let content = edit.read(&shared.host).await?;
            let result = ResourceResolveResult {
                size: i64::try_from(content.len()).ok(),
                content_type: edit.content_type(),
                etag: edit.etag(),
                uri: edit.uri,
                r#type: ResourceType::File,
                mtime: None,
                ctime: None,
            };
            Ok(result.into())
        };
        self.concurrent.run(id, work).await;
    }
}
