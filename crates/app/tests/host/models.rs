//! The models of the upstream: what clients see, and what a message with one of them does. With
//! both pinned runtimes and the fakes of GitHub and Copilot, which list 12 models of several vendors.

use ahp_types::state::{AgentInfo, ResponsePart, TurnState};
use anyhow::{Context as _, Result};
use innkeeper_gateway::GatewayHandle;
use innkeeper_testkit::fakes::{FakeCopilot, Reply};
use innkeeper_testkit::{HostOptions, Observer, TestHost, runtimes};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::upstreams::start_model;
use crate::{Opened, options, without_runtime};

/// A fake of Copilot, and the configuration of a host that asks for its models often.
struct Copilot {
    fake: FakeCopilot,
    _model: GatewayHandle,
    configuration: TempDir,
}

impl Copilot {
    async fn start() -> Result<Self> {
        let model = start_model().await?;
        let fake = FakeCopilot::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
        let configuration = tempfile::tempdir()?;
        std::fs::write(configuration.path().join("config.toml"), "[models]\nrefresh_minutes = 0.003\n")?;
        Ok(Self { fake, _model: model, configuration })
    }

    fn options(&self, options: HostOptions) -> HostOptions {
        let file = self.configuration.path().join("config.toml").display().to_string();
        let mut options = options
            .with_variable("INNKEEPER_GITHUB_TOKEN", "the-github-token")
            .with_variable("INNKEEPER_GITHUB_API_URL", &self.fake.github.url());
        options.upstream = "copilot".to_owned();
        options.arguments.extend(["--config".to_owned(), file]);
        options
    }

    /// The models of all requests so far, as Copilot names them.
    fn requested(&self) -> Vec<String> {
        let model = |body: Value| body["model"].as_str().unwrap_or_default().to_owned();
        self.fake.messages().iter().map(|request| model(request.json())).collect()
    }
}

fn agent(client: &Observer) -> Option<&AgentInfo> {
    client.root().ok()?.agents.first()
}

fn names(client: &Observer) -> Vec<&str> {
    let models = agent(client).map(|agent| agent.models.as_slice()).unwrap_or_default();
    models.iter().map(|model| model.name.as_str()).collect()
}

/// Sends a message with a model, and returns its failure, if it fails.
async fn say_with(
    client: &mut Observer,
    chat: &str,
    turn: &str,
    model: Option<Value>,
) -> Result<Option<(String, String)>> {
    let mut message = json!({"text": "hi", "origin": {"kind": "user"}});
    if let Some(model) = model {
        message["model"] = model;
    }
    let started = json!({
        "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z", "message": message,
    });
    client.dispatch(chat, started).await?;
    client.until_turn_over(chat, turn).await?;
    let turn = client.chat(chat)?.turns.last().context("no turn")?;
    match (turn.state, turn.response_parts.last()) {
        (TurnState::Complete, _) => Ok(None),
        (_, Some(ResponsePart::Error(part))) => {
            Ok(Some((part.error.error_type.clone(), part.error.message.clone())))
        }
        _ => anyhow::bail!("no error: {turn:?}"),
    }
}

#[tokio::test]
async fn clients_see_the_models_of_copilot_their_changes_and_their_age() -> Result<()> {
    let copilot = Copilot::start().await?;
    let host = TestHost::start(copilot.options(without_runtime())).await?;
    let mut client = host.observer("first").await?;
    client.until("the models are listed", |client| names(client).len() == 5).await?;
    let listed = [
        "Auto (Claude Opus 5.5)",
        "Claude Opus 5.5",
        "Claude Sonnet 4.6",
        "Claude Haiku 4.5",
        "Claude Opus 4.7 (high)",
    ];
    assert_eq!(names(&client), listed);
    let rows = serde_json::to_value(&agent(&client).context("no agent")?.models)?;
    assert_eq!(rows[0]["id"], "default");
    assert_eq!(rows[0]["maxContextWindow"], 200_000);
    assert_eq!(
        rows[1]["configSchema"]["properties"]["thinkingLevel"]["enum"],
        json!(["low", "medium", "high", "xhigh", "max"])
    );
    let haiku = json!({
        "id": "claude-haiku-4-5", "provider": "claude", "name": "Claude Haiku 4.5", "supportsVision": false,
        "maxContextWindow": 200_000, "maxPromptTokens": 168_000, "maxOutputTokens": 32_000, "policyState": "enabled",
        "_meta": {"source": "copilot", "vendor": "Anthropic", "multiplierNumeric": 0.33},
    });
    assert_eq!(rows[3], haiku);

    copilot.fake.change_models(|models| models.retain(|model| model["id"] != "claude-opus-5.5"));
    client.until("the model is removed", |client| names(client).len() == 4).await?;
    assert_eq!(names(&client)[0], "Auto (Claude Opus 4.7 (high))");

    let kept: Vec<String> = names(&client).into_iter().map(str::to_owned).collect();
    for _ in 0..1000 {
        copilot.fake.copilot.script("/models", Reply::json(503, &json!({"message": "busy now"})));
    }
    let tells =
        |client: &Observer, text: &str| agent(client).is_some_and(|agent| agent.description.contains(text));
    client.until("the list has an age", |client| tells(client, "are as of 20")).await?;
    let stale = agent(&client).context("no agent")?;
    assert!(stale.description.contains("busy now"), "{}", stale.description);
    assert_eq!(names(&client), kept);
    let meta = stale.models[1].meta.as_ref().context("no metadata")?;
    assert!(
        meta.contains_key("innkeeper.listedAt") && meta.contains_key("innkeeper.listProblem"),
        "{meta:?}"
    );
    copilot.fake.copilot.clear_scripts();
    client.until("the list is current", |client| !tells(client, "as of")).await?;
    client.agrees_with_a_fresh_client(&host.address()?).await?;
    Ok(())
}

