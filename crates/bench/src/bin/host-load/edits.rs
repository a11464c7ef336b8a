//! Measures the edit log: what it adds to a turn with many edits, the time to find changed files in a large directory
//! compared with `find`, the time of a diff, and the disk use of many small edits.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use innkeeper_bench::monotonic_nanos;
use innkeeper_core::ChannelUri;
use innkeeper_core::edits::{
    BlobDigest, CallOutcome, EditLog, EditReach, EditRecorder, EditScope, EditStorage, StoredBlob,
    TrackedCall,
};
use innkeeper_core::ids::TurnId;
use innkeeper_store::{EditDatabase, EditDatabaseConfig};
use innkeeper_workspace::{EditLogConfig, LocalEditLog, TrackingLimits};

use crate::report::{LoadReport, median, percentiles};

/// Maximum milliseconds that the log adds to one edit of a 200 KB file.
const EDIT_LIMIT: f64 = 5.0;

/// Maximum time of the first and of later scans, relative to `find`.
const FIRST_SCAN_LIMIT: f64 = 1.5;
const LATER_SCAN_LIMIT: f64 = 0.4;

/// Maximum milliseconds for a diff of 20,000 lines.
const DIFF_LIMIT: f64 = 30.0;

/// Maximum megabytes for 1,000 edits of a 200 KB file.
const DISK_LIMIT: f64 = 80.0;

const QUOTA: u64 = 4 << 30;

pub(crate) async fn measure(quick: bool, report: &mut LoadReport) -> Result<()> {
    edits(if quick { 20 } else { 500 }, report).await?;
    scans(if quick { 2_000 } else { 50_000 }, report).await?;
    diffs(if quick { 3 } else { 20 }, report).await?;
    disk_use(if quick { 20 } else { 1_000 }, report).await
}

/// A log with its own database.
struct BenchLog {
    folder: tempfile::TempDir,
    log: LocalEditLog,
    storage: Arc<EditDatabase>,
}

impl BenchLog {
    fn new(limits: TrackingLimits) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let storage = Arc::new(EditDatabase::open(database(folder.path()), EditDatabaseConfig::new(QUOTA))?);
        let config = EditLogConfig { limits, ..EditLogConfig::default() };
        let log = LocalEditLog::new(Arc::clone(&storage) as Arc<dyn EditStorage>, config);
        Ok(Self { folder, log, storage })
    }

    fn recorder(&self, root: &Path) -> Arc<dyn EditRecorder> {
        let (session, chat) = (ChannelUri::new("bench:/1"), ChannelUri::new("ahp-chat://default/x"));
        self.log.recorder(EditScope { session, chat, roots: vec![root.to_owned()] })
    }
}

fn database(folder: &Path) -> PathBuf {
    folder.join("blobs.db")
}

/// The time that the log adds to each of many edits in one turn.
async fn edits(count: usize, report: &mut LoadReport) -> Result<()> {
    let (bench, work) = (BenchLog::new(TrackingLimits::default())?, tempfile::tempdir()?);
    let recorder = bench.recorder(work.path());
    let files: Vec<PathBuf> = (0..count).map(|number| work.path().join(format!("file{number}.rs"))).collect();
    for (seed, file) in files.iter().enumerate() {
        std::fs::write(file, source(5_000, seed))?;
    }
    let turn = TurnId::new("t1");
    recorder.begin_turn(&turn);
    let mut times = Vec::with_capacity(count);
    for (number, file) in files.iter().enumerate() {
        let tool_call = format!("call{number}");
        let before = monotonic_nanos();
        let reach = EditReach::Files(vec![file.clone()]);
        recorder.before_call(TrackedCall { turn: turn.clone(), tool_call: tool_call.clone(), reach }).await;
        let announced = monotonic_nanos() - before;
        std::fs::write(file, source(5_000, number).replacen("value", "changed", 3))?;
        let before = monotonic_nanos();
        let recorded = recorder.after_call(tool_call, CallOutcome::default()).await;
        times.push(millis(announced + monotonic_nanos() - before));
        ensure!(recorded.len() == 1, "an edit was not recorded");
    }
    let note = format!("{count} edits in one turn");
    let [half, most] = percentiles(times, [50, 99]);
    report.within("edit of a 200 KB file, added by the log, p50", half, "ms", EDIT_LIMIT, note);
    report.record("  p99, beside the reading of the directory in the background", most, "ms");
    Ok(())
}

