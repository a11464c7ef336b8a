//! Converts an MCP server's elicitation to an input request, and the user's answers back.
//!
//! Every property of the requested schema becomes a question. A property of an unknown type is
//! asked as text. An answer that does not fit its property is left out.

use std::collections::HashMap;
use std::fmt;

use ahp_types::state::{
    ChatInputAnswerValue, ChatInputBooleanQuestion, ChatInputMultiSelectQuestion, ChatInputNumberQuestion,
    ChatInputOption, ChatInputQuestion, ChatInputRequest, ChatInputResponseKind,
    ChatInputSingleSelectQuestion, ChatInputTextQuestion,
};
use innkeeper_claude::wire::control::Elicitation;
use innkeeper_core::agent::InputAnswer;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::{Map, Value, json};

use super::user_questions::given;

/// Most properties that are asked for. The rest is left out.
const MAX_PROPERTIES: usize = 100;

/// An elicitation that waits for the user.
#[derive(Debug)]
pub(super) struct PendingElicitation {
    /// The kind of each property, by name.
    properties: HashMap<String, PropertyKind>,
    /// Whether the user only has to visit an address.
    by_address: bool,
}

/// What a property accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PropertyKind {
    Text,
    Number,
    Integer,
    Boolean,
    One,
    Many,
}

/// The schema of the answer. Properties keep their order.
#[derive(Default, Deserialize)]
struct AnswerSchema {
    #[serde(default)]
    properties: Properties,
    #[serde(default)]
    required: Vec<String>,
}

#[derive(Default)]
struct Properties(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Properties;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
                let mut properties = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    properties.push(entry);
                }
                Ok(Properties(properties))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl PendingElicitation {
    /// Reads a request of an MCP server. `None` if it cannot be shown; it is then declined.
    pub(super) fn parse(id: &str, request: &Elicitation) -> Option<(Self, ChatInputRequest)> {
        let by_address = request.mode.as_deref() == Some("url");
        let schema: AnswerSchema = match &request.requested_schema {
            Some(schema) if !by_address => serde_json::from_str(schema.get()).ok()?,
            Some(_) | None => AnswerSchema::default(),
        };
        let url = request.url.clone().filter(|url| by_address && is_web_address(url));
        if by_address && url.is_none() {
            return None;
        }
        let mut properties = HashMap::new();
        let mut questions = Vec::new();
        for (name, property) in schema.properties.0.into_iter().take(MAX_PROPERTIES) {
            let required = schema.required.contains(&name).then_some(true);
            let Some((kind, question)) = question(&name, &property, required) else { continue };
            questions.push(question);
            properties.insert(name, kind);
        }
        let shown = ChatInputRequest {
            id: id.to_owned(),
            message: Some(message(request)),
            url,
            questions: (!questions.is_empty()).then_some(questions),
            answers: None,
        };
        Some((Self { properties, by_address }, shown))
    }

    /// The response to the runtime.
    pub(super) fn answered(&self, answer: &InputAnswer) -> Value {
        match answer.response {
            ChatInputResponseKind::Accept if self.by_address => json!({"action": "accept"}),
            ChatInputResponseKind::Accept => {
                json!({"action": "accept", "content": Value::Object(self.content(answer))})
            }
            ChatInputResponseKind::Decline => declined(),
            ChatInputResponseKind::Cancel => cancelled(),
        }
    }

    fn content(&self, answer: &InputAnswer) -> Map<String, Value> {
        given(&answer.answers)
            .into_iter()
            .filter_map(|(name, value)| {
                Some((name.to_owned(), converted(*self.properties.get(name)?, value)?))
            })
            .collect()
    }
}

/// The response for a request that cannot be shown.
pub(super) fn declined() -> Value {
    json!({"action": "decline"})
}

/// The response for a request whose turn has ended.
pub(super) fn cancelled() -> Value {
    json!({"action": "cancel"})
}

