//! Short questions to a model, outside of any conversation.
//!
//! The host asks them on its own, for example for the title of a session. They are sent to the
//! gateway like any other request, under an account of their own: the last error and the turns of the
//! conversation do not change, and the initiator is the agent.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::json;

use crate::auth::SessionId;
use crate::client::{ClientOptions, HttpClient, HttpRequest};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::{read_all, unreachable_upstream};
use crate::server::GatewayHandle;

/// Largest answer. A question limits the tokens far below it.
const MAX_ANSWER: usize = 64 * 1024;

/// How long the model may send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A question with a short answer.
#[derive(Clone, Copy, Debug)]
pub struct SideQuestion<'a> {
    /// The session whose credential is used.
    pub session: &'a str,
    /// What the question is for. Together with the session it names the account.
    pub purpose: &'a str,
    /// The model.
    pub model: &'a str,
    /// The system prompt.
    pub system: &'a str,
    /// The question.
    pub text: &'a str,
    /// The longest answer.
    pub max_tokens: u32,
}

#[derive(Deserialize)]
struct Answer {
    content: Vec<AnswerBlock>,
}

#[derive(Deserialize)]
struct AnswerBlock {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Failure {
    error: FailureDetail,
}

#[derive(Deserialize)]
struct FailureDetail {
    message: String,
}

impl GatewayHandle {
    /// Asks a question. Dropping the future cancels the request.
    pub async fn ask(&self, question: SideQuestion<'_>) -> Result<String, ApiError> {
        let SideQuestion { session, purpose, model, system, text, max_tokens } = question;
        let account = SessionId::new(format!("{session}.{purpose}"))
            .ok_or_else(|| ApiError::invalid_request("a question needs a session"))?;
        let opened = self.open_helper(session, &account);
        let _open = opened.map_err(|error| ApiError::internal(error.to_string()))?;
        let body = json!({
            "model": model,
            "max_tokens": max_tokens,
            "system": system,
            "messages": [{"role": "user", "content": text}],
        });
        let outgoing = HttpRequest {
            method: Method::POST,
            target: "/v1/messages".to_owned(),
            headers: self.headers_for(&account)?,
            body: Bytes::from(body.to_string()),
        };
        let endpoint = Endpoint::from_configuration(self.base_url())
            .map_err(|error| ApiError::bad_gateway(error.to_string()))?;
        let options = ClientOptions { idle_timeout: IDLE_TIMEOUT, ..ClientOptions::default() };
        let response = HttpClient::new(options).send(&endpoint, &outgoing).await;
        let response = response.map_err(|error| unreachable_upstream(&error))?;
        let status = response.status;
        let body = read_all(response.data, MAX_ANSWER, IDLE_TIMEOUT).await?;
        if !status.is_success() {
            let failure = serde_json::from_slice::<Failure>(&body);
            let message =
                failure.map_or_else(|_| format!("status {status}"), |failure| failure.error.message);
            return Err(ApiError::from_status(status, message));
        }
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|error| ApiError::bad_gateway(format!("cannot parse the answer: {error}")))?;
        Ok(answer.content.into_iter().map(|block| block.text).collect())
    }

    fn headers_for(&self, account: &SessionId) -> Result<HeaderMap, ApiError> {
        let bearer = format!("Bearer {}", self.bearer_for(account.as_str()).expose_secret());
        let mut bearer = HeaderValue::from_str(&bearer)
            .map_err(|_| ApiError::invalid_request("the session id is not valid in a header"))?;
        bearer.set_sensitive(true);
        let json = HeaderValue::from_static("application/json");
        Ok(HeaderMap::from_iter([
            (AUTHORIZATION, bearer),
            (CONTENT_TYPE, json.clone()),
            (ACCEPT, json),
            (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01")),
        ]))
    }
}
