//! Checks responses that are not streamed.
//!
//! Covers what clients read from a message, an error, a model list and a token
//! count. Each function returns the defects as text; unknown fields and block
//! types are not defects.

use serde_json::{Map, Value};

use crate::block;
use crate::excerpt::excerpt;

/// The parts of an error object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ErrorParts<'a> {
    pub(super) kind: &'a str,
    pub(super) message: &'a str,
}

/// Parses an error object.
pub(super) fn error_object(object: &Map<String, Value>) -> Result<ErrorParts<'_>, String> {
    if object.get("type").and_then(Value::as_str) != Some("error") {
        return Err(format!("`type` is {}, not \"error\"", shown(object.get("type"))));
    }
    let error = object.get("error").and_then(Value::as_object);
    let error = error.ok_or_else(|| format!("`error` is {}, not an object", shown(object.get("error"))))?;
    match (filled(error, "type"), filled(error, "message")) {
        (Some(kind), Some(message)) => Ok(ErrorParts { kind, message }),
        (None, _) => Err("no `error.type`".to_owned()),
        (Some(_), None) => Err("no `error.message`".to_owned()),
    }
}

/// Defects of the fields that a message has from its start.
pub(super) fn message_head(message: &Map<String, Value>) -> Vec<String> {
    let mut faults = Vec::new();
    for (field, expected) in [("type", "message"), ("role", "assistant")] {
        if message.get(field).and_then(Value::as_str) != Some(expected) {
            faults.push(format!("`{field}` is {}, not \"{expected}\"", shown(message.get(field))));
        }
    }
    for field in ["id", "model"] {
        if filled(message, field).is_none() {
            faults.push(format!("no `{field}`"));
        }
    }
    faults
}

/// Defects of a complete message.
pub(super) fn message(value: &Value) -> Vec<String> {
    let Some(message) = value.as_object() else { return vec!["not an object".to_owned()] };
    let mut faults = message_head(message);
    match message.get("content").and_then(Value::as_array) {
        None => faults.push("no `content` list".to_owned()),
        Some(blocks) => faults.extend(blocks.iter().filter_map(content_fault)),
    }
    if filled(message, "stop_reason").is_none() {
        faults.push(format!("`stop_reason` is {}", shown(message.get("stop_reason"))));
    }
    if message.get("stop_sequence").is_some_and(|value| !value.is_null() && !value.is_string()) {
        faults.push(format!("`stop_sequence` is {}", shown(message.get("stop_sequence"))));
    }
    for counter in ["input_tokens", "output_tokens"] {
        let value = message.get("usage").and_then(|usage| usage.get(counter));
        if value.and_then(Value::as_u64).is_none() {
            faults.push(format!("`usage.{counter}` is {}", shown(value)));
        }
    }
    faults
}

/// Defects of a model list.
pub(super) fn models(value: &Value) -> Vec<String> {
    let Some(list) = value.get("data").and_then(Value::as_array) else {
        return vec!["no `data` list".to_owned()];
    };
    let mut faults = Vec::new();
    for (index, model) in list.iter().enumerate() {
        let Some(object) = model.as_object() else {
            faults.push(format!("`data[{index}]` is not an object"));
            continue;
        };
        if object.get("type").and_then(Value::as_str) != Some("model") {
            faults.push(format!("`data[{index}].type` is {}, not \"model\"", shown(object.get("type"))));
        }
        for field in ["id", "display_name", "created_at"] {
            if filled(object, field).is_none() {
                faults.push(format!("no `data[{index}].{field}`"));
            }
        }
    }
    if !value.get("has_more").is_some_and(Value::is_boolean) {
        faults.push(format!("`has_more` is {}", shown(value.get("has_more"))));
    }
    for (field, model) in [("first_id", list.first()), ("last_id", list.last())] {
        let expected = model.and_then(|model| model.get("id"));
        if value.get(field).filter(|id| !id.is_null()) != expected {
            faults.push(format!("`{field}` is {}, not {}", shown(value.get(field)), shown(expected)));
        }
    }
    faults
}

/// The id of the first model in a list.
pub(super) fn first_model(value: &Value) -> Option<&str> {
    value.get("data")?.get(0)?.get("id")?.as_str()
}

/// Defects of a token count.
pub(super) fn token_count(value: &Value) -> Vec<String> {
    let count = value.get("input_tokens");
    if count.and_then(Value::as_u64).is_some_and(|count| count > 0) {
        return Vec::new();
    }
    vec![format!("`input_tokens` is {}", shown(count))]
}

fn content_fault(block: &Value) -> Option<String> {
    let Some(object) = block.as_object() else { return Some("content block is not an object".to_owned()) };
    let Some(name) = filled(object, "type") else { return Some("content block without a type".to_owned()) };
    if let Some(fault) = block::shape_fault(name, object) {
        return Some(fault);
    }
    let lacks_input = name == "tool_use" && !object.get("input").is_some_and(Value::is_object);
    lacks_input.then(|| "tool_use block whose `input` is not an object".to_owned())
}

/// The value of a non-empty text field.
fn filled<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "missing".to_owned(), |value| excerpt(&value.to_string()))
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
