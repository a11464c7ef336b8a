use innkeeper_claude::wire::Wire as _;
use innkeeper_core::agent::{AgentFeatures, plain_info};
use innkeeper_core::model::{CatalogueProblem, ModelAccess, PolicyState};
use uuid::Uuid;

use super::*;

/// A model endpoint with a catalogue that the test changes. Unlisted ids are unknown.
pub(in super::super) struct FakeCatalogue(pub(in super::super) watch::Sender<ModelCatalogue>);

impl FakeCatalogue {
    /// A catalogue of models with these ids, which read images and have the effort `low` and `high`.
    pub(in super::super) fn of(ids: &[&str]) -> Arc<Self> {
        let models = ids.iter().map(|id| offered(id)).collect();
        Arc::new(Self(watch::Sender::new(ModelCatalogue {
            service: "The service".to_owned(),
            models,
            problem: None,
        })))
    }
}

impl ModelEndpoint for FakeCatalogue {
    fn access(&self, _: Uuid) -> ModelAccess {
        panic!("the test starts the runtime itself")
    }

    fn mark_turn(&self, _: Uuid, _: &str) {}

    fn catalogue(&self) -> watch::Receiver<ModelCatalogue> {
        self.0.subscribe()
    }

    fn find_model(&self, id: &str) -> ModelLookup {
        let catalogue = self.0.borrow();
        let name = id.trim_end_matches(LONG_CONTEXT);
        match catalogue.models.iter().find(|model| model.id.eq_ignore_ascii_case(name)) {
            Some(model) => ModelLookup::Listed(Box::new(model.clone())),
            None if catalogue.models.is_empty() => ModelLookup::Accepted,
            None => ModelLookup::Unknown(catalogue.models.iter().map(|model| model.id.clone()).collect()),
        }
    }
}

fn offered(id: &str) -> OfferedModel {
    OfferedModel {
        id: id.to_owned(),
        name: format!("Name of {id}"),
        source: "fake".to_owned(),
        vision: Some(true),
        efforts: Some(vec!["low".to_owned(), "high".to_owned()]),
        ..OfferedModel::default()
    }
}

fn choice(model: &str, effort: Option<Effort>) -> Choice {
    Choice { model: model.to_owned(), runtime_model: None, effort, agent: None }
}

fn plain_offer() -> AgentOffer {
    AgentOffer { features: AgentFeatures::default(), ..AgentOffer::new(plain_info("claude", "Claude")) }
}

/// The runtime's model and the effort for a selection.
fn resolved(models: &AgentModels, model: &str, effort: Option<Effort>) -> (Option<String>, Option<Effort>) {
    let resolved = models.resolve(choice(model, effort)).unwrap();
    assert_eq!(resolved.model, model);
    (resolved.runtime_model, resolved.effort)
}

fn reported(fields: Value) -> Initialized {
    Initialized::from_json(&fields.to_string()).unwrap()
}

#[test]
fn selection_is_resolved_to_the_name_that_the_runtime_knows() {
    let models = AgentModels::new(FakeCatalogue::of(&["claude-opus-5-5", "claude-haiku-4-5"]));
    for (asked, expected) in [
        ("default", None),
        ("opus", Some("opus")),
        ("sonnet[1m]", Some("sonnet[1m]")),
        ("opusplan", Some("opusplan")),
        ("Claude-Haiku-4-5", Some("claude-haiku-4-5")),
        ("claude-opus-5-5[1m]", Some("claude-opus-5-5[1m]")),
    ] {
        assert_eq!(resolved(&models, asked, None).0.as_deref(), expected, "{asked}");
    }
    let unknown = models.resolve(choice("gpt-99", None)).unwrap_err();
    let error = models.error(&unknown);
    assert_eq!(error.error_type, "model_not_found");
    for wanted in ["The service", "\"gpt-99\"", "claude-opus-5-5, claude-haiku-4-5", "Choose"] {
        assert!(error.message.contains(wanted), "{}", error.message);
    }
    let any = AgentModels::new(FakeCatalogue::of(&[]));
    assert_eq!(resolved(&any, "gpt-99", Some(Effort::Max)), (Some("gpt-99".to_owned()), Some(Effort::Max)));
}

#[test]
fn default_is_replaced_by_the_nearest_model_only_if_the_service_does_not_have_it() {
    let models = AgentModels::new(FakeCatalogue::of(&["claude-opus-4-7", "claude-sonnet-4-6"]));
    assert_eq!(resolved(&models, "default", None).0.as_deref(), Some("claude-opus-4-7"));
    // The older runtime does not report its default.
    models.note_reported(&reported(json!({"models": [{"value": "default"}]})));
    assert_eq!(resolved(&models, "default", None).0, None);
    let newer = json!({
        "claude_code_version": "2.1.325",
        "models": [{"value": "default", "resolvedModel": "claude-opus-4-7"}, {"value": "opus", "resolvedModel": "x"}],
    });
    models.note_reported(&reported(newer));
    assert_eq!(models.default_id(), "claude-opus-4-7");
    models.note_used("claude-opus-9-9");
    models.note_reported(&reported(json!({"claude_code_version": "2.1.325", "models": []})));
    assert_eq!(models.default_id(), "claude-opus-9-9");
    assert_eq!(resolved(&models, "default", None).0.as_deref(), Some("claude-opus-4-7"));
}

