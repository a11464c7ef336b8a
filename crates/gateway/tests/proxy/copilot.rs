//! The Copilot upstream: accounts, endpoint discovery and models.

use std::sync::Arc;

use innkeeper_gateway::{CopilotUpstream, Discovery};
use innkeeper_testkit::fakes::{FakeCopilot, Gate, Outcome, Reply};
use reqwest::Method;
use serde_json::json;

use crate::support::{
    TOKEN, TestGateway, copilot, copilot_config, copilot_with, endpoint, json_of, streamed, whole,
};

const DISCOVERY: &str = "/copilot_internal/user";

#[tokio::test]
async fn concurrent_first_calls_share_one_discovery() {
    let (fake, gateway) = copilot().await;
    let gate = Gate::new();
    let api = fake.copilot.url();
    fake.github.script(DISCOVERY, Reply::json(200, &json!({"endpoints": {"api": api}})).gated(&gate));
    let (stream, whole) = (streamed("a"), whole("b"));
    let release = async {
        fake.github.wait_for("a discovery", |requests| !requests.is_empty()).await.unwrap();
        gate.open(1);
    };
    let (first, second, models, ()) =
        tokio::join!(gateway.ask(&stream), gateway.ask(&whole), gateway.get("/v1/models"), release);
    assert_eq!([first.status(), second.status(), models.status()].map(|status| status.as_u16()), [200; 3]);
    gateway.ask(&streamed("c")).await;
    let discoveries = fake.discoveries();
    assert_eq!(discoveries.len(), 1);
    assert_eq!(discoveries[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    assert_eq!(discoveries[0].header("x-github-api-version"), Some("2025-04-01"));
    assert_eq!(discoveries[0].header("accept"), Some("application/json"));
    assert!(discoveries[0].header("user-agent").unwrap().starts_with("innkeeper/"));
    assert_eq!(fake.copilot.requests_for("/models").len(), 1, "the models are also looked up once");
}

#[tokio::test]
async fn each_token_has_its_own_discovery_and_session() {
    let (fake, gateway) = copilot().await;
    gateway.handle.set_credential("two", "ghu_two".to_owned().into()).unwrap();
    for session in ["one", "two", "one", "two"] {
        let sent = gateway.messages(session).body(streamed("hi").to_string()).send().await.unwrap();
        assert_eq!(sent.status(), 200);
    }
    assert_eq!(fake.discoveries().len(), 2);
    let bearers: Vec<String> =
        fake.messages().iter().map(|request| request.header("authorization").unwrap().to_owned()).collect();
    let (one, two) = (format!("Bearer {TOKEN}"), "Bearer ghu_two".to_owned());
    assert_eq!(bearers, [one.clone(), two.clone(), one.clone(), two]);
    gateway.handle.forget("two");
    gateway.messages("two").body(streamed("hi").to_string()).send().await.unwrap();
    assert_eq!(fake.messages().last().unwrap().header("authorization"), Some(one.as_str()));
}

#[tokio::test]
async fn rejected_token_is_discovered_again() {
    let refusal = json!({"type": "error", "error": {"type": "authentication_error", "message": "no"}});
    for status in [401, 403] {
        let (fake, gateway) = copilot().await;
        assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
        fake.script_messages(Reply::json(status, &refusal));
        assert_eq!(gateway.ask(&streamed("hi")).await.status().as_u16(), status);
        assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
        assert_eq!(fake.discoveries().len(), 2);

        let (fake, gateway) = copilot().await;
        fake.copilot.script("/models", Reply::json(status, &refusal));
        assert_eq!(gateway.get("/v1/models").await.status().as_u16(), status);
        assert_eq!(gateway.get("/v1/models").await.status(), 200);
        assert_eq!(fake.discoveries().len(), 2);
    }
}

#[tokio::test]
async fn other_errors_keep_cached_discovery() {
    let (fake, gateway) = copilot().await;
    for status in [400, 429, 500] {
        fake.script_messages(Reply::json(status, &json!({})));
        assert_eq!(gateway.ask(&streamed("hi")).await.status().as_u16(), status);
    }
    assert_eq!(fake.discoveries().len(), 1);
}

#[tokio::test]
async fn failed_discovery_is_reported_and_retried() {
    let (fake, gateway) = copilot().await;
    for (status, hint) in
        [(401, "innkeeper login"), (403, "innkeeper whoami"), (404, "no Copilot"), (500, "500")]
    {
        fake.github.script(DISCOVERY, Reply::json(status, &json!({"message": "Bad credentials"})));
        let response = gateway.ask(&streamed("hi")).await;
        assert_eq!(response.status().as_u16(), status);
        let text = response.text().await.unwrap();
        assert!(text.contains(hint) && text.contains("Bad credentials"), "{text}");
    }
    fake.github.script(DISCOVERY, Reply::text(200, "text/html", "<html>"));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 502);
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!(fake.discoveries().len(), 6);
}

#[tokio::test]
async fn discovered_endpoint_without_tls_is_rejected() {
    let (fake, gateway) = copilot().await;
    fake.github.script(DISCOVERY, Reply::json(200, &json!({"endpoints": {"api": "http://copilot.example"}})));
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 502);
    assert!(response.text().await.unwrap().contains("does not use TLS"));
}

