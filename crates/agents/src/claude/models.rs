//! The models of the agent: the rows for clients, and the model that a runtime is told to use.
//!
//! The model endpoint owns the catalogue and the spelling of ids. This module adds the names that
//! only the runtime knows: its default, and its aliases. Sends nothing.

use std::collections::HashMap;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, ConfigPropertySchema, ConfigSchema, ErrorInfo, SessionModelInfo};
use innkeeper_claude::{Effort, Initialized};
use innkeeper_core::agent::AgentOffer;
use innkeeper_core::clock::wire_time;
use innkeeper_core::model::{ModelCatalogue, ModelEndpoint, ModelLookup, OfferedModel};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::selection::{Choice, DEFAULT_MODEL, EFFORT};

/// Names that the runtimes resolve themselves, besides [`DEFAULT_MODEL`].
const ALIASES: [&str; 6] = ["best", "fable", "haiku", "opus", "opusplan", "sonnet"];

/// The suffix with which an id selects the long context of a model.
const LONG_CONTEXT: &str = "[1m]";

/// The default of the runtime that `innkeeper runtime install` installs. Shown until a runtime has
/// reported its own default.
const ASSUMED_DEFAULT: &str = "claude-opus-5-5";

/// The default of the runtimes that do not report it.
const UNREPORTED_DEFAULT: &str = "claude-sonnet-4-6";

/// Description of the agent while its models are up to date.
const DESCRIPTION: &str = "Claude Code, kept running by Innkeeper";

/// The effort that is preselected where a model has it.
const PRESELECTED_EFFORT: Effort = Effort::High;

/// The models of the agents of a provider.
#[derive(Clone)]
pub(super) struct AgentModels {
    pub(super) endpoint: Arc<dyn ModelEndpoint>,
    default: watch::Sender<RuntimeDefault>,
}

/// The model that the runtime uses if it is not told to use another one.
#[derive(Debug, Default, PartialEq, Eq)]
struct RuntimeDefault {
    /// The default of the runtime's version.
    reported: Option<String>,
    /// The model that a runtime used, for example because of the user's settings.
    used: Option<String>,
}

/// A selected model that the service does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownSelection {
    model: String,
    nearest: Vec<String>,
}

impl AgentModels {
    pub(super) fn new(endpoint: Arc<dyn ModelEndpoint>) -> Self {
        Self { endpoint, default: watch::Sender::default() }
    }

    /// Returns the choice with the runtime's model and an effort that the model has.
    pub(super) fn resolve(&self, mut choice: Choice) -> Result<Choice, UnknownSelection> {
        let (runtime_model, listed) = self.runtime_model(&choice.model)?;
        choice.runtime_model = runtime_model;
        let efforts = listed.and_then(|model| model.efforts);
        // A model rejects requests with an effort that it does not have.
        choice.effort = choice.effort.filter(|effort| match &efforts {
            Some(efforts) => efforts.iter().any(|level| level == effort.as_str()),
            None => true,
        });
        Ok(choice)
    }

    /// The model for the runtime's flag or request, `None` for its default; and its description.
    fn runtime_model(
        &self,
        asked: &str,
    ) -> Result<(Option<String>, Option<Box<OfferedModel>>), UnknownSelection> {
        if asked == DEFAULT_MODEL {
            return Ok(self.default_model());
        }
        let name = asked.strip_suffix(LONG_CONTEXT).unwrap_or(asked);
        if ALIASES.contains(&name) {
            return Ok((Some(asked.to_owned()), None));
        }
        match self.endpoint.find_model(asked) {
            // The runtime knows the properties of a model only in the spelling of the list.
            ModelLookup::Listed(model) if name == asked => Ok((Some(model.id.clone()), Some(model))),
            ModelLookup::Listed(model) => Ok((Some(asked.to_owned()), Some(model))),
            ModelLookup::Accepted => Ok((Some(asked.to_owned()), None)),
            ModelLookup::Unknown(nearest) => Err(UnknownSelection { model: asked.to_owned(), nearest }),
        }
    }