fn is_web_address(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

fn message(request: &Elicitation) -> String {
    let server = request.display_name.as_deref().or(request.mcp_server_name.as_deref()).unwrap_or("a tool");
    match request.message.as_deref().filter(|message| !message.is_empty()) {
        Some(message) => format!("{server}: {message}"),
        None => format!("{server} asks for your input."),
    }
}

fn question(
    name: &str,
    property: &Value,
    required: Option<bool>,
) -> Option<(PropertyKind, ChatInputQuestion)> {
    let property = property.as_object()?;
    let text = |field: &str| property.get(field).and_then(Value::as_str).map(str::to_owned);
    let count = |field: &str| property.get(field).and_then(Value::as_i64);
    let number = |field: &str| property.get(field).and_then(Value::as_f64);
    let (id, title) = (name.to_owned(), text("title"));
    let message = text("description").or_else(|| title.clone()).unwrap_or_else(|| name.to_owned());
    if let Some(options) = property.get("items").and_then(options) {
        return Some((
            PropertyKind::Many,
            ChatInputQuestion::MultiSelect(ChatInputMultiSelectQuestion {
                id,
                title,
                message,
                required,
                options: recommended(options, property.get("default")),
                allow_freeform_input: Some(false),
                min: count("minItems"),
                max: count("maxItems"),
            }),
        ));
    }
    if let Some(options) = options(&Value::Object(property.clone())) {
        return Some((
            PropertyKind::One,
            ChatInputQuestion::SingleSelect(ChatInputSingleSelectQuestion {
                id,
                title,
                message,
                required,
                options: recommended(options, property.get("default")),
                allow_freeform_input: Some(false),
            }),
        ));
    }
    let numeric = |id, title, message| ChatInputNumberQuestion {
        id,
        title,
        message,
        required,
        min: number("minimum"),
        max: number("maximum"),
        default_value: number("default"),
    };
    Some(match property.get("type").and_then(Value::as_str) {
        Some("number") => (PropertyKind::Number, ChatInputQuestion::Number(numeric(id, title, message))),
        Some("integer") => (PropertyKind::Integer, ChatInputQuestion::Integer(numeric(id, title, message))),
        Some("boolean") => {
            let default_value = property.get("default").and_then(Value::as_bool);
            let question = ChatInputBooleanQuestion { id, title, message, required, default_value };
            (PropertyKind::Boolean, ChatInputQuestion::Boolean(question))
        }
        Some(_) | None => (
            PropertyKind::Text,
            ChatInputQuestion::Text(ChatInputTextQuestion {
                id,
                title,
                message,
                required,
                format: text("format"),
                min: count("minLength"),
                max: count("maxLength"),
                default_value: text("default"),
            }),
        ),
    })
}

/// The choices of a schema: `enum` with optional `enumNames`, or `oneOf`/`anyOf` with `const` and `title`.
fn options(schema: &Value) -> Option<Vec<ChatInputOption>> {
    let option = |id: &str, label: Option<&str>| ChatInputOption {
        id: id.to_owned(),
        label: label.unwrap_or(id).to_owned(),
        description: None,
        recommended: None,
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let names = schema.get("enumNames").and_then(Value::as_array);
        let name = |at: usize| names.and_then(|names| names.get(at)?.as_str());
        let options =
            values.iter().enumerate().filter_map(|(at, value)| Some(option(value.as_str()?, name(at))));
        return Some(options.collect());
    }
    let choices = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let options = choices.iter().filter_map(|choice| {
        Some(option(choice.get("const")?.as_str()?, choice.get("title").and_then(Value::as_str)))
    });
    let options: Vec<_> = options.collect();
    (!options.is_empty()).then_some(options)
}

/// Marks the default choices.
fn recommended(mut options: Vec<ChatInputOption>, default: Option<&Value>) -> Vec<ChatInputOption> {
    let is_default = |id: &str| match default {
        Some(Value::String(value)) => value == id,
        Some(Value::Array(values)) => values.iter().any(|value| value.as_str() == Some(id)),
        Some(_) | None => false,
    };
    for option in &mut options {
        option.recommended = is_default(&option.id).then_some(true);
    }
    options
}

fn converted(kind: PropertyKind, answer: &ChatInputAnswerValue) -> Option<Value> {
    match (kind, answer) {
        (PropertyKind::Text, ChatInputAnswerValue::Text(text)) => Some(json!(text.value)),
        (PropertyKind::Integer, ChatInputAnswerValue::Number(number)) => integer(number.value),
        (PropertyKind::Number, ChatInputAnswerValue::Number(number)) => {
            number.value.is_finite().then(|| json!(number.value))
        }
        (PropertyKind::Boolean, ChatInputAnswerValue::Boolean(boolean)) => Some(json!(boolean.value)),
        (PropertyKind::One, ChatInputAnswerValue::Selected(selected)) => Some(json!(selected.value)),
        (PropertyKind::Many, ChatInputAnswerValue::SelectedMany(selected)) => Some(json!(selected.value)),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn integer(value: f64) -> Option<Value> {
    // The largest range in which every integer is a floating-point number.
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    (value.is_finite() && value.abs() <= LIMIT).then(|| json!(value.trunc() as i64))
}

#[cfg(test)]
#[path = "elicitation_tests.rs"]
mod tests;