/// The time to find changed files in a directory with many files. The contents are beyond the limit, so that only the
/// scan is measured.
async fn scans(count: usize, report: &mut LoadReport) -> Result<()> {
    let work = tempfile::tempdir()?;
    for number in 0..count {
        let folder = work.path().join(format!("d{}/s{}", number / 2_000, number / 100));
        if number % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        std::fs::write(folder.join(format!("file_{number}.rs")), b"fn main() {}\n")?;
    }
    let (mut found, mut first, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        found.push(find_time(work.path())?);
        let bench = BenchLog::new(TrackingLimits { max_root_size: 0, ..TrackingLimits::default() })?;
        let recorder = bench.recorder(work.path());
        let (turn, start) = (TurnId::new("t1"), monotonic_nanos());
        recorder.begin_turn(&turn);
        for number in 0..6 {
            let tool_call = format!("call{number}");
            let before = if number == 0 { start } else { monotonic_nanos() };
            let call =
                TrackedCall { turn: turn.clone(), tool_call: tool_call.clone(), reach: EditReach::AnyFile };
            recorder.before_call(call).await;
            let times = if number == 0 { &mut first } else { &mut later };
            times.push(millis(monotonic_nanos() - before));
            let before = monotonic_nanos();
            ensure!(
                recorder.after_call(tool_call, CallOutcome::default()).await.is_empty(),
                "no file changed"
            );
            later.push(millis(monotonic_nanos() - before));
        }
    }
    let find = median(found);
    report.record(&format!("find -printf over {count} files"), find, "ms");
    // The first call waits for the first scan, then scans again.
    let later = median(later);
    let first = median(first) - later;
    report.within(
        "  first scan, relative to find",
        first / find,
        "×",
        FIRST_SCAN_LIMIT,
        format!("{first:.1} ms"),
    );
    report.within(
        "  later scans, relative to find",
        later / find,
        "×",
        LATER_SCAN_LIMIT,
        format!("{later:.1} ms"),
    );
    Ok(())
}

fn find_time(root: &Path) -> Result<f64> {
    let start = monotonic_nanos();
    #[expect(clippy::disallowed_methods, reason = "it ends by itself, and its end is awaited here")]
    let status = Command::new("find")
        .arg(root)
        .args(["-printf", "%p %s %T@ %i\\n"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run find")?;
    ensure!(status.success(), "find failed");
    Ok(millis(monotonic_nanos() - start))
}

/// The time of a diff of two stored files with 20,000 lines.
async fn diffs(rounds: usize, report: &mut LoadReport) -> Result<()> {
    let bench = BenchLog::new(TrackingLimits::default())?;
    let before = source(20_000, 1);
    let changed = |every: usize| {
        let mut text = String::with_capacity(before.len());
        for (number, line) in before.lines().enumerate() {
            // Infallible: writing to a string.
            if number % every == 0 {
                writeln!(text, "{line} // changed {number}")
            } else {
                writeln!(text, "{line}")
            }
            .ok();
        }
        text
    };
    for (what, after) in [("sparse", changed(500)), ("dense", changed(7))] {
        let blobs = [&before, &after].map(|text| StoredBlob::new(text.clone().into_bytes()));
        let [old, new]: [BlobDigest; 2] = [&blobs[0], &blobs[1]].map(|blob| blob.digest);
        bench.storage.put_blobs(blobs.to_vec())?;
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = monotonic_nanos();
            ensure!(bench.log.diff(Some(old), Some(new)).await?.is_some(), "no diff");
            times.push(millis(monotonic_nanos() - start));
        }
        let what = format!("diff of 20,000 lines with {what} changes, as JSON");
        report.within(&what, median(times), "ms", DIFF_LIMIT, String::new());
    }
    Ok(())
}

/// The size of the database after many small edits of one file.
async fn disk_use(count: usize, report: &mut LoadReport) -> Result<()> {
    let (bench, work) = (BenchLog::new(TrackingLimits::default())?, tempfile::tempdir()?);
    let (recorder, file, turn) =
        (bench.recorder(work.path()), work.path().join("main.rs"), TurnId::new("t1"));
    let mut text = source(5_000, 1);
    std::fs::write(&file, &text)?;
    recorder.begin_turn(&turn);
    for number in 0..count {
        let tool_call = format!("call{number}");
        let reach = EditReach::Files(vec![file.clone()]);
        recorder.before_call(TrackedCall { turn: turn.clone(), tool_call: tool_call.clone(), reach }).await;
        text = text.replacen(&format!("value_{number}_"), &format!("renamed_{number}_"), 1);
        text.push_str(&format!("// edit {number}\n"));
        std::fs::write(&file, &text)?;
        ensure!(
            recorder.after_call(tool_call, CallOutcome::default()).await.len() == 1,
            "an edit was not recorded"
        );
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(bench.folder.path())? {
        bytes += entry?.metadata()?.len();
    }
    let megabytes = bytes as f64 / 1e6;
    report.within(
        &format!("disk use of {count} edits of a 200 KB file"),
        megabytes,
        "MB",
        DISK_LIMIT,
        String::new(),
    );
    Ok(())
}

/// A text that looks like source code, about 40 bytes a line. The numbers vary, so that it does not compress too well.
fn source(lines: usize, seed: usize) -> String {
    let mut text = String::with_capacity(lines * 44);
    let mut state = seed.wrapping_mul(0x9E37_79B9).wrapping_add(1);
    for number in 0..lines {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = state >> 40;
        // Infallible: writing to a string.
        writeln!(text, "    let value_{number}_ = compute_{word:x}({});", word % 97).ok();
    }
    text
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
