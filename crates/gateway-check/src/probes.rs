//! The requests of a check and the expected responses.
//!
//! Owns the list of checks and their names. Requests are made one after the
//! other; dropping the future of [`check`] cancels the check.

use std::time::Duration;

use serde_json::{Value, json};

use crate::endpoint::{
    self, CheckError, CheckIdentity, CheckRequest, CheckResponse, CheckTarget, CheckedEndpoint, RequestFailed,
};
use crate::excerpt::excerpt;
use crate::report::{CheckReport, Defect};
use crate::rule::Aspect;
use crate::shape;
use crate::stream::{StreamLimits, StreamValidator, StreamVerdict};

/// Options of a check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// How long the endpoint may send nothing. The whole check has no limit.
    pub idle: Duration,
    /// Size limits of a streamed response.
    pub limits: StreamLimits,
    /// Prompts whose streamed responses are checked in addition to the built-in ones.
    pub prompts: Vec<String>,
}

impl Default for CheckOptions {
    /// The idle limit of a minute is longer than a model takes to its first token.
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), limits: StreamLimits::default(), prompts: Vec::new() }
    }
}

/// Checks an endpoint.
///
/// Returns an error only if nothing could be checked; defects of a reachable
/// endpoint are in the report.
pub async fn check(target: CheckTarget, options: CheckOptions) -> Result<CheckReport, CheckError> {
    let endpoint = CheckedEndpoint::new(&target, options.idle)?;
    endpoint.reach().await?;
    let mut probes = Probes { endpoint, options, report: CheckReport::default() };
    let listed = probes.models().await;
    match target.model.or(listed) {
        Some(model) => probes.model_checks(&model).await,
        None => probes.skip_model_checks(),
    }
    probes.errors(target.credentials.secret().is_some()).await;
    let mut report = probes.report;
    if let Some(secret) = target.credentials.secret() {
        report.redact(secret);
    }
    Ok(report)
}

/// Costs few tokens and works with every model.
const PROMPT: &str = "Say hello in one short sentence.";

/// A script for the demo model. Other models call the tool because of
/// `tool_choice`, regardless of the text.
const TOOL_PROMPT: &str =
    "#demo\nthink This is an endpoint check.\ntext I look it up.\ntool get_weather {\"city\": \"Oslo\"}";

/// Token limit of a response: enough for a sentence or a tool call.
const MAX_TOKENS: u32 = 200;

const MESSAGES: &str = "/v1/messages";
/// The Claude runtime sends this query; it must not change the response.
const MESSAGES_WITH_QUERY: &str = "/v1/messages?beta=true";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
const MODELS: &str = "/v1/models";

/// A model id that no endpoint has.
const NO_SUCH_MODEL: &str = "innkeeper-check-no-such-model";

struct Probes {
    endpoint: CheckedEndpoint,
    options: CheckOptions,
    report: CheckReport,
}

impl Probes {
    /// Checks the model list and returns its first entry.
    async fn models(&mut self) -> Option<String> {
        let response = self.endpoint.ask(CheckRequest::get(MODELS)).await;
        let value = self.offered("models", response, shape::models)?;
        shape::first_model(&value).map(str::to_owned)
    }

    /// Checks everything that needs a model.
    async fn model_checks(&mut self, model: &str) {
        let body = json!({"model": model, "messages": [{"role": "user", "content": PROMPT}]});
        let response = self.endpoint.ask(CheckRequest::post(COUNT_TOKENS, &body)).await;
        self.offered("count_tokens", response, shape::token_count);

        let mut body = request(model, PROMPT);
        let response = self.endpoint.ask(CheckRequest::post(MESSAGES, &body)).await;
        self.whole("message", response);
        set(&mut body, "stream", json!(false));
        let response = self.endpoint.ask(CheckRequest::post(MESSAGES_WITH_QUERY, &body)).await;
        self.whole("message.stream-false", response);

        set(&mut body, "stream", json!(true));
        self.stream("stream", CheckRequest::post(MESSAGES, &body)).await;
        self.tool_stream(model).await;
        for (index, prompt) in self.options.prompts.clone().iter().enumerate() {
            let mut body = request(model, prompt);
            set(&mut body, "stream", json!(true));
            self.stream(&format!("prompt-{}", index + 1), CheckRequest::post(MESSAGES, &body)).await;
        }
    }

    fn skip_model_checks(&mut self) {
        for name in ["count_tokens", "message", "message.stream-false", "stream", "tool-stream"] {
            self.report.skip(name, "no model known: the model list is empty; name a model");
        }
    }