#[tokio::test]
async fn configured_endpoint_overrides_discovered_one() {
    let other = FakeCopilot::start().await.unwrap();
    let address = endpoint(&other.copilot.url());
    let (fake, gateway) = copilot_with(|config| config.copilot_api = Some(address.clone())).await;
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!((fake.discoveries().len(), fake.messages().len(), other.messages().len()), (1, 0, 1));

    let (fake, gateway) = copilot_with(|config| {
        config.copilot_api = Some(address);
        config.discovery = Discovery::Never;
    })
    .await;
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!((fake.github.requests().len(), other.messages().len()), (0, 2));
}

#[tokio::test]
async fn discovery_continues_after_client_disconnects() {
    let (fake, gateway) = copilot().await;
    let gate = Gate::new();
    let api = fake.copilot.url();
    fake.github.script(DISCOVERY, Reply::json(200, &json!({"endpoints": {"api": api}})).gated(&gate));
    let body = streamed("gone");
    let leaving = gateway.ask(&body);
    tokio::select! {
        _ = leaving => panic!("unexpected response"),
        asked = fake.github.wait_for("a discovery", |requests| !requests.is_empty()) => { asked.unwrap(); }
    }
    let body = streamed("stays");
    let staying = gateway.ask(&body);
    let release = async {
        gate.open(1);
        fake.github.wait_for("its end", |requests| requests[0].outcome == Outcome::Finished).await.unwrap();
    };
    let (response, ()) = tokio::join!(staying, release);
    assert_eq!(response.status(), 200);
    assert_eq!(fake.discoveries().len(), 1);
    assert_eq!(fake.messages().len(), 1, "the request of the disconnected client is never sent");
}

#[tokio::test]
async fn models_are_filtered_and_use_client_ids() {
    let (fake, gateway) = copilot().await;
    let page = json_of(gateway.get("/v1/models").await).await;
    let ids: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["claude-opus-5-5", "claude-sonnet-4-6", "claude-haiku-4-5", "claude-opus-4-7-high"]);
    assert_eq!((&page["first_id"], &page["last_id"]), (&json!(ids[0]), &json!(ids[3])));
    let asked = &fake.copilot.requests_for("/models")[0];
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));

    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy now"}});
    let (fake, gateway) = copilot().await;
    fake.copilot.script("/models", Reply::json(529, &error));
    let response = gateway.get("/v1/models").await;
    assert_eq!(response.status(), 529);
    let object = json_of(response).await;
    assert_eq!((&object["type"], &object["error"]), (&error["type"], &error["error"]));
}

#[tokio::test]
async fn model_ids_are_translated_by_form_without_model_list() {
    let (fake, gateway) = copilot().await;
    fake.copilot.script("/models", Reply::json(500, &json!({})));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!(fake.messages()[0].json()["model"], "claude-sonnet-4.6");
}

#[tokio::test]
async fn count_tokens_is_not_implemented_and_sends_nothing() {
    let (fake, gateway) = copilot().await;
    let request =
        gateway.request(Method::POST, "/v1/messages/count_tokens", "s").body(streamed("hi").to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 501);
    assert_eq!(json_of(response).await["error"]["type"], "api_error");
    assert!(fake.github.requests().is_empty() && fake.copilot.requests().is_empty());
}

