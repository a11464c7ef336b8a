//! The port to the files of clients: attachments, plugins and whatever else only a
//! client can open.
//!
//! Owns the questions and the failures; the connections belong to the server. A
//! client may never answer, so every question has an end.

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

/// What a client can be asked for, over the connection that it made last.
pub trait ClientResources: Send + Sync + 'static {
    /// Asks one question. Resolves with the answer as it came, or when it is clear
    /// that there will be none.
    fn ask(
        &self,
        client: ClientId,
        question: ClientQuestion,
    ) -> BoxFuture<Result<Box<RawValue>, ClientResourceError>>;

    /// Reads a resource of a client.
    fn read(&self, client: ClientId, uri: Uri) -> BoxFuture<Result<ResourceReadResult, ClientResourceError>> {
        let params = ResourceReadParams { channel: root(), meta: None, uri, encoding: None };
        decoded(self.ask(client, ClientQuestion::Read(params)))
    }

    /// Lists a directory of a client.
    fn list(&self, client: ClientId, uri: Uri) -> BoxFuture<Result<ResourceListResult, ClientResourceError>> {
        let params = ResourceListParams { channel: root(), meta: None, uri };
        decoded(self.ask(client, ClientQuestion::List(params)))
    }

    /// Asks what a client knows about a resource.
    fn resolve(
        &self,
        client: ClientId,
        uri: Uri,
    ) -> BoxFuture<Result<ResourceResolveResult, ClientResourceError>> {
        let params = ResourceResolveParams { channel: root(), meta: None, uri, follow_symlinks: None };
        decoded(self.ask(client, ClientQuestion::Resolve(params)))
    }
}

/// A question to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientQuestion {
    /// What is in a file?
    Read(ResourceReadParams),
    /// Write this.
    Write(ResourceWriteParams),
    /// What is in a directory?
    List(ResourceListParams),
    /// What is this?
    Resolve(ResourceResolveParams),
    /// Copy this.
    Copy(ResourceCopyParams),
    /// Move this.
    Move(ResourceMoveParams),
    /// Delete this.
    Delete(ResourceDeleteParams),
    /// Make a directory.
    Mkdir(ResourceMkdirParams),
    /// May this be accessed?
    Request(ResourceRequestParams),
}

/// Why a client gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientResourceError {
    /// It is not connected, or its connection ended meanwhile.
    #[error("the client is not connected")]
    Gone,
    /// It did not answer in time.
    #[error("the client did not answer in time")]
    TimedOut,
    /// It has not answered the many questions before this one.
    #[error("the client has too many questions to answer; try again")]
    Busy,
    /// It answered more than is taken.
    #[error("the client's answer is too large")]
    TooLarge,
    /// It said no.
    #[error("the client refused: {message} ({code})")]
    Refused {
        /// The error code of the protocol.
        code: i64,
        /// The client's words.
        message: String,
    },
    /// It answered something else.
    #[error("the client's answer cannot be read: {0}")]
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
