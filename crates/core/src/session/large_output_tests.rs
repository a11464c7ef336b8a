//! Tests of the limits on agent output, with the official reducer.

use std::cell::Cell;
use std::collections::HashMap;

use ahp::reducers::apply_action_to_chat;
use ahp_types::state::{ActiveTurn, ChatState, ToolResultContent};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::cutting::PIECE;
use super::*;
use crate::channel::ChannelUri;
use crate::session::chat_state;

thread_local! {
    static LAST_ID: Cell<u128> = const { Cell::new(0) };
}

fn next_id() -> OutputId {
    let number = LAST_ID.get() + 1;
    LAST_ID.set(number);
    OutputId::from_number(number)
}

/// A chat with a running turn, its limiter and its stored output.
struct LimitedChat {
    limiter: OutputLimiter,
    state: ChatState,
    stored: HashMap<String, Bytes>,
}

impl LimitedChat {
    fn new() -> Self {
        let mut chat = Self {
            limiter: OutputLimiter::new(next_id),
            state: chat_state(&ChannelUri::new("ahp-chat:/1"), "2026-11-15T09:00:00.000Z"),
            stored: HashMap::new(),
        };
        chat.act(json!({
            "type": "chat/turnStarted", "turnId": "t", "startedAt": "2026-11-15T09:00:05.000Z",
            "message": {"text": "hi", "origin": {"kind": "user"}},
        }));
        chat
    }

    /// Applies an action to the state. Returns the published actions.
    fn act(&mut self, mut action: Value) -> Vec<StateAction> {
        action["turnId"] = json!("t");
        let mut limited = LimitedOutput::default();
        self.limiter.limit(serde_json::from_value(action).unwrap(), &mut limited);
        for piece in limited.pieces {
            assert_eq!(piece.turn, "t");
            assert!(self.stored.insert(piece.id.uri(), piece.body).is_none(), "an id is repeated");
        }
        for action in &limited.actions {
            apply_action_to_chat(&mut self.state, action);
        }
        limited.actions
    }

    fn begin(&mut self, part: &str, kind: &str, text: &str) {
        let part = json!({"kind": kind, "id": part, "content": text});
        self.act(json!({"type": "chat/responsePart", "part": part}));
    }

    fn text(&mut self, part: &str, text: &str) {
        self.act(json!({"type": "chat/delta", "partId": part, "content": text}));
    }

    fn call(&mut self, id: &str, input: &str) {
        let mut call = json!({
            "type": "chat/toolCallStart", "toolCallId": id, "toolName": "bash", "displayName": "Bash",
        });
        self.act(call.clone());
        call["type"] = json!("chat/toolCallReady");
        call["invocationMessage"] = json!("Run");
        call["confirmed"] = json!("not-needed");
        call["toolInput"] = json!(input);
        self.act(call);
    }

    fn complete(&mut self, id: &str, mut result: Value) -> Value {
        result["success"] = json!(true);
        result["pastTenseMessage"] = json!("Ran");
        self.act(json!({"type": "chat/toolCallComplete", "toolCallId": id, "result": result}));
        let call = self.parts().into_iter().find(|part| part["toolCall"]["toolCallId"] == id);
        call.unwrap()["toolCall"].clone()
    }

    fn end(&mut self) {
        self.act(json!({"type": "chat/turnComplete", "duration": 5}));
        assert!(self.limiter.moved.is_none());
    }

    fn active(&self) -> &ActiveTurn {
        self.state.active_turn.as_ref().unwrap()
    }

    fn parts(&self) -> Vec<Value> {
        let parts = self.state.active_turn.as_ref().map(|turn| &turn.response_parts);
        let parts = parts.unwrap_or_else(|| &self.state.turns[0].response_parts);
        parts.iter().map(|part| json!(part)).collect()
    }

