//! The models of a Copilot account.
//!
//! Parses Copilot's model list and translates ids in both directions. A listed
//! model keeps the list's spelling, including every modifier; the id grammar
//! is used only for models that are not listed.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::model_id::ModelId;
use crate::model_list::{ModelList, ModelPolicy, UnlistedModels, UpstreamModel};

/// The vendor whose models use the Messages format.
const VENDOR: &str = "anthropic";

/// The endpoint that a model must support.
const ENDPOINT: &str = "/v1/messages";

/// The models of one account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue(Vec<CatalogueModel>);

#[derive(Clone, Debug)]
struct CatalogueModel {
    /// The id as Copilot spells it.
    id: String,
    /// The id as clients spell it.
    client_id: String,
    name: String,
    parsed: Option<ModelId>,
    vendor: String,
    capabilities: ListedCapabilities,
    multiplier: Option<f64>,
    policy: Option<ModelPolicy>,
}

impl Catalogue {
    /// Parses Copilot's model list.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let list: CopilotList = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_gateway(format!("cannot parse Copilot's model list: {error}")))?;
        let models =
            list.data.into_iter().filter_map(|entry| serde_json::from_value::<ListedModel>(entry).ok());
        let mut catalogue = Self::default();
        for entry in models.filter(ListedModel::speaks_messages) {
            let parsed = ModelId::parse(&entry.id);
            let client_id = parsed.as_ref().map_or_else(|| entry.id.clone(), ModelId::exact_client_form);
            let name = entry.name.unwrap_or_else(|| entry.id.clone());
            // Two Copilot spellings can map to the same client id; the first one wins.
            if !catalogue.0.iter().any(|model| model.client_id == client_id) {
                catalogue.0.push(CatalogueModel {
                    id: entry.id,
                    client_id,
                    name,
                    parsed,
                    vendor: entry.vendor,
                    capabilities: field(entry.capabilities).unwrap_or_default(),
                    multiplier: field::<ListedBilling>(entry.billing).and_then(ListedBilling::multiplier),
                    policy: field::<ListedPolicy>(entry.policy).and_then(|policy| policy.state()),
                });
            }
        }
        Ok(catalogue)
    }

    /// The list in the format of Anthropic's API.
    pub(crate) fn page(&self) -> Bytes {
        let data: Vec<Value> = self.0.iter().map(CatalogueModel::shown).collect();
        let id = |model: Option<&CatalogueModel>| model.map(|model| model.client_id.clone());
        let page = json!({
            "data": data,
            "has_more": false,
            "first_id": id(self.0.first()),
            "last_id": id(self.0.last()),
        });
        page.to_string().into()
    }

    /// The models that can be offered: without those that cannot call tools.
    pub(crate) fn model_list(&self) -> ModelList {
        let offered = self.0.iter().filter(|model| model.capabilities.supports.tool_calls != Some(false));
        ModelList::new(offered.map(CatalogueModel::described), UnlistedModels::Rejected)
    }

    /// Translates a client's model id to Copilot's spelling.
    pub(crate) fn endpoint_id(&self, asked: &str) -> Option<String> {
        let exact = |model: &&CatalogueModel| {
            model.client_id.eq_ignore_ascii_case(asked) || model.id.eq_ignore_ascii_case(asked)
        };
        if let Some(model) = self.0.iter().find(exact) {
            return Some(model.id.clone());
        }
        let wanted = ModelId::parse(asked)?;
        let same = self.0.iter().find(|model| model.parsed.as_ref() == Some(&wanted));
        let base = || {
            self.0.iter().find(|model| model.parsed.as_ref().is_some_and(|parsed| parsed.is_base_of(&wanted)))
        };
        Some(same.or_else(base).map_or_else(|| wanted.endpoint_form(), |model| model.id.clone()))
    }

    /// Translates Copilot's model id to the clients' spelling; `None` if it stays unchanged.
    pub(crate) fn client_id(&self, id: &str) -> Option<String> {
        match self.0.iter().find(|model| model.id == id) {
            Some(model) => Some(model.client_id.clone()),
            None => ModelId::parse(id).map(|parsed| parsed.client_form()),
        }
    }
}