    /// Checks an optional route, which may return a well-formed error instead.
    fn offered(
        &mut self,
        name: &str,
        response: Result<CheckResponse, RequestFailed>,
        faults: fn(&Value) -> Vec<String>,
    ) -> Option<Value> {
        if let Ok(response) = &response {
            let kind = match response.status {
                404 => Some("not_found_error"),
                501 => Some("api_error"),
                _ => None,
            };
            if let Some(kind) = kind {
                let (defects, _) = judge_error(response, response.status, kind);
                if defects.is_empty() {
                    let reason = format!("not offered: {} with a well-formed error", response.status);
                    self.report.skip(name, reason);
                } else {
                    self.report.add(name, defects, Vec::new());
                }
                return None;
            }
        }
        let (value, defects) = judge_json(response, faults);
        self.report.add(name, defects, Vec::new());
        value
    }

    fn whole(&mut self, name: &str, response: Result<CheckResponse, RequestFailed>) {
        let (_, defects) = judge_json(response, shape::message);
        self.report.add(name, defects, Vec::new());
    }

    async fn tool_stream(&mut self, model: &str) {
        let mut body = request(model, TOOL_PROMPT);
        let tool = json!({
            "name": "get_weather",
            "description": "Tells the weather in a city",
            "input_schema": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        });
        set(&mut body, "tools", json!([tool]));
        set(&mut body, "tool_choice", json!({"type": "tool", "name": "get_weather"}));
        set(&mut body, "stream", json!(true));
        let verdict = self.stream("tool-stream", CheckRequest::post(MESSAGES_WITH_QUERY, &body)).await;
        if let Some(verdict) = verdict {
            let called = verdict.blocks.iter().any(|name| name == "tool_use");
            let defects = if called {
                Vec::new()
            } else {
                let seen = format!("blocks of the types {:?}", verdict.blocks);
                vec![Defect::new("a call of the tool named by tool_choice", seen)]
            };
            self.report.add("tool-stream.tool", defects, Vec::new());
        }
    }

    /// Checks all aspects of a streamed response.
    async fn stream(&mut self, name: &str, request: CheckRequest) -> Option<StreamVerdict> {
        let judged = self.judge_stream(request).await;
        let check_name = format!("{name}.answer");
        let verdict = match judged {
            Ok((verdict, broken)) => {
                let defects =
                    broken.into_iter().map(|RequestFailed(seen)| Defect::new("a complete response", seen));
                self.report.add(check_name, defects.collect(), Vec::new());
                Some(verdict)
            }
            Err(defects) => {
                self.report.add(check_name, defects, Vec::new());
                None
            }
        };
        for aspect in Aspect::ALL {
            let name = format!("{name}.{}", aspect.name());
            let Some(verdict) = &verdict else {
                self.report.skip(name, "no stream received");
                continue;
            };
            let defects = verdict.of(aspect).map(|violation| {
                let seen = format!("event {}: {}", violation.event, violation.seen);
                Defect::new(violation.rule.expected(), seen)
            });
            let notes = if aspect == Aspect::Content { verdict.notes.clone() } else { Vec::new() };
            self.report.add(name, defects.collect(), notes);
        }
        verdict
    }

    /// Reads and checks a stream, which may break.
    async fn judge_stream(
        &self,
        request: CheckRequest,
    ) -> Result<(StreamVerdict, Option<RequestFailed>), Vec<Defect>> {
        let expected = "200 and text/event-stream";
        let response = self.endpoint.send(request).await;
        let mut response = response.map_err(|RequestFailed(seen)| vec![Defect::new(expected, seen)])?;
        let media = endpoint::content_type(&response);
        if response.status() != 200 || media != "text/event-stream" {
            let seen = match endpoint::read(response).await {
                Ok(response) => summary(&response),
                Err(RequestFailed(seen)) => seen,
            };
            return Err(vec![Defect::new(expected, seen)]);
        }
        let mut validator = StreamValidator::new(self.options.limits);
        let mut broken = None;
        while !validator.is_over() {
            match response.chunk().await {
                Ok(Some(chunk)) => validator.feed(&chunk),
                Ok(None) => break,
                Err(error) => {
                    broken = Some(RequestFailed(endpoint::words(&error)));
                    break;
                }
            }
        }
        Ok((validator.finish(), broken))
    }

