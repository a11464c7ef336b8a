//! Calls from many threads.

use std::sync::Barrier;
use std::thread;

use super::*;

#[test]
fn records_of_many_threads_are_all_stored() {
    let fixture = EditFixture::new();
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for worker in 0..8_usize {
            let (fixture, start) = (&fixture, &start);
            scope.spawn(move || {
                start.wait();
                for number in 0..50_usize {
                    let own = blob(format!("{worker} {number} ").repeat(50));
                    let shared = blob(format!("shared {number}"));
                    let change = record(worker, &number.to_string(), version(&shared), version(&own));
                    let contents = vec![own.clone(), shared.clone()];
                    let numbers = fixture.database.append(vec![change], contents).expect("appended");
                    let records = fixture.database.records(&session(worker)).expect("records");
                    assert_eq!(records.last().expect("a record").number, numbers[0], "it is read at once");
                    assert_eq!(records.len(), number + 1);
                    let read = fixture.database.read_blob(own.digest).expect("read");
                    assert_eq!(read, Some(own.content));
                }
            });
        }
    });
    for worker in 0..8 {
        let records = fixture.database.records(&session(worker)).expect("records");
        let turns: Vec<String> = records.iter().map(|record| record.turn.clone()).collect();
        assert_eq!(turns, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}

/// Threads append a record, check that its content exists, and delete it again.
fn append_and_remove(grace: Duration) {
    let fixture = EditFixture::with(LARGE, grace);
    let shared = blob("shared");
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for worker in 0..4_usize {
            let (fixture, start, shared) = (&fixture, &start, &shared);
            scope.spawn(move || {
                start.wait();
                for _ in 0..15 {
                    let change = record(worker, "turn-1", FileVersion::Absent, version(shared));
                    fixture.database.append(vec![change], vec![shared.clone()]).expect("appended");
                    fixture.database.collect_garbage(&nothing()).expect("collected");
                    let read = fixture.database.read_blob(shared.digest).expect("read");
                    assert_eq!(read.as_ref(), Some(&shared.content));
                    fixture.database.remove_session(&session(worker)).expect("removed");
                }
            });
        }
    });
    fixture.database.collect_garbage(&nothing()).expect("collected");
    assert!(!fixture.is_stored(&shared));
}

#[test]
fn appended_content_survives_concurrent_collections_and_removals() {
    append_and_remove(Duration::ZERO);
    append_and_remove(Duration::from_secs(600));
}

#[test]
fn failed_request_does_not_fail_others_of_its_group() {
    let fixture = EditFixture::new();
    let start = Barrier::new(6);
    thread::scope(|scope| {
        for worker in 0..6_usize {
            let (fixture, start) = (&fixture, &start);
            scope.spawn(move || {
                start.wait();
                for number in 0..40 {
                    if worker % 2 == 0 {
                        let unknown = fixture.database.finish_operation(Uuid::new_v4(), Vec::new(), None);
                        unknown.expect_err("the operation is unknown");
                    } else {
                        let content = blob(format!("{worker} {number}"));
                        fixture.database.put_blobs(vec![content]).expect("stored");
                    }
                }
            });
        }
    });
    let contents: Vec<BlobDigest> = (0..40)
        .flat_map(|number| [1, 3, 5].map(|worker| blob(format!("{worker} {number}")).digest))
        .collect();
    assert_eq!(fixture.database.stored_blobs(&contents).expect("read").len(), 120);
}