impl CatalogueModel {
    fn described(&self) -> UpstreamModel {
        let ListedCapabilities { limits, supports } = &self.capabilities;
        UpstreamModel {
            id: self.client_id.clone(),
            upstream_id: self.id.clone(),
            name: self.name.clone(),
            vendor: Some(self.vendor.clone()),
            context_window: limits.max_context_window_tokens,
            max_prompt_tokens: limits.max_prompt_tokens,
            max_output_tokens: limits.max_output_tokens,
            vision: supports.vision,
            efforts: supports.reasoning_effort.clone(),
            multiplier: self.multiplier,
            policy: self.policy,
        }
    }

    fn shown(&self) -> Value {
        json!({
            "type": "model",
            "id": self.client_id,
            "display_name": self.name,
            "created_at": "1970-01-01T00:00:00Z",
            "capabilities": null,
            "max_input_tokens": null,
            "max_tokens": null,
        })
    }
}

#[derive(Deserialize)]
struct CopilotList {
    data: Vec<Value>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    vendor: String,
    #[serde(default)]
    supported_endpoints: Vec<String>,
    #[serde(default)]
    capabilities: Value,
    #[serde(default)]
    billing: Value,
    #[serde(default)]
    policy: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ListedCapabilities {
    limits: ListedLimits,
    supports: ListedSupport,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ListedLimits {
    max_context_window_tokens: Option<u64>,
    max_prompt_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ListedSupport {
    tool_calls: Option<bool>,
    vision: Option<bool>,
    reasoning_effort: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ListedBilling {
    multiplier: Option<f64>,
}

impl ListedBilling {
    fn multiplier(self) -> Option<f64> {
        self.multiplier.filter(|multiplier| multiplier.is_finite() && *multiplier >= 0.0)
    }
}

#[derive(Deserialize)]
struct ListedPolicy {
    state: String,
}

impl ListedPolicy {
    fn state(&self) -> Option<ModelPolicy> {
        match self.state.as_str() {
            "enabled" => Some(ModelPolicy::Enabled),
            "disabled" => Some(ModelPolicy::Disabled),
            "unconfigured" => Some(ModelPolicy::Unconfigured),
            _ => None,
        }
    }
}

/// Parses a property on its own, so that an unexpected one does not hide the model.
fn field<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

impl ListedModel {
    fn speaks_messages(&self) -> bool {
        self.vendor.eq_ignore_ascii_case(VENDOR)
            && self.supported_endpoints.iter().any(|path| path == ENDPOINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        let model = |id: &str, vendor: &str, endpoint: &str| json!({"id": id, "name": format!("Name of {id}"), "vendor": vendor, "supported_endpoints": ["/chat/completions", endpoint]});
        let list = json!({"data": [
            model("claude-sonnet-4.6", "Anthropic", "/v1/messages"),
            model("claude-opus-4.7", "anthropic", "/v1/messages"),
            model("claude-opus-4.7-high", "Anthropic", "/v1/messages"),
            model("claude-opus-41", "Anthropic", "/v1/messages"),
            model("claude-3.5-sonnet", "Anthropic", "/v1/messages"),
            model("house-model-x", "Anthropic", "/v1/messages"),
            model("claude-haiku-4.5", "Anthropic", "/responses"),
            model("gpt-6", "OpenAI", "/v1/messages"),
            "not a model",
            {"name": "no id"},
        ]});
        Catalogue::read(list.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn lists_only_models_with_right_vendor_and_endpoint() {
        let page: Value = serde_json::from_slice(&catalogue().page()).unwrap();
        let ids: Vec<&str> =
            page["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(
            ids,
            [
                "claude-sonnet-4-6",
                "claude-opus-4-7",
                "claude-opus-4-7-high",
                "claude-opus-41",
                "claude-sonnet-3-5",
                "house-model-x"
            ]
        );
        assert_eq!(
            (&page["first_id"], &page["last_id"], &page["has_more"]),
            (&json!("claude-sonnet-4-6"), &json!("house-model-x"), &json!(false))
        );
        assert_eq!(
            page["data"][0],
            json!({"type": "model", "id": "claude-sonnet-4-6", "display_name": "Name of claude-sonnet-4.6", "created_at": "1970-01-01T00:00:00Z", "capabilities": null, "max_input_tokens": null, "max_tokens": null})
        );
        let empty: Value = serde_json::from_slice(&Catalogue::default().page()).unwrap();
        assert_eq!(empty, json!({"data": [], "has_more": false, "first_id": null, "last_id": null}));
    }

    #[test]
    fn model_list_has_the_properties_of_each_model() {
        let model = |id: &str, more: Value| {
            let mut model =
                json!({"id": id, "name": id, "vendor": "Anthropic", "supported_endpoints": ["/v1/messages"]});
            model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            model
        };
        let list = json!({"data": [
            model("claude-opus-4.7", json!({
                "billing": {"is_premium": true, "multiplier": 7.5}, "policy": {"state": "unconfigured", "terms": "…"},
                "capabilities": {
                    "limits": {"max_context_window_tokens": 200_000, "max_prompt_tokens": 168_000, "max_output_tokens": 32_000},
                    "supports": {"tool_calls": true, "vision": true, "reasoning_effort": ["low", "high"]},
                },
            })),
            model("claude-haiku-4.5", json!({"billing": {"multiplier": "free"}, "policy": 3, "capabilities": {"limits": []}})),
            model("claude-haiku-4", json!({"capabilities": {"supports": {"tool_calls": false}}})),
        ]});
        let list = Catalogue::read(list.to_string().as_bytes()).unwrap().model_list();
        let opus = UpstreamModel {
            id: "claude-opus-4-7".to_owned(),
            upstream_id: "claude-opus-4.7".to_owned(),
            name: "claude-opus-4.7".to_owned(),
            vendor: Some("Anthropic".to_owned()),
            context_window: Some(200_000),
            max_prompt_tokens: Some(168_000),
            max_output_tokens: Some(32_000),
            vision: Some(true),
            efforts: Some(vec!["low".to_owned(), "high".to_owned()]),
            multiplier: Some(7.5),
            policy: Some(ModelPolicy::Unconfigured),
        };
        let haiku = UpstreamModel {
            id: "claude-haiku-4-5".to_owned(),
            upstream_id: "claude-haiku-4.5".to_owned(),
            name: "claude-haiku-4.5".to_owned(),
            vendor: Some("Anthropic".to_owned()),
            ..UpstreamModel::default()
        };
        assert_eq!(list.models(), [opus, haiku]);
        assert!(list.find("claude-opus-9-9").is_err());
    }

    #[test]
    fn endpoint_id_uses_list_before_grammar() {
        for (asked, expected) in [
            ("claude-sonnet-4-6", "claude-sonnet-4.6"),
            ("claude-sonnet-4.6", "claude-sonnet-4.6"),
            ("claude-sonnet-4-6-20260101", "claude-sonnet-4.6"),
            ("claude-sonnet-4-6[1m]", "claude-sonnet-4.6"),
            ("claude-opus-4-7-high", "claude-opus-4.7-high"),
            ("claude-opus-4-7-low", "claude-opus-4.7"),
            ("claude-opus-4-7[1m]", "claude-opus-4.7"),
            ("claude-opus-4-1-20250805", "claude-opus-41"),
            ("claude-3-5-sonnet-20241022", "claude-3.5-sonnet"),
            ("House-Model-X", "house-model-x"),
            ("claude-opus-9-9", "claude-opus-9.9"),
            ("claude-opus-9-9[1m]", "claude-opus-9.9-1m"),
        ] {
            assert_eq!(catalogue().endpoint_id(asked).as_deref(), Some(expected), "{asked}");
        }
        assert_eq!(catalogue().endpoint_id("other-model-x"), None);
    }

    #[test]
    fn listed_id_survives_translation_in_both_directions() {
        for id in [
            "claude-sonnet-4-6",
            "claude-opus-4-7-high",
            "claude-opus-41",
            "claude-sonnet-3-5",
            "house-model-x",
        ] {
            let endpoint = catalogue().endpoint_id(id).unwrap();
            assert_eq!(catalogue().client_id(&endpoint).unwrap_or(endpoint), id);
        }
        assert_eq!(catalogue().client_id("claude-haiku-4.5-20251001").as_deref(), Some("claude-haiku-4-5"));
        assert_eq!(catalogue().client_id("some-other-model"), None);
    }

    #[test]
    fn unparsable_list_is_bad_gateway() {
        for bad in ["", "[]", "{}", r#"{"data":7}"#] {
            assert_eq!(Catalogue::read(bad.as_bytes()).unwrap_err().status().as_u16(), 502);
        }
    }
}
