//! Compares the store with a model: for any sequence of writes, closes and kills, the
//! store and the in-memory storage return the same results.

#![allow(clippy::expect_used, reason = "a test helper that fails must fail the test")]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use innkeeper_core::agent::{History, ResumeToken, TurnLink};
use innkeeper_core::audit::{AuditCursor, AuditDecision, AuditQuery, AuditRecord, MAX_AUDIT_AGE};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::{ClientId, ServerSeq};
use innkeeper_core::output::{OutputId, StoredOutput};
use innkeeper_core::storage::{
    Change, Index, JournalEntry, Storage, StoredClient, StoredConversation, StoredDispatch, StoredEnvelope,
    StoredRow, StoredRule, StoredRuleBehavior, StoredRuleScope, StoredTurn,
};
use innkeeper_core_fakes::MemoryStorage;
use innkeeper_store::Store;
use proptest::collection::vec;
use proptest::prelude::*;
use support::{copy_running_store, json, open, session};
use tempfile::TempDir;
use uuid::Uuid;

/// Few names, so that changes often refer to the same records.
const SESSIONS: usize = 3;
const CLIENTS: usize = 3;
const OUTPUTS: u128 = 4;

/// A step of the property test.
#[derive(Clone, Debug)]
enum Step {
    /// One batch.
    Write(Vec<Change>),
    /// Several batches, queued before the first is acknowledged.
    WriteMany(Vec<Vec<Change>>),
    /// Closes and reopens the store.
    Reopen,
    /// Reopens the store from the files that a killed process leaves.
    Kill,
    /// Starts a host: loads the index.
    Start,
}

fn any_chat() -> impl Strategy<Value = ChannelUri> {
    (0..SESSIONS, 0..3_usize).prop_map(|(number, which)| chat(number, which))
}

fn chat(number: usize, which: usize) -> ChannelUri {
    match which {
        0 => support::chat(number),
        which => ChannelUri::new(&format!("ahp-chat://more/{number}/{which}")),
    }
}

fn any_client() -> impl Strategy<Value = ClientId> {
    (0..CLIENTS).prop_map(|number| ClientId::new(&format!("client-{number}")))
}