#[tokio::test]
async fn message_uses_its_listed_model_and_unknown_or_removed_one_sends_nothing() -> Result<()> {
    // The default of each runtime after the change of the list.
    let defaults = [
        ("Auto (Claude Opus 4.7 (high))", "claude-opus-4.7-high"),
        ("Auto (Claude Sonnet 4.6)", "claude-sonnet-4.6"),
    ];
    for (claude, (default_name, default_model)) in runtimes()?.into_iter().zip(defaults) {
        let copilot = Copilot::start().await?;
        let host = TestHost::start(copilot.options(options(claude))).await?;
        let Opened { mut client, chat, .. } = Opened::new(&host).await?;
        client.until("the models are listed", |client| names(client).len() == 5).await?;

        let unknown = Some(json!({"id": "claude-opus-9-9"}));
        let (kind, message) = say_with(&mut client, &chat, "turn-1", unknown).await?.context("accepted")?;
        assert_eq!(kind, "model_not_found");
        assert!(message.contains("claude-opus-5-5, claude-opus-4-7-high"), "{message}");
        assert_eq!(copilot.requested(), Vec::<String>::new());

        // A level that the model does not have is not sent to it.
        let haiku = json!({"id": "claude-haiku-4.5", "config": {"thinkingLevel": "max"}});
        assert_eq!(say_with(&mut client, &chat, "turn-2", Some(haiku)).await?, None);
        assert!(
            copilot.requested().iter().any(|model| model == "claude-haiku-4.5"),
            "{:?}",
            copilot.requested()
        );

        let removed = ["claude-haiku-4.5", "claude-opus-5.5"];
        copilot.fake.change_models(|models| {
            models.retain(|model| !removed.iter().any(|id| model["id"] == *id));
        });
        client.until("the models are removed", |client| names(client).len() == 3).await?;
        assert_eq!(names(&client)[0], default_name);
        let sent = copilot.requested().len();
        let (kind, message) = say_with(&mut client, &chat, "turn-3", None).await?.context("accepted")?;
        assert_eq!(kind, "model_not_found", "{message}");
        assert_eq!(copilot.requested().len(), sent);

        let default = Some(json!({"id": "default"}));
        assert_eq!(say_with(&mut client, &chat, "turn-4", default).await?, None);
        let since = copilot.requested().split_off(sent);
        assert!(since.iter().any(|model| model == default_model), "{since:?}");
    }
    Ok(())
}

#[tokio::test]
async fn demo_model_is_labelled() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let mut client = host.observer("first").await?;
    client.until("the models are listed", |client| names(client).len() == 4).await?;
    assert_eq!(names(&client)[0], "Auto (Demo model, Opus 5.5)");
    assert!(names(&client)[1..].iter().all(|name| name.starts_with("Demo model")), "{:?}", names(&client));
    Ok(())
}

#[tokio::test]
async fn missing_credentials_are_explained_and_leave_the_default() -> Result<()> {
    let mut options = without_runtime();
    options.upstream = "anthropic".to_owned();
    let host = TestHost::start(options.with_variable("ANTHROPIC_API_KEY", "")).await?;
    let mut client = host.observer("first").await?;
    let tells = |client: &Observer| {
        agent(client).is_some_and(|agent| agent.description.contains("set ANTHROPIC_API_KEY"))
    };
    client.until("the problem is shown", tells).await?;
    assert_eq!(names(&client), ["Auto"]);
    Ok(())
}
