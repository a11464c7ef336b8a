//! The model list of Anthropic's API.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::model_list::{ModelList, UnlistedModels, UpstreamModel};

/// The effort levels of the API, lowest first.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// The company whose models the API serves.
const VENDOR: &str = "Anthropic";

/// A page of models. Compatible services report fewer properties.
#[derive(Debug, Deserialize)]
pub(super) struct ModelPage {
    data: Vec<Value>,
}

#[derive(Deserialize)]
struct PageEntry {
    id: String,
    #[serde(default)]
    display_name: Value,
    #[serde(default)]
    max_input_tokens: Value,
    #[serde(default)]
    max_tokens: Value,
    #[serde(default)]
    capabilities: Value,
}

impl ModelPage {
    /// Parses the response to the request for models.
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_gateway(format!("cannot parse the service's model list: {error}")))
    }

    /// The models of the page.
    pub(super) fn model_list(self) -> ModelList {
        let entries = self.data.into_iter().filter_map(|entry| serde_json::from_value(entry).ok());
        ModelList::new(entries.map(PageEntry::described), UnlistedModels::Rejected)
    }
}

impl PageEntry {
    fn described(self) -> UpstreamModel {
        let supports = |name: &str| self.capabilities.get(name)?.get("supported")?.as_bool();
        let is_claude = self.id.starts_with("claude-");
        UpstreamModel {
            name: self.display_name.as_str().unwrap_or(&self.id).to_owned(),
            upstream_id: self.id.clone(),
            vendor: is_claude.then(|| VENDOR.to_owned()),
            context_window: self.max_input_tokens.as_u64(),
            max_output_tokens: self.max_tokens.as_u64(),
            vision: supports("image_input"),
            efforts: self.capabilities.get("effort").and_then(Value::as_object).map(efforts),
            id: self.id,
            ..UpstreamModel::default()
        }
    }
}

fn efforts(reported: &Map<String, Value>) -> Vec<String> {
    let is_supported = |level: &&&str| {
        reported.get(**level).and_then(|level| level.get("supported")?.as_bool()) == Some(true)
    };
    EFFORTS.iter().filter(is_supported).map(|level| (*level).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reported_properties_are_read_and_missing_ones_stay_unknown() {
        let supported = json!({"supported": true});
        let page = json!({"data": [
            {
                "type": "model", "id": "claude-opus-5-5", "display_name": "Claude Opus 5.5",
                "max_input_tokens": 200_000, "max_tokens": 64_000,
                "capabilities": {
                    "image_input": supported,
                    "effort": {"supported": true, "low": supported, "high": supported, "max": {"supported": false}},
                },
            },
            {"type": "model", "id": "claude-haiku-4-5", "capabilities": null, "max_input_tokens": null},
            {"display_name": "no id"},
            {"id": "house-model", "display_name": 7, "capabilities": []},
        ], "has_more": false});
        let list = ModelPage::read(page.to_string().as_bytes()).unwrap().model_list();
        let plain = |id: &str, vendor: Option<&str>| UpstreamModel {
            id: id.to_owned(),
            upstream_id: id.to_owned(),
            name: id.to_owned(),
            vendor: vendor.map(str::to_owned),
            ..UpstreamModel::default()
        };
        let opus = UpstreamModel {
            name: "Claude Opus 5.5".to_owned(),
            context_window: Some(200_000),
            max_output_tokens: Some(64_000),
            vision: Some(true),
            efforts: Some(vec!["low".to_owned(), "high".to_owned()]),
            ..plain("claude-opus-5-5", Some(VENDOR))
        };
        assert_eq!(
            list.models(),
            [opus, plain("claude-haiku-4-5", Some(VENDOR)), plain("house-model", None)]
        );
    }

    #[test]
    fn unparsable_page_is_bad_gateway() {
        for bad in ["", "[]", "{}", r#"{"data":7}"#] {
            assert_eq!(ModelPage::read(bad.as_bytes()).unwrap_err().status().as_u16(), 502);
        }
    }
}