    /// The text of the turn, from the document and from stored output.
    fn whole_text(&self) -> String {
        let text = |part: Value| match part["kind"].as_str().unwrap() {
            "markdown" | "reasoning" if !part["id"].as_str().unwrap().starts_with("end-") => {
                part["content"].as_str().unwrap().to_owned()
            }
            "contentRef" => self.stored_text(&part["uri"]),
            _ => String::new(),
        };
        self.parts().into_iter().map(text).collect()
    }

    fn stored_text(&self, uri: &Value) -> String {
        String::from_utf8(self.stored[uri.as_str().unwrap()].to_vec()).unwrap()
    }

    /// The stored content of the resources in a result, by type.
    fn resources(&self, content: &Value, content_type: &str) -> Vec<u8> {
        let resources = content.as_array().unwrap().iter();
        let of_type =
            resources.filter(|part| part["type"] == "resource" && part["contentType"] == content_type);
        of_type.flat_map(|part| self.stored[part["uri"].as_str().unwrap()].to_vec()).collect()
    }
}

/// Text in which each line differs, so that a cut in the wrong place is noticed.
fn lines(bytes: usize) -> String {
    let mut text: String = (0..bytes / 8).map(|number| format!("ü{number:>5}\n")).collect();
    text.truncate(text.floor_char_boundary(bytes));
    text
}

