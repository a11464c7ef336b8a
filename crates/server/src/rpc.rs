//! JSON-RPC messages: borrowed views of incoming ones, and encoded responses.
//!
//! The official message types accept only numeric ids and try four shapes in turn. This
//! module parses a message once, keeps its parameters as raw text, and echoes any kind
//! of id.

use std::borrow::Cow;

use ahp_types::errors::{ahp_error_codes, json_rpc_error_codes};
use innkeeper_core::ChannelUri;
use innkeeper_core::edits::EditError;
use innkeeper_core::files::{Access, FileError};
use innkeeper_core::host::{
    AuthenticateError, ChangesetError, CreateError, DisposeError, FetchTurnsError, LoadError, OperateError,
};
use innkeeper_core::session::ChatError;
use innkeeper_core::state::{FetchError, Frame};
use innkeeper_core::storage::StorageError;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// An incoming message, split into the parts needed for routing.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming<'a> {
    /// Absent in a notification.
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    /// Absent in a response.
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    /// Kept as raw text until the method is known.
    #[serde(borrow, default)]
    pub(crate) params: Option<&'a RawValue>,
    /// Result of a response.
    #[serde(borrow, default)]
    pub(crate) result: Option<&'a RawValue>,
    /// Error of a response.
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Parses a message. Rejects arrays, which serde would accept as the fields in order.
    pub(crate) fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        if text.trim_start().starts_with('[') {
            serde_json::from_str::<IgnoredAny>(text)?;
            return Err(serde_json::Error::custom("a message must be an object"));
        }
        serde_json::from_str(text)
    }
}

/// An error that is sent to the client.
#[derive(Debug)]
pub(crate) struct RpcError {
    code: i32,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// An error with data for programs.
    pub(crate) fn with_data(code: i32, message: String, data: Value) -> Self {
        Self { code, message, data: Some(data) }
    }

    pub(crate) fn parse(error: &serde_json::Error) -> Self {
        Self::new(json_rpc_error_codes::PARSE_ERROR, format!("the message is not valid JSON: {error}"))
    }

    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::INVALID_REQUEST, message)
    }

    pub(crate) fn method_not_found(message: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::METHOD_NOT_FOUND, message)
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::INVALID_PARAMS, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ahp_error_codes::NOT_FOUND, message)
    }

    pub(crate) fn internal(error: &impl std::fmt::Display) -> Self {
        Self::new(json_rpc_error_codes::INTERNAL_ERROR, error.to_string())
    }

    pub(crate) fn unsupported_version(supported: &[&str]) -> Self {
        Self {
            code: ahp_error_codes::UNSUPPORTED_PROTOCOL_VERSION,
            message: format!(
                "no common protocol version; this host supports AHP {}; update the client or the host",
                supported.join(" and ")
            ),
            data: Some(json!({ "supportedVersions": supported })),
        }
    }
}

impl From<serde_json::Error> for RpcError {
    fn from(error: serde_json::Error) -> Self {
        Self::new(json_rpc_error_codes::INTERNAL_ERROR, format!("cannot encode the response: {error}"))
    }
}

impl From<CreateError> for RpcError {
    fn from(error: CreateError) -> Self {
        let code = match error {
            CreateError::Exists(_) => ahp_error_codes::SESSION_ALREADY_EXISTS,
            CreateError::UnknownProvider(_) => ahp_error_codes::PROVIDER_NOT_FOUND,
            CreateError::Invalid(_) => json_rpc_error_codes::INVALID_PARAMS,
            CreateError::TokensNeeded(_) => ahp_error_codes::AUTH_REQUIRED,
            CreateError::Closing | CreateError::Storage(_) => json_rpc_error_codes::INTERNAL_ERROR,
        };
        let message = error.to_string();
        let data = match error {
            CreateError::TokensNeeded(resources) => Some(json!({ "resources": resources })),
            CreateError::Exists(_)
            | CreateError::UnknownProvider(_)
            | CreateError::Invalid(_)
            | CreateError::Closing
            | CreateError::Storage(_) => None,
        };
        Self { code, message, data }
    }
}

impl From<AuthenticateError> for RpcError {
    fn from(error: AuthenticateError) -> Self {
        let message = error.to_string();
        match error {
            AuthenticateError::UnknownResource { .. } => Self::invalid_params(message),
            AuthenticateError::Refused { resource, .. } => Self {
                code: ahp_error_codes::AUTH_REQUIRED,
                message,
                data: Some(json!({ "resources": [resource] })),
            },
            AuthenticateError::TimedOut => Self::new(json_rpc_error_codes::INTERNAL_ERROR, message),
        }
    }
}

impl From<DisposeError> for RpcError {
    fn from(error: DisposeError) -> Self {
        match error {
            DisposeError::Unknown(_) => Self::new(ahp_error_codes::SESSION_NOT_FOUND, error.to_string()),
            DisposeError::Storage(error) => Self::internal(&error),
        }
    }
}

