use std::sync::atomic::AtomicUsize;

use ahp_types::common::Uri;
use ahp_types::state::{ChangesetStatus, RootState, SessionState};
use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::agent::BoxFuture;
use crate::edits::{
    BlobDigest, ChangeList, ChangeOperation, ChangeSelection, EditError, EditRecorder, EditScope, NoRecorder,
    OperationReport, SessionChangeCounts,
};
use crate::ids::ConnectionId;
use crate::state::{ChatDoc, Frame, Outbox, Subscription};

/// An edit log that counts how often it is read. Only reading works.
#[derive(Debug, Default)]
struct CountingLog {
    reads: AtomicUsize,
}

impl EditLog for CountingLog {
    fn recorder(&self, _: EditScope) -> Arc<dyn EditRecorder> {
        NoRecorder::shared()
    }

    fn changes(&self, _: ChangeScope) -> BoxFuture<Result<ChangeList, EditError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(ChangeList::default())))
    }

    fn counts(&self, _: ChannelUri) -> BoxFuture<Result<SessionChangeCounts, EditError>> {
        closed()
    }

    fn operate(&self, _: ChangeOperation) -> BoxFuture<Result<OperationReport, EditError>> {
        closed()
    }

    fn review(&self, _: ChangeScope, _: Vec<Uri>, _: bool) -> BoxFuture<Result<(), EditError>> {
        closed()
    }

    fn read_blob(&self, _: BlobDigest) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        closed()
    }

    fn diff(
        &self,
        _: Option<BlobDigest>,
        _: Option<BlobDigest>,
    ) -> BoxFuture<Result<Option<Bytes>, EditError>> {
        closed()
    }

    fn changed_sessions(&self) -> BoxFuture<Vec<ChannelUri>> {
        Box::pin(std::future::pending())
    }

    fn fork(
        &self,
        _: ChannelUri,
        _: (ChannelUri, ChannelUri),
        _: Vec<String>,
    ) -> BoxFuture<Result<(), EditError>> {
        closed()
    }

    fn move_chat(&self, _: ChannelUri, _: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        closed()
    }

    fn remove_chat(&self, _: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        closed()
    }

    fn remove_session(&self, _: ChannelUri) -> BoxFuture<Result<(), EditError>> {
        closed()
    }
}

fn closed<T: Send + 'static>() -> BoxFuture<Result<T, EditError>> {
    Box::pin(std::future::ready(Err(EditError::Closed)))
}

