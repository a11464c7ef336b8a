//! The built-in demo model: offline and deterministic.
//!
//! Chooses the response and remembers planned faults. The position in a script
//! depends only on the conversation, so one instance serves any number of
//! sessions, resumes and forks.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::json;

use self::conversation::DemoConversation;
use self::memory::AttemptMemory;
use self::plan::ModelCall;
use self::play::DemoResponse;
use crate::error::ApiError;
use crate::model_list::{ModelList, UnlistedModels, UpstreamModel};
use crate::request::MessagesRequest;
use crate::upstream::{
    ModelListFuture, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest,
    UpstreamResponse,
};

mod conversation;
mod events;
mod fingerprint;
mod log;
mod memory;
mod plan;
mod play;
mod script;
mod tour;
mod words;

pub use self::log::{LoggedRequest, REQUEST_LOG_CAPACITY, RequestKind, RequestLog, ResponseOutcome};

/// The listed models; every other `claude-…` id works too.
const MODELS: [ListedDemoModel; 3] = [
    ListedDemoModel {
        id: "claude-opus-5-5",
        name: "Demo model, Opus 5.5",
        efforts: &["low", "medium", "high", "xhigh", "max"],
    },
    ListedDemoModel {
        id: "claude-sonnet-4-6",
        name: "Demo model, Sonnet 4.6",
        efforts: &["low", "medium", "high", "max"],
    },
    ListedDemoModel { id: "claude-haiku-4-5", name: "Demo model, Haiku 4.5", efforts: &[] },
];

/// Tokens of a conversation with the demo model, as the runtimes assume for these ids.
const CONTEXT_WINDOW: u64 = 200_000;

/// A name of the demo model. Its answers do not depend on the name.
struct ListedDemoModel {
    id: &'static str,
    name: &'static str,
    efforts: &'static [&'static str],
}

/// The demo model.
#[derive(Debug, Default)]
pub struct DemoUpstream {
    memory: Arc<AttemptMemory>,
    log: Option<RequestLog>,
}

impl DemoUpstream {
    /// Creates a demo model.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a demo model that logs every request, for tests.
    pub fn with_log(log: RequestLog) -> Self {
        Self { memory: Arc::default(), log: Some(log) }
    }

    async fn respond(&self, request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let body = self.parse(RequestKind::Messages, &request)?;
        let log = self.log.as_ref().map(|log| log.open(&request, &body));
        if let Err(error) = check_model(&body.model) {
            if let Some(log) = log {
                log.end(ResponseOutcome::Failed(error.status().as_u16()));
            }
            return Err(error.into());
        }
        let conversation = DemoConversation::read(&body);
        let key = conversation.key(request.session.as_str());
        let attempt = self.memory.begin(key);
        let call = if body.max_tokens == Some(1) {
            ModelCall::probe()
        } else {
            plan::next_call(&conversation, &body)
        };
        let response = DemoResponse {
            call,
            key,
            memory: Arc::clone(&self.memory),
            message_id: fingerprint::message_id(key, attempt),
            model: body.model.clone(),
            input_tokens: conversation::input_tokens(&body),
            accounting: Some(request.account.open(&request.request_id)),
            request_id: request.request_id,
            log,
        };
        if body.stream == Some(true) {
            let stream = response.stream().await?;
            Ok(UpstreamResponse {
                status: StatusCode::OK,
                headers: event_stream_headers(),
                body: UpstreamBody::Stream(stream),
            })
        } else {
            Ok(json_response(response.whole().await?))
        }
    }

    /// Parses a body; an invalid one is logged too.
    fn parse(&self, kind: RequestKind, request: &UpstreamRequest) -> Result<MessagesRequest, ApiError> {
        MessagesRequest::parse(&request.body).inspect_err(|_| {
            if let Some(log) = &self.log {
                log.note(kind, request, None);
            }
        })
    }

    fn count(&self, request: &UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let body = self.parse(RequestKind::CountTokens, request)?;
        if let Some(log) = &self.log {
            log.note(RequestKind::CountTokens, request, Some(&body));
        }
        check_model(&body.model)?;
        encode(&json!({ "input_tokens": conversation::input_tokens(&body) }))
    }

    fn list(&self, request: &UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        if let Some(log) = &self.log {
            log.note(RequestKind::Models, request, None);
        }
        let data: Vec<_> = MODELS
            .iter()
            .map(|ListedDemoModel { id, name, .. }| {
                json!({"type": "model", "id": id, "display_name": name, "created_at": "1970-01-01T00:00:00Z"})
            })
            .collect();
        let [ListedDemoModel { id: first, .. }, .., ListedDemoModel { id: last, .. }] = MODELS;
        encode(&json!({"data": data, "has_more": false, "first_id": first, "last_id": last}))
    }
}

impl Upstream for DemoUpstream {
    fn messages(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.respond(request).boxed()
    }

    fn count_tokens(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        async move { self.count(&request) }.boxed()
    }

    fn models(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        async move { self.list(&request) }.boxed()
    }

    fn model_list(&self) -> ModelListFuture<'_> {
        std::future::ready(Ok(listed_models())).boxed()
    }
}

fn listed_models() -> ModelList {
    let models = MODELS.iter().map(|ListedDemoModel { id, name, efforts }| UpstreamModel {
        id: (*id).to_owned(),
        upstream_id: (*id).to_owned(),
        name: (*name).to_owned(),
        vendor: Some("Innkeeper".to_owned()),
        context_window: Some(CONTEXT_WINDOW),
        vision: Some(true),
        efforts: Some(efforts.iter().map(|effort| (*effort).to_owned()).collect()),
        ..UpstreamModel::default()
    });
    ModelList::new(models, UnlistedModels::ClaudeIds)
}

fn check_model(model: &str) -> Result<(), ApiError> {
    if model.strip_prefix("claude-").is_some_and(|rest| !rest.is_empty()) {
        return Ok(());
    }
    Err(ApiError::not_found(format!(
        "model: {model} (the demo model accepts any id that begins with `claude-`)"
    )))
}

fn encode(value: &impl Serialize) -> Result<UpstreamResponse, UpstreamFailure> {
    let json = serde_json::to_vec(value).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(json_response(json.into()))
}

fn json_response(json: Bytes) -> UpstreamResponse {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    UpstreamResponse { status: StatusCode::OK, headers, body: UpstreamBody::Full(json) }
}

fn event_stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers
}
