use std::sync::Arc;

use proptest::prelude::*;
use tokio::io::{AsyncWriteExt, duplex};

use super::*;
use crate::control::Control;
use crate::runtime::RuntimeEvent;
use crate::wire::Message;

fn intake() -> Intake {
    Intake::new(Arc::new(Control::new(Arc::new(ByteQueue::new(1024)))))
}

/// Decodes a stream that arrives in these chunks; returns the messages encoded again.
async fn messages(chunks: &[&[u8]]) -> Vec<String> {
    let intake = intake();
    let (mut writer, reader) = duplex(16);
    let write = async {
        for chunk in chunks {
            writer.write_all(chunk).await.unwrap();
        }
        drop(writer);
    };
    let (end, ()) = tokio::join!(read_messages(reader, &intake), write);
    assert!(matches!(end, ReadEnd::Closed));
    std::iter::from_fn(|| intake.inbox.try_pop())
        .map(|event| {
            let RuntimeEvent::Message(message) = event else { panic!("{event:?}") };
            serde_json::to_string::<Message>(&message).unwrap()
        })
        .collect()
}

#[tokio::test]
async fn noise_blank_lines_and_partial_line_are_skipped() {
    let stream =
        b"hello\n\n{\"type\":\"keep_alive\"}\n\xff\xfe{}\n[1]\n{\"type\":\"x\",\"a\":1}\r\n{\"type\":\"resu";
    assert_eq!(messages(&[stream]).await, [r#"{"type":"keep_alive"}"#, r#"{"type":"x","a":1}"#]);
}

#[tokio::test]
async fn only_the_tail_of_a_stream_is_kept() {
    let (tail, (mut writer, reader)) = (Tail::default(), duplex(1000));
    let text = format!("{}the end\n", "x".repeat(3 * TAIL_LIMIT));
    let write = async {
        writer.write_all(text.as_bytes()).await.unwrap();
        drop(writer);
    };
    tokio::join!(read_tail(reader, &tail), write);
    assert_eq!(tail.0.lock().unwrap().len(), TAIL_LIMIT);
    assert!(tail.text().ends_with("xthe end"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunking_does_not_change_the_messages(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream = "{\"type\":\"system\",\"subtype\":\"status\",\"status\":\"ä\u{1f600}\"}\nnoise é\n\
            {\"uuid\":\"1\",\"type\":\"result\",\"result\":\"a\\nb\"}\n{\"type\":\"new_kind\",\"x\":[1,2]}\n"
            .as_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (chunked, whole) = runtime.block_on(async { (messages(&chunks).await, messages(&[stream]).await) });
        prop_assert_eq!(whole.len(), 3);
        prop_assert_eq!(chunked, whole);
    }
}
