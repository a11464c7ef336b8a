//! Tests with a disk that works, fails or blocks on demand. The tokio clock is paused and
//! advances when all tasks wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use proptest::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::storage::{Index, StoredSession};

const SESSION: &str = "acme:/1";
const CHAT: &str = "ahp-chat:/1";

/// The stored data of one session: the documents, followed by the journal.
#[derive(Debug, Default)]
struct Disk(Mutex<Platters>);

#[derive(Debug, Default)]
struct Platters {
    documents: Vec<String>,
    journal: BTreeMap<u64, String>,
    handled: Vec<i64>,
    answered: Vec<(i64, u64)>,
    /// Whether writes fail.
    full: bool,
    /// Whether writes block. They keep their order.
    stuck: bool,
    waiting: VecDeque<Waiting>,
    /// The sizes of the successful writes, in changes.
    writes: Vec<usize>,
}

/// Blocked changes and the sender of their result.
type Waiting = (Vec<Change>, oneshot::Sender<Result<(), StorageError>>);

impl Disk {
    fn platters(&self) -> MutexGuard<'_, Platters> {
        self.0.lock().unwrap()
    }

    /// What a restarted host would find.
    fn found(&self) -> Vec<String> {
        let platters = self.platters();
        platters.documents.iter().chain(platters.journal.values()).cloned().collect()
    }

    fn fill(&self) {
        self.platters().full = true;
    }

    fn empty(&self) {
        self.platters().full = false;
    }

    fn stop(&self) {
        self.platters().stuck = true;
    }

    /// Unblocks, and performs the blocked writes in order.
    fn go_on(&self) {
        let mut platters = self.platters();
        platters.stuck = false;
        while let Some((changes, done)) = platters.waiting.pop_front() {
            let written = platters.write(&changes);
            // The writer may have timed out.
            done.send(written).ok();
        }
    }
}

impl Platters {
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

    fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
        let mut platters = self.platters();
        if platters.stuck {
            let (done, written) = oneshot::channel();
            platters.waiting.push_back((changes, done));
            return Box::pin(async { written.await.unwrap_or(Err(StorageError::Busy)) });
        }
        let written = platters.write(&changes);
        Box::pin(std::future::ready(written))
    }
}

/// The part of a session that uses the journal writer.
struct Session {
    ledger: Ledger,
    disk: Arc<Disk>,
    /// All published actions.
    published: Vec<String>,
    /// Whether a turn is running.
    busy: bool,
    /// The turns that were reported as not stored.
    lost: Vec<usize>,
    /// How often the documents were written.
    documents: usize,
}

impl Session {
    fn new() -> Self {
        let disk = Arc::new(Disk::default());
        let storage: Arc<dyn Storage> = Arc::<Disk>::clone(&disk);
        let ledger = Ledger::new(storage, ChannelUri::new(SESSION), 1);
        Self { ledger, disk, published: Vec::new(), busy: true, lost: Vec::new(), documents: 0 }
    }

    /// Publishes an action that may be written later.
    fn say(&mut self, what: &str) {
        self.ledger.note(&ChannelUri::new(CHAT), action(what), 0);
        self.published.push(what.to_owned());
    }

    /// Publishes an action after it has been written.
    async fn decide(&mut self, what: &str) -> Result<(), StorageError> {
        let actions = vec![(ChannelUri::new(CHAT), action(what))];
        self.ledger.ahead(Vec::new(), actions, None, 0).await?;
        self.published.push(what.to_owned());
        Ok(())
    }

    fn put(&self) -> Vec<Change> {
        vec![Change::PutSession {
            session: ChannelUri::new(SESSION),
            created_at: String::new(),
            row: None,
            state: serde_json::value::to_raw_value(&self.published).unwrap().into(),
        }]
    }

    /// Writes the documents with all published turns.
    fn checkpoint(&mut self) {
        if self.ledger.takes_documents() {
            self.documents += 1;
            let turns = vec![(ChannelUri::new(CHAT), self.published.len())];
            self.ledger.checkpoint(self.put(), turns);
        }
    }