    /// The runtime's default if the service has it, otherwise the nearest listed model.
    fn default_model(&self) -> (Option<String>, Option<Box<OfferedModel>>) {
        match self.endpoint.find_model(&self.default_id()) {
            ModelLookup::Listed(model) => (None, Some(model)),
            ModelLookup::Accepted => (None, None),
            ModelLookup::Unknown(nearest) => {
                let nearest = nearest.into_iter().next();
                let found = nearest.as_deref().map(|id| self.endpoint.find_model(id));
                match found {
                    Some(ModelLookup::Listed(model)) => (nearest, Some(model)),
                    Some(ModelLookup::Accepted | ModelLookup::Unknown(_)) | None => (nearest, None),
                }
            }
        }
    }

    fn default_id(&self) -> String {
        let default = self.default.borrow();
        default.used.as_ref().or(default.reported.as_ref()).map_or(ASSUMED_DEFAULT, String::as_str).to_owned()
    }

    /// Notes the default that a runtime reports at its start.
    pub(super) fn note_reported(&self, runtime: &Initialized) {
        let is_default = |row: &&innkeeper_claude::ModelInfo| row.value.as_deref() == Some(DEFAULT_MODEL);
        let row = runtime.models.iter().flatten().find(is_default);
        let reported = match row.and_then(|row| row.resolved_model.as_deref()) {
            Some(model) => model,
            None if runtime.claude_code_version.is_none() => UNREPORTED_DEFAULT,
            None => return,
        };
        self.note(|default| &mut default.reported, reported);
    }

    /// Notes the model of a runtime that was not told to use another one.
    pub(super) fn note_used(&self, model: &str) {
        self.note(|default| &mut default.used, model);
    }

    fn note(&self, place: impl FnOnce(&mut RuntimeDefault) -> &mut Option<String>, model: &str) {
        self.default.send_if_modified(|default| {
            let place = place(default);
            let is_new = place.as_deref() != Some(model);
            *place = Some(model.to_owned());
            is_new
        });
    }

    /// The error of a message whose model the service does not have.
    pub(super) fn error(&self, unknown: &UnknownSelection) -> ErrorInfo {
        let UnknownSelection { model, nearest } = unknown;
        let catalogue = self.endpoint.catalogue();
        let catalogue = catalogue.borrow();
        let listed_at = catalogue.problem.as_ref().and_then(|problem| problem.listed_at);
        let age = listed_at.map(|time| format!(" (as of {})", wire_time(time))).unwrap_or_default();
        ErrorInfo {
            error_type: "model_not_found".to_owned(),
            message: format!(
                "{service} does not list the model {model:?}{age}; the nearest models are {nearest}. Choose \
                 one of these or another listed model, and send the message again.",
                service = catalogue.service,
                nearest = nearest.join(", "),
            ),
            stack: None,
            meta: None,
        }
    }

    /// Updates the models of an offer. Returns whether they changed.
    fn update(&self, info: &mut AgentInfo) -> bool {
        let catalogue = self.endpoint.catalogue().borrow().clone();
        let (models, description) = (self.rows(&catalogue), description(&catalogue));
        let is_new = info.models != models || info.description != description;
        (info.models, info.description) = (models, description);
        is_new
    }

    /// The models as clients see them. The default is first, and its name sorts before the others:
    /// VS Code preselects the first model by name.
    fn rows(&self, catalogue: &ModelCatalogue) -> Vec<SessionModelInfo> {
        let default = self.default_model();
        let name = match &default {
            (_, Some(model)) => format!("Auto ({})", model.name),
            (Some(id), None) => format!("Auto ({id})"),
            (None, None) if catalogue.models.is_empty() => "Auto".to_owned(),
            (None, None) => format!("Auto ({})", self.default_id()),
        };
        let default = OfferedModel {
            id: DEFAULT_MODEL.to_owned(),
            name,
            ..default.1.map(|model| *model).unwrap_or_default()
        };
        let rows = std::iter::once(&default).chain(&catalogue.models);
        rows.map(|model| row(model, catalogue)).collect()
    }
}

