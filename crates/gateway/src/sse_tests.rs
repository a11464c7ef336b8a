use proptest::prelude::*;

use super::*;

/// The ends of all events when the text arrives in these chunks.
fn ends(chunks: &[&[u8]]) -> Vec<usize> {
    let mut scanner = EventScanner::default();
    let (mut ends, mut before) = (Vec::new(), 0);
    for chunk in chunks {
        let mut from = 0;
        while let Some(length) = scanner.next_end(&chunk[from..]) {
            from += length;
            ends.push(before + from);
        }
        before += chunk.len();
    }
    if scanner.ends_event() {
        ends.push(before);
    }
    ends
}

#[test]
fn encodes_name_data_and_empty_line() {
    let frame = encode("ping", &serde_json::json!({"type": "ping", "text": "a\nb"})).unwrap();
    assert_eq!(&frame[..], b"event: ping\ndata: {\"text\":\"a\\nb\",\"type\":\"ping\"}\n\n");
}

#[test]
fn event_ends_with_any_line_ending() {
    assert_eq!(ends(&[b"data: a\n\ndata: b\n\n"]), [9, 18]);
    assert_eq!(ends(&[b"data: a\r\n\r\ndata: b\r\n\r\n"]), [11, 22]);
    assert_eq!(ends(&[b"data: a\r\rdata: b\r\r"]), [9, 18]);
    assert_eq!(ends(&[b"data: a\n\rx\n\r\n"]), [9, 13]);
    assert_eq!(ends(&[b"data: a\n", b"\ndata"]), [9]);
    assert_eq!(ends(&[b"data: a\r\n\r", b"\n"]), [11]);
    assert!(ends(&[b"data: a\nno end"]).is_empty());
}

#[test]
fn fields_are_parsed_as_the_standard_says() {
    let read = |text: &'static [u8]| {
        let fields = EventFields::read(text);
        (fields.name, fields.data().map(Cow::into_owned))
    };
    assert_eq!(read(b"event: a\ndata: {}\n\n"), (Some(&b"a"[..]), Some(b"{}".to_vec())));
    assert_eq!(read(b"event:a\r\ndata:  x\r\n\r\n"), (Some(&b"a"[..]), Some(b" x".to_vec())));
    assert_eq!(read(b"event: a\nevent: b\ndata: 1\ndata: 2\n\n"), (Some(&b"b"[..]), Some(b"1\n2".to_vec())));
    assert_eq!(read(b": comment\nid: 7\nretry: 1\nevents: x\n\n"), (None, None));
    assert_eq!(read(b"\xEF\xBB\xBFevent: a\n\n"), (Some(&b"a"[..]), None));
    assert_eq!(read(b"data\n\n"), (None, Some(Vec::new())));
}

proptest! {
    #[test]
    fn chunking_does_not_change_event_ends(text in "(a|b|:|\n|\r|\r\n|\n\n|\r\n\r\n){0,40}", cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let text = text.as_bytes();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(ends(&chunks), ends(&[text]));
    }
}