    /// Handles the next wake-up of the writer, if there is one within this time.
    async fn work(&mut self, within: Duration) -> bool {
        let Ok(due) = tokio::time::timeout(within, self.ledger.next()).await else { return false };
        match self.ledger.handle(due, !self.busy) {
            Chore::None => {}
            Chore::Checkpoint => self.checkpoint(),
            Chore::TurnsLost(turns) => self.lost.extend(turns.into_iter().map(|(_, from)| from)),
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
    let mut session = Session::new();
    session.say("a");
    session.pass(Duration::from_millis(50)).await;
    session.say("b");
    assert!(session.disk.found().is_empty(), "not one by one");
    session.pass(Duration::from_millis(49)).await;
    assert_eq!(session.disk.found(), named(&["a", "b"]));
    assert_eq!(session.disk.platters().writes, [1]);
}

#[tokio::test(start_paused = true)]
async fn write_ahead_includes_earlier_pending_actions() {
    let mut session = Session::new();
    session.say("a");
    session.say("b");
    session.disk.stop();
    {
        let deciding = session.decide("c");
        tokio::pin!(deciding);
        assert!(tokio::time::timeout(MOMENT, &mut deciding).await.is_err(), "it waits for the disk");
    }
    let mut session = Session::new();
    session.say("a");
    session.say("b");
    session.decide("c").await.unwrap();
    assert_eq!(session.disk.found(), named(&["a", "b", "c"]), "in one write");
    session.say("d");
    session.pass(Duration::from_millis(100)).await;
    assert_eq!(session.disk.found(), named(&["a", "b", "c", "d"]));
    let numbers: Vec<u64> = session.disk.platters().journal.keys().copied().collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn write_ahead_and_its_changes_are_one_write() {
    let mut session = Session::new();
    let actions = vec![(ChannelUri::new(CHAT), action("a"))];
    let client = ClientId::new("c");
    let handled = Some((&client, DispatchMark(7)));
    let put = session.put();
    session.ledger.ahead(put, actions, handled, 0).await.unwrap();
    let platters = session.disk.platters();
    assert_eq!((platters.writes.as_slice(), platters.handled.as_slice()), ([3].as_slice(), [7].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn answer_is_recorded_with_next_write_of_any_kind() {
    let mut session = Session::new();
    let client = ClientId::new("c");
    session.ledger.answered(&client, DispatchMark(1), ServerSeq(10));
    session.decide("a").await.unwrap();
    assert_eq!(session.disk.platters().answered, [(1, 10)]);
    session.ledger.answered(&client, DispatchMark(2), ServerSeq(20));
    session.pass(LONG).await;
    assert_eq!(session.disk.platters().answered, [(1, 10), (2, 20)], "without other changes");
    session.busy = false;
    session.decide("b").await.unwrap();
    session.ledger.answered(&client, DispatchMark(3), ServerSeq(30));
    session.pass(LONG).await;
    assert_eq!(session.disk.platters().answered, [(1, 10), (2, 20), (3, 30)], "with the documents");
    session.pass(LONG).await;
    assert_eq!(session.disk.platters().answered.len(), 3, "written once");
}

#[tokio::test(start_paused = true)]
async fn idle_session_writes_documents_and_trims_journal() {
    let mut session = Session::new();
    session.decide("a").await.unwrap();
    session.say("b");
    session.pass(LONG).await;
    assert_eq!(session.documents, 0, "a turn is running");
    session.busy = false;
    session.decide("c").await.unwrap();
    session.pass(Duration::from_millis(1900)).await;
    assert_eq!(session.documents, 0, "not immediately");
    session.pass(LONG).await;
    assert_eq!(session.documents, 1, "written once");
    assert_eq!(session.disk.platters().documents, named(&["a", "b", "c"]));
    assert!(session.disk.platters().journal.is_empty());
    session.decide("d").await.unwrap();
    assert_eq!(session.disk.found(), named(&["a", "b", "c", "d"]));
}

#[tokio::test(start_paused = true)]
async fn failed_write_ahead_keeps_earlier_pending_actions() {
    let mut session = Session::new();
    session.say("a");
    session.disk.fill();
    assert!(matches!(session.decide("refused").await, Err(StorageError::Full)));
    assert_eq!(session.ledger.pending_bytes, "\"a\"".len(), "pending bytes are counted");
    session.disk.empty();
    session.decide("b").await.unwrap();
    assert_eq!(session.disk.found(), named(&["a", "b"]));
    session.disk.fill();
    assert!(session.decide("refused").await.is_err());
    session.disk.empty();
    session.say("c");
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), session.published);
}

#[tokio::test(start_paused = true)]
async fn actions_of_failed_write_are_stored_with_documents() {
    let mut session = Session::new();
    session.say("a");
    session.disk.fill();
    session.pass(Duration::from_millis(500)).await;
    session.say("b");
    session.pass(Duration::from_secs(10)).await;
    assert!(session.disk.found().is_empty());
    assert!(session.documents >= 5, "expected retries, got {}", session.documents);
    session.disk.empty();
    session.pass(Duration::from_secs(2)).await;
    assert_eq!(session.disk.platters().documents, session.published);
    let tried = session.documents;
    session.pass(LONG).await;
    assert_eq!(session.documents, tried, "no writes after success");
}

#[tokio::test(start_paused = true)]
async fn failed_checkpoint_reports_turns_and_keeps_journal() {
    let mut session = Session::new();
    session.decide("a").await.unwrap();
    session.disk.fill();
    session.checkpoint();
    session.pass(Duration::from_millis(10)).await;
    assert_eq!(session.lost, [1]);
    assert_eq!(session.disk.found(), named(&["a"]), "nothing is trimmed");
    session.disk.empty();
    session.decide("b").await.unwrap();
    session.pass(LONG).await;
    assert_eq!(session.disk.platters().documents, named(&["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn write_ahead_times_out_after_five_seconds() {
    let mut session = Session::new();
    session.decide("a").await.unwrap();
    session.say("b");
    session.disk.stop();
    let began = Instant::now();
    assert!(matches!(session.decide("refused").await, Err(StorageError::TimedOut)));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    // The write succeeds after the client has been told that it failed.
    session.disk.go_on();
    assert_eq!(session.disk.found(), named(&["a", "b", "refused"]));
    session.pass(Duration::from_secs(2)).await;
    assert_eq!(session.disk.found(), named(&["a", "b"]), "corrected by the documents");
    session.decide("c").await.unwrap();
    assert_eq!(session.disk.found(), session.published);
}

#[tokio::test(start_paused = true)]
async fn write_ahead_works_again_after_late_write() {
    let mut session = Session::new();
    session.say("a");
    session.disk.stop();
    assert!(session.decide("refused").await.is_err());
    session.disk.go_on();
    session.decide("b").await.unwrap();
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), named(&["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn pending_actions_above_limit_are_stored_with_documents() {
    let mut session = Session::new();
    session.disk.stop();
    session.say("first");
    session.pass(Duration::from_millis(100)).await;
    // The write in flight blocks, so further actions stay pending, up to the limit.
    let flood = "x".repeat(MAX_PENDING / 4);
    for _ in 0..5 {
        session.say(&flood);
    }
    assert!(session.ledger.pending_bytes <= MAX_PENDING && session.ledger.pending.len() < 4);
    session.disk.go_on();
    session.pass(LONG).await;
    assert_eq!(session.disk.platters().documents, session.published);
    assert!(session.disk.platters().journal.is_empty());
}

#[tokio::test(start_paused = true)]
async fn long_journal_is_checkpointed_during_turn() {
    let mut session = Session::new();
    let much = "x".repeat(LONG_JOURNAL / 4);
    for _ in 0..6 {
        session.say(&much);
        session.pass(Duration::from_millis(100)).await;
    }
    assert_eq!(session.documents, 1);
    session.pass(LONG).await;
    assert_eq!(session.disk.found(), session.published);
    assert!(session.disk.platters().journal.len() < 3);
}

#[tokio::test(start_paused = true)]
async fn checkpoint_waits_for_running_checkpoint() {
    let mut session = Session::new();
    session.decide("a").await.unwrap();
    session.disk.stop();
    session.checkpoint();
    session.say("b");
    session.checkpoint();
    assert_eq!(session.documents, 1, "one at a time");
    session.disk.go_on();
    session.pass(Duration::from_millis(10)).await;
    assert_eq!(session.documents, 2, "then immediately");
    assert_eq!(session.disk.platters().documents, named(&["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn final_checkpoint_waits_for_running_one_and_reports_failure() {
    let mut session = Session::new();
    session.decide("a").await.unwrap();
    assert_eq!(session.ledger.settled().await, TurnsFrom::new(), "no write is in flight");
    session.disk.stop();
    session.checkpoint();
    session.disk.fill();
    session.disk.go_on();
    assert_eq!(session.ledger.settled().await, [(ChannelUri::new(CHAT), 1)]);
    assert!(matches!(session.ledger.finish(session.put()).await, Err(StorageError::Full)));
    assert_eq!(session.disk.found(), named(&["a"]), "the journal is kept");
    session.disk.empty();
    session.ledger.wants_checkpoint();
    session.ledger.finish(session.put()).await.unwrap();
    assert_eq!(session.disk.platters().documents, named(&["a"]));
    assert!(session.disk.platters().journal.is_empty());
    session.disk.stop();
    session.checkpoint();
    assert_eq!(session.ledger.settled().await.len(), 1, "the wait times out");
}

/// An event of a session or its disk.
#[derive(Clone, Debug)]
enum Event {
    Say,
    Decide,
    Checkpoint,
    Turn(bool),
    Pass(u64),
    Fill,
    Empty,
    Stop,
    GoOn,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => Just(Event::Say),
        5 => Just(Event::Decide),
        1 => Just(Event::Checkpoint),
        1 => any::<bool>().prop_map(Event::Turn),
        4 => prop_oneof![0..200_u64, 0..7000_u64].prop_map(Event::Pass),
        1 => Just(Event::Fill),
        2 => Just(Event::Empty),
        1 => Just(Event::Stop),
        2 => Just(Event::GoOn),
    ]
}

async fn perform(events: &[Event]) {
    let mut session = Session::new();
    let mut decided: Vec<String> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let what = format!("{number}");
        match event {
            Event::Say => session.say(&what),
            Event::Decide => {
                if session.decide(&what).await.is_ok() {
                    decided.push(what);
                }
            }
            Event::Checkpoint => session.checkpoint(),
            Event::Turn(busy) => session.busy = *busy,
            Event::Pass(milliseconds) => session.pass(Duration::from_millis(*milliseconds)).await,
            Event::Fill => session.disk.fill(),
            Event::Empty => session.disk.empty(),
            Event::Stop => session.disk.stop(),
            Event::GoOn => session.disk.go_on(),
        }
        let found = session.disk.found();
        let missing = decided.iter().find(|what| !found.contains(what));
        assert_eq!(missing, None, "an acknowledged action is missing after {event:?}");
        let mut once = found.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), found.len(), "duplicate entries: {found:?}");
    }
    session.disk.empty();
    session.disk.go_on();
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