fn any_json() -> impl Strategy<Value = innkeeper_core::storage::Json> {
    ("[ -~äß✓]{0,40}", any::<bool>()).prop_map(|(text, nested)| {
        let text = serde_json::to_string(&text).expect("text");
        json(&if nested { format!(r#"{{"a":[{text},1.50,null],"activeTurn":{{"id":"a"}}}}"#) } else { text })
    })
}

fn any_session_change() -> impl Strategy<Value = Change> {
    let row = proptest::option::of((any::<i64>(), any_json()));
    prop_oneof![
        4 => (0..SESSIONS, "[0-9TZ:-]{0,20}", row, any_json()).prop_map(|(number, created_at, row, state)| {
            let session = session(number);
            let row = row.map(|(modified_at, summary)| StoredRow { session: session.clone(), modified_at, summary });
            Change::PutSession { session, created_at, row, state }
        }),
        2 => (0..SESSIONS, any::<i64>(), any_json()).prop_map(|(number, modified_at, summary)| {
            Change::PutRow(StoredRow { session: session(number), modified_at, summary })
        }),
        4 => (0..SESSIONS, 0..3_usize, any::<u128>(), any::<bool>(), any_json()).prop_map(
            |(number, which, conversation, resumes, state)| Change::PutChat {
                chat: chat(number, which),
                session: session(number),
                conversation: StoredConversation {
                    id: Uuid::from_u128(conversation),
                    history: if resumes { History::Resume } else { History::Fresh },
                    resume_token: resumes.then(|| ResumeToken::new(format!("{conversation:x}"))),
                    rewind: None,
                },
                state,
            }
        ),
        1 => (any_chat(), "[a-z]{1,4}").prop_map(|(chat, token)| {
            Change::PutResumeToken { chat, token: ResumeToken::new(token) }
        }),
        2 => (any_chat(), "[a-c]", vec("[a-z]{1,4}", 0..3)).prop_map(|(chat, turn, prompts)| {
            Change::PutTurnLink { chat, turn, link: TurnLink { prompts, ..TurnLink::default() } }
        }),
        1 => (any_chat(), vec("[a-c]", 0..2)).prop_map(|(chat, turns)| Change::RemoveTurnLinks { chat, turns }),
        3 => (any_chat(), "[a-d]", 0..OUTPUTS).prop_map(|(chat, turn, number)| {
            let body = format!("output {number}").into();
            let output = StoredOutput { content_type: "text/plain".to_owned(), body };
            Change::PutOutput { chat, turn, id: OutputId::from_number(number), output }
        }),
        1 => (any_chat(), any_chat(), vec("[a-d]", 0..3))
            .prop_map(|(from, to, turns)| Change::CopyOutput { from, to, turns }),
        4 => (any_chat(), 0..6_usize, vec((prop_oneof!["[a-d]", "[a-z]{1,4}"], any_json()), 0..4)).prop_map(|(chat, keep, turns)| {
            let turns = turns.into_iter().map(|(id, body)| StoredTurn { id, body }).collect();
            Change::PutTurns { chat, keep, turns }
        }),
        4 => (0..SESSIONS, vec((0..50_u64, any::<i64>(), any_json()), 0..3)).prop_map(|(number, entries)| {
            let entry = |(number, at, action)| JournalEntry { number, channel: ChannelUri::new("c"), at, action };
            Change::Journal { session: session(number), entries: entries.into_iter().map(entry).collect() }
        }),
        2 => (0..SESSIONS, 0..50_u64)
            .prop_map(|(number, through)| Change::TrimJournal { session: session(number), through }),
        3 => any_audit().prop_map(Change::Audit),
        1 => (0..SESSIONS).prop_map(|number| Change::RemoveSession { session: session(number) }),
        1 => any_chat().prop_map(|chat| Change::RemoveChat { chat }),
    ]
}

fn any_host_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (any_client(), any::<bool>()).prop_map(|(client, restarted)| Change::PutClient { client, restarted }),
        3 => (any_client(), any_mark()).prop_map(|(client, mark)| Change::Handled { client, mark }),
        3 => (any_client(), any_mark(), 1..=u64::MAX).prop_map(|(client, mark, answer)| Change::Answered {
            client,
            mark,
            answer: ServerSeq(answer),
        }),
        1 => "[a-z]{0,5}".prop_map(|key| Change::PutRootConfig {
            values: [(key, serde_json::json!({"on": [true]}))].into_iter().collect(),
        }),
        1 => (0..10_000_u64).prop_map(|through| Change::ReserveSeq { through: ServerSeq(through) }),
        2 => any_rule().prop_map(Change::PutRule),
        1 => any_rule().prop_map(|StoredRule { scope, behavior, rule, .. }| Change::RemoveRule { scope, behavior, rule }),
        2 => any_end(),
    ]
}

fn any_audit() -> impl Strategy<Value = AuditRecord> {
    let decision =
        prop_oneof![Just(AuditDecision::Allow), Just(AuditDecision::Ask), Just(AuditDecision::Deny)];
    let optional = || proptest::option::of("[a-zä]{0,4}");
    let texts = ("[a-z]{0,4}", "[a-z]{0,4}", optional(), optional());
    // In the future, since a start deletes records by their age; some are too old for others.
    let at = (0..5_i64).prop_map(|half| support::FILLED_AT + half * MAX_AUDIT_AGE / 2);
    (at, 0..SESSIONS, any_chat(), decision, texts, proptest::option::of(any_client())).prop_map(
        |(at, number, chat, decision, (tool, layer, turn, rule), client)| AuditRecord {
            session: session(number),
            chat,
            tool,
            layer,
            turn,
            rule,
            decision,
            client,
            ..support::audited(number, at)
        },
    )
}

fn any_rule() -> impl Strategy<Value = StoredRule> {
    let scope = prop_oneof![Just(StoredRuleScope::Always), "/[ab]".prop_map(StoredRuleScope::Workspace),];
    let behavior = prop_oneof![
        Just(StoredRuleBehavior::Allow),
        Just(StoredRuleBehavior::Ask),
        Just(StoredRuleBehavior::Deny)
    ];
    (scope, behavior, "[ab]", any::<i64>()).prop_map(|(scope, behavior, rule, created_at)| StoredRule {
        scope,
        behavior,
        rule,
        created_at,
    })
}

/// Few values, so that marks often repeat.
fn any_mark() -> impl Strategy<Value = i64> {
    prop_oneof![0..3_i64, any::<i64>()]
}

fn any_dispatch() -> impl Strategy<Value = StoredDispatch> {
    (any_mark(), proptest::option::of(1..=u64::MAX))
        .prop_map(|(mark, answer)| StoredDispatch { mark, answer: answer.map(ServerSeq) })
}

fn dispatch(number: i64) -> StoredDispatch {
    StoredDispatch { mark: number, answer: (number < 290).then(|| ServerSeq(number.unsigned_abs() + 1)) }
}

fn any_end() -> impl Strategy<Value = Change> {
    let envelope = (0..10_000_u64, proptest::option::of(any_client()), vec(any::<u8>(), 0..20));
    let client = (any_client(), vec(any_dispatch(), 0..300), vec((0..9_u64, 0..9_u64), 0..3));
    (0..10_000_u64, vec(envelope, 0..4), vec(client, 0..3)).prop_map(|(seq, replay, clients)| {
        let envelope = |(seq, only_for, envelope): (_, _, Vec<u8>)| StoredEnvelope {
            seq: ServerSeq(seq),
            channel: ChannelUri::root(),
            only_for,
            envelope: Bytes::from(envelope),
        };
        let client = |(id, handled, marks): (_, _, Vec<(u64, u64)>)| StoredClient {
            id,
            handled,
            marks: marks
                .into_iter()
                .map(|(first, last)| (ChannelUri::root(), ServerSeq(first), ServerSeq(last)))
                .collect(),
        };
        let mut clients: Vec<StoredClient> = clients.into_iter().map(client).collect();
        clients.dedup_by(|one, other| one.id == other.id);
        let mut seen = Vec::new();
        clients.retain(|client| {
            !seen.contains(&client.id) && {
                seen.push(client.id.clone());
                true
            }
        });
        Change::CleanShutdown {
            seq: ServerSeq(seq),
            replay: replay.into_iter().map(envelope).collect(),
            clients,
        }
    })
}

fn any_batch() -> impl Strategy<Value = Vec<Change>> {
    prop_oneof![
        12 => vec(prop_oneof![3 => any_session_change(), 1 => any_host_change()], 1..4),
        // Enough to delete old ones.
        1 => vec(any_audit().prop_map(Change::Audit), 16..20),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any_batch().prop_map(Step::Write),
        3 => vec(any_batch(), 2..8).prop_map(Step::WriteMany),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        1 => Just(Step::Start),
    ]
}

/// Removes the unspecified order from an index.
fn comparable(mut index: Index) -> String {
    index.rows.sort_by(|one, other| one.session.cmp(&other.session));
    index.unlisted.sort();
    index.with_journal.sort();
    index.chats.sort();
    format!("{index:#?}")
}

/// The store and its model.
struct Pair {
    directory: TempDir,
    store: Store,
    model: MemoryStorage,
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory is created");
        let store = open(directory.path());
        Self { directory, store, model: MemoryStorage::new() }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Write(batch) => self.write(vec![batch]).await,
            Step::WriteMany(batches) => self.write(batches).await,
            Step::Reopen => {
                self.store.close();
                self.store = open(self.directory.path());
            }
            Step::Kill => {
                let other = tempfile::tempdir().expect("a temporary directory is created");
                copy_running_store(self.directory.path(), other.path());
                self.store = open(other.path());
                self.directory = other;
            }
            Step::Start => {
                let stored = self.store.load_index().await.expect("the index loads");
                let modelled = self.model.load_index().await.expect("the index loads");
                assert_eq!(comparable(stored), comparable(modelled));
            }
        }
        for number in 0..SESSIONS {
            let stored = self.store.load_session(session(number)).await.expect("the session loads");
            let modelled = self.model.load_session(session(number)).await.expect("the session loads");
            assert_eq!(format!("{stored:#?}"), format!("{modelled:#?}"));
        }
        for (session, before, limit) in [
            (None, None, 500),
            (Some(session(1)), None, 2),
            (None, Some(AuditCursor(4)), 2),
            (Some(session(0)), Some(AuditCursor(5)), 1),
        ] {
            let query = AuditQuery { session, before, limit };
            let stored = self.store.load_audit(query.clone()).await.expect("the audit records load");
            let modelled = self.model.load_audit(query).await.expect("the audit records load");
            assert_eq!(stored, modelled);
        }
        for id in (0..OUTPUTS).map(OutputId::from_number) {
            let stored = self.store.load_output(id).await.expect("the output loads");
            assert_eq!(stored, self.model.load_output(id).await.expect("the output loads"));
        }
    }

    async fn write(&mut self, batches: Vec<Vec<Change>>) {
        let stored: Vec<_> = batches.iter().map(|batch| self.store.write(batch.clone())).collect();
        let modelled: Vec<_> = batches.into_iter().map(|batch| self.model.write(batch)).collect();
        for (stored, modelled) in stored.into_iter().zip(modelled) {
            let (stored, modelled) = (stored.await, modelled.await);
            assert_eq!(stored.is_ok(), modelled.is_ok(), "{stored:?} but {modelled:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_matches_model_across_restarts_and_kills(steps in vec(any_step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime is created");
        runtime.block_on(async {
            let mut pair = Pair::new();
            for step in steps {
                pair.take(step).await;
            }
            pair.take(Step::Start).await;
            assert_eq!(pair.store.problems(), Vec::<String>::new());
        });
    }
}

