//! The `resource*` methods: file access for clients.
//!
//! Translates between the protocol's parameters and the `Files` trait. All requests run
//! concurrently, so a slow disk does not block the connection.

use ahp_types::commands::{
    ContentEncoding, CreateResourceWatchResult, DirectoryEntry, ResourceListResult, ResourceReadResult,
    ResourceResolveResult, ResourceType, ResourceWriteMode,
};
use ahp_types::state::ResourceWatchState;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use innkeeper_core::clock::wire_time;
use innkeeper_core::files::{
    Access, Existing, Extent, FileContent, FileError, FileKind, FileStatus, FileWrite, Links, Reach,
    Transfer, WatchRequest, WriteCondition, WritePlace,
};
use innkeeper_core::output::{OutputUri, StoredOutput};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

use super::stored_edit::EditResource;
use crate::concurrent::ReservedResult;
use crate::connection::Connection;
use crate::rpc::{self, RpcError};
use crate::watches;

/// Standard base64; padding is optional when decoding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The memory that is reserved to read stored output. Most pieces are at most this large.
pub(super) const OUTPUT_RESERVATION: u64 = 1024 * 1024;

/// Result of most operations: an empty object.
type Empty = Value;

impl Connection {
    /// Handles a request if its method is one of this family.
    pub(super) async fn resource_request(
        &self,
        method: &str,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<MethodMatch, RpcError> {
        match method {
            "resourceRead" => self.resource_read(id, rpc::params(params)?).await,
            "resourceWrite" => self.resource_write(id, rpc::params(params)?).await?,
            "resourceList" => self.resource_list(id, rpc::params(params)?).await,
            "resourceResolve" => self.resource_resolve(id, rpc::params(params)?).await,
            "resourceCopy" => {
                let transfer = rpc::params::<TransferParams>(params)?.into();
                self.empty(id, self.shared.files.copy(transfer)).await;
            }
            "resourceMove" => {
                let transfer = rpc::params::<TransferParams>(params)?.into();
                self.empty(id, self.shared.files.relocate(transfer)).await;
            }
            "resourceDelete" => {
                let params: DeleteParams = rpc::params(params)?;
                let extent = if params.recursive == Some(true) { Extent::Recursive } else { Extent::Single };
                self.empty(id, self.shared.files.delete(params.uri, extent)).await;
            }
            "resourceMkdir" => {
                let params: UriParams = rpc::params(params)?;
                self.empty(id, self.shared.files.make_directory(params.uri)).await;
            }
            "resourceRequest" => self.resource_access(id, rpc::params(params)?).await,
            "createResourceWatch" => self.create_resource_watch(id, rpc::params(params)?).await?,
            _ => return Ok(MethodMatch::Unknown),
        }
        Ok(MethodMatch::Handled)
    }

    async fn empty(&self, id: &RawValue, work: impl Future<Output = Result<(), FileError>> + Send + 'static) {
        let work = async move {
            work.await?;
            Ok::<ReservedResult<Empty>, RpcError>(json!({}).into())
        };
        self.concurrent.run(id, work).await;
    }

    async fn resource_read(&self, id: &RawValue, params: ReadParams) {
        if let Some(output) = OutputUri::parse(&params.uri) {
            return self.output_read(id, output, params).await;
        }
        if let Some(edit) = EditResource::parse(&params.uri) {
            return self.edit_read(id, edit, params.encoding).await;
        }
        let (files, budget) = (Arc::clone(&self.shared.files), self.concurrent.budget());
        let work = async move {
            // Reserve the budget for the response first, so that not all of many large
            // files are in memory at once.
            let status = files.resolve(params.uri.clone(), Links::Follow).await?;
            let reservation = budget.reserve(base64_size(status.size.unwrap_or_default())).await;
            let content = files.read(params.uri).await?;
            Ok(ReservedResult { result: read_result(content, params.encoding), reservation })
        };
        self.concurrent.run(id, work).await;
    }

    /// Reads stored output of an agent, which documents refer to.
    async fn output_read(&self, id: &RawValue, output: OutputUri, params: ReadParams) {
        let (shared, budget) = (Arc::clone(&self.shared), self.concurrent.budget());
        let work = async move {
            let reservation = budget.reserve(base64_size(OUTPUT_RESERVATION)).await;
            let found = match output {
                OutputUri::Piece(output) => shared.host.read_output(output).await?,
                OutputUri::Malformed => None,
            };
            let StoredOutput { content_type, body } = found.ok_or(FileError::NotFound(params.uri))?;
            let (data, encoding) = encoded(&body, params.encoding);
            let result = ResourceReadResult { data, encoding, content_type: Some(content_type) };
            Ok(ReservedResult { result, reservation })
        };
        self.concurrent.run(id, work).await;
    }

    async fn resource_write(&self, id: &RawValue, params: WriteParams) -> Result<(), RpcError> {
        let write = params.into_write()?;
        self.empty(id, self.shared.files.write(write)).await;
        Ok(())
    }

    async fn resource_list(&self, id: &RawValue, params: UriParams) {
        let listing = self.shared.files.list(params.uri);
        let work = async move {
            let entries = listing.await?;
            let entries = entries
                .into_iter()
                .map(|entry| DirectoryEntry { name: entry.name, r#type: kind_name(entry.kind).to_owned() })
                .collect();
            Ok(ResourceListResult { entries }.into())
        };
        self.concurrent.run(id, work).await;
    }

    async fn resource_resolve(&self, id: &RawValue, params: ResolveParams) {
        if let Some(edit) = EditResource::parse(&params.uri) {
            return self.edit_resolve(id, edit).await;
        }
        let links = if params.follow_symlinks == Some(false) { Links::Keep } else { Links::Follow };
        let resolving = self.shared.files.resolve(params.uri, links);
        let work = async move { Ok(resolve_result(resolving.await?).into()) };
        self.concurrent.run(id, work).await;
    }

    async fn resource_access(&self, id: &RawValue, params: AccessParams) {
        let access = if params.write == Some(true) { Access::Write } else { Access::Read };
        let checking = self.shared.files.check(params.uri);
        let work = async move {
            match checking.await {
                // Report the access that the client asked for, not the read access of the check.
                Err(FileError::Denied { uri, reason, .. }) => Err(FileError::Denied { uri, access, reason }),
                checked => checked,
            }
        };
        self.empty(id, work).await;
    }

    async fn create_resource_watch(&self, id: &RawValue, params: WatchParams) -> Result<(), RpcError> {
        let reach = if params.recursive == Some(true) { Reach::Descendants } else { Reach::Entries };
        let request = WatchRequest {
            uri: params.uri.clone(),
            reach,
            includes: patterns(params.includes.as_ref())?,
            excludes: patterns(params.excludes.as_ref())?,
        };
        let state = ResourceWatchState {
            root: params.uri,
            recursive: reach == Reach::Descendants,
            excludes: params.excludes,
            includes: params.includes,
        };
        let shared = Arc::clone(&self.shared);
        let edit = EditResource::parse(&request.uri);
        let work = async move {
            let watch = match edit {
                Some(edit) => edit.watch(&shared).await?,
                None => shared.files.watch(request).await?,
            };
            let channel = watches::publish(&shared.host, &shared.tasks, &shared.stop, state, watch)
                .map_err(|taken| RpcError::internal(&format!("channel {taken} already exists")))?;
            Ok(CreateResourceWatchResult { channel: channel.as_str().to_owned() }.into())
        };
        self.concurrent.run(id, work).await;
        Ok(())
    }
}

/// Whether a method belongs to this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MethodMatch {
    /// It does, and its response is queued or will be.
    Handled,
    /// It does not.
    Unknown,
}

#[derive(Debug, Deserialize)]
struct UriParams {
    uri: String,
}

#[derive(Debug, Deserialize)]
struct ReadParams {
    uri: String,
    #[serde(default)]
    encoding: Option<ContentEncoding>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WriteParams {
    uri: String,
    data: String,
    encoding: ContentEncoding,
    #[serde(default)]
    create_only: Option<bool>,
    #[serde(default)]
    mode: Option<ResourceWriteMode>,
    #[serde(default)]
    position: Option<i64>,
    #[serde(default)]
    if_match: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResolveParams {
    uri: String,
    #[serde(default)]
    follow_symlinks: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TransferParams {
    source: String,
    destination: String,
    #[serde(default)]
    fail_if_exists: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct DeleteParams {
    uri: String,
    #[serde(default)]
    recursive: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct AccessParams {
    uri: String,
    #[serde(default)]
    write: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct WatchParams {
    uri: String,
    #[serde(default)]
    recursive: Option<bool>,
    #[serde(default)]
    excludes: Option<Value>,
    #[serde(default)]
    includes: Option<Value>,
}

impl From<TransferParams> for Transfer {
    fn from(params: TransferParams) -> Self {
        let existing = if params.fail_if_exists == Some(true) { Existing::Keep } else { Existing::Replace };
        Self { source: params.source, destination: params.destination, existing }
    }
}

impl WriteParams {
    fn into_write(self) -> Result<FileWrite, RpcError> {
        let position = u64::try_from(self.position.unwrap_or(0))
            .map_err(|_| RpcError::invalid_params("position must not be negative"))?;
        let place = match self.mode.unwrap_or(ResourceWriteMode::Truncate) {
            ResourceWriteMode::Truncate => WritePlace::Truncate(position),
            ResourceWriteMode::Append => WritePlace::Append(position),
            ResourceWriteMode::Insert => WritePlace::Insert(position),
        };
        let condition = match (self.create_only == Some(true), self.if_match) {
            (false, None) => WriteCondition::Always,
            (true, None) => WriteCondition::IsNew,
            (false, Some(mark)) => WriteCondition::Matches(mark),
            (true, Some(_)) => {
                return Err(RpcError::invalid_params(
                    "createOnly and ifMatch cannot be combined: a new file has no etag",
                ));
            }
        };
        let data: Bytes = match self.encoding {
            ContentEncoding::Utf8 => self.data.into(),
            ContentEncoding::Base64 => BASE64
                .decode(self.data)
                .map_err(|error| RpcError::invalid_params(format!("data is not base64: {error}")))?
                .into(),
        };
        Ok(FileWrite { uri: self.uri, data, place, condition })
    }
}

/// Reads `{items: […]}`, as in the protocol, or a plain list.
fn patterns(value: Option<&Value>) -> Result<Vec<String>, RpcError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let items = value.get("items").unwrap_or(value);
    serde_json::from_value(items.clone())
        .map_err(|_| RpcError::invalid_params("includes and excludes must be {items: [patterns]}"))
}

fn read_result(content: FileContent, wanted: Option<ContentEncoding>) -> ResourceReadResult {
    let (data, encoding) = encoded(&content.bytes, wanted);
    ResourceReadResult { data, encoding, content_type: content.content_type.map(str::to_owned) }
}

/// Encodes content as text if it is text and the client does not want base64.
pub(super) fn encoded(bytes: &[u8], wanted: Option<ContentEncoding>) -> (String, ContentEncoding) {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| wanted != Some(ContentEncoding::Base64) && escapes_little(text));
    match text {
        Some(text) => (text.to_owned(), ContentEncoding::Utf8),
        None => (BASE64.encode(bytes), ContentEncoding::Base64),
    }
}

/// Whether text takes no more space as a JSON string than as base64. A file full of
/// control characters would take six times its size.
fn escapes_little(text: &str) -> bool {
    let longer: usize = text
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
            0..0x20 => 5,
            _ => 0,
        })
        .sum();
    longer <= text.len() / 3 + 1024
}

/// Approximate size of a file as a base64 response.
pub(super) fn base64_size(bytes: u64) -> u64 {
    bytes.div_ceil(3) * 4 + 1024
}

fn resolve_result(status: FileStatus) -> ResourceResolveResult {
    ResourceResolveResult {
        uri: status.uri,
        r#type: match status.kind {
            FileKind::File => ResourceType::File,
            FileKind::Directory => ResourceType::Directory,
            FileKind::Symlink => ResourceType::Symlink,
            FileKind::Other => ResourceType::Unknown(kind_name(status.kind).to_owned()),
        },
        size: status.size.and_then(|size| i64::try_from(size).ok()),
        mtime: status.modified.map(wire_time),
        ctime: status.created.map(wire_time),
        content_type: status.content_type.map(str::to_owned),
        etag: status.etag,
    }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}
