use super::*;

fn model(id: &str) -> UpstreamModel {
    UpstreamModel { id: id.to_owned(), upstream_id: id.to_owned(), ..UpstreamModel::default() }
}

fn list(unlisted: UnlistedModels) -> ModelList {
    let mut sonnet = model("claude-sonnet-4-6");
    sonnet.upstream_id = "claude-sonnet-4.6".to_owned();
    let ids =
        ["claude-opus-4-5", "claude-opus-4-7", "claude-opus-4-7-high", "claude-haiku-4-5", "house-model-x"];
    ModelList::new([sonnet].into_iter().chain(ids.map(model)), unlisted)
}

fn found(list: &ModelList, asked: &str) -> Option<String> {
    list.find(asked).unwrap().map(|model| model.id.clone())
}

fn nearest(asked: &str) -> Vec<String> {
    list(UnlistedModels::Rejected).find(asked).unwrap_err().nearest
}

#[test]
fn model_is_found_in_every_spelling() {
    for (asked, expected) in [
        ("claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("Claude-Sonnet-4.6", "claude-sonnet-4-6"),
        (" claude-sonnet-4-6-20260101 ", "claude-sonnet-4-6"),
        ("claude-sonnet-4-6[1m]", "claude-sonnet-4-6"),
        ("claude-opus-4-7-high", "claude-opus-4-7-high"),
        ("claude-opus-4-7-low", "claude-opus-4-7"),
        ("House-Model-X", "house-model-x"),
    ] {
        assert_eq!(found(&list(UnlistedModels::Rejected), asked).as_deref(), Some(expected), "{asked}");
    }
}

#[test]
fn unknown_id_is_rejected_with_nearest_ids() {
    assert_eq!(nearest("claude-opus-5-5"), ["claude-opus-4-7", "claude-opus-4-7-high", "claude-opus-4-5"]);
    assert_eq!(nearest("claude-haiku-5"), ["claude-haiku-4-5", "claude-opus-4-5", "claude-opus-4-7-high"]);
    assert_eq!(nearest("haus-model-y")[0], "house-model-x");
    assert_eq!(nearest("gpt-99").len(), 3);
    assert_eq!(nearest("").len(), 3);
}

#[test]
fn unlisted_claude_id_is_accepted_where_upstream_accepts_it() {
    let list = list(UnlistedModels::ClaudeIds);
    assert_eq!(found(&list, "claude-sonnet-9-9"), None);
    assert!(list.find("claude-").is_err());
    assert!(list.find("gpt-99").is_err());
}

#[test]
fn list_without_models_accepts_every_id() {
    let list = ModelList::new([], UnlistedModels::Rejected);
    assert_eq!(list.find("gpt-99"), Ok(None));
}

#[test]
fn size_of_list_and_texts_is_bounded() {
    let mut long = model("claude-long-1");
    long.name = format!("two\nlines{}", "x".repeat(1000));
    let repeated = std::iter::repeat_n(model("claude-same-1"), 3);
    let many = (0..1000).map(|number| model(&format!("claude-many-{number}")));
    let unusable = [model(""), model(&"x".repeat(201))];
    let models = [long].into_iter().chain(repeated).chain(unusable).chain(many);
    let list = ModelList::new(models, UnlistedModels::Rejected);
    assert_eq!(list.models().len(), MAX_MODELS);
    assert_eq!(list.models()[0].name.len(), MAX_TEXT);
    assert!(list.models()[0].name.starts_with("twolines"));
    assert_eq!(list.models()[1].id, "claude-same-1");
    assert_eq!(list.models()[2].id, "claude-many-0");
}