#[derive(Clone, Debug)]
enum Step {
    Part(&'static str, usize),
    Delta(usize),
    Call(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || prop_oneof![0_usize..2000, 0_usize..400_000, 0_usize..3_000_000];
    let kind = prop_oneof![Just("markdown"), Just("reasoning")];
    let step = prop_oneof![
        (kind, size()).prop_map(|(kind, size)| Step::Part(kind, size)),
        size().prop_map(Step::Delta),
        size().prop_map(Step::Call),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn document_and_stored_output_together_are_complete(steps in steps()) {
        let mut chat = LimitedChat::new();
        let (mut text, mut current) = (String::new(), None);
        for (number, step) in steps.iter().enumerate() {
            let id = format!("p{number}");
            match step {
                Step::Part(kind, size) => {
                    let more = lines(*size);
                    chat.begin(&id, kind, &more);
                    text.push_str(&more);
                    current = Some((id, *kind));
                }
                Step::Delta(size) => {
                    let Some((id, kind)) = &current else { continue };
                    let more = lines(*size);
                    let name = if *kind == "markdown" { "chat/delta" } else { "chat/reasoning" };
                    chat.act(json!({"type": name, "partId": id, "content": more}));
                    text.push_str(&more);
                }
                Step::Call(size) => {
                    let output = lines(*size);
                    chat.call(&id, "ls");
                    let content = json!([{"type": "text", "text": output}]);
                    let call = chat.complete(&id, json!({"content": content}));
                    let stored = chat.resources(&call["content"], "text/plain");
                    let shown = call["content"][0]["text"].as_str().unwrap_or_default();
                    prop_assert!(stored == output.as_bytes() || (stored.is_empty() && shown == output));
                    current = None;
                }
            }
        }
        chat.end();
        prop_assert!(chat.whole_text() == text, "text was lost or reordered");
        let ends = chat.parts().into_iter().filter_map(|part| Some(part["content"].as_str()?.to_owned()));
        let mut ends = ends.filter_map(|shown| Some(shown.split_once("They end with:]\n\n")?.1.to_owned()));
        prop_assert!(ends.all(|end| !end.is_empty() && text.contains(&end)));
        prop_assert!(chat.stored.values().all(|piece| piece.len() <= PIECE && !piece.is_empty()));
        let document = serde_json::to_string(&chat.state.turns).unwrap().len();
        prop_assert!(document < 13 * (256 + 16) * 1024, "{document}");
    }
}

#[test]
fn short_output_is_published_unchanged() {
    let mut chat = LimitedChat::new();
    for action in [
        json!({"type": "chat/responsePart", "part": {"kind": "markdown", "id": "p", "content": "a"}}),
        json!({"type": "chat/delta", "partId": "p", "content": "\u{1}\"b", "_meta": {"k": 1}}),
        json!({"type": "chat/toolCallStart", "toolCallId": "c", "toolName": "b", "displayName": "B"}),
        json!({"type": "chat/toolCallDelta", "toolCallId": "c", "content": "{"}),
        json!({
            "type": "chat/toolCallReady", "toolCallId": "c", "invocationMessage": "Run", "toolInput": "{}",
            "confirmed": "not-needed",
        }),
        json!({"type": "chat/toolCallContentChanged", "toolCallId": "c", "content": [{"type": "text", "text": "x"}]}),
        json!({"type": "chat/toolCallComplete", "toolCallId": "c", "result": {
            "success": false, "pastTenseMessage": {"markdown": "Ran"}, "error": {"message": "x"},
            "content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1},
        }}),
        json!({"type": "chat/usage", "usage": {"inputTokens": 1}}),
        json!({"type": "chat/turnComplete", "duration": 5}),
    ] {
        let mut expected = action.clone();
        expected["turnId"] = json!("t");
        let published: Vec<Value> = chat.act(action).iter().map(|action| json!(action)).collect();
        assert_eq!(published, [expected]);
    }
    assert!(chat.stored.is_empty());
}

#[test]
fn long_text_is_paged_and_its_end_is_shown() {
    let mut chat = LimitedChat::new();
    chat.begin("p", "markdown", "");
    let text = lines(3 * PIECE);
    for word in text.split_inclusive('\n').collect::<Vec<_>>().chunks(1000) {
        chat.text("p", &word.concat());
    }
    let pages = |chat: &LimitedChat| chat.parts().iter().filter(|part| part["kind"] == "contentRef").count();
    assert_eq!(pages(&chat), 2, "complete pieces are published while the text continues");
    chat.call("c", "ls");
    assert_eq!(pages(&chat), 3);
    let parts = chat.parts();
    let kinds: Vec<&str> = parts.iter().map(|part| part["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["markdown", "contentRef", "contentRef", "contentRef", "markdown", "toolCall"]);
    assert_eq!(parts[1]["contentType"], "text/markdown");
    let moved: i64 = parts.iter().filter_map(|part| part["sizeHint"].as_i64()).sum();
    let end = parts[4]["content"].as_str().unwrap();
    assert!(end.starts_with(&format!("[{moved} bytes of this text are stored separately.")), "{end:.200}");
    assert!(text.ends_with(end.split_once("\n\n").unwrap().1));
    assert_eq!(chat.whole_text(), text);
}

#[test]
fn deltas_for_an_earlier_text_are_moved_too() {
    let mut chat = LimitedChat::new();
    chat.begin("a", "markdown", &"a".repeat(300_000));
    chat.begin("b", "markdown", "");
    chat.text("b", "b");
    chat.text("a", &"A".repeat(1000));
    chat.text("b", "B");
    chat.end();
    let pieces: Vec<&Bytes> = chat.stored.values().collect();
    assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), 300_000 - 256 * 1024 + 1000);
    let shown = |id: &str| {
        let part = chat.parts().into_iter().find(|part| part["id"] == id).unwrap();
        part["content"].as_str().unwrap().to_owned()
    };
    assert_eq!((shown("a").len(), shown("b").as_str()), (256 * 1024, "bB"));
}

#[test]
fn parts_of_a_large_turn_have_less_room() {
    let room = |turn_size: usize| {
        let mut limiter = OutputLimiter::new(next_id);
        limiter.begin_turn(turn_size);
        limiter.part_limit()
    };
    let sizes = [0, 8 << 20, 16 << 20].map(room);
    assert_eq!(sizes, [256 * 1024, 8 * 1024, 512]);
    let mut chat = LimitedChat::new();
    for number in 0..40 {
        let id = format!("c{number}");
        chat.call(&id, "ls");
        chat.complete(&id, json!({"content": [{"type": "text", "text": lines(300_000)}]}));
    }
    chat.begin("p", "markdown", "short answer");
    let document = serde_json::to_string(chat.active()).unwrap().len();
    assert!(document < (8 << 20) + 400_000, "{document}");
    assert_eq!(chat.parts().last().unwrap()["content"], "short answer");
    assert!(chat.limiter.turn_size.abs_diff(document) < 100_000, "{} {document}", chat.limiter.turn_size);
}

#[test]
fn control_characters_count_with_their_size_in_json() {
    let mut chat = LimitedChat::new();
    let text = "\u{1}".repeat(256 * 1024);
    chat.begin("p", "markdown", &text);
    let document = serde_json::to_string(chat.active()).unwrap().len();
    assert!(document < 257 * 1024, "{document}");
    chat.end();
    assert_eq!(chat.whole_text(), text);
}

#[test]
fn large_result_shows_start_and_end_and_refers_to_all_of_it() {
    let mut chat = LimitedChat::new();
    chat.call("c", "ls");
    let (one, two) = (lines(2 * PIECE), "the end");
    let image = vec![7; 600_000];
    let encoded = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&image)
    };
    let structured = json!({"rows": lines(500_000)});
    let call = chat.complete(
        "c",
        json!({
            "content": [
                {"type": "text", "text": one}, {"type": "text", "text": two},
                {"type": "embeddedResource", "data": encoded, "contentType": "image/png"},
                {"type": "embeddedResource", "data": "AAAA", "contentType": "image/gif"},
            ],
            "structuredContent": structured, "error": {"message": one},
        }),
    );
    let content = &call["content"];
    let shown = content[0]["text"].as_str().unwrap();
    assert!(shown.len() < 256 * 1024 && shown.starts_with("ü    0\n") && shown.ends_with("\nthe end"));
    assert!(shown.contains(" bytes omitted …]"));
    let whole = format!("{one}\n{two}");
    assert!(chat.resources(content, "text/plain") == whole.as_bytes());
    assert!(chat.resources(content, "image/png") == image);
    assert!(content.as_array().unwrap().iter().any(|part| part["data"] == "AAAA"), "small content is kept");
    let json = [structured, json!({"message": one})].map(|value| value.to_string()).concat();
    assert!(chat.resources(content, "application/json") == json.as_bytes());
    assert_eq!(call.get("structuredContent"), None);
    assert!(call["error"].as_str().unwrap().contains("bytes omitted"));
    assert!(serde_json::to_string(&call).unwrap().len() < 256 * 1024);
}

#[test]
fn file_edits_stay_in_a_large_result() {
    let mut chat = LimitedChat::new();
    let edit = |name: usize| {
        let uri = format!("file:///w/{name}");
        json!({"type": "fileEdit", "after": {"uri": uri, "content": {"uri": "innkeeper-blob:/x/a"}}, "diff": {"added": 1, "removed": 0}})
    };
    let is_edit = |content: &&Value| content["type"] == "fileEdit";
    let kept = |call: &Value| call["content"].as_array().unwrap().iter().filter(is_edit).count();
    for turn_size in [0, 9 << 20, 17 << 20] {
        chat.limiter.begin_turn(turn_size);
        let id = format!("c{turn_size}");
        chat.call(&id, "ls");
        let text = json!({"type": "text", "text": lines(500_000)});
        let call = chat.complete(&id, json!({"content": [text, edit(1), edit(2)]}));
        assert_eq!(kept(&call), 2, "{turn_size}");
        assert_eq!(call["content"][0]["type"], "text");
    }
    let many: Vec<Value> = (0..10_000).map(edit).collect();
    chat.limiter.begin_turn(0);
    chat.call("many", "ls");
    let call = chat.complete("many", json!({"content": many}));
    assert!(kept(&call) > 500 && serde_json::to_string(&call).unwrap().len() < 300 * 1024);
    let stored: Vec<Value> =
        serde_json::from_slice(&chat.resources(&call["content"], "application/json")).unwrap();
    assert_eq!(kept(&call) + stored.len(), 10_000);
}

#[test]
fn edits_of_a_pending_call_survive_a_large_input() {
    let mut chat = LimitedChat::new();
    let edits =
        json!({"items": [{"after": {"uri": "file:///w/a", "content": {"uri": "innkeeper-blob:/x/a"}}}]});
    chat.act(json!({"type": "chat/toolCallStart", "toolCallId": "c", "toolName": "b", "displayName": "B"}));
    chat.act(json!({
        "type": "chat/toolCallReady", "toolCallId": "c", "invocationMessage": "Run", "edits": edits,
        "toolInput": lines(500_000), "confirmationTitle": "Run?",
    }));
    let call = chat.parts()[0]["toolCall"].clone();
    assert_eq!((&call["edits"], &call["status"]), (&edits, &json!("pending-confirmation")));
    assert!(call["toolInput"]["uri"].is_string());
}

#[test]
fn result_with_countless_contents_stays_small() {
    let mut chat = LimitedChat::new();
    chat.call("c", "ls");
    let image = json!({"type": "embeddedResource", "data": "A".repeat(4000), "contentType": "image/png"});
    let texts = (0..100_000).map(|number| json!({"type": "text", "text": format!("{number}")}));
    let contents: Vec<Value> = texts.chain(std::iter::repeat_n(image, 1000)).collect();
    let call = chat.complete("c", json!({"content": contents}));
    assert!(serde_json::to_string(&call).unwrap().len() < 300 * 1024);
    let kept = call["content"].as_array().unwrap().iter().filter(|part| part["type"] == "embeddedResource");
    let stored: Vec<ToolResultContent> =
        serde_json::from_slice(&chat.resources(&call["content"], "application/json")).unwrap();
    let separate = chat.resources(&call["content"], "image/png").len() / 3000;
    assert_eq!(kept.count() + stored.len() + separate, 1000);
}

#[test]
fn long_input_is_stored_as_one_resource() {
    let mut chat = LimitedChat::new();
    let start = json!({"type": "chat/toolCallStart", "toolCallId": "c", "toolName": "w", "displayName": "W"});
    chat.act(start);
    let input = json!({"content": lines(2 * PIECE)}).to_string();
    let mut published = 0;
    for _ in 0..2000 {
        let delta = json!({"type": "chat/toolCallDelta", "toolCallId": "c", "content": "x".repeat(1000)});
        published += chat.act(delta).len();
    }
    assert_eq!(published, 263, "deltas without room are dropped");
    chat.act(json!({
        "type": "chat/toolCallReady", "toolCallId": "c", "invocationMessage": "x".repeat(100_000),
        "toolInput": input,
    }));
    let call = &chat.parts()[0]["toolCall"];
    assert_eq!(chat.stored_text(&call["toolInput"]["uri"]), input);
    assert_eq!(call["toolInput"]["contentType"], "application/json");
    assert!(serde_json::to_string(call).unwrap().len() < 6000);
    assert!(chat.limiter.turn_size < 6000, "{}", chat.limiter.turn_size);
}

#[test]
fn progress_of_a_running_tool_is_cut_and_not_stored() {
    let mut chat = LimitedChat::new();
    chat.call("c", "ls");
    for size in [PIECE, 2 * PIECE, 16] {
        let content = json!([{"type": "text", "text": lines(size)}, {"type": "text", "text": "other"}]);
        chat.act(json!({"type": "chat/toolCallContentChanged", "toolCallId": "c", "content": content}));
        let call = &chat.parts()[0]["toolCall"];
        let (shown, text) = (call["content"][0]["text"].as_str().unwrap(), lines(size));
        assert!(shown.starts_with("ü    0\n") && shown.ends_with(cutting::tail(&text, 5)));
        assert!(serde_json::to_string(call).unwrap().len() < 258 * 1024);
    }
    assert!(chat.stored.is_empty());
    assert!(chat.limiter.turn_size < 1000, "{}", chat.limiter.turn_size);
}
