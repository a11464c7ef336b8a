//! Questions of MCP servers, with both pinned runtimes.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{TestHost, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, completion, text, tool};
use crate::options;

/// The server, which passes the parameters of a call on to the user.
const SERVER: &str = include_str!("elicitation_server.mjs");

/// Starts a host whose runtime has the server and may use it.
async fn start(claude: PathBuf) -> Result<AskingSession> {
    let host = TestHost::start(options(claude)).await?;
    let script = host.home().join("forms.mjs");
    std::fs::write(&script, SERVER)?;
    let server = json!({"type": "stdio", "command": "node", "args": [script]});
    let servers = json!({"mcpServers": {"forms": server}});
    std::fs::write(host.config_dir().join(".claude.json"), servers.to_string())?;
    AskingSession::on(host, json!({"permissions": {"allow": ["mcp__forms"]}})).await
}

/// A step in which the server asks the user.
fn ask(parameters: &str) -> String {
    tool("mcp__forms__ask", &json!({"parameters": parameters}))
}

/// The parameters of a form. A text, since a JSON value would sort the properties.
const FORM: &str = r#"{"mode": "form", "message": "Please fill in the form.", "requestedSchema": {"type": "object", "properties": {
    "name": {"type": "string", "title": "Name", "description": "Your name", "minLength": 1, "maxLength": 20},
    "mail": {"type": "string", "format": "email"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "score": {"type": "number"},
    "agreed": {"type": "boolean", "default": false},
    "colour": {"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]},
    "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y", "z"]}, "minItems": 1, "maxItems": 2},
    "parts": {"type": "array", "items": {"anyOf": [{"const": "p", "title": "Part"}, {"const": "q", "title": "Quarter"}]}}
}, "required": ["name", "age"]}}"#;

/// What the server received.
fn received(call: &Value) -> Result<Value> {
    let content = call["content"][0]["text"].as_str().with_context(|| format!("no result: {call:#}"))?;
    Ok(serde_json::from_str(content)?)
}

fn submitted(kind: &str, value: Value) -> Value {
    json!({"state": "submitted", "value": {"kind": kind, "value": value}})
}

#[tokio::test]
async fn form_of_mcp_server_is_answered_with_every_kind_of_field_declined_and_cancelled() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = start(claude).await?;
        asking.say("turn-1", &[ask(FORM), text("done")]).await?;
        let request = asking.question("turn-1").await?;
        let message = request["message"].as_str().context("no message")?;
        assert!(message.contains("forms") && message.contains("Please fill in the form."), "{message}");
        let questions = request["questions"].as_array().context("no questions")?;
        let shown: Vec<_> =
            questions.iter().map(|question| (question["id"].as_str(), question["kind"].as_str())).collect();
        let expected = [
            ("name", "text"),
            ("mail", "text"),
            ("age", "integer"),
            ("score", "number"),
            ("agreed", "boolean"),
            ("colour", "single-select"),
            ("size", "single-select"),
            ("tags", "multi-select"),
            ("parts", "multi-select"),
        ];
        assert_eq!(shown, expected.map(|(id, kind)| (Some(id), Some(kind))));
        assert_eq!((&questions[0]["required"], &questions[0]["max"]), (&json!(true), &json!(20)));
        assert_eq!(questions[5]["options"][1]["label"], "Blue");

        let incomplete = json!({"name": submitted("text", json!("Ann"))});
        let incomplete = completion(&request, "accept", incomplete);
        let incomplete = asking.client.dispatch(&asking.chat, incomplete).await?;
        assert!(asking.response(incomplete).await?.is_some(), "a required field has no answer");
        let answers = json!({
            "name": submitted("text", json!("Ann")),
            "mail": submitted("text", json!("ann@example.com")),
            "age": submitted("number", json!(7)),
            "score": submitted("number", json!(1.5)),
            "agreed": submitted("boolean", json!(true)),
            "colour": submitted("selected", json!("b")),
            "size": {"state": "skipped"},
            "tags": submitted("selected-many", json!(["x", "z"])),
            "parts": submitted("selected-many", json!(["q"])),
        });
        asking.answer(&request, "accept", answers).await?;
        let calls = asking.finish("turn-1").await?;
        let content = json!({
            "name": "Ann", "mail": "ann@example.com", "age": 7, "score": 1.5, "agreed": true, "colour": "b",
            "tags": ["x", "z"], "parts": ["q"],
        });
        assert_eq!(received(&calls[0])?, json!({"action": "accept", "content": content}));

        asking.say("turn-2", &[ask(FORM), ask(FORM), text("done")]).await?;
        for response in ["decline", "cancel"] {
            let request = asking.question("turn-2").await?;
            asking.answer(&request, response, json!({})).await?;
        }
        let calls = asking.finish("turn-2").await?;
        assert_eq!(received(&calls[0])?, json!({"action": "decline"}));
        assert_eq!(received(&calls[1])?, json!({"action": "cancel"}));

        // A form of a cancelled turn is removed, although the older runtime does not withdraw it.
        asking.say("turn-3", &[ask(FORM), text("done")]).await?;
        asking.question("turn-3").await?;
        asking.cancel("turn-3").await?;
        asking.say("turn-4", &[text("next")]).await?;
        asking.finish("turn-4").await?;
        assert_eq!(asking.text("turn-4")?, "next");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn address_of_mcp_server_is_shown_and_confirmed() -> Result<()> {
    let [native, node] = runtimes()?;
    let visit = json!({
        "mode": "url", "message": "Please sign in.", "url": "https://example.com/sign-in", "elicitationId": "one",
    });
    let visit = visit.to_string();
    let mut asking = start(native).await?;
    asking.say("turn-1", &[ask(&visit), ask(&visit), text("done")]).await?;
    for response in ["accept", "decline"] {
        let request = asking.question("turn-1").await?;
        assert_eq!(request["url"], "https://example.com/sign-in", "{request:#}");
        assert!(request["message"].as_str().is_some_and(|message| message.contains("Please sign in.")));
        asking.answer(&request, response, json!({})).await?;
    }
    let calls = asking.finish("turn-1").await?;
    assert_eq!(received(&calls[0])?, json!({"action": "accept"}));
    assert_eq!(received(&calls[1])?, json!({"action": "decline"}));
    asking.agrees_with_a_fresh_client().await?;

    // The older runtime rejects such a request itself, and the turn continues.
    let mut asking = start(node).await?;
    asking.say("turn-1", &[ask(&visit), text("done")]).await?;
    let calls = asking.finish("turn-1").await?;
    assert!(calls[0].to_string().contains("does not support URL-mode"), "{}", calls[0]);
    assert_eq!(asking.times_asked()?, 0);
    asking.agrees_with_a_fresh_client().await
}
