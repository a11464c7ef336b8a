//! The wire log with a file, and with a blocked disk.

use std::sync::mpsc;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::state::{Outbox, StateStore};
use serde_json::{Value, json};

use super::*;

fn connection() -> ConnectionId {
    let root = serde_json::from_value(json!({"agents": []})).unwrap();
    StateStore::new(root).attach(Arc::new(Outbox::default()))
}

fn entries(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn frames_are_written_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wire.jsonl");
    std::fs::write(&path, "").unwrap();
    let log = WireLog::open(&path, Some("sesame"), Arc::new(SystemClock)).unwrap();
    let connection = connection();
    let frames = [
        (Direction::In, r#"{"id":1,"method":"ping"}"#),
        (Direction::In, "{\"id\":2,\n\"method\":\"x\"}"),
        (Direction::In, "garbage\n"),
        (Direction::Out, r#"{"id":1,"result":null}"#),
        (Direction::In, r#"{"id":3,"method":"y","params":{"t":"sesame"}}"#),
        (Direction::In, r#"{"id":4,"method":"authenticate","params":{"token":"gho_1"}}"#),
        (Direction::In, r#"{"id":4,"method":"auth\u0065nticate","params":{"token":"gho_2"}}"#),
        (Direction::In, r#"{"id":4,"method":"authenticate","params":{"token":"gho_3"},}"#),
        (Direction::In, r#"[{"id":4,"method":"auth\u0065nticate","params":{"token":"gho_4"}}]"#),
        (Direction::Out, r#"{"id":5,"result":"how to authenticate"}"#),
    ];
    for (direction, frame) in frames {
        log.record(connection, direction, Bytes::from_static(frame.as_bytes()));
    }
    log.finish().await;
    let text = std::fs::read_to_string(&path).unwrap();
    let seen: Vec<(Value, Value)> =
        entries(&text).into_iter().map(|entry| (entry["dir"].clone(), entry["frame"].clone())).collect();
    let hidden = (json!("in"), json!({"jsonrpc": "2.0", "method": "authenticate", "params": "(hidden)"}));
    let expected = [
        (json!("in"), json!({"id": 1, "method": "ping"})),
        (json!("in"), json!({"id": 2, "method": "x"})),
        (json!("in"), json!("garbage\n")),
        (json!("out"), json!({"id": 1, "result": null})),
        (json!("in"), json!({"id": 3, "method": "y", "params": {"t": "(hidden)"}})),
        hidden.clone(),
        hidden.clone(),
        hidden.clone(),
        hidden,
        (json!("out"), json!({"id": 5, "result": "how to authenticate"})),
    ];
    assert_eq!(seen, expected);
    let first = &entries(&text)[0];
    assert_eq!(first["connection"], 1);
    assert!(first["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{first}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!text.contains("sesame") && !text.contains("gho_"));
}

/// A disk that blocks until released.
struct Stuck {
    gate: mpsc::Receiver<()>,
    written: Arc<Mutex<Vec<u8>>>,
    open: bool,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.open {
            self.gate.recv().ok();
            self.open = true;
        }
        self.written.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn frames_are_dropped_and_counted_if_disk_is_blocked() {
    let (open, gate) = mpsc::channel();
    let written = Arc::new(Mutex::new(Vec::new()));
    let disk = Stuck { gate, written: Arc::clone(&written), open: false };
    let log = WireLog::start(disk, None, Arc::new(SystemClock)).unwrap();
    let connection = connection();
    let sent = MAX_LINES + 1000;
    for _ in 0..sent {
        log.record(connection, Direction::Out, Bytes::from_static(b"{}"));
    }
    // Bytes are limited, too: this frame alone exceeds the limit.
    log.record(connection, Direction::Out, Bytes::from(vec![b' '; MAX_BYTES + 1]));
    open.send(()).unwrap();
    log.finish().await;
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    let (gaps, lines): (Vec<Value>, Vec<Value>) =
        entries(&text).into_iter().partition(|entry| entry.get("dropped").is_some());
    let dropped: u64 = gaps.iter().filter_map(|gap| gap["dropped"].as_u64()).sum();
    assert_eq!(lines.len() + usize::try_from(dropped).unwrap(), sent + 1, "every dropped frame is counted");
    assert!(lines.len() <= MAX_LINES + 1);
    assert!(dropped >= 999, "{dropped}");
}