    /// Checks that invalid requests are rejected correctly.
    async fn errors(&mut self, has_credentials: bool) {
        let good = request(NO_SUCH_MODEL, PROMPT);
        for (name, identity) in
            [("error.wrong-credentials", CheckIdentity::Wrong), ("error.no-credentials", CheckIdentity::None)]
        {
            if has_credentials {
                let request = CheckRequest::post(MESSAGES, &good).by(identity);
                self.refused(name, request, 401, "authentication_error").await;
            } else {
                self.report.skip(name, "the check has no credentials");
            }
        }
        let mut streamed = good.clone();
        set(&mut streamed, "stream", json!(true));
        let no_messages = json!({"model": NO_SUCH_MODEL, "max_tokens": 1});
        let no_model = json!({"max_tokens": 1, "messages": [{"role": "user", "content": PROMPT}]});
        for (name, request, status, kind) in [
            ("error.unknown-model", CheckRequest::post(MESSAGES, &good), 404, "not_found_error"),
            ("error.unknown-model-stream", CheckRequest::post(MESSAGES, &streamed), 404, "not_found_error"),
            ("error.not-json", CheckRequest::post(MESSAGES, "{\"model\": "), 400, "invalid_request_error"),
            ("error.not-an-object", CheckRequest::post(MESSAGES, "[]"), 400, "invalid_request_error"),
            ("error.no-messages", CheckRequest::post(MESSAGES, &no_messages), 400, "invalid_request_error"),
            ("error.no-model", CheckRequest::post(MESSAGES, &no_model), 400, "invalid_request_error"),
            ("error.unknown-route", CheckRequest::get("/v1/innkeeper-check"), 404, "not_found_error"),
        ] {
            self.refused(name, request, status, kind).await;
        }
    }

    async fn refused(&mut self, name: &str, request: CheckRequest, status: u16, kind: &str) {
        match self.endpoint.ask(request).await {
            Ok(response) => {
                let (defects, notes) = judge_error(&response, status, kind);
                self.report.add(name, defects, notes);
            }
            Err(RequestFailed(seen)) => {
                let expected = format!("{status} with {kind}");
                self.report.add(name, vec![Defect::new(expected, seen)], Vec::new());
            }
        }
    }
}

fn request(model: &str, prompt: &str) -> Value {
    json!({
        "model": model,
        "max_tokens": MAX_TOKENS,
        "messages": [{"role": "user", "content": prompt}],
    })
}

fn set(body: &mut Value, field: &str, value: Value) {
    if let Some(object) = body.as_object_mut() {
        object.insert(field.to_owned(), value);
    }
}

/// Checks a response that must be 200 with JSON of a certain format.
fn judge_json(
    response: Result<CheckResponse, RequestFailed>,
    faults: fn(&Value) -> Vec<String>,
) -> (Option<Value>, Vec<Defect>) {
    let expected = "200 and application/json";
    let response = match response {
        Ok(response) => response,
        Err(RequestFailed(seen)) => return (None, vec![Defect::new(expected, seen)]),
    };
    if response.status != 200 || response.content_type != "application/json" {
        return (None, vec![Defect::new(expected, summary(&response))]);
    }
    match serde_json::from_slice::<Value>(&response.body) {
        Ok(value) => {
            let shape = "the format of Anthropic's response";
            let defects = faults(&value).into_iter().map(|fault| Defect::new(shape, fault)).collect();
            (Some(value), defects)
        }
        Err(error) => {
            let seen = format!("{error} in {}", excerpt(&String::from_utf8_lossy(&response.body)));
            (None, vec![Defect::new("JSON", seen)])
        }
    }
}

/// Checks a response that must be an error with a certain status and type.
fn judge_error(response: &CheckResponse, status: u16, kind: &str) -> (Vec<Defect>, Vec<String>) {
    let expected = format!("{status} and application/json");
    if response.status != status || response.content_type != "application/json" {
        return (vec![Defect::new(expected, summary(response))], Vec::new());
    }
    let value = serde_json::from_slice::<Value>(&response.body).unwrap_or(Value::Null);
    let object = value.as_object().cloned().unwrap_or_default();
    let expected = format!("an error object of type {kind}");
    match shape::error_object(&object) {
        Ok(error) if error.kind == kind => {
            let named = response.has_request_id || object.contains_key("request_id");
            let note = (!named).then(|| "missing request id in both the headers and the error".to_owned());
            (Vec::new(), note.into_iter().collect())
        }
        Ok(error) => (vec![Defect::new(expected, format!("type {}", excerpt(error.kind)))], Vec::new()),
        Err(fault) => {
            let seen = format!("{fault} in {}", excerpt(&String::from_utf8_lossy(&response.body)));
            (vec![Defect::new(expected, seen)], Vec::new())
        }
    }
}

/// A response on one line.
fn summary(response: &CheckResponse) -> String {
    let media = if response.content_type.is_empty() { "no content type" } else { &response.content_type };
    let body = excerpt(&String::from_utf8_lossy(&response.body));
    format!("{} and {}: {body}", response.status, excerpt(media))
}