#[tokio::test]
async fn sessions_survive_sign_in_and_sign_out() {
    let fake = FakeCopilot::start().await.unwrap();
    let mut config = copilot_config(&fake);
    config.token = None;
    let upstream = Arc::new(CopilotUpstream::new(config));
    let gateway = TestGateway::before(upstream.clone()).await;
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.status(), 401);
    assert!(response.text().await.unwrap().contains("innkeeper login"));
    assert!(fake.github.requests().is_empty());
    upstream.set_token(Some(TOKEN.to_owned().into()));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    upstream.set_token(None);
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 401);
    upstream.set_token(Some("ghu_other".to_owned().into()));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!(fake.discoveries().len(), 2);
}

#[tokio::test]
async fn debug_output_hides_token() {
    let fake = FakeCopilot::start().await.unwrap();
    let config = copilot_config(&fake);
    assert!(!format!("{config:?}").contains(TOKEN));
    let upstream = Arc::new(CopilotUpstream::new(config));
    let gateway = TestGateway::before(upstream.clone()).await;
    gateway.handle.set_credential("s", "ghu_two".to_owned().into()).unwrap();
    gateway.ask(&streamed("hi")).await;
    let shown = format!("{upstream:?} {:?}", gateway.handle);
    assert!(!shown.contains(TOKEN) && !shown.contains("ghu_two"), "{shown}");
}

#[tokio::test]
async fn model_list_is_fetched_again_and_used_by_later_requests() {
    let (fake, gateway) = copilot().await;
    let listed = gateway.handle.model_list().await.unwrap();
    let rows: Vec<(&str, &str, Option<f64>)> = listed
        .models()
        .iter()
        .map(|model| (model.id.as_str(), model.name.as_str(), model.multiplier))
        .collect();
    assert_eq!(
        rows,
        [
            ("claude-opus-5-5", "Claude Opus 5.5", Some(7.5)),
            ("claude-sonnet-4-6", "Claude Sonnet 4.6", Some(1.0)),
            ("claude-haiku-4-5", "Claude Haiku 4.5", Some(0.33)),
            ("claude-opus-4-7-high", "Claude Opus 4.7 (high)", Some(1.0)),
        ]
    );
    fake.change_models(|models| models[1]["id"] = json!("claude-sonnet-46"));
    assert_eq!(gateway.handle.model_list().await.unwrap().models()[1].upstream_id, "claude-sonnet-46");
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!(fake.messages()[0].json()["model"], "claude-sonnet-46");
    assert_eq!(fake.copilot.requests_for("/models").len(), 2);
}

#[tokio::test]
async fn failed_model_list_names_the_cause_and_keeps_the_cached_one() {
    let (fake, gateway) = copilot().await;
    fake.change_models(|models| models[1]["id"] = json!("claude-sonnet-46"));
    gateway.handle.model_list().await.unwrap();
    fake.copilot.script("/models", Reply::json(503, &json!({"message": "busy"})));
    let error = gateway.handle.model_list().await.unwrap_err();
    assert!(error.to_string().contains("busy"), "{error}");
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    assert_eq!(fake.messages()[0].json()["model"], "claude-sonnet-46");
}

#[tokio::test]
async fn replaced_token_is_announced_once_and_lists_its_own_models() {
    let fake = FakeCopilot::start().await.unwrap();
    let mut config = copilot_config(&fake);
    config.token = None;
    let upstream = Arc::new(CopilotUpstream::new(config));
    let gateway = TestGateway::before(upstream.clone()).await;
    let error = gateway.handle.model_list().await.unwrap_err();
    assert!(error.to_string().contains("innkeeper login"), "{error}");
    assert!(fake.github.requests().is_empty() && fake.copilot.requests().is_empty());
    upstream.set_token(Some(TOKEN.to_owned().into()));
    gateway.handle.credentials_replaced().await;
    assert_eq!(gateway.handle.model_list().await.unwrap().models().len(), 4);
    let again = gateway.handle.credentials_replaced();
    assert!(futures_util::FutureExt::now_or_never(again).is_none());
}
