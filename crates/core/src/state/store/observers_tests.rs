use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ahp::reducers::apply_action_to_chat;
use ahp_types::state::ChatState;
use proptest::prelude::*;

use super::super::super::chat::ChatDoc;
use super::super::tests::{CHATS, chat_uri, complete, delta, empty_chat, part, started, store_with_chats};
use super::*;

fn commit(store: &StateStore, chat: usize, action: StateAction) -> ServerSeq {
    store.commit(&chat_uri(chat), &Action::own(action), None).unwrap()
}

fn chat_channel(number: usize) -> (ChannelUri, ChannelState) {
    (chat_uri(number), ChannelState::Chat(Box::new(ChatDoc::new(empty_chat(number)).unwrap())))
}

fn items(items: usize) -> Capacity {
    Capacity { items, ..CAPACITY }
}

/// Polls a future once.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The next queued item, if any.
fn next_waiting(observer: &mut StateObserver) -> Option<Observed> {
    poll_once(pin!(observer.next())).flatten()
}

/// All queued items.
fn waiting(observer: &mut StateObserver) -> Vec<Observed> {
    std::iter::from_fn(|| next_waiting(observer)).collect()
}

fn seqs(items: &[Observed]) -> Vec<u64> {
    let seq = |item: &Observed| match item {
        Observed::Action { seq, .. } => Some(seq.0),
        Observed::Created(_) | Observed::Removed(_) | Observed::Lagged => None,
    };
    items.iter().filter_map(seq).collect()
}

#[test]
fn observer_receives_committed_actions_of_its_scope() {
    let store = Arc::new(store_with_chats());
    let mut one = store.observe(ObserverScope::Channel(chat_uri(0)));
    let mut chats = store.observe(ObserverScope::Kind(ChannelKind::Chat));
    let mut sessions = store.observe(ObserverScope::Kind(ChannelKind::Session));
    let mut all = store.observe(ObserverScope::All);
    let action = Action::own(started("t"));
    let seq = store.commit(&chat_uri(0), &action, None).unwrap();
    commit(&store, 1, started("t"));
    store.adjust_active_sessions(1).unwrap();

    let items = waiting(&mut one);
    let first = Observed::Action { channel: chat_uri(0), seq, action: Arc::clone(action.shared()) };
    assert_eq!(items, [first]);
    let Observed::Action { action: observed, .. } = &items[0] else { panic!("{items:?}") };
    assert!(Arc::ptr_eq(observed, action.shared()), "shared, not copied");
    assert_eq!(seqs(&waiting(&mut chats)), [1, 2]);
    assert_eq!(waiting(&mut sessions), []);
    assert_eq!(seqs(&waiting(&mut all)), [1, 2, 3]);
}

#[test]
fn concurrent_commits_are_observed_in_sequence_order() {
    const THREADS: usize = 4;
    const COMMITS: usize = 500;
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe(ObserverScope::All);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for number in 0..COMMITS {
                    commit(store, thread % CHATS, started(&format!("{thread}-{number}")));
                }
            });
        }
    });
    let expected: Vec<u64> = (1..=(THREADS * COMMITS) as u64).collect();
    assert_eq!(seqs(&waiting(&mut observer)), expected);
}

#[test]
fn rejected_and_failed_actions_are_not_observed() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe(ObserverScope::All);
    let connection = store.attach(Arc::default());
    let origin = crate::state::Origin { connection, client: crate::ids::ClientId::new("c"), client_seq: 1 };
    store.reject(&chat_uri(0), &Action::own(started("t")), &origin, "busy").unwrap();
    store.commit(&ChannelUri::root(), &Action::own(started("t")), None).unwrap_err();
    assert_eq!(waiting(&mut observer), []);
}

#[test]
fn observer_receives_channel_creation_and_removal() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe(ObserverScope::Channel(chat_uri(7)));
    store.create(vec![chat_channel(7)]).unwrap();
    store.remove(&[chat_uri(7), chat_uri(0)]);
    store.create(vec![chat_channel(7)]).unwrap();
    assert!(store.remove_unsubscribed(&[chat_uri(7)]));
    let (created, removed) = (Observed::Created(chat_uri(7)), Observed::Removed(chat_uri(7)));
    assert_eq!(waiting(&mut observer), [created.clone(), removed.clone(), created, removed]);
}

