use std::task::Poll;

use ahp_types::state::RootState;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::state::{Missed, Outbox};

const CLIENT: &str = "c";

fn store() -> Arc<StateStore> {
    let root: RootState = serde_json::from_value(json!({"agents": []})).unwrap();
    let store = Arc::new(StateStore::new(root));
    let connection = store.attach(Arc::new(Outbox::default()));
    let frame = |_, _| Ok(crate::state::notification("x", &json!({})).unwrap());
    store.introduce(connection, &ClientId::new(CLIENT), &[], frame).unwrap();
    store
}

/// The client reconnects without having seen an answer.
fn reconnect(store: &StateStore) -> ConnectionId {
    let connection = store.attach(Arc::new(Outbox::default()));
    let frame = |_: Missed| Ok(crate::state::notification("x", &json!({})).unwrap());
    store.resume(connection, &ClientId::new(CLIENT), ServerSeq(0), &[], frame).unwrap();
    connection
}

fn origin(connection: ConnectionId, client_seq: i64) -> Origin {
    Origin { connection, client: ClientId::new(CLIENT), client_seq }
}

fn action() -> Action {
    let action = json!({"type": "session/titleChanged", "title": "x"});
    Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap()
}

/// The outcome of a claim, if it does not have to wait.
async fn claimed(store: &Arc<StateStore>, origin: Origin) -> Option<Option<DispatchTicket>> {
    let (channel, action) = (ChannelUri::root(), action());
    let mut claim = pin!(DispatchTicket::claim(store, &channel, &action, origin));
    std::future::poll_fn(|context| {
        Poll::Ready(match claim.as_mut().poll(context) {
            Poll::Ready(ticket) => Some(ticket),
            Poll::Pending => None,
        })
    })
    .await
}

async fn ticket(store: &Arc<StateStore>, origin: Origin) -> DispatchTicket {
    claimed(store, origin).await.flatten().unwrap()
}

fn answer(ticket: &DispatchTicket) {
    ticket.store.reject(&ChannelUri::root(), &action(), ticket.origin(), "no").unwrap();
}

#[tokio::test]
async fn repetition_waits_until_first_copy_is_delivered_or_dropped() {
    for delivered in [true, false] {
        let store = store();
        let first = ticket(&store, origin(ConnectionId(1), 1)).await;
        let again = origin(reconnect(&store), 1);
        let (channel, action) = (ChannelUri::root(), action());
        let mut claim = pin!(DispatchTicket::claim(&store, &channel, &action, again));
        assert!(std::future::poll_fn(|context| Poll::Ready(claim.as_mut().poll(context).is_pending())).await);
        let kept = if delivered {
            first.delivered();
            Some(first)
        } else {
            drop(first);
            None
        };
        assert_eq!(claim.await.is_none(), delivered);
        drop(kept);
    }
}

#[tokio::test]
async fn dispatch_lost_by_its_handler_is_new_when_repeated() {
    let store = store();
    let first = ticket(&store, origin(ConnectionId(1), 1)).await;
    first.delivered();
    assert!(claimed(&store, origin(reconnect(&store), 1)).await.is_some_and(|claim| claim.is_none()));
    drop(first);
    ticket(&store, origin(reconnect(&store), 1)).await;
}

#[tokio::test]
async fn answered_dispatch_is_rejected_when_repeated() {
    let store = store();
    let first = ticket(&store, origin(ConnectionId(1), 1)).await;
    answer(&first);
    drop(first);
    let before = store.seq();
    assert!(claimed(&store, origin(reconnect(&store), 1)).await.is_some_and(|claim| claim.is_none()));
    assert_eq!(store.seq(), ServerSeq(before.0 + 1));
}

#[tokio::test]
async fn dropping_an_answered_ticket_keeps_an_equal_dispatch_of_the_same_connection() {
    let store = store();
    let first = ticket(&store, origin(ConnectionId(1), 1)).await;
    let second = ticket(&store, origin(ConnectionId(1), 1)).await;
    second.delivered();
    answer(&first);
    drop(first);
    answer(&second);
    let stored = store.lock().clients.stored();
    assert_eq!(stored.iter().map(|client| client.handled.len()).sum::<usize>(), 2);
}

#[tokio::test]
async fn untracked_dispatches_are_never_repetitions() {
    let store = store();
    let first = ticket(&store, origin(ConnectionId(1), 0)).await;
    assert_eq!(first.mark(), None);
    ticket(&store, origin(reconnect(&store), 0)).await;
}

proptest! {
    /// A client repeats three dispatches over and over: at any time each has at most one
    /// ticket, and none after it was answered.
    #[test]
    fn dispatch_is_handled_at_most_once(steps in proptest::collection::vec((0..4_u8, 1..4_i64), 0..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = store();
            let mut tickets: [Option<DispatchTicket>; 4] = Default::default();
            let mut answered = [false; 4];
            for (step, seq) in steps {
                let at = usize::try_from(seq).unwrap();
                match step {
                    0 => {
                        let claim = claimed(&store, origin(reconnect(&store), seq)).await;
                        if let Some(ticket) = claim.flatten() {
                            prop_assert!(!answered[at], "handled again");
                            prop_assert!(tickets[at].replace(ticket).is_none(), "two tickets");
                        } else {
                            prop_assert!(answered[at] || tickets[at].is_some(), "lost");
                        }
                    }
                    1 => tickets[at].iter().for_each(DispatchTicket::delivered),
                    2 => {
                        if let Some(ticket) = &tickets[at] {
                            answer(ticket);
                            answered[at] = true;
                        }
                    }
                    _ => tickets[at] = None,
                }
            }
            Ok(())
        })?;
    }
}
