//! The kind of a tool call that waits for the user.
//!
//! VS Code ignores the options of a waiting call of the kind `terminal` and shows its own
//! two buttons. The kind is therefore kept under another key until the call is answered.
//! Reducers replace the metadata of a call, so each action here has all of it.

use ahp_types::common::JsonObject;

const KIND: &str = "toolKind";
const KEPT_KIND: &str = "innkeeper.toolKind";

/// Hides the kind of a call that waits.
pub(super) fn hide(meta: &mut JsonObject) {
    if let Some(kind) = meta.remove(KIND) {
        meta.insert(KEPT_KIND.to_owned(), kind);
    }
}

/// The metadata of an answered call, if its kind was hidden.
pub(super) fn shown(meta: Option<&JsonObject>) -> Option<JsonObject> {
    let mut meta = meta?.clone();
    let kind = meta.remove(KEPT_KIND)?;
    meta.insert(KIND.to_owned(), kind);
    Some(meta)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: &serde_json::Value) -> JsonObject {
        value.as_object().unwrap().clone().into_iter().collect()
    }

    #[test]
    fn kind_is_hidden_until_call_is_answered() {
        let all = object(&json!({"toolKind": "terminal", "other": 1}));
        let mut meta = all.clone();
        hide(&mut meta);
        let hidden = object(&json!({"innkeeper.toolKind": "terminal", "other": 1}));
        assert_eq!(meta, hidden);
        hide(&mut meta);
        assert_eq!(meta, hidden, "a second request changes nothing");
        assert_eq!(shown(Some(&meta)), Some(all));
    }

    #[test]
    fn call_without_hidden_kind_keeps_its_metadata() {
        assert_eq!(shown(None), None);
        assert_eq!(shown(Some(&object(&json!({"toolKind": "read"})))), None);
    }
}