#[tokio::test]
async fn newest_dispatches_and_newest_clients_are_kept() {
    let mut pair = Pair::new();
    for number in 0..300 {
        let client = ClientId::new("busy");
        pair.write(vec![vec![Change::Handled { client, mark: number }]]).await;
    }
    let clients = (0..4200)
        .map(|number| Change::PutClient { client: ClientId::new(&number.to_string()), restarted: false });
    pair.write(vec![
        clients.collect(),
        vec![Change::PutClient { client: ClientId::new("150"), restarted: false }],
    ])
    .await;
    let index = pair.store.load_index().await.expect("the index loads");
    assert_eq!(index.clients.len(), 4096);
    assert_eq!(index.clients.last().map(|client| client.id.as_str().to_owned()).as_deref(), Some("150"));
    assert!(index.clients.iter().all(|client| client.id.as_str() != "busy"), "the oldest client is evicted");

    let mut pair = Pair::new();
    for number in 0..300 {
        let client = ClientId::new("busy");
        pair.write(vec![vec![Change::Handled { client: client.clone(), mark: number }]]).await;
        let StoredDispatch { mark, answer } = dispatch(number);
        if let Some(answer) = answer {
            pair.write(vec![vec![Change::Answered { client, mark, answer }]]).await;
        }
    }
    let index = pair.store.load_index().await.expect("the index loads");
    assert_eq!(index.clients[0].handled, (44..300).map(dispatch).collect::<Vec<_>>());
}

