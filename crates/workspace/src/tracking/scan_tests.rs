//! Scans of many files. Set `INNKEEPER_SCAN_FILES=50000` and build for release to measure.

use std::time::Duration;

use tokio::time::Instant;

use innkeeper_core::edits::{BlobDigest, FileVersion};

use super::index::{FileStamp, KnownContent, KnownFile};
use super::testing::Fixture;

const DIRECTORIES: usize = 100;

/// Waits until the last change is old enough for its stamp to be trusted.
fn settle(fixture: &Fixture) {
    std::thread::sleep(Duration::from_millis(25));
    // Compares the contents of racy files once more.
    assert_eq!(fixture.changes(), []);
}

#[test]
fn scan_reads_only_changed_files_of_many() {
    let count =
        std::env::var("INNKEEPER_SCAN_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(2000);
    let fixture = Fixture::new();
    let directories = DIRECTORIES * count / 10_000 + 1;
    for number in 0..count {
        fixture.write(format!("d{}/f{number}", number % directories), number.to_string());
    }
    std::thread::sleep(Duration::from_millis(25));
    let mut times = Vec::new();
    let mut scan = |fixture: &Fixture| {
        let started = Instant::now();
        let changes = fixture.changes();
        times.push(started.elapsed());
        changes
    };
    assert_eq!(scan(&fixture), []);
    assert_eq!(fixture.tracker.status().files, count);
    for _ in 0..if count > 10_000 { 40 } else { 2 } {
        assert_eq!(scan(&fixture), []);
    }
    fixture.record();
    settle(&fixture);
    let is_racy = |known: &KnownFile| known.racy;
    assert!(!fixture.tracker.core.index().all().any(is_racy));
    for number in 0..10 {
        fixture.write(format!("d{}/f{number}", number % directories), "changed");
    }
    assert_eq!(scan(&fixture).len(), 10);
    let first = times.remove(0);
    times.sort_unstable();
    println!(
        "{count} files in {directories} directories: first {first:?}, later at best {:?}, median {:?}",
        times[0],
        times[times.len() / 2]
    );
}

#[test]
fn content_of_a_racy_file_is_compared_although_its_stamp_is_unchanged() {
    for racy in [true, false] {
        let fixture = Fixture::new();
        fixture.write("file", "now");
        fixture.record();
        // As if the file had another content when it was read.
        let before = FileVersion::File { blob: BlobDigest::of(b"old"), size: 3, mode: 0o644, stored: true };
        if let Some(known) = fixture.tracker.core.index().get_mut(std::path::Path::new("file")) {
            known.racy = racy;
            known.content = KnownContent::Version(before.clone());
        }
        let found: Vec<FileVersion> = fixture.changes().into_iter().map(|(_, before, ..)| before).collect();
        assert_eq!(found, if racy { vec![before] } else { vec![] });
    }
}

#[test]
fn file_is_racy_if_it_changed_shortly_before_or_after_its_observation() {
    let stamp = FileStamp { size: 0, modified: 0, changed: 1_000_000_000, inode: 1, mode: 0 };
    assert!(stamp.is_racy(1_000_000_000));
    assert!(stamp.is_racy(1_020_000_000));
    assert!(!stamp.is_racy(1_020_000_001));
    assert!(stamp.is_racy(0), "a file system with another clock");
}
