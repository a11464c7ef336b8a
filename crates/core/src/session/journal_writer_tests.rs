//! Tests with a disk that works, fails or blocks on demand. The tokio clock is paused and
//! advances when all tasks wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use proptest::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::audit::{AuditPage, AuditQuery};
use crate::output::{OutputId, StoredOutput};
use crate::storage::{Index, StoredSession};

const SESSION: &str = "acme:/1";
const CHAT: &str = "ahp-chat:/1";

/// The stored data of one session: the documents, followed by the journal.
#[derive(Debug, Default)]
struct Disk(Mutex<DiskData>);

#[derive(Debug, Default)]
struct DiskData {
    documents: Vec<String>,
    journal: BTreeMap<u64, String>,
    handled: Vec<i64>,
    answered: Vec<(i64, u64)>,
    output: BTreeMap<OutputId, usize>,
    /// Whether writes fail.
    full: bool,
    /// Whether writes block. They keep their order.
    blocked: bool,
    blocked_writes: VecDeque<BlockedWrite>,
    /// The sizes of the successful writes, in changes.
    writes: Vec<usize>,
}

/// Blocked changes and the sender of their result.
type BlockedWrite = (Vec<Change>, oneshot::Sender<Result<(), StorageError>>);

impl Disk {
    fn data(&self) -> MutexGuard<'_, DiskData> {
        self.0.lock().unwrap()
    }

    /// The actions that a restarted host would find.
    fn found(&self) -> Vec<String> {
        let data = self.data();
        data.documents.iter().chain(data.journal.values()).cloned().collect()
    }

    fn fill(&self) {
        self.data().full = true;
    }

    fn clear(&self) {
        self.data().full = false;
    }

    fn block(&self) {
        self.data().blocked = true;
    }

    /// Unblocks, and performs the blocked writes in order.
    fn unblock(&self) {
        let mut data = self.data();
        data.blocked = false;
        while let Some((changes, done)) = data.blocked_writes.pop_front() {
            let written = data.write(&changes);
            // The writer may have timed out.
            done.send(written).ok();
        }
    }
}

impl DiskData {
    fn write(&mut self, changes: &[Change]) -> Result<(), StorageError> {
        if self.full {
            return Err(StorageError::Full);
        }
        let (mut documents, mut journal) = (self.documents.clone(), self.journal.clone());
        for change in changes {
            #[expect(clippy::wildcard_enum_match_arm, reason = "the writer uses only these")]
            match change {
                Change::PutSession { state, .. } => documents = serde_json::from_str(state.get()).unwrap(),
                Change::Journal { entries, .. } => {
                    for entry in entries {
                        let action = serde_json::from_str(entry.action.get()).unwrap();
                        if journal.insert(entry.number, action).is_some() {
                            return Err(StorageError::Failed(format!("duplicate entry {}", entry.number)));
                        }
                    }
                }
                Change::TrimJournal { through, .. } => journal.retain(|number, _| number > through),
                Change::Handled { mark, .. } => self.handled.push(*mark),
                Change::Answered { mark, answer, .. } => self.answered.push((*mark, answer.0)),
                Change::PutOutput { id, output, .. } => {
                    self.output.insert(*id, output.body.len());
                }
                other => panic!("unexpected change {other:?}"),
            }
        }
        (self.documents, self.journal) = (documents, journal);
        self.writes.push(changes.len());
        Ok(())
    }
}

