use proptest::prelude::*;
use serde_json::Value;

use super::*;

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-opus-4.6\",\"usage\":{\"input_tokens\":3}}}\n\n";
const REST: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n: comment\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\u{e4}llo\"}}\n\nevent: unheard_of\ndata: anything\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn options() -> RelayOptions {
    RelayOptions {
        request_id: "req_1".to_owned(),
        name_model: Some(Arc::new(|id: &str| {
            (id == "claude-opus-4.6").then(|| "claude-opus-4-6".to_owned())
        })),
        secret: Some("sesame".to_owned().into()),
    }
}

/// The output when the upstream sends these chunks and ends.
fn relayed(chunks: &[&[u8]]) -> (Vec<Bytes>, Closing) {
    let mut relay = Relay::new(options());
    let mut out = Vec::new();
    for chunk in chunks {
        relay.push(&Bytes::copy_from_slice(chunk));
        out.extend(std::iter::from_fn(|| relay.pop()));
    }
    relay.end(None);
    out.extend(std::iter::from_fn(|| relay.pop()));
    (out, relay.closing().unwrap().clone())
}

fn joined(chunks: &[Bytes]) -> String {
    String::from_utf8_lossy(&chunks.concat()).into_owned()
}

fn whole() -> String {
    format!("{START}{REST}{STOP}")
}

fn renamed(text: &str) -> String {
    text.replace("claude-opus-4.6", "claude-opus-4-6")
}

/// The event names in a text.
fn names(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

#[test]
fn only_model_in_message_start_is_changed() {
    let (out, closing) = relayed(&[whole().as_bytes()]);
    assert_eq!((joined(&out), closing), (renamed(&whole()), Closing::Complete));
}

#[test]
fn unchanged_chunk_is_passed_on_without_copy() {
    let mut relay = Relay::new(options());
    relay.push(&Bytes::from_static(START.as_bytes()));
    while relay.pop().is_some() {}
    let chunk = Bytes::from(REST);
    relay.push(&chunk);
    let out = relay.pop().unwrap();
    assert_eq!((out.as_ptr(), out.len()), (chunk.as_ptr(), chunk.len()));
    assert!(relay.pop().is_none());
}

#[test]
fn bytes_after_message_stop_are_dropped() {
    let text = format!("{}event: more\ndata: x\n\n", whole());
    assert_eq!(joined(&relayed(&[text.as_bytes()]).0), renamed(&whole()));
}

#[test]
fn stream_without_message_stop_ends_with_one_error_event() {
    for cut in [START.len(), START.len() + 50, START.len() + REST.len(), whole().len() - 1] {
        let text = &whole().into_bytes()[..cut];
        let (out, closing) = relayed(&[text]);
        let out = joined(&out);
        assert_eq!(names(&out).iter().filter(|name| **name == "error").count(), 1, "{out}");
        assert_eq!(names(&out).last(), Some(&"error"));
        assert!(!names(&out).contains(&"message_stop"));
        let Closing::Failed { error, object } = closing else { panic!("not failed") };
        assert_eq!(error.status().as_u16(), 502);
        let object: Value = serde_json::from_slice(&object).unwrap();
        assert_eq!((&object["type"], &object["request_id"]), (&Value::from("error"), &Value::from("req_1")));
    }
}

#[test]
fn upstream_error_event_is_passed_on_unchanged_and_ends_stream() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"},\"extra\":1}\n\n";
    let (out, closing) = relayed(&[format!("{START}{error}{STOP}").as_bytes()]);
    assert_eq!(joined(&out), renamed(&format!("{START}{error}")));
    let Closing::Failed { error, .. } = closing else { panic!("not failed") };
    assert_eq!((error.kind(), error.message()), ("overloaded_error", "busy"));
}

