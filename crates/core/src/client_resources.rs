//! Interface for resources on clients: attachments, plugins and other files that only a
//! client can open.
//!
//! Defines the requests and their errors; the server owns the connections. A client may
//! never answer, so every request has a timeout.

use ahp_types::commands::{
    ResourceCopyParams, ResourceDeleteParams, ResourceListParams, ResourceListResult, ResourceMkdirParams,
    ResourceMoveParams, ResourceReadParams, ResourceReadResult, ResourceRequestParams, ResourceResolveParams,
    ResourceResolveResult, ResourceWriteParams,
};
use ahp_types::common::{ROOT_RESOURCE_URI, Uri};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::agent::BoxFuture;
use crate::ids::ClientId;

/// Requests for resources, sent to a client over its most recent connection.
pub trait ClientResources: Send + Sync + 'static {
    /// Sends one request. Resolves with the undecoded response, or with an error once a
    /// response is no longer possible.
    fn ask(
        &self,
        client: ClientId,
        question: ClientQuestion,
    ) -> BoxFuture<Result<Box<RawValue>, ClientResourceError>>;

    /// Reads a client's resource.
    fn read(&self, client: ClientId, uri: Uri) -> BoxFuture<Result<ResourceReadResult, ClientResourceError>> {
        let params = ResourceReadParams { channel: root(), meta: None, uri, encoding: None };
        decoded(self.ask(client, ClientQuestion::Read(params)))
    }

    /// Lists a client's directory.
    fn list(&self, client: ClientId, uri: Uri) -> BoxFuture<Result<ResourceListResult, ClientResourceError>> {
        let params = ResourceListParams { channel: root(), meta: None, uri };
        decoded(self.ask(client, ClientQuestion::List(params)))
    }

    /// Reads the metadata of a client's resource.
    fn resolve(
        &self,
        client: ClientId,
        uri: Uri,
    ) -> BoxFuture<Result<ResourceResolveResult, ClientResourceError>> {
        let params = ResourceResolveParams { channel: root(), meta: None, uri, follow_symlinks: None };
        decoded(self.ask(client, ClientQuestion::Resolve(params)))
    }
}

/// A request to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientQuestion {
    /// Reads a file.
    Read(ResourceReadParams),
    /// Writes a file.
    Write(ResourceWriteParams),
    /// Lists a directory.
    List(ResourceListParams),
    /// Reads the metadata of a resource.
    Resolve(ResourceResolveParams),
    /// Copies a resource.
    Copy(ResourceCopyParams),
    /// Moves a resource.
    Move(ResourceMoveParams),
    /// Deletes a resource.
    Delete(ResourceDeleteParams),
    /// Creates a directory.
    Mkdir(ResourceMkdirParams),
    /// Asks for access to a resource.
    Request(ResourceRequestParams),
}

/// Why a client request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientResourceError {
    /// The client is not connected, or its connection closed before the response.
    #[error("the client is not connected")]
    Gone,
    /// The client did not respond in time.
    #[error("the client did not respond in time")]
    TimedOut,
    /// Too many earlier requests to this client are still pending.
    #[error("too many requests to the client are pending; try again")]
    Busy,
    /// The response exceeds the size limit.
    #[error("the client's response is too large")]
    TooLarge,
    /// The client returned an error.
    #[error("the client returned an error: {message} ({code})")]
    Refused {
        /// The protocol's error code.
        code: i64,
        /// The client's error message.
        message: String,
    },
    /// The response could not be decoded.
    #[error("cannot decode the client's response: {0}")]
    Unreadable(String),
}

fn root() -> Uri {
    ROOT_RESOURCE_URI.to_owned()
}

fn decoded<T: DeserializeOwned + Send + 'static>(
    answer: BoxFuture<Result<Box<RawValue>, ClientResourceError>>,
) -> BoxFuture<Result<T, ClientResourceError>> {
    Box::pin(async move {
        let raw = answer.await?;
        serde_json::from_str(raw.get()).map_err(|error| ClientResourceError::Unreadable(error.to_string()))
    })
}