/// Creates the sender of an offer, whose models follow the catalogue. The returned task ends with
/// the catalogue.
pub(super) fn follow(
    mut offer: AgentOffer,
    models: AgentModels,
) -> (watch::Sender<AgentOffer>, impl Future<Output = ()> + Send) {
    // Subscribed first, so that no change is missed.
    let (mut catalogue, mut default) = (models.endpoint.catalogue(), models.default.subscribe());
    models.update(&mut offer.info);
    let sender = watch::Sender::new(offer);
    let follower = sender.clone();
    let following = async move {
        loop {
            let changed = tokio::select! {
                changed = catalogue.changed() => changed,
                changed = default.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            follower.send_if_modified(|offer| models.update(&mut offer.info));
        }
    };
    (sender, following)
}

fn description(catalogue: &ModelCatalogue) -> String {
    let Some(problem) = &catalogue.problem else { return DESCRIPTION.to_owned() };
    let (service, cause) = (&catalogue.service, &problem.message);
    match problem.listed_at {
        Some(time) => {
            format!("{DESCRIPTION}. The models of {service} are as of {}: {cause}", wire_time(time))
        }
        None => format!("{DESCRIPTION}. The models of {service} are not known: {cause}"),
    }
}

fn row(model: &OfferedModel, catalogue: &ModelCatalogue) -> SessionModelInfo {
    let tokens = |count: Option<u64>| count.and_then(|count| i64::try_from(count).ok());
    SessionModelInfo {
        id: model.id.clone(),
        provider: super::provider::PROVIDER.to_owned(),
        name: model.name.clone(),
        max_context_window: tokens(model.context_window),
        max_output_tokens: tokens(model.max_output_tokens),
        max_prompt_tokens: tokens(model.max_prompt_tokens),
        supports_vision: model.vision,
        policy_state: model.policy,
        config_schema: effort_schema(model),
        meta: Some(row_meta(model, catalogue)).filter(|meta| !meta.is_empty()),
    }
}

fn row_meta(model: &OfferedModel, catalogue: &ModelCatalogue) -> JsonObject {
    let source = Some(&model.source).filter(|source| !source.is_empty());
    let problem = catalogue.problem.as_ref();
    let listed_at = problem.and_then(|problem| problem.listed_at).map(wire_time);
    let values = [
        ("source", source.map(|source| json!(source))),
        ("vendor", model.vendor.as_ref().map(|vendor| json!(vendor))),
        // The name that VS Code reads.
        ("multiplierNumeric", model.multiplier.map(|multiplier| json!(multiplier))),
        ("innkeeper.listedAt", listed_at.map(|time| json!(time))),
        ("innkeeper.listProblem", problem.map(|problem| json!(problem.message))),
    ];
    values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// The form with the effort levels that both the model and the runtime have.
fn effort_schema(model: &OfferedModel) -> Option<ConfigSchema> {
    let has = |effort: &Effort| model.efforts.iter().flatten().any(|level| level == effort.as_str());
    let efforts: Vec<Effort> = Effort::ALL.into_iter().filter(has).collect();
    if efforts.is_empty() {
        return None;
    }
    let label = |effort: &Effort| match effort {
        Effort::Low => "Low",
        Effort::Medium => "Medium",
        Effort::High => "High",
        Effort::ExtraHigh => "Extra high",
        Effort::Max => "Maximum",
    };
    let values: Vec<Value> = efforts.iter().map(|effort| json!(effort.as_str())).collect();
    let property = ConfigPropertySchema {
        r#type: "string".to_owned(),
        title: "Thinking effort".to_owned(),
        description: Some("How much the model thinks before it answers".to_owned()),
        default: efforts.contains(&PRESELECTED_EFFORT).then(|| json!(PRESELECTED_EFFORT.as_str())),
        r#enum: Some(values),
        enum_labels: Some(efforts.iter().map(|effort| label(effort).to_owned()).collect()),
        enum_descriptions: None,
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
    };
    let properties = HashMap::from([(EFFORT.to_owned(), property)]);
    Some(ConfigSchema { r#type: "object".to_owned(), properties, required: None })
}

#[cfg(test)]
#[path = "models_tests.rs"]
pub(super) mod tests;
