use std::future::Future;
use std::pin::Pin;

use innkeeper_core::clock::SystemClock;
use innkeeper_core::state::{Frame, Outbox, Subscription};
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{AgentLifetimes, EditConfig, HostConfig, HostServices, PermissionConfig};
use tokio::sync::mpsc;

use super::*;

/// A watch whose changes are sent by the test.
#[derive(Debug)]
struct Scripted(mpsc::Receiver<Option<Vec<FileChange>>>);

impl FileWatch for Scripted {
    fn changes(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<FileChange>>> + Send + '_>> {
        Box::pin(async {
            match self.0.recv().await {
                Some(changes) => changes,
                None => std::future::pending().await,
            }
        })
    }
}

struct World {
    host: Arc<Host>,
    tasks: TaskTracker,
    stop: CancellationToken,
    channel: ChannelUri,
    reports: mpsc::Sender<Option<Vec<FileChange>>>,
}

impl World {
    async fn new() -> Self {
        let (clock, storage) = (Arc::new(SystemClock), Arc::new(Nowhere));
        let host = Host::start(HostConfig {
            providers: Vec::new(),
            clock,
            storage,
            permissions: PermissionConfig::default(),
            edits: EditConfig::none(),
            lifetimes: AgentLifetimes::default(),
            services: HostServices::default(),
        })
        .await
        .unwrap();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (reports, events) = mpsc::channel(1);
        let state = ResourceWatchState {
            root: "file:///w".to_owned(),
            recursive: true,
            excludes: None,
            includes: None,
        };
        let watch = Box::new(Scripted(events));
        let channel = publish(&host, &tasks, &stop, state, watch).unwrap();
        tasks.close();
        Self { host, tasks, stop, channel, reports }
    }

    fn exists(&self) -> bool {
        self.host.store().read(&self.channel, |_| ()).is_some()
    }

    fn subscribe(&self) -> (Arc<Outbox>, innkeeper_core::ids::ConnectionId) {
        let outbox = Arc::new(Outbox::default());
        let connection = self.host.store().attach(Arc::clone(&outbox));
        let store = self.host.store();
        store
            .subscribe(connection, &self.channel, Subscription::default(), |found| Frame::encode(&found))
            .unwrap();
        (outbox, connection)
    }
}

#[tokio::test(start_paused = true)]
async fn watch_without_subscriber_expires() {
    let world = World::new().await;
    let created = Instant::now();
    world.tasks.wait().await;
    assert!(created.elapsed() >= FIRST_SUBSCRIBER && created.elapsed() <= FIRST_SUBSCRIBER + FIRST_LOOK);
    assert!(!world.exists());
    assert!(world.reports.is_closed(), "the file system watch is released");
}

#[tokio::test(start_paused = true)]
async fn watch_ends_after_last_subscriber_leaves() {
    for leave in [Leave::Unsubscribe, Leave::Disconnect] {
        let world = World::new().await;
        let (_outbox, connection) = world.subscribe();
        tokio::time::sleep(FIRST_SUBSCRIBER * 10).await;
        assert!(world.exists());
        match leave {
            Leave::Unsubscribe => world.host.store().unsubscribe(connection, &world.channel),
            Leave::Disconnect => world.host.store().detach(connection),
        }
        let left = Instant::now();
        world.tasks.wait().await;
        assert!(left.elapsed() <= LOOK);
        assert!(!world.exists() && world.reports.is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn subscriber_that_leaves_immediately_is_noticed() {
    let world = World::new().await;
    let (_outbox, connection) = world.subscribe();
    tokio::time::sleep(FIRST_LOOK * 2).await;
    world.host.store().detach(connection);
    let left = Instant::now();
    world.tasks.wait().await;
    assert!(left.elapsed() <= LOOK);
}

#[derive(Clone, Copy)]
enum Leave {
    Unsubscribe,
    Disconnect,
}

#[tokio::test(start_paused = true)]
async fn each_batch_of_changes_is_one_action() {
    let world = World::new().await;
    let (outbox, _) = world.subscribe();
    outbox.next_batch().await.unwrap();
    let change = |path: &str, kind| FileChange { uri: format!("file:///w/{path}"), kind };
    let batch = vec![
        change("a", ChangeKind::Added),
        change("b", ChangeKind::Updated),
        change("c", ChangeKind::Deleted),
    ];
    world.reports.send(Some(batch)).await.unwrap();
    let frames = outbox.next_batch().await.unwrap();
    let message: serde_json::Value = serde_json::from_slice(frames[0].bytes()).unwrap();
    assert_eq!(message["params"]["channel"], world.channel.as_str());
    assert_eq!(
        message["params"]["action"],
        json!({
            "type": "resourceWatch/changed",
            "changes": {"items": [
                {"uri": "file:///w/a", "type": "added"},
                {"uri": "file:///w/b", "type": "updated"},
                {"uri": "file:///w/c", "type": "deleted"},
            ]},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn changes_before_first_subscriber_are_delivered_to_it() {
    let world = World::new().await;
    let change = FileChange { uri: "file:///w/early".to_owned(), kind: ChangeKind::Added };
    world.reports.send(Some(vec![change])).await.unwrap();
    tokio::time::sleep(FIRST_LOOK * 10).await;
    let (outbox, _) = world.subscribe();
    outbox.next_batch().await.unwrap();
    let frames = tokio::time::timeout(LOOK, outbox.next_batch()).await.expect("the change is lost").unwrap();
    let message: serde_json::Value = serde_json::from_slice(frames[0].bytes()).unwrap();
    assert_eq!(message["params"]["action"]["changes"]["items"][0]["uri"], "file:///w/early");
}

#[tokio::test(start_paused = true)]
async fn ended_watch_removes_its_channel() {
    let world = World::new().await;
    let (outbox, _) = world.subscribe();
    outbox.next_batch().await.unwrap();
    world.reports.send(None).await.unwrap();
    world.tasks.wait().await;
    assert!(!world.exists() && world.reports.is_closed());
}

#[tokio::test(start_paused = true)]
async fn stopping_server_releases_watches() {
    let world = World::new().await;
    let _subscribed = world.subscribe();
    world.stop.cancel();
    world.tasks.wait().await;
    assert!(!world.exists() && world.reports.is_closed());
}