impl From<ChatError> for RpcError {
    fn from(error: ChatError) -> Self {
        let code = match error {
            // For the client, a session that is closing does not exist.
            ChatError::Unknown(_) | ChatError::Gone => ahp_error_codes::NOT_FOUND,
            ChatError::UnknownSession(_) => ahp_error_codes::SESSION_NOT_FOUND,
            ChatError::Exists(_) => ahp_error_codes::ALREADY_EXISTS,
            ChatError::TurnInProgress(_) => ahp_error_codes::TURN_IN_PROGRESS,
            ChatError::Refused(_) => json_rpc_error_codes::INVALID_PARAMS,
            ChatError::Storage(_) | ChatError::TimedOut(_) => json_rpc_error_codes::INTERNAL_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

impl From<StorageError> for RpcError {
    fn from(error: StorageError) -> Self {
        Self::internal(&error)
    }
}

impl From<LoadError> for RpcError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Storage(error) => error.into(),
            LoadError::Changeset(error) => error.into(),
        }
    }
}

impl From<ChangesetError> for RpcError {
    fn from(error: ChangesetError) -> Self {
        let code = match error {
            ChangesetError::Unknown(_) | ChangesetError::UnknownChat(_) | ChangesetError::UnknownTurn(_) => {
                ahp_error_codes::NOT_FOUND
            }
            ChangesetError::Reversed { .. }
            | ChangesetError::Refused(_)
            | ChangesetError::Edit(EditError::Invalid(_)) => json_rpc_error_codes::INVALID_PARAMS,
            ChangesetError::TooMany { .. } => json_rpc_error_codes::INVALID_REQUEST,
            ChangesetError::Edit(EditError::Storage(_) | EditError::File { .. } | EditError::Closed) => {
                json_rpc_error_codes::INTERNAL_ERROR
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<EditError> for RpcError {
    fn from(error: EditError) -> Self {
        ChangesetError::Edit(error).into()
    }
}

impl From<OperateError> for RpcError {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Changeset(error) => error.into(),
            OperateError::Load(error) => error.into(),
        }
    }
}

impl From<FetchTurnsError> for RpcError {
    fn from(error: FetchTurnsError) -> Self {
        match error {
            FetchTurnsError::Load(error) => error.into(),
            FetchTurnsError::Fetch(FetchError::Encode(error)) => error.into(),
            FetchTurnsError::Fetch(error @ FetchError::UnknownChat(_)) => Self::not_found(error.to_string()),
            FetchTurnsError::Fetch(error @ FetchError::BadCursor) => Self::invalid_params(error.to_string()),
        }
    }
}

impl From<FileError> for RpcError {
    fn from(error: FileError) -> Self {
        let code = match &error {
            FileError::NotFound(_) => ahp_error_codes::NOT_FOUND,
            FileError::Denied { .. } => ahp_error_codes::PERMISSION_DENIED,
            FileError::Exists(_) => ahp_error_codes::ALREADY_EXISTS,
            FileError::Conflict(_) => ahp_error_codes::CONFLICT,
            FileError::TooLarge { .. } | FileError::NotADirectory(_) | FileError::Invalid(_) => {
                json_rpc_error_codes::INVALID_PARAMS
            }
            FileError::Io { .. } => json_rpc_error_codes::INTERNAL_ERROR,
        };
        let message = error.to_string();
        let data = match error {
            // The access that the client would have to request.
            FileError::Denied { uri, access, .. } => {
                let right = match access {
                    Access::Read => "read",
                    Access::Write => "write",
                };
                let channel = ChannelUri::root();
                Some(json!({ "request": { "channel": channel.as_str(), "uri": uri, right: true } }))
            }
            FileError::NotFound(_)
            | FileError::Exists(_)
            | FileError::Conflict(_)
            | FileError::TooLarge { .. }
            | FileError::NotADirectory(_)
            | FileError::Invalid(_)
            | FileError::Io { .. } => None,
        };
        Self { code, message, data }
    }
}

/// Parses the parameters of a method; missing ones count as an empty object.
pub(crate) fn params<T: DeserializeOwned>(raw: Option<&RawValue>) -> Result<T, RpcError> {
    serde_json::from_str(raw.map_or("{}", RawValue::get))
        .map_err(|error| RpcError::invalid_params(format!("invalid parameters: {error}")))
}

/// Encodes a request from the host.
pub(crate) fn request(id: u64, method: &str, params: &impl Serialize) -> Result<Frame, serde_json::Error> {
    #[derive(Serialize)]
    struct RequestFrame<'a, P> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    Frame::encode(&RequestFrame { jsonrpc: "2.0", id, method, params })
}

/// Encodes the response to a request.
pub(crate) fn response(id: &RawValue, result: &impl Serialize) -> Result<Frame, serde_json::Error> {
    #[derive(Serialize)]
    struct ResponseFrame<'a, R> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a R,
    }
    Frame::encode(&ResponseFrame { jsonrpc: "2.0", id, result })
}

/// Encodes an error response; `id` is `None` only if the message could not be parsed.
pub(crate) fn error_response(id: Option<&RawValue>, error: &RpcError) -> Result<Frame, serde_json::Error> {
    #[derive(Serialize)]
    struct ErrorFrame<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RawValue>,
        error: ErrorBody<'a>,
    }
    #[derive(Serialize)]
    struct ErrorBody<'a> {
        code: i32,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a Value>,
    }
    let fields = ErrorBody { code: error.code, message: &error.message, data: error.data.as_ref() };
    Frame::encode(&ErrorFrame { jsonrpc: "2.0", id, error: fields })
}