#[test]
fn full_queue_is_replaced_by_one_lagged_item() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe_with(ObserverScope::All, items(3));
    for number in 0..8 {
        commit(&store, 0, started(&format!("t{number}")));
    }
    let items = waiting(&mut observer);
    assert_eq!(items[0], Observed::Lagged);
    assert_eq!(seqs(&items), [7, 8]);
    assert_eq!(items.len(), 3, "one Lagged item, then the items after the gap");
}

#[test]
fn queue_is_bounded_by_size_except_for_single_action() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe_with(ObserverScope::All, Capacity { items: 9, bytes: 300 });
    commit(&store, 0, started("t"));
    commit(&store, 0, part("t", "p"));
    assert_eq!(seqs(&waiting(&mut observer)), [1, 2]);
    commit(&store, 0, delta("t", "p", &"x".repeat(1000)));
    assert_eq!(seqs(&waiting(&mut observer)), [3]);
    commit(&store, 0, delta("t", "p", &"x".repeat(1000)));
    commit(&store, 0, complete("t"));
    let items = waiting(&mut observer);
    assert_eq!((&items[0], seqs(&items)), (&Observed::Lagged, vec![5]));
}

#[test]
fn resync_reads_scope_and_clears_queue() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe_with(ObserverScope::Channel(chat_uri(0)), items(2));
    for number in 0..4 {
        commit(&store, 0, started(&format!("t{number}")));
    }
    let mut seen = Vec::new();
    let seq = observer.resync(|uri, state| {
        seen.push((uri.clone(), state.chat().unwrap().active_turn.as_ref().unwrap().id.clone()));
    });
    assert_eq!((seq, seen), (Some(ServerSeq(4)), vec![(chat_uri(0), "t3".to_owned())]));
    assert_eq!(waiting(&mut observer), []);
    commit(&store, 0, complete("t3"));
    assert_eq!(seqs(&waiting(&mut observer)), [5]);
}

#[test]
fn dropped_observer_is_unregistered() {
    let store = Arc::new(store_with_chats());
    let observer = store.observe(ObserverScope::All);
    let kept = store.observe(ObserverScope::All);
    let queue = Arc::downgrade(&observer.queue);
    drop(observer);
    assert_eq!(store.lock().observers.registered.len(), 1);
    assert!(queue.upgrade().is_none(), "the queue is dropped");
    drop(kept);
    assert!(store.lock().observers.registered.is_empty());
}

#[test]
fn commit_without_matching_observer_does_not_clone_action() {
    let store = Arc::new(store_with_chats());
    let action = Action::own(started("t"));
    store.commit(&chat_uri(0), &action, None).unwrap();
    assert_eq!(Arc::strong_count(action.shared()), 1);
    let mut other = store.observe(ObserverScope::Channel(chat_uri(1)));
    store.commit(&chat_uri(0), &action, None).unwrap();
    assert_eq!(Arc::strong_count(action.shared()), 1);
    assert_eq!(waiting(&mut other), []);
}

#[tokio::test(start_paused = true)]
async fn waiting_observer_wakes_for_action_and_store_drop() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe(ObserverScope::All);
    let (item, ()) = tokio::join!(observer.next(), async {
        tokio::task::yield_now().await;
        commit(&store, 0, started("t"));
    });
    assert_eq!(seqs(&Vec::from_iter(item)), [1]);
    let (item, ()) = tokio::join!(observer.next(), async {
        tokio::task::yield_now().await;
        drop(store);
    });
    assert_eq!(item, None);
    assert_eq!(observer.resync(|_, _| {}), None);
}