struct World {
    store: Arc<StateStore>,
    log: Arc<CountingLog>,
    changesets: Arc<Changesets>,
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl World {
    /// A session with three turns, of which the last one runs.
    fn new() -> Self {
        let root: RootState = serde_json::from_value(json!({"agents": []})).unwrap();
        let store = Arc::new(StateStore::new(root));
        let turn = |id: &str| json!({"id": id, "message": {"text": "", "origin": {"kind": "user"}}, "responseParts": [], "state": "complete", "startedAt": "2026-01-01T00:00:00Z", "duration": 1});
        let mut running = turn("three");
        running.as_object_mut().unwrap().retain(|key, _| key != "state" && key != "duration");
        let session: SessionState = serde_json::from_value(json!({
            "provider": "x", "title": "", "status": 1, "lifecycle": "ready", "activeClients": [],
            "defaultChat": "c:/1", "workingDirectories": ["file:///w"],
            "chats": [{"resource": "c:/1", "title": "", "status": 1, "modifiedAt": ""}],
        }))
        .unwrap();
        let chat = json!({
            "resource": "c:/1", "title": "", "status": 1, "modifiedAt": "",
            "turns": [turn("one"), turn("two")], "activeTurn": running,
        });
        let doc = ChatDoc::new(serde_json::from_value(chat).unwrap()).unwrap();
        let session = (ChannelUri::new("x:/1"), ChannelState::Session(Box::new(session)));
        let chat = (ChannelUri::new("c:/1"), ChannelState::Chat(Box::new(doc)));
        store.create(vec![session, chat]).unwrap();
        let (log, tasks, ending) =
            (Arc::<CountingLog>::default(), TaskTracker::new(), CancellationToken::new());
        let shared: Arc<dyn EditLog> = Arc::<CountingLog>::clone(&log);
        let changesets = Changesets::new(Arc::clone(&store), shared, None, tasks.clone(), ending.clone());
        tasks.close();
        Self { store, log, changesets, tasks, ending }
    }

    fn open(&self, path: &str) -> Result<ChannelUri, ChangesetError> {
        let channel = ChannelUri::new(&format!("x:/1/changeset/{path}"));
        let address = self.changesets.address_of(&channel).unwrap();
        self.changesets.open(&channel, address).map(|()| channel)
    }

    fn subscribe(&self, channel: &ChannelUri) -> ConnectionId {
        let connection = self.store.attach(Arc::new(Outbox::default()));
        let reply = |found| Frame::encode(&found);
        self.store.subscribe(connection, channel, Subscription::default(), reply).unwrap();
        connection
    }

    fn reads(&self) -> usize {
        self.log.reads.load(Ordering::SeqCst)
    }

    fn status(&self, channel: &ChannelUri) -> Option<ChangesetStatus> {
        self.store.read(channel, |state| state.changeset().map(|state| state.status.clone())).flatten()
    }
}

#[tokio::test(start_paused = true)]
async fn changeset_is_computed_when_opened_and_removed_after_its_last_subscriber() {
    let world = World::new();
    let channel = world.open("session").unwrap();
    assert_eq!(world.status(&channel), Some(ChangesetStatus::Computing));
    let connection = world.subscribe(&channel);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((world.status(&channel), world.reads()), (Some(ChangesetStatus::Ready), 1));
    tokio::time::sleep(GRACE * 4).await;
    assert_eq!(world.status(&channel), Some(ChangesetStatus::Ready));
    world.store.detach(connection);
    let (left, reads) = (Instant::now(), world.reads());
    world.tasks.wait().await;
    assert_eq!(world.reads(), reads, "read without subscribers");
    let stayed = left.elapsed();
    let inaccuracy = Duration::from_secs(2);
    assert!(stayed >= GRACE - inaccuracy && stayed <= GRACE + inaccuracy, "{stayed:?}");
    assert_eq!(world.status(&channel), None);
    assert!(!world.changesets.touch(&channel));
}

#[tokio::test(start_paused = true)]
async fn client_that_returns_in_time_keeps_the_channel() {
    let world = World::new();
    let channel = world.open("session").unwrap();
    for _ in 0..5 {
        tokio::time::sleep(GRACE - Duration::from_secs(2)).await;
        assert!(world.changesets.touch(&channel));
    }
    assert_eq!(world.status(&channel), Some(ChangesetStatus::Ready));
    assert_eq!(world.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_log_are_collected() {
    let world = World::new();
    let channel = world.open("session").unwrap();
    world.subscribe(&channel);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..100 {
        world.changesets.session_changed(&ChannelUri::new("x:/1"));
        world.changesets.session_changed(&ChannelUri::new("x:/2"));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The first change, and those while it was awaited.
    assert!(world.reads() <= 3, "{}", world.reads());
    assert!(world.reads() >= 2);
    world.ending.cancel();
    world.tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn counts_are_requested_when_a_computation_finds_changes() {
    let world = World::new();
    let session = ChannelUri::new("x:/1");
    let channel = world.open("session").unwrap();
    world.subscribe(&channel);
    assert_eq!(world.changesets.counts_requested().await, HashSet::from([session.clone()]));
    // A computation without a difference requests none.
    world.changesets.session_changed(&session);
    let requested = world.changesets.counts_requested();
    assert!(tokio::time::timeout(Duration::from_secs(20), requested).await.is_err());
    assert!(world.reads() >= 2);
    world.ending.cancel();
    world.tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn changesets_are_polled_while_clients_are_subscribed() {
    let world = World::new();
    let channel = world.open("turn/one").unwrap();
    let connection = world.subscribe(&channel);
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(world.reads(), 11);
    world.store.detach(connection);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.reads() <= 12, "{}", world.reads());
    world.ending.cancel();
    world.tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_polled_while_there_are_subscribers() {
    for path in ["session", "uncommitted"] {
        let world = World::new();
        let channel = world.open(path).unwrap();
        world.subscribe(&channel);
        tokio::time::sleep(Duration::from_secs(21)).await;
        assert_eq!(world.reads(), 11, "{path}");
        world.ending.cancel();
        world.tasks.wait().await;
    }
}

#[tokio::test]
async fn operation_that_waits_for_the_files_ends_with_the_host() {
    let world = World::new();
    let channel = world.open("session").unwrap();
    let request = OperationRequest {
        channel,
        operation: "undo".to_owned(),
        target: crate::edits::OperationTarget::Changeset,
        force: false,
    };
    // No computation can begin.
    let _busy = world.changesets.computing.acquire_many(4).await.unwrap();
    let mut operation = Box::pin(world.changesets.start_operation(request));
    let ended = tokio::time::timeout(Duration::from_millis(50), &mut operation).await;
    assert!(ended.is_err(), "the operation did not wait");
    world.ending.cancel();
    tokio::time::timeout(Duration::from_secs(10), world.tasks.wait()).await.unwrap();
    assert!(operation.await.is_err());
}

#[tokio::test]
async fn address_selects_turns_in_their_order() {
    let world = World::new();
    let turns = |path: &str| {
        let address = world.changesets.address_of(&ChannelUri::new(&format!("x:/1/changeset/{path}")));
        world.changesets.scope(&address.unwrap()).map(|scope| {
            assert_eq!(scope.chat, Some(ChannelUri::new("c:/1")));
            assert_eq!(scope.roots, [PathBuf::from("/w")]);
            match scope.selection {
                ChangeSelection::Turns(turns) => turns,
                ChangeSelection::All | ChangeSelection::Uncommitted => panic!("not a selection of turns"),
            }
        })
    };
    assert_eq!(turns("turn/one").unwrap(), ["one"]);
    assert_eq!(turns("turn/three").unwrap(), ["three"]);
    assert_eq!(turns("compare/one/three").unwrap(), ["two", "three"]);
    assert_eq!(turns("compare/one/one").unwrap(), [""; 0]);
    assert_eq!(turns("chat/YzovMQ/turn/two").unwrap(), ["two"]);
    assert_eq!(turns("turn/four"), Err(ChangesetError::UnknownTurn("four".to_owned())));
    assert_eq!(turns("compare/one/four"), Err(ChangesetError::UnknownTurn("four".to_owned())));
    assert!(matches!(turns("compare/two/one"), Err(ChangesetError::Reversed { .. })));
    let restored = ChangesetUri::parse(&ChannelUri::new("x:/1/changeset/turn/two")).unwrap();
    let restored = world.changesets.scope_from_turn(&restored).unwrap().selection;
    assert_eq!(restored, ChangeSelection::Turns(vec!["two".to_owned(), "three".to_owned()]));
}

#[tokio::test]
async fn number_of_open_changesets_is_limited() {
    let world = World::new();
    let spelled = |number: usize| {
        // Different spellings of the same turn are different channels.
        (0..9).map(|bit| if (number >> bit) & 1 == 1 { "%6F" } else { "o" }).collect::<String>()
    };
    let turn = "o".repeat(9);
    let ended = json!({"type": "chat/turnComplete", "turnId": "three", "duration": 1});
    let next = json!({"type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-01-01T00:00:00Z", "message": {"text": "", "origin": {"kind": "user"}}});
    for action in [ended, next] {
        let action = Action::own(serde_json::from_value(action).unwrap());
        world.store.commit(&ChannelUri::new("c:/1"), &action, None).unwrap();
    }
    for number in 0..MAX_OPEN {
        world.open(&format!("turn/{}", spelled(number))).unwrap();
    }
    assert_eq!(world.open("session"), Err(ChangesetError::TooMany { limit: MAX_OPEN }));
    assert_eq!(world.changesets.end_session(&ChannelUri::new("x:/1")).len(), MAX_OPEN);
    world.open("session").unwrap();
    world.ending.cancel();
    world.tasks.wait().await;
}