#[test]
fn malformed_upstream_error_is_rewritten() {
    for (data, kind, message) in [
        ("{\"error\":\"plain\"}", "api_error", "plain"),
        ("{\"type\":\"error\",\"error\":{\"message\":\"no type\"}}", "api_error", "no type"),
        (
            "{\"type\":\"error\",\"error\":{\"type\":\"x_error\"}}",
            "x_error",
            "the upstream reported an error",
        ),
        (
            "{\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"it was sesame\"}}",
            "x",
            "it was [redacted]",
        ),
    ] {
        let (out, _) = relayed(&[format!("{START}event: error\ndata: {data}\n\n").as_bytes()]);
        let out = joined(&out);
        let data = out
            .lines()
            .last()
            .map(|_| out.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap());
        let object: Value = serde_json::from_str(data.unwrap()).unwrap();
        assert_eq!((&object["error"]["type"], &object["error"]["message"]), (&kind.into(), &message.into()));
    }
}

#[test]
fn error_before_first_event_leaves_status_undecided() {
    let mut relay = Relay::new(options());
    relay.push(&Bytes::from_static(b": hello\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"a\",\"message\":\"b\"}}\n\n"));
    assert!(!relay.has_begun() && relay.closing().is_some());
    let mut relay = Relay::new(options());
    relay.push(&Bytes::from_static(b": hello\n\n"));
    assert!(!relay.has_begun());
    relay.push(&Bytes::from_static(b"event: ping\ndata: {}\n\n"));
    assert!(relay.has_begun());
}

#[test]
fn oversized_event_ends_stream_for_any_chunking() {
    let large = format!("event: content_block_delta\ndata: {}\n\n", "x".repeat(MAX_EVENT));
    let text = format!("{START}{large}{STOP}");
    let at_once = relayed(&[text.as_bytes()]);
    let (first, second) = text.as_bytes().split_at(1000);
    let in_two = relayed(&[first, second]);
    assert_eq!((joined(&at_once.0), &at_once.1), (joined(&in_two.0), &in_two.1));
    assert_eq!(names(&joined(&at_once.0)), ["message_start", "error"]);
}

#[test]
fn all_line_endings_are_preserved() {
    for ending in ["\r\n", "\r", "\n"] {
        let text = whole().replace('\n', ending);
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        let (out, closing) = relayed(&chunks);
        assert_eq!((joined(&out), closing), (renamed(&text), Closing::Complete), "{ending:?}");
    }
}

fn cut<'a>(text: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_change_output_bytes(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        length in any::<prop::sample::Index>(),
    ) {
        let text = whole().replace('\n', ending).into_bytes();
        let text = &text[..length.index(text.len() + 1)];
        let (at_once, closing) = relayed(&[text]);
        let (in_chunks, closing_in_chunks) = relayed(&cut(text, &cuts));
        prop_assert_eq!(joined(&at_once), joined(&in_chunks));
        prop_assert_eq!(closing, closing_in_chunks);
    }

    #[test]
    fn corrupted_stream_does_not_panic_or_complete_falsely(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut text = whole().into_bytes();
        for (place, byte) in &changes {
            let place = place.index(text.len());
            text[place] = *byte;
        }
        let (out, closing) = relayed(&cut(&text, &cuts));
        let out = out.concat();
        let count = |name: &[u8]| memchr::memmem::find_iter(&out, name).count();
        match closing {
            // A complete stream has an intact start and stop and no error.
            Closing::Complete => {
                let is_stop = |event: &[u8]| {
                    serde_json::from_slice::<Value>(&EventFields::read(event).data().unwrap_or_default())
                        .is_ok_and(|data| data["type"] == "message_stop")
                };
                let mut scanner = EventScanner::default();
                let (mut from, mut last) = (0, 0);
                while let Some(length) = scanner.next_end(&out[from..]) {
                    last = from;
                    from += length;
                }
                prop_assert!(is_stop(&out[last..]), "{}", String::from_utf8_lossy(&out));
                prop_assert!(count(b"\"message_start\"") >= 1);
            }
            Closing::Failed { .. } => {
                prop_assert_eq!(count(b"event: error\n"), 1);
                prop_assert!(out.ends_with(b"\n\n"));
                prop_assert!(memchr::memmem::rfind(&out, b"\nevent: error\n").is_some() || out.starts_with(b"event: error\n"));
            }
        }
    }
}
