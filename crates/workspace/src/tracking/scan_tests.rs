//! Scans of many files. Set `INNKEEPER_SCAN_FILES=50000` and build for release to measure.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use innkeeper_core::edits::{BlobDigest, FileVersion};

use super::TrackingLimits;
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
        if let Some(known) = fixture.tracker.core.index().get_mut(Path::new("file")) {
            known.racy = racy;
            known.content = KnownContent::Version(before.clone());
        }
        let found: Vec<FileVersion> = fixture.changes().into_iter().map(|(_, before, ..)| before).collect();
        assert_eq!(found, if racy { vec![before] } else { vec![] });
    }
}

#[test]
fn file_is_racy_if_it_changed_shortly_before_or_after_its_observation() {
    let stamp = |changed: i64| FileStamp { size: 0, modified: 0, changed, inode: 1, mode: 0 };
    let fine = stamp(1_000_000_001);
    assert!(fine.is_racy(1_000_000_001));
    assert!(fine.is_racy(1_020_000_001));
    assert!(!fine.is_racy(1_020_000_002));
    assert!(fine.is_racy(0), "a file system with another clock");
    let coarse = stamp(1_000_000_000);
    assert!(coarse.is_racy(2_999_999_999), "a file system that keeps whole seconds");
    assert!(!coarse.is_racy(3_020_000_001));
}

#[test]
fn file_that_did_not_fit_into_the_index_is_not_reported_as_created() {
    // A scan keeps four files.
    let limits = TrackingLimits { max_files: 1, ..TrackingLimits::default() };
    let fixture = Fixture::with_limits(limits);
    for number in 0..8 {
        fixture.write(format!("f{number}"), "1");
        fixture.write(format!("d{number}/f"), "1");
    }
    assert_eq!(fixture.changes(), []);
    let index = fixture.tracker.core.index();
    assert!(index.truncated);
    assert!(index.directories.len() <= 5, "a scan does not continue beyond the limit");
    let is_known = |number: &usize| index.get(Path::new(&format!("f{number}"))).is_some();
    let known: Vec<usize> = (0..8).filter(is_known).collect();
    drop(index);
    for number in &known {
        std::fs::remove_file(fixture.path(format!("f{number}"))).unwrap();
    }
    assert_eq!(fixture.changes().len(), known.len());
    // Now there is room for others.
    std::fs::create_dir(fixture.path("new")).unwrap();
    assert_eq!(fixture.changes(), [], "these files existed before");
    assert_eq!(fixture.tracker.status().files, 4);
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_become_accessible_are_not_reported_as_created() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::{Uid, geteuid, setfsuid};
    let fixture = Fixture::new();
    for path in ["locked/f", "locked/inner/f", "listed/f", "listed/inner/f"] {
        fixture.write(path, "1");
    }
    let modes = |locked: u32, listed: u32| {
        for (name, mode) in [("locked", locked), ("listed", listed)] {
            std::fs::set_permissions(fixture.path(name), Permissions::from_mode(mode)).unwrap();
        }
    };
    modes(0o000, 0o444);
    std::fs::set_permissions(fixture.path(""), Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        // A privileged user may read everything. Only for this thread and its children.
        scope.spawn(|| {
            if geteuid().is_root() {
                setfsuid(Uid::from_raw(65534));
            }
            assert_eq!(fixture.changes(), []);
        });
    });
    let scan = || fixture.changes().into_iter().map(|(path, ..)| path).collect::<Vec<_>>();
    modes(0o755, 0o755);
    fixture.write("new", "1");
    let observed = fixture.tracker.observe(&[fixture.path("locked/inner/f")]).unwrap();
    assert_eq!(observed.transitions, []);
    assert_eq!(scan(), [Path::new("new")]);
    fixture.write("locked/f", "22");
    fixture.write("listed/new", "1");
    assert_eq!(scan(), [Path::new("listed/new"), Path::new("locked/f")]);
    assert!(fixture.tracker.core.index().unseen.is_empty());
}