impl Storage for Disk {
    fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
        Box::pin(std::future::ready(Ok(Index::default())))
    }

    fn load_session(&self, _: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn load_output(&self, _: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn load_audit(&self, _: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>> {
        Box::pin(std::future::ready(Ok(AuditPage::default())))
    }

    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        let mut data = self.data();
        if data.blocked {
            let (done, written) = oneshot::channel();
            data.blocked_writes.push_back((changes, done));
            return Box::pin(async { written.await.unwrap_or(Err(StorageError::Busy)) });
        }
        let written = data.write(&changes);
        Box::pin(std::future::ready(written))
    }
}

/// The part of a session that uses the journal writer.
struct TestSession {
    journal: JournalWriter,
    disk: Arc<Disk>,
    /// All published actions.
    published: Vec<String>,
    /// Whether a turn is running.
    busy: bool,
    /// The turns that were reported as not stored.
    lost: Vec<usize>,
    /// How often the documents were written.
    checkpoints: usize,
}

impl TestSession {
    fn new() -> Self {
        let disk = Arc::new(Disk::default());
        let storage: Arc<dyn Storage> = Arc::<Disk>::clone(&disk);
        let journal = JournalWriter::new(storage, ChannelUri::new(SESSION), 1);
        Self { journal, disk, published: Vec::new(), busy: true, lost: Vec::new(), checkpoints: 0 }
    }

    /// Publishes an action that may be written later.
    fn append(&mut self, what: &str) {
        self.journal.append(&ChannelUri::new(CHAT), action(what), 0);
        self.published.push(what.to_owned());
    }

    /// Publishes an action after it has been written.
    async fn write_ahead(&mut self, what: &str) -> Result<(), StorageError> {
        let actions = vec![(ChannelUri::new(CHAT), action(what))];
        self.journal.write_ahead(Vec::new(), actions, None, 0).await?;
        self.published.push(what.to_owned());
        Ok(())
    }

    fn documents(&self) -> Vec<Change> {
        vec![Change::PutSession {
            session: ChannelUri::new(SESSION),
            created_at: String::new(),
            row: None,
            state: serde_json::value::to_raw_value(&self.published).unwrap().into(),
        }]
    }

    /// Writes the documents with all published turns.
    fn checkpoint(&mut self) {
        if self.journal.can_checkpoint() {
            self.checkpoints += 1;
            let turns = vec![(ChannelUri::new(CHAT), self.published.len())];
            self.journal.checkpoint(self.documents(), turns);
        }
    }

    /// Handles the next wake-up of the writer, if there is one within this time.
    async fn work(&mut self, within: Duration) -> bool {
        let Ok(due) = tokio::time::timeout(within, self.journal.wait()).await else { return false };
        match self.journal.handle(due, !self.busy) {
            JournalTask::None => {}
            JournalTask::Checkpoint => self.checkpoint(),
            JournalTask::TurnsLost(turns) => self.lost.extend(turns.into_iter().map(|(_, from)| from)),
        }
        true
    }

    /// Advances the time.
    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while self.work(until.saturating_duration_since(Instant::now())).await {}
    }
}

