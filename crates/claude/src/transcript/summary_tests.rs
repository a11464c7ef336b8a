use super::*;

fn whole(text: &str) -> Window<'_> {
    Window { head: text.as_bytes(), tail: text.as_bytes(), tail_start: 0 }
}

const PROMPT: &str = r#"{"parentUuid":null,"type":"user","message":{"content":"hello"},"cwd":"/w","timestamp":"2026-11-15T08:41:12.784Z","gitBranch":"main"}"#;

fn findings(lines: &[&str]) -> Option<Findings> {
    Findings::of(whole(&[&[PROMPT], lines].concat().join("\n")), Sidecars::default())
}

#[test]
fn user_title_wins_over_generated_title_and_later_over_earlier() {
    let found = findings(&[
        r#"{"type":"custom-title","customTitle":"old"}"#,
        r#"{"type":"custom-title","customTitle":"new"}"#,
        r#"{"type":"ai-title","aiTitle":"made up"}"#,
        r#"{"type":"last-prompt","lastPrompt":"later"}"#,
    ]);
    let found = found.unwrap();
    assert_eq!((found.summary.as_str(), found.title.as_deref()), ("new", Some("new")));
    assert_eq!(found.created_at, parse_time("2026-11-15T08:41:12.784Z"));
    assert_eq!((found.cwd.as_deref(), found.git_branch.as_deref()), (Some("/w"), Some("main")));
}

#[test]
fn summary_falls_back_to_last_prompt_then_summary_then_first_prompt() {
    let summary = |lines: &[&str]| findings(lines).unwrap().summary;
    let (last, note) =
        (r#"{"type":"last-prompt","lastPrompt":"later"}"#, r#"{"summary":"short","type":"summary"}"#);
    assert_eq!(summary(&[note, last]), "later");
    assert_eq!(summary(&[note]), "short");
    assert_eq!(summary(&[]), "hello");
}

#[test]
fn sidecar_title_ranks_between_tail_and_head() {
    let title = r#"{"type":"custom-title","customTitle":"in the file"}"#;
    let text = format!("{PROMPT}\n{title}\n");
    let beside = || Sidecars { title: Some("beside".into()), archived: None };
    assert_eq!(Findings::of(whole(&text), beside()).unwrap().summary, "in the file");
    let window = Window { head: text.as_bytes(), tail: b"{}\n{}", tail_start: 1 << 20 };
    assert_eq!(Findings::of(window, beside()).unwrap().summary, "beside");
    assert_eq!(Findings::of(window, Sidecars::default()).unwrap().summary, "in the file");
}

#[test]
fn last_tag_wins_even_if_empty() {
    let tag = |lines: &[&str]| findings(lines).unwrap().tag;
    assert_eq!(tag(&[r#"{"type":"tag","tag":"a"}"#, r#"{"type":"tag","tag":"b"}"#]).as_deref(), Some("b"));
    assert_eq!(tag(&[r#"{"type":"tag","tag":"a"}"#, r#"{"type":"tag","tag":""}"#]), None);
}

#[test]
fn truncated_or_corrupt_note_is_skipped() {
    let found = findings(&[
        r#"{"type":"custom-title","customTitle":"good"}"#,
        r#"{"type":"custom-title","customTitle":7}"#,
        r#"{"type":"custom-title","customTi"#,
    ]);
    assert_eq!(found.unwrap().summary, "good");
}

#[test]
fn line_cut_by_the_window_is_not_read() {
    let tail =
        format!("{}\n{{\"type\":\"tag\",\"tag\":\"x\"}}", r#"{"type":"custom-title","customTitle":"cut"}"#);
    let window = Window { head: PROMPT.as_bytes(), tail: tail.as_bytes(), tail_start: 1 << 20 };
    let found = Findings::of(window, Sidecars::default()).unwrap();
    assert_eq!((found.summary.as_str(), found.tag.as_deref()), ("hello", Some("x")));
}

#[test]
fn subagents_and_transcripts_without_a_prompt_are_not_listed() {
    assert_eq!(
        Findings::of(
            whole(r#"{"isSidechain":true,"type":"user","message":{"content":"x"}}"#),
            Sidecars::default()
        ),
        None
    );
    assert_eq!(Findings::of(whole("{\"type\":\"queue-operation\"}\n"), Sidecars::default()), None);
    assert_eq!(Findings::of(whole(""), Sidecars::default()), None);
}

#[test]
fn prompt_after_archiving_unarchives_the_conversation() {
    let archived = |since: &str| {
        let sidecars = Sidecars { title: None, archived: Some((true, since.into())) };
        Findings::of(whole(PROMPT), sidecars).unwrap().archived
    };
    assert_eq!(archived("2026-11-15T09:00:00Z"), Some(true));
    assert_eq!(archived("2026-11-15T08:00:00Z"), Some(false));
}

#[test]
fn strings_are_unescaped_and_unterminated_string_is_none() {
    assert_eq!(json_string(br#""a\"\\" rest"#).as_deref(), Some("a\"\\"));
    assert_eq!(json_string(br#""abc"#), None);
    assert_eq!(json_string(b"\"a\\"), None);
}