#[tokio::test]
async fn clean_shutdown_is_read_once_and_undone_by_later_writes() {
    let pair = Pair::new();
    let end = || {
        vec![Change::CleanShutdown {
            seq: ServerSeq(7),
            replay: vec![StoredEnvelope {
                seq: ServerSeq(7),
                channel: ChannelUri::root(),
                only_for: None,
                envelope: Bytes::from_static(b"{}"),
            }],
            clients: Vec::new(),
        }]
    };
    pair.store.write(vec![Change::ReserveSeq { through: ServerSeq(100) }]).await.expect("stored");
    pair.store.write(end()).await.expect("stored");
    let index = pair.store.load_index().await.expect("the index loads");
    assert_eq!((index.clean, index.seq, index.replay.len()), (true, ServerSeq(7), 1));
    let index = pair.store.load_index().await.expect("the index loads");
    assert_eq!((index.clean, index.seq, index.replay.len()), (false, ServerSeq(7), 0));

    pair.store.write(end()).await.expect("stored");
    pair.store.write(vec![Change::ReserveSeq { through: ServerSeq(20) }]).await.expect("stored");
    let index = pair.store.load_index().await.expect("the index loads");
    assert_eq!((index.clean, index.seq, index.replay.len()), (false, ServerSeq(20), 0));
}

#[tokio::test]
async fn closed_store_rejects_calls_and_can_be_reopened() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = Arc::new(open(directory.path()));
    let last = store.write(support::put(1));
    store.close();
    store.close();
    last.await.expect("a queued write is stored");
    let error = store.write(support::put(2)).await.expect_err("the store is closed");
    assert!(error.to_string().contains("closed"), "{error}");
    store.load_session(session(1)).await.expect_err("the store is closed");
    store.load_index().await.expect_err("the store is closed");
    assert_eq!(support::names(directory.path(), "innkeeper.db"), ["innkeeper.db"], "the log is removed");
    let again = open(directory.path());
    assert!(again.load_session(session(1)).await.expect("the session loads").is_some());
}

#[tokio::test]
async fn first_schema_is_migrated_with_its_sessions() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = support::open(directory.path());
    store.write(support::put(1)).await.expect("the write succeeds");
    let turns = Change::PutTurns { chat: support::chat(1), keep: 0, turns: vec![support::turn(1)] };
    store.write(vec![turns]).await.expect("the write succeeds");
    drop(store);
    // Restore the state of schema version 1.
    support::sql(directory.path())
        .execute_batch("DROP TABLE turn_link; DROP TABLE resume_token; PRAGMA user_version = 1;")
        .expect("the database is changed");
    let store = support::open(directory.path());
    let loaded = store
        .load_session(support::session(1))
        .await
        .expect("the session loads")
        .expect("the session exists");
    let [chat] = &loaded.chats[..] else { panic!("one chat") };
    assert_eq!((chat.turns.len(), chat.links.len()), (1, 0));
    assert_eq!((&chat.conversation.history, &chat.conversation.resume_token), (&History::Resume, &None));
    let link = TurnLink { prompts: vec!["u1".to_owned()], answer: Some("a1".to_owned()), by_order: true };
    let token = ResumeToken::new("own");
    let changes = vec![
        Change::PutTurnLink { chat: support::chat(1), turn: "turn-1".to_owned(), link: link.clone() },
        Change::PutResumeToken { chat: support::chat(1), token: token.clone() },
    ];
    store.write(changes).await.expect("the write succeeds");
    let loaded = store
        .load_session(support::session(1))
        .await
        .expect("the session loads")
        .expect("the session exists");
    assert_eq!(loaded.chats[0].links, [("turn-1".to_owned(), link)]);
    assert_eq!(loaded.chats[0].conversation.resume_token, Some(token));
}
