//! The models that an upstream offers.
//!
//! Owns the description of a model, the search by id and the names that are
//! nearest to an unknown id. Parsing an upstream's list is up to the upstream.
//! Pure; every list has a bounded size.

use std::cmp::Reverse;

use crate::model_id::ModelId;

/// Most models of a list; the services have fewer than a hundred.
const MAX_MODELS: usize = 500;

/// Longest id, name or vendor in characters; longer ones are cut off.
const MAX_TEXT: usize = 200;

/// Number of models that are named for an unknown id.
const NEAREST: usize = 3;

/// A model that an upstream offers. Values that the upstream does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamModel {
    /// The id as clients spell it.
    pub id: String,
    /// The id as the upstream spells it.
    pub upstream_id: String,
    /// The name for users.
    pub name: String,
    /// The company that made the model.
    pub vendor: Option<String>,
    /// Tokens of a conversation with its answer.
    pub context_window: Option<u64>,
    /// Most tokens of a request.
    pub max_prompt_tokens: Option<u64>,
    /// Most tokens of an answer.
    pub max_output_tokens: Option<u64>,
    /// Whether the model reads images.
    pub vision: Option<bool>,
    /// The effort levels that can be selected, lowest first; empty if none can.
    pub efforts: Option<Vec<String>>,
    /// How many of the account's premium requests a request counts as.
    pub multiplier: Option<f64>,
    /// Whether the account's policy allows the model.
    pub policy: Option<ModelPolicy>,
}

/// Whether an account may use a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPolicy {
    /// The model can be used.
    Enabled,
    /// The model was disabled for the account.
    Disabled,
    /// The terms of the model were not accepted yet.
    Unconfigured,
}

/// What an upstream does with models that it does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlistedModels {
    /// It rejects them.
    Rejected,
    /// It accepts ids that begin with `claude-`.
    ClaudeIds,
}

/// The models of one account at an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelList {
    models: Vec<UpstreamModel>,
    unlisted: UnlistedModels,
}

/// A model id that is neither listed nor accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownModel {
    /// The nearest ids of the list, best first.
    pub nearest: Vec<String>,
}

impl ModelList {
    /// Creates a list. Repeated ids, and models beyond the limit, are dropped.
    pub fn new(models: impl IntoIterator<Item = UpstreamModel>, unlisted: UnlistedModels) -> Self {
        let mut kept: Vec<UpstreamModel> = Vec::new();
        for mut model in models {
            if kept.len() == MAX_MODELS {
                break;
            }
            let is_usable = !model.id.is_empty() && model.id.chars().count() <= MAX_TEXT;
            if is_usable && !kept.iter().any(|other| other.id == model.id) {
                model.name = shortened(&model.name);
                model.vendor = model.vendor.as_deref().map(shortened);
                kept.push(model);
            }
        }
        Self { models: kept, unlisted }
    }

    /// The models in the order of the upstream.
    pub fn models(&self) -> &[UpstreamModel] {
        &self.models
    }

    /// Finds the model for an id in any spelling. `Ok(None)` means that the id is not listed but
    /// accepted. A list without models says nothing, so any id is accepted.
    pub fn find(&self, asked: &str) -> Result<Option<&UpstreamModel>, UnknownModel> {
        let asked = asked.trim();
        let exact = |model: &&UpstreamModel| {
            [&model.id, &model.upstream_id].iter().any(|id| id.eq_ignore_ascii_case(asked))
        };
        if let Some(model) = self.models.iter().find(exact) {
            return Ok(Some(model));
        }
        let wanted = ModelId::parse(asked);
        let parsed = |model: &UpstreamModel| ModelId::parse(&model.id);
        if let Some(wanted) = &wanted {
            let same = self.models.iter().find(|model| parsed(model).as_ref() == Some(wanted));
            let base =
                || self.models.iter().find(|model| parsed(model).is_some_and(|id| id.is_base_of(wanted)));
            if let Some(model) = same.or_else(base) {
                return Ok(Some(model));
            }
        }
        let accepts = match self.unlisted {
            UnlistedModels::ClaudeIds => asked.len() > "claude-".len() && asked.starts_with("claude-"),
            UnlistedModels::Rejected => false,
        };
        if accepts || self.models.is_empty() {
            return Ok(None);
        }
        Err(UnknownModel { nearest: self.nearest(asked, wanted.as_ref()) })
    }

    fn nearest(&self, asked: &str, wanted: Option<&ModelId>) -> Vec<String> {
        let asked = asked.to_ascii_lowercase();
        let mut ranked: Vec<_> = self
            .models
            .iter()
            .map(|model| {
                let parsed = ModelId::parse(&model.id);
                let version_gap = wanted.zip(parsed.as_ref()).and_then(|(wanted, id)| wanted.version_gap(id));
                let likeness = likeness(&asked, &model.id.to_ascii_lowercase());
                // Models of the same family first, nearest version first.
                let rank = (
                    version_gap.is_none(),
                    version_gap.unwrap_or_default(),
                    Reverse(likeness),
                    model.id.len(),
                );
                (rank, &model.id)
            })
            .collect();
        ranked.sort();
        ranked.into_iter().take(NEAREST).map(|(_, id)| id.clone()).collect()
    }
}

/// How alike two ids are: the number of pairs of neighbouring letters that both have.
fn likeness(one: &str, other: &str) -> usize {
    let mut pairs: Vec<&[u8]> = other.as_bytes().windows(2).collect();
    let mut common = 0;
    for pair in one.as_bytes().windows(2) {
        if let Some(at) = pairs.iter().position(|candidate| *candidate == pair) {
            pairs.swap_remove(at);
            common += 1;
        }
    }
    common
}

/// A text of the upstream, on one line and of bounded length.
fn shortened(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
#[path = "model_list_tests.rs"]
mod tests;