#[test]
fn effort_that_the_model_does_not_have_is_dropped() {
    let models = AgentModels::new(FakeCatalogue::of(&["claude-opus-5-5"]));
    assert_eq!(resolved(&models, "claude-opus-5-5", Some(Effort::High)).1, Some(Effort::High));
    assert_eq!(resolved(&models, "default", Some(Effort::Medium)).1, None);
    assert_eq!(resolved(&models, "opus", Some(Effort::Max)).1, Some(Effort::Max));
}

#[test]
fn rows_begin_with_default_and_have_the_properties_of_the_models() {
    let endpoint = FakeCatalogue::of(&["claude-haiku-4-5", "claude-opus-5-5"]);
    endpoint.0.send_modify(|catalogue| {
        let haiku = &mut catalogue.models[0];
        (haiku.vendor, haiku.multiplier) = (Some("Anthropic".to_owned()), Some(0.33));
        (haiku.context_window, haiku.max_prompt_tokens) = (Some(200_000), Some(168_000));
        (haiku.max_output_tokens, haiku.policy) = (Some(32_000), Some(PolicyState::Unconfigured));
        (haiku.efforts, haiku.vision) = (Some(vec![]), Some(false));
    });
    let (offer, following) = follow(plain_offer(), AgentModels::new(endpoint));
    drop(following);
    let info = offer.borrow().info.clone();
    assert_eq!(info.description, DESCRIPTION);
    let efforts = json!({"type": "object", "properties": {"thinkingLevel": {
        "type": "string", "title": "Thinking effort", "description": "How much the model thinks before it answers",
        "default": "high", "enum": ["low", "high"], "enumLabels": ["Low", "High"],
    }}});
    let expected = json!([
        {
            "id": "default", "provider": "claude", "name": "Auto (Name of claude-opus-5-5)", "supportsVision": true,
            "configSchema": efforts, "_meta": {"source": "fake"},
        },
        {
            "id": "claude-haiku-4-5", "provider": "claude", "name": "Name of claude-haiku-4-5",
            "maxContextWindow": 200_000, "maxPromptTokens": 168_000, "maxOutputTokens": 32_000,
            "supportsVision": false, "policyState": "unconfigured",
            "_meta": {"source": "fake", "vendor": "Anthropic", "multiplierNumeric": 0.33},
        },
        {
            "id": "claude-opus-5-5", "provider": "claude", "name": "Name of claude-opus-5-5", "supportsVision": true,
            "configSchema": efforts, "_meta": {"source": "fake"},
        },
    ]);
    assert_eq!(serde_json::to_value(&info.models).unwrap(), expected);
}

#[tokio::test]
async fn offer_follows_the_catalogue_and_the_default_and_tells_the_age() {
    let endpoint = FakeCatalogue::of(&[]);
    let models = AgentModels::new(Arc::clone(&endpoint) as Arc<dyn ModelEndpoint>);
    let (offer, following) = follow(plain_offer(), models.clone());
    let mut offers = offer.subscribe();
    let check = async {
        let name =
            |offers: &mut watch::Receiver<AgentOffer>| offers.borrow_and_update().info.models[0].name.clone();
        assert_eq!(name(&mut offers), "Auto");
        endpoint
            .0
            .send_modify(|catalogue| catalogue.models = vec![offered("claude-sonnet-4-6"), offered("x-1")]);
        offers.changed().await.unwrap();
        assert_eq!(name(&mut offers), "Auto (Name of claude-sonnet-4-6)");
        models.note_used("x-1");
        offers.changed().await.unwrap();
        assert_eq!(name(&mut offers), "Auto (Name of x-1)");
        let listed_at = "2026-11-19T10:00:00Z".parse().ok();
        let problem = CatalogueProblem { message: "It is down.".to_owned(), listed_at };
        endpoint.0.send_modify(|catalogue| catalogue.problem = Some(problem));
        offers.changed().await.unwrap();
        let info = offers.borrow_and_update().info.clone();
        assert!(info.description.ends_with("as of 2026-11-19T10:00:00.000Z: It is down."), "{info:?}");
        let meta = info.models[1].meta.as_ref().unwrap();
        assert_eq!(meta["innkeeper.listedAt"], "2026-11-19T10:00:00.000Z");
        assert_eq!(meta["innkeeper.listProblem"], "It is down.");
        let unknown = models.resolve(choice("gpt-99", None)).unwrap_err();
        assert!(models.error(&unknown).message.contains("as of 2026-11-19T10:00:00.000Z"));
    };
    tokio::select! {
        () = following => panic!("the catalogue has not ended"),
        () = check => {}
    }
}