#[tokio::test(start_paused = true)]
async fn cancelled_next_does_not_lose_items() {
    let store = Arc::new(store_with_chats());
    let mut observer = store.observe(ObserverScope::All);
    for number in 0..3 {
        // Drop the call before or after it was woken.
        let waiting = tokio::time::timeout(Duration::from_millis(1), observer.next());
        waiting.await.unwrap_err();
        {
            let mut woken = pin!(observer.next());
            assert!(poll_once(woken.as_mut()).is_none());
            commit(&store, 0, started(&format!("t{number}")));
        }
        assert_eq!(seqs(&Vec::from_iter(observer.next().await)), [number + 1]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit { chat: usize, action: u8, text: String },
    Create { chat: usize },
    Remove { chat: usize },
    Read { items: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..CHATS, 0..4_u8, "[a-z]{0,3}")
            .prop_map(|(chat, action, text)| Step::Commit { chat, action, text }),
        1 => (0..CHATS).prop_map(|chat| Step::Create { chat }),
        1 => (0..CHATS).prop_map(|chat| Step::Remove { chat }),
        2 => (0..8_usize).prop_map(|items| Step::Read { items }),
    ]
}

/// A consumer that keeps a copy of the chats.
struct Follower {
    observer: StateObserver,
    chats: BTreeMap<String, ChatState>,
    seq: ServerSeq,
}

impl Follower {
    fn new(store: &Arc<StateStore>, scope: ObserverScope, capacity: usize) -> Self {
        let observer = store.observe_with(scope, items(capacity));
        let mut follower = Self { observer, chats: BTreeMap::new(), seq: ServerSeq(0) };
        follower.resync();
        follower
    }

    fn resync(&mut self) {
        self.chats.clear();
        let seq = self.observer.resync(|uri, state| {
            if let Some(doc) = state.chat_doc() {
                self.chats.insert(uri.as_str().to_owned(), doc.whole().unwrap());
            }
        });
        self.seq = seq.unwrap();
    }

    /// Handles one item. Returns whether there was one.
    fn follow(&mut self) -> bool {
        match next_waiting(&mut self.observer) {
            Some(Observed::Action { channel, seq, action }) => {
                assert!(seq > self.seq, "{seq:?} after {:?}", self.seq);
                self.seq = seq;
                apply_action_to_chat(self.chats.get_mut(channel.as_str()).unwrap(), &action);
            }
            Some(Observed::Removed(channel)) => {
                self.chats.remove(channel.as_str()).unwrap();
            }
            Some(Observed::Created(_) | Observed::Lagged) => self.resync(),
            None => return false,
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn observer_matches_store_after_lag_and_resync(
        steps in proptest::collection::vec(step(), 0..120),
        capacity in 1..6_usize,
    ) {
        let store = Arc::new(store_with_chats());
        let scopes = [ObserverScope::Kind(ChannelKind::Chat), ObserverScope::Channel(chat_uri(0))];
        let mut followers = scopes.map(|scope| Follower::new(&store, scope, capacity));
        let mut turns = 0;
        for step in steps {
            match step {
                Step::Commit { chat, action, text } => {
                    let turn = format!("t{turns}");
                    let action = match action {
                        0 => {
                            turns += 1;
                            started(&format!("t{turns}"))
                        }
                        1 => part(&turn, "p"),
                        2 => delta(&turn, "p", &text),
                        _ => complete(&turn),
                    };
                    // The chat may have been removed.
                    store.commit(&chat_uri(chat), &Action::own(action), None).ok();
                }
                Step::Create { chat } => {
                    // The chat may exist.
                    store.create(vec![chat_channel(chat)]).ok();
                }
                Step::Remove { chat } => store.remove(&[chat_uri(chat)]),
                Step::Read { items } => {
                    for follower in &mut followers {
                        for _ in 0..items {
                            follower.follow();
                        }
                    }
                }
            }
        }
        let state = |chat| store.read(&chat_uri(chat), |state| state.chat_doc().unwrap().whole().unwrap());
        for (follower, observed) in followers.iter_mut().zip([CHATS, 1]) {
            while follower.follow() {}
            let expected: BTreeMap<String, ChatState> = (0..observed)
                .filter_map(|chat| Some((chat_uri(chat).as_str().to_owned(), state(chat)?)))
                .collect();
            prop_assert_eq!(&follower.chats, &expected);
        }
    }
}
