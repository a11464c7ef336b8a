//! Parsing and formatting of model ids.

use innkeeper_gateway::ModelId;

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "model-id",
    run: model_id,
    seeds: || Ok(MODELS.map(Vec::from).to_vec()),
    words: MODEL_WORDS,
};

/// Both formats of a parsed id parse to the same model.
fn model_id(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Some(id) = ModelId::parse(&text) else { return };
    let forms = (id.client_form(), id.endpoint_form());
    for form in [&forms.0, &forms.1] {
        let again = ModelId::parse(form).map(|id| (id.client_form(), id.endpoint_form()));
        assert_eq!(again.as_ref(), Some(&forms), "{text:?} is formatted as {form:?}");
    }
}

const MODELS: [&str; 6] = [
    "claude-opus-4-6",
    "claude-opus-4.6-1m",
    "claude-sonnet-4-5-20250929[1m]",
    "claude-3.7-sonnet-thought",
    "claude-3-opus",
    "Sonnet",
];

const MODEL_WORDS: &[&str] = &[
    "claude-",
    "opus",
    "sonnet",
    "haiku",
    "-",
    ".",
    "[1m]",
    "-1m",
    "1m",
    "4",
    "4.6",
    "4-6",
    "3-5-",
    "-20250929",
    "-high",
    "-thought",
    "default",
    "_",
    " ",
    "\u{a0}",
];
