use proptest::prelude::*;

use super::*;

#[test]
fn parses_every_known_spelling() {
    for (text, client, endpoint) in [
        ("claude-opus-4-6", "claude-opus-4-6", "claude-opus-4.6"),
        ("claude-3-5-sonnet", "claude-sonnet-3-5", "claude-sonnet-3.5"),
        ("claude-sonnet-4.6", "claude-sonnet-4-6", "claude-sonnet-4.6"),
        ("claude-3.5-sonnet", "claude-sonnet-3-5", "claude-sonnet-3.5"),
        ("claude-sonnet-4", "claude-sonnet-4", "claude-sonnet-4"),
        ("claude-3-opus", "claude-opus-3", "claude-opus-3"),
        ("sonnet", "sonnet", "sonnet"),
        ("Claude-Opus-4-6", "claude-opus-4-6", "claude-opus-4.6"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", "claude-sonnet-4.5"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4", "claude-sonnet-4"),
        ("claude-3-5-sonnet-20241022", "claude-sonnet-3-5", "claude-sonnet-3.5"),
        ("claude-opus-4-6-1m", "claude-opus-4-6-1m", "claude-opus-4.6-1m"),
        ("claude-opus-4-6[1m]", "claude-opus-4-6-1m", "claude-opus-4.6-1m"),
        ("claude-opus-4-6-20260101[1m]", "claude-opus-4-6-1m", "claude-opus-4.6-1m"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5", "claude-sonnet-4.5"),
        ("claude-opus-4.7-high", "claude-opus-4-7", "claude-opus-4.7"),
        ("claude-3.7-sonnet-thought", "claude-sonnet-3-7", "claude-sonnet-3.7"),
    ] {
        let id = ModelId::parse(text).unwrap_or_else(|| panic!("cannot parse {text}"));
        assert_eq!((id.client_form().as_str(), id.endpoint_form().as_str()), (client, endpoint), "{text}");
    }
}

#[test]
fn rejects_other_ids() {
    for text in [
        "",
        " ",
        "gpt-5",
        "claude-",
        "claude-sonnet",
        "claude-sonnet-four",
        "claude-opus-4-6-",
        "claude-opus-4.6.1",
        "claude-opus-123",
        "claude-20250514",
        "claude-opus-4 6",
        "claude-opus-4-6\n\u{7}",
        "../models",
        "[1m]",
        "clüde",
    ] {
        assert_eq!(ModelId::parse(text), None, "{text:?}");
    }
    assert_eq!(ModelId::parse(&"a".repeat(MAX_LENGTH + 1)), None);
}

#[test]
fn exact_client_form_keeps_modifiers() {
    assert_eq!(ModelId::parse("claude-opus-4.7-high").unwrap().exact_client_form(), "claude-opus-4-7-high");
}

proptest! {
    #[test]
    fn parsing_any_text_does_not_panic(text in ".{0,64}") {
        ModelId::parse(&text);
    }

    #[test]
    fn both_forms_parse_to_the_same_model(family in "[a-z]{1,8}", major in "[1-9][0-9]?", minor in proptest::option::of("[0-9]{1,2}"), long in any::<bool>()) {
        let minor = minor.map(|minor| format!("-{minor}")).unwrap_or_default();
        let mark = if long { "[1m]" } else { "" };
        let id = ModelId::parse(&format!("claude-{family}-{major}{minor}{mark}")).unwrap();
        for form in [id.client_form(), id.endpoint_form()] {
            let again = ModelId::parse(&form).unwrap();
            prop_assert_eq!(again.client_form(), id.client_form());
            prop_assert_eq!(again.endpoint_form(), id.endpoint_form());
        }
    }
}
