use std::fmt::Write as _;

use ahp_types::state::ResponsePart;

use super::*;

/// Records of the fixture written by the runtime of this version.
fn records(version: &str) -> ClaudeRecords {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/session-fixture").join(version);
    ClaudeRecords::new(&BTreeMap::from([("CLAUDE_CONFIG_DIR".into(), fixture.into_os_string())]))
}

/// A turn on one line: prompt, kinds of parts, number of prompts, whether it was answered.
fn line(turn: &RecordedTurn) -> String {
    let mut line = format!("{:?} ->", turn.turn.message.text.chars().take(40).collect::<String>());
    for part in &turn.turn.response_parts {
        let kind = match part {
            ResponsePart::Markdown(part) => {
                format!("text({})", part.content.chars().take(24).collect::<String>())
            }
            ResponsePart::Reasoning(_) => "reasoning".to_owned(),
            ResponsePart::ToolCall(part) => {
                let call = serde_json::to_value(&part.tool_call).unwrap();
                format!("{}:{}", call["toolName"].as_str().unwrap(), call["status"].as_str().unwrap())
            }
            other => format!("{other:?}"),
        };
        write!(line, " {kind}").unwrap();
    }
    let prompts = turn.link.prompts.len();
    write!(line, " | {prompts} {}", if turn.link.answer.is_some() { "answered" } else { "unanswered" })
        .unwrap();
    line
}

async fn everything(version: &str) -> String {
    let records = records(version);
    let mut listed = records.list().await.unwrap();
    assert!(!listed.is_empty());
    let key = |summary: &ConversationSummary| (summary.title.clone(), summary.token.as_str().to_owned());
    listed.sort_by_key(key);
    let mut text = String::new();
    for summary in listed {
        let turns = records.read(summary.token.clone()).await.unwrap().expect("listed record is missing");
        writeln!(text, "{} {:?}", summary.directory.unwrap().display(), summary.title).unwrap();
        for turn in &turns {
            assert_eq!(turn.turn.id, turn.link.prompts[0]);
            writeln!(text, "    {}", line(turn)).unwrap();
        }
    }
    text
}

#[tokio::test]
async fn transcripts_of_both_versions_are_read_as_turns() {
    for version in ["0.2.112", "0.3.325"] {
        insta::assert_snapshot!(format!("records-{version}"), everything(version).await);
    }
}

#[tokio::test]
async fn unknown_record_is_none_and_missing_directory_lists_nothing() {
    let records = records("0.2.112");
    for token in ["00000000-0000-4000-8000-000000000000", "not a uuid", "../escape"] {
        assert!(records.read(ResumeToken::new(token)).await.unwrap().is_none());
    }
    let empty = ClaudeRecords::new(&BTreeMap::new());
    assert_eq!(empty.list().await.unwrap(), []);
}