fn action(what: &str) -> Json {
    serde_json::value::to_raw_value(&json!(what)).unwrap().into()
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const MOMENT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn appended_actions_are_written_together_within_100_ms() {
    let mut session = TestSession::new();
    session.append("a");
    session.pass(Duration::from_millis(50)).await;
    session.append("b");
    assert!(session.disk.found().is_empty(), "not one by one");
    session.pass(Duration::from_millis(49)).await;
    assert_eq!(session.disk.found(), named(&["a", "b"]));
    assert_eq!(session.disk.data().writes, [1]);
}

#[tokio::test(start_paused = true)]
async fn write_ahead_includes_earlier_pending_actions() {
    let mut session = TestSession::new();
    session.append("a");
    session.append("b");
    session.disk.block();
    {
        let writing = session.write_ahead("c");
        tokio::pin!(writing);
        assert!(tokio::time::timeout(MOMENT, &mut writing).await.is_err(), "it waits for the disk");
    }
    let mut session = TestSession::new();
    session.append("a");
    session.append("b");
    session.write_ahead("c").await.unwrap();
    assert_eq!(session.disk.found(), named(&["a", "b", "c"]), "in one write");
    session.append("d");
    session.pass(Duration::from_millis(100)).await;
    assert_eq!(session.disk.found(), named(&["a", "b", "c", "d"]));
    let numbers: Vec<u64> = session.disk.data().journal.keys().copied().collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn write_ahead_and_its_changes_are_one_write() {
    let mut session = TestSession::new();
    let actions = vec![(ChannelUri::new(CHAT), action("a"))];
    let client = ClientId::new("c");
    let handled = Some((&client, DispatchMark(7)));
    let documents = session.documents();
    session.journal.write_ahead(documents, actions, handled, 0).await.unwrap();
    let data = session.disk.data();
    assert_eq!((data.writes.as_slice(), data.handled.as_slice()), ([3].as_slice(), [7].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn answer_is_recorded_with_next_write_of_any_kind() {
    let mut session = TestSession::new();
    let client = ClientId::new("c");
    session.journal.record_answer(&client, DispatchMark(1), ServerSeq(10));
    session.write_ahead("a").await.unwrap();
    assert_eq!(session.disk.data().answered, [(1, 10)]);
    session.journal.record_answer(&client, DispatchMark(2), ServerSeq(20));
    session.pass(LONG).await;
    assert_eq!(session.disk.data().answered, [(1, 10), (2, 20)], "without other changes");
    session.busy = false;
    session.write_ahead("b").await.unwrap();
    session.journal.record_answer(&client, DispatchMark(3), ServerSeq(30));
    session.pass(LONG).await;
    assert_eq!(session.disk.data().answered, [(1, 10), (2, 20), (3, 30)], "with the documents");
    session.pass(LONG).await;
    assert_eq!(session.disk.data().answered.len(), 3, "written once");
}

#[tokio::test(start_paused = true)]
async fn idle_session_writes_documents_and_trims_journal() {
    let mut session = TestSession::new();
    session.write_ahead("a").await.unwrap();
    session.append("b");
    session.pass(LONG).await;
    assert_eq!(session.checkpoints, 0, "a turn is running");
    session.busy = false;
    session.write_ahead("c").await.unwrap();
    session.pass(Duration::from_millis(1900)).await;
    assert_eq!(session.checkpoints, 0, "not immediately");
    session.pass(LONG).await;
    assert_eq!(session.checkpoints, 1, "written once");
    assert_eq!(session.disk.data().documents, named(&["a", "b", "c"]));
    assert!(session.disk.data().journal.is_empty());
    session.write_ahead("d").await.unwrap();
    assert_eq!(session.disk.found(), named(&["a", "b", "c", "d"]));
}

#[tokio::test(start_paused = true)]
async fn failed_write_ahead_keeps_earlier_pending_actions() {
    let mut session = TestSession::new();
    session.append("a");
    session.disk.fill();
    assert!(matches!(session.write_ahead("refused").await, Err(StorageError::Full)));
    assert_eq!(session.journal.pending_bytes, "\"a\"".len(), "pending bytes are counted");
    session.disk.clear();
    session.write_ahead("b").await.unwrap();
    assert_eq!(session.disk.found(), named(&["a", "b"]));
    session.disk.fill();
    assert!(session.write_ahead("refused").await.is_err());
    session.disk.clear();
    session.append("c");
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), session.published);
}

#[tokio::test(start_paused = true)]
async fn actions_of_failed_write_are_stored_with_documents() {
    let mut session = TestSession::new();
    session.append("a");
    session.disk.fill();
    session.pass(Duration::from_millis(500)).await;
    session.append("b");
    session.pass(Duration::from_secs(10)).await;
    assert!(session.disk.found().is_empty());
    assert!(session.checkpoints >= 5, "expected retries, got {}", session.checkpoints);
    session.disk.clear();
    session.pass(Duration::from_secs(2)).await;
    assert_eq!(session.disk.data().documents, session.published);
    let tried = session.checkpoints;
    session.pass(LONG).await;
    assert_eq!(session.checkpoints, tried, "no writes after success");
}

#[tokio::test(start_paused = true)]
async fn failed_checkpoint_reports_turns_and_keeps_journal() {
    let mut session = TestSession::new();
    session.write_ahead("a").await.unwrap();
    session.disk.fill();
    session.checkpoint();
    session.pass(Duration::from_millis(10)).await;
    assert_eq!(session.lost, [1]);
    assert_eq!(session.disk.found(), named(&["a"]), "nothing is trimmed");
    session.disk.clear();
    session.write_ahead("b").await.unwrap();
    session.pass(LONG).await;
    assert_eq!(session.disk.data().documents, named(&["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn write_ahead_times_out_after_five_seconds() {
    let mut session = TestSession::new();
    session.write_ahead("a").await.unwrap();
    session.append("b");
    session.disk.block();
    let began = Instant::now();
    assert!(matches!(session.write_ahead("refused").await, Err(StorageError::TimedOut)));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    // The write succeeds after the client has been told that it failed.
    session.disk.unblock();
    assert_eq!(session.disk.found(), named(&["a", "b", "refused"]));
    session.pass(Duration::from_secs(2)).await;
    assert_eq!(session.disk.found(), named(&["a", "b"]), "corrected by the documents");
    session.write_ahead("c").await.unwrap();
    assert_eq!(session.disk.found(), session.published);
}

#[tokio::test(start_paused = true)]
async fn write_ahead_works_again_after_late_write() {
    let mut session = TestSession::new();
    session.append("a");
    session.disk.block();
    assert!(session.write_ahead("refused").await.is_err());
    session.disk.unblock();
    session.write_ahead("b").await.unwrap();
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), named(&["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn pending_actions_above_limit_are_stored_with_documents() {
    let mut session = TestSession::new();
    session.disk.block();
    session.append("first");
    session.pass(Duration::from_millis(100)).await;
    // The write in flight blocks, so further actions stay pending, up to the limit.
    let flood = "x".repeat(MAX_PENDING / 4);
    for _ in 0..5 {
        session.append(&flood);
    }
    assert!(session.journal.pending_bytes <= MAX_PENDING && session.journal.pending.len() < 4);
    session.disk.unblock();
    session.pass(LONG).await;
    assert_eq!(session.disk.data().documents, session.published);
    assert!(session.disk.data().journal.is_empty());
}

#[tokio::test(start_paused = true)]
async fn long_journal_is_checkpointed_during_turn() {
    let mut session = TestSession::new();
    let much = "x".repeat(LONG_JOURNAL / 4);
    for _ in 0..6 {
        session.append(&much);
        session.pass(Duration::from_millis(100)).await;
    }
    assert_eq!(session.checkpoints, 1);
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), session.published);
    assert!(session.disk.data().journal.len() < 3);
}

#[tokio::test(start_paused = true)]
async fn checkpoint_waits_for_running_checkpoint() {
    let mut session = TestSession::new();
    session.write_ahead("a").await.unwrap();
    session.disk.block();
    session.checkpoint();
    session.append("b");
    session.checkpoint();
    assert_eq!(session.checkpoints, 1, "one at a time");
    session.disk.unblock();
    session.pass(Duration::from_millis(10)).await;
    assert_eq!(session.checkpoints, 2, "then immediately");
    assert_eq!(session.disk.data().documents, named(&["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn final_checkpoint_waits_for_running_one_and_reports_failure() {
    let mut session = TestSession::new();
    session.write_ahead("a").await.unwrap();
    assert_eq!(session.journal.wait_for_write().await, TurnsFrom::new(), "no write is in flight");
    session.disk.block();
    session.checkpoint();
    session.disk.fill();
    session.disk.unblock();
    assert_eq!(session.journal.wait_for_write().await, [(ChannelUri::new(CHAT), 1)]);
    assert!(matches!(session.journal.finish(session.documents()).await, Err(StorageError::Full)));
    assert_eq!(session.disk.found(), named(&["a"]), "the journal is kept");
    session.disk.clear();
    session.journal.request_checkpoint();
    session.journal.finish(session.documents()).await.unwrap();
    assert_eq!(session.disk.data().documents, named(&["a"]));
    assert!(session.disk.data().journal.is_empty());
    session.disk.block();
    session.checkpoint();
    assert_eq!(session.journal.wait_for_write().await.len(), 1, "the wait times out");
}

/// An event of a session or its disk.
#[derive(Clone, Debug)]
enum DiskEvent {
    Append,
    WriteAhead,
    Checkpoint,
    Turn(bool),
    Pass(u64),
    Fill,
    Clear,
    Block,
    Unblock,
}

fn event() -> impl Strategy<Value = DiskEvent> {
    prop_oneof![
        5 => Just(DiskEvent::Append),
        5 => Just(DiskEvent::WriteAhead),
        1 => Just(DiskEvent::Checkpoint),
        1 => any::<bool>().prop_map(DiskEvent::Turn),
        4 => prop_oneof![0..200_u64, 0..7000_u64].prop_map(DiskEvent::Pass),
        1 => Just(DiskEvent::Fill),
        2 => Just(DiskEvent::Clear),
        1 => Just(DiskEvent::Block),
        2 => Just(DiskEvent::Unblock),
    ]
}

async fn perform(events: &[DiskEvent]) {
    let mut session = TestSession::new();
    let mut acknowledged: Vec<String> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let what = format!("{number}");
        match event {
            DiskEvent::Append => session.append(&what),
            DiskEvent::WriteAhead => {
                if session.write_ahead(&what).await.is_ok() {
                    acknowledged.push(what);
                }
            }
            DiskEvent::Checkpoint => session.checkpoint(),
            DiskEvent::Turn(busy) => session.busy = *busy,
            DiskEvent::Pass(milliseconds) => session.pass(Duration::from_millis(*milliseconds)).await,
            DiskEvent::Fill => session.disk.fill(),
            DiskEvent::Clear => session.disk.clear(),
            DiskEvent::Block => session.disk.block(),
            DiskEvent::Unblock => session.disk.unblock(),
        }
        let found = session.disk.found();
        let missing = acknowledged.iter().find(|what| !found.contains(what));
        assert_eq!(missing, None, "an acknowledged action is missing after {event:?}");
        let mut once = found.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), found.len(), "duplicate entries: {found:?}");
    }
    session.disk.clear();
    session.disk.unblock();
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), session.published, "all published actions, in order");
}

#[test]
fn acknowledged_actions_survive_any_disk_failure() {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(config)
        .run(&proptest::collection::vec(event(), 1..60), |events| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(perform(&events));
            Ok(())
        })
        .unwrap();
}

/// A piece of output of this size.
fn output(number: u128, size: usize) -> Change {
    let output = StoredOutput { content_type: "text/plain".to_owned(), body: vec![7; size].into() };
    let id = OutputId::from_number(number);
    Change::PutOutput { chat: ChannelUri::new(CHAT), turn: "t".to_owned(), id, output }
}

#[tokio::test(start_paused = true)]
async fn output_is_stored_when_the_disk_works_again() {
    let mut session = TestSession::new();
    session.journal.write_output(output(1, 10)).await;
    assert_eq!(session.disk.data().output.len(), 1, "not stored at once");
    session.disk.fill();
    session.journal.write_output(output(2, 20)).await;
    session.journal.write_output(output(3, 30)).await;
    session.pass(Duration::from_secs(3)).await;
    assert_eq!(session.disk.data().output.len(), 1);
    session.disk.clear();
    session.pass(Duration::from_secs(3)).await;
    assert_eq!(session.disk.data().output.values().copied().collect::<Vec<_>>(), [10, 20, 30]);
    let writes = session.disk.data().writes.len();
    session.pass(Duration::from_secs(60)).await;
    assert_eq!(session.disk.data().writes.len(), writes, "stored again and again");
}

#[tokio::test(start_paused = true)]
async fn blocked_disk_delays_output_once_and_keeps_a_bounded_amount() {
    let mut session = TestSession::new();
    session.disk.block();
    let before = Instant::now();
    for number in 0..20 {
        session.journal.write_output(output(number, 1024 * 1024)).await;
    }
    assert!(before.elapsed() <= WRITE_TIMEOUT, "each piece waited");
    session.disk.unblock();
    session.pass(Duration::from_secs(10)).await;
    let stored: Vec<OutputId> = session.disk.data().output.keys().copied().collect();
    let kept: Vec<OutputId> = std::iter::once(0).chain(4..20).map(OutputId::from_number).collect();
    assert_eq!(stored, kept, "the first was written late, the oldest others were dropped");
}
