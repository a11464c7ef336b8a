//! Converts a user's selection of model, effort and agent to the runtime's values.

use ahp_types::state::{AgentSelection, ModelSelection};
use innkeeper_claude::Effort;
use innkeeper_core::agent::Selection;
use url::Url;

/// Model id that selects the runtime's default.
pub(super) const DEFAULT_MODEL: &str = "default";

/// Property of a model's configuration that VS Code shows an effort picker for.
pub(super) const EFFORT: &str = "thinkingLevel";

/// Model, effort and agent of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The selected model id, or [`DEFAULT_MODEL`].
    pub(super) model: String,
    /// The model that the runtime is told to use; `None` is the runtime's default. Set by
    /// `AgentModels::resolve`.
    pub(super) runtime_model: Option<String>,
    /// Reasoning effort; `None` is the runtime's default.
    pub(super) effort: Option<Effort>,
    /// Custom agent of the main thread.
    pub(super) agent: Option<String>,
}

impl Choice {
    /// Returns the choice that a runtime is started with.
    pub(super) fn of(selection: &Selection) -> Self {
        let model = selection.model.as_ref();
        Self {
            model: model.map_or(DEFAULT_MODEL, |model| model.id.as_str()).to_owned(),
            runtime_model: None,
            effort: model.and_then(effort),
            agent: selection.agent.as_ref().and_then(agent_name),
        }
    }

    /// Returns the choice for the next message. A message without a model keeps the model
    /// and its effort; one without an agent selects no agent.
    pub(super) fn next(&self, model: Option<&ModelSelection>, agent: Option<&AgentSelection>) -> Self {
        Self {
            model: model.map_or_else(|| self.model.clone(), |model| model.id.clone()),
            runtime_model: self.runtime_model.clone(),
            effort: model.map_or(self.effort, effort),
            agent: agent.and_then(agent_name),
        }
    }

    /// Model for the runtime's flag or request; `None` for its default.
    pub(super) fn model_name(&self) -> Option<&str> {
        self.runtime_model.as_deref()
    }
}

fn effort(model: &ModelSelection) -> Option<Effort> {
    let wanted = model.config.as_ref()?.get(EFFORT)?.as_str()?;
    Effort::ALL.into_iter().find(|effort| effort.as_str() == wanted)
}

/// Returns the agent's name, which is the stem of the file that defines it.
fn agent_name(agent: &AgentSelection) -> Option<String> {
    let url = Url::parse(&agent.uri).ok()?;
    let file = url.path().rsplit('/').find(|segment| !segment.is_empty())?;
    let name = percent_decoded(file);
    Some(name.strip_suffix(".md").unwrap_or(&name).to_owned())
}

fn percent_decoded(text: &str) -> String {
    let probe = format!("file:///{text}");
    let path = Url::parse(&probe).ok().and_then(|url| url.to_file_path().ok());
    let name = path.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model(value: serde_json::Value) -> ModelSelection {
        serde_json::from_value(value).unwrap()
    }

    fn agent(uri: &str) -> AgentSelection {
        AgentSelection { uri: uri.to_owned() }
    }

    #[test]
    fn selection_is_converted_to_model_effort_and_agent() {
        let selection = Selection {
            model: Some(model(json!({"id": "opus", "config": {"thinkingLevel": "xhigh"}}))),
            agent: Some(agent("file:///w/.claude/agents/code%20reviewer.md")),
        };
        let choice = Choice::of(&selection);
        assert_eq!((choice.model.as_str(), choice.effort), ("opus", Some(Effort::ExtraHigh)));
        assert_eq!(choice.agent.as_deref(), Some("code reviewer"));
        let none = Choice::of(&Selection::default());
        assert_eq!((none.model.as_str(), none.effort, &none.agent), (DEFAULT_MODEL, None, &None));
    }

    #[test]
    fn message_without_model_keeps_model_and_without_agent_clears_agent() {
        let first = Choice {
            model: "opus".to_owned(),
            runtime_model: Some("opus".to_owned()),
            effort: Some(Effort::High),
            agent: Some("reviewer".to_owned()),
        };
        let next = first.next(None, None);
        assert_eq!(next, Choice { agent: None, ..first.clone() });
        let other = first.next(Some(&model(json!({"id": "haiku"}))), Some(&agent("x:/agents/reviewer")));
        assert_eq!(other, Choice { model: "haiku".to_owned(), effort: None, ..first });
    }

    #[test]
    fn unknown_effort_falls_back_to_default() {
        let selection = Selection {
            model: Some(model(json!({"id": "opus", "config": {"thinkingLevel": "wild"}}))),
            agent: Some(agent("not an address")),
        };
        let choice = Choice::of(&selection);
        assert_eq!((choice.effort, choice.agent), (None, None));
    }
}
