//! Tests of permission rules and audit records: limits, deletion, damage and backups.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test helper that fails must fail the test"
)]

mod support;

use std::fs;
use std::path::Path;

use innkeeper_core::audit::{
    AUDIT_DELETIONS, AUDIT_INTERVAL, AuditCursor, AuditDecision, AuditQuery, AuditRecord, MAX_AUDIT_AGE,
    MAX_AUDIT_RECORDS,
};
use innkeeper_core::ids::ClientId;
use innkeeper_core::storage::{
    Change, MAX_STORED_RULE_BYTES, MAX_STORED_RULES, Storage, StorageError, StoredRule, StoredRuleBehavior,
    StoredRuleScope,
};
use innkeeper_store::{Store, StoreConfig};
use support::{
    FILLED_AT, audit_page, audit_times, audited, chat, database, destroy, fill, open, pages_of, put, rule,
    session, sql,
};

async fn rules(store: &Store) -> Vec<StoredRule> {
    store.load_index().await.expect("the index loads").rules
}

async fn write(store: &Store, change: Change) {
    store.write(vec![change]).await.expect("the write succeeds");
}

/// A store with sessions 0 and 1.
async fn with_sessions(directory: &Path) -> Store {
    let store = open(directory);
    store.write(put(0)).await.expect("the write succeeds");
    store.write(put(1)).await.expect("the write succeeds");
    store
}

/// Fills a database with 3 sessions and takes a backup of it.
async fn fill_and_back_up(directory: &Path) {
    fill(directory, 3, 1).await;
    let store = Store::open(StoreConfig::new(directory)).expect("the store opens");
    write(&store, support::journal(0, 2)).await;
    support::backup_exists(directory, 1).await;
    store.close();
}

#[tokio::test]
async fn rules_survive_restart_and_removal_deletes_one() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    let always = StoredRule { behavior: StoredRuleBehavior::Deny, ..rule("", "Bash(rm:*)") };
    let workspace = rule("/work", "Bash(rm:*)");
    write(&store, Change::PutRule(always.clone())).await;
    write(&store, Change::PutRule(workspace.clone())).await;
    write(&store, Change::PutRule(StoredRule { created_at: 99, ..always.clone() })).await;
    store.close();
    let store = open(directory.path());
    assert_eq!(rules(&store).await, [always, workspace.clone()]);
    let absent = Change::RemoveRule {
        scope: StoredRuleScope::Always,
        behavior: StoredRuleBehavior::Allow,
        rule: "Bash(rm:*)".to_owned(),
    };
    write(&store, absent).await;
    assert_eq!(rules(&store).await.len(), 2, "a rule with another behavior is kept");
    let removal = Change::RemoveRule {
        scope: StoredRuleScope::Always,
        behavior: StoredRuleBehavior::Deny,
        rule: "Bash(rm:*)".to_owned(),
    };
    write(&store, removal).await;
    assert_eq!(rules(&store).await, [workspace]);
}

#[tokio::test]
async fn rejects_rules_above_limits_and_keeps_stored_ones() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = open(directory.path());
    let numbered = |number: usize| Change::PutRule(rule("", &format!("Read({number})")));
    store.write((0..MAX_STORED_RULES).map(numbered).collect()).await.expect("the write succeeds");
    let error = store.write(vec![numbered(MAX_STORED_RULES)]).await.expect_err("too many rules");
    assert!(matches!(error, StorageError::RuleRejected(_)), "{error:?}");
    assert!(error.to_string().contains("10000 rules") && error.to_string().contains("remove"), "{error}");
    write(&store, numbered(3)).await;
    let long = Change::PutRule(rule("", &"x".repeat(MAX_STORED_RULE_BYTES + 1)));
    let error = store.write(vec![long]).await.expect_err("the rule is too long");
    assert!(error.to_string().contains("shorter"), "{error}");
    assert_eq!(rules(&store).await.len(), MAX_STORED_RULES);
}

#[tokio::test]
async fn audit_records_are_paged_newest_first_and_by_session() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = with_sessions(directory.path()).await;
    for at in 0..7 {
        write(&store, Change::Audit(audited(usize::from(at % 3 == 0), at))).await;
    }
    let full = AuditRecord {
        turn: None,
        decision: AuditDecision::Deny,
        rule: None,
        client: Some(ClientId::new("phone")),
        ..audited(1, 7)
    };
    write(&store, Change::Audit(full.clone())).await;
    write(&store, Change::Audit(audited(9, 8))).await;
    drop(store);
    let store = open(directory.path());
    assert_eq!(
        audit_page(&store, None, 1).await.records,
        [full],
        "a record of an unknown session is ignored"
    );
    assert_eq!(audit_times(&store, None).await, [7, 6, 5, 4, 3, 2, 1, 0]);
    let mut before = None;
    let mut pages = Vec::new();
    loop {
        let query = AuditQuery { session: Some(session(0)), before, limit: 2 };
        let page = store.load_audit(query).await.expect("the audit records load");
        pages.push(page.records.iter().map(|record| record.at).collect::<Vec<_>>());
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(pages, [[5, 4], [2, 1]], "the last full page is known to be the last");
    let everything = AuditQuery { session: None, before: Some(AuditCursor(u64::MAX)), limit: 500 };
    assert_eq!(store.load_audit(everything).await.expect("the audit records load").records.len(), 8);
}

#[tokio::test]
async fn audit_records_above_age_are_deleted_in_small_steps() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = with_sessions(directory.path()).await;
    let records = |times: std::ops::Range<i64>| times.map(|at| Change::Audit(audited(0, at))).collect();
    store.write(records(FILLED_AT..FILLED_AT + 100)).await.expect("the write succeeds");
    let later = FILLED_AT + MAX_AUDIT_AGE + 80;
    store.write(records(later..later + 11)).await.expect("the write succeeds");
    assert_eq!(audit_times(&store, None).await.len(), 111, "the position of a new record is not a multiple");
    // Its position is 112.
    write(&store, Change::Audit(audited(0, later))).await;
    let left = audit_times(&store, None).await;
    assert_eq!(left.len(), 112 - AUDIT_DELETIONS);
    assert_eq!(left.last(), Some(&(FILLED_AT + 64)), "the oldest are deleted first");
    store.write(records(later..later + AUDIT_INTERVAL as i64)).await.expect("the write succeeds");
    // The position 128 has the last of these times.
    let oldest = later + AUDIT_INTERVAL as i64 - 1 - MAX_AUDIT_AGE;
    let left = audit_times(&store, None).await;
    assert_eq!(left.last(), Some(&oldest), "a record of exactly the maximum age is kept");
}

#[tokio::test]
async fn audit_records_above_number_are_deleted_in_small_steps() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = with_sessions(directory.path()).await;
    let records = |count: i64| (0..count).map(|at| Change::Audit(audited(0, FILLED_AT + at))).collect();
    store.write(records(201)).await.expect("the write succeeds");
    store.close();
    // As if many records were written since: the next position is a multiple.
    let newest = MAX_AUDIT_RECORDS + 15;
    let change = format!("UPDATE audit SET id = {newest} WHERE id = 201");
    sql(directory.path()).execute_batch(&change).expect("the database is changed");
    let store = open(directory.path());
    // Positions up to 32 are too old: the newest position is 100016, and 99984 are kept.
    write(&store, Change::Audit(audited(0, FILLED_AT))).await;
    let ids: (i64, i64) = sql(directory.path())
        .query_row("SELECT min(id), count(*) FROM audit", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("the rows are read");
    assert_eq!(ids, (33, 202 - 32));
    // All of the first 200 are too old now, and are deleted in steps.
    store.close();
    let change = format!("UPDATE audit SET id = {} WHERE id = {newest}", newest + 1_000 - 15);
    sql(directory.path()).execute_batch(&change).expect("the database is changed");
    let store = open(directory.path());
    for left in [168 + 16 - 64 + 2, 168 + 32 - 128 + 2, 32 + 16 + 2] {
        store.write(records(AUDIT_INTERVAL as i64)).await.expect("the write succeeds");
        assert_eq!(audit_times(&store, None).await.len(), left);
    }
}

#[tokio::test]
async fn start_deletes_old_audit_records() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = with_sessions(directory.path()).await;
    write(&store, Change::Audit(audited(0, 1_000))).await;
    assert_eq!(audit_times(&store, None).await, [1_000]);
    store.load_index().await.expect("the index loads");
    assert_eq!(audit_times(&store, None).await, Vec::<i64>::new());
}

#[tokio::test]
async fn disposed_session_or_chat_has_no_audit_records() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let store = with_sessions(directory.path()).await;
    for number in [0, 1] {
        write(&store, Change::Audit(audited(number, 5))).await;
    }
    write(&store, Change::RemoveSession { session: session(0) }).await;
    assert_eq!(audit_times(&store, Some(0)).await, Vec::<i64>::new());
    write(&store, Change::Audit(audited(0, 6))).await;
    assert_eq!(audit_times(&store, None).await, [5], "a late record of a disposed session is ignored");
    write(&store, Change::RemoveChat { chat: chat(1) }).await;
    assert_eq!(audit_times(&store, None).await, Vec::<i64>::new());
}

#[tokio::test]
async fn changed_bytes_of_rules_and_audit_records_are_set_aside() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 1).await;
    sql(directory.path())
        .execute_batch(
            "UPDATE rule SET rule = 'Bash(*)' WHERE id = 2;
             UPDATE audit SET decision = 'deny' WHERE id = 3;
             UPDATE audit SET tool = CAST(x'ff' AS TEXT) WHERE id = 1;",
        )
        .expect("the database is changed");
    let store = open(directory.path());
    let left: Vec<String> = rules(&store).await.into_iter().map(|rule| rule.rule).collect();
    assert_eq!(left, ["Bash(0)", "Bash(2)"]);
    assert_eq!(audit_times(&store, Some(1)).await, [FILLED_AT]);
    assert_eq!(store.problems().len(), 1, "only the rule was read so far: {:?}", store.problems());
    assert_eq!(audit_page(&store, None, 500).await.records, [audited(1, FILLED_AT)]);
    let problems = store.problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].contains("permission rule") && problems[2].contains("audit record"), "{problems:?}");
    drop(store);
    let store = open(directory.path());
    assert_eq!((rules(&store).await.len(), audit_times(&store, None).await.len()), (2, 1));
    assert_eq!(store.problems(), Vec::<String>::new(), "each problem is reported once");
    write(&store, Change::RemoveSession { session: session(0) }).await;
    let aside = "SELECT count(*) FROM set_aside WHERE kind = 'audit record'";
    let aside: i64 = sql(directory.path()).query_row(aside, [], |row| row.get(0)).expect("the rows are read");
    assert_eq!(aside, 1, "the record of the disposed session is deleted");
}

#[tokio::test]
async fn rules_and_audit_records_are_restored_from_backup() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill_and_back_up(directory.path()).await;
    let store = open(directory.path());
    let removal = Change::RemoveRule {
        scope: StoredRuleScope::Workspace("/w".to_owned()),
        behavior: StoredRuleBehavior::Allow,
        rule: "Bash(1)".to_owned(),
    };
    write(&store, removal).await;
    write(&store, Change::RemoveSession { session: session(2) }).await;
    store.close();
    fs::write(database(directory.path()), b"").expect("the file is emptied");
    let store = open(directory.path());
    let restored: Vec<String> = rules(&store).await.into_iter().map(|rule| rule.rule).collect();
    assert_eq!(restored, ["Bash(0)", "Bash(2)"], "the removed rule does not return");
    let records = audit_page(&store, None, 500).await.records;
    assert_eq!(records, [audited(1, FILLED_AT), audited(0, FILLED_AT)], "{:?}", store.problems());
}

#[tokio::test]
async fn unreadable_audit_page_is_restored_and_newer_records_are_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill_and_back_up(directory.path()).await;
    let store = open(directory.path());
    let newer = (0..200).map(|number| Change::Audit(audited(1, FILLED_AT + number))).collect();
    store.write(newer).await.expect("the write succeeds");
    store.close();
    let pages = pages_of(directory.path(), "audit");
    assert!(pages.len() > 3, "{pages:?}");
    // The first leaf.
    destroy(directory.path(), pages[1]);
    let store = open(directory.path());
    let records = audit_page(&store, None, 500).await.records;
    assert!(store.problems()[0].contains("restored from the backup"), "{:?}", store.problems());
    assert!((150..203).contains(&records.len()), "{}", records.len());
    assert_eq!(records.first().map(|record| record.at), Some(FILLED_AT + 199));
    let oldest: Vec<_> = records.iter().rev().take(3).map(|record| record.session.clone()).collect();
    assert_eq!(oldest, [session(0), session(1), session(2)], "the backup had these");
    assert_eq!(rules(&store).await.len(), 3);
}

#[tokio::test]
async fn changed_audit_record_does_not_prevent_a_backup() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 3, 1).await;
    let change = "UPDATE audit SET tool = 'Read' WHERE id = 2; UPDATE rule SET rule = 'x' WHERE id = 1";
    sql(directory.path()).execute_batch(change).expect("the database is changed");
    let store = Store::open(StoreConfig::new(directory.path())).expect("the store opens");
    write(&store, support::journal(0, 2)).await;
    support::backup_exists(directory.path(), 1).await;
    assert_eq!(store.problems(), Vec::<String>::new());
    store.close();
    fs::write(database(directory.path()), b"").expect("the file is emptied");
    let store = open(directory.path());
    let records = audit_page(&store, None, 500).await.records;
    assert_eq!(records, [audited(2, FILLED_AT), audited(0, FILLED_AT)]);
    assert_eq!(rules(&store).await.len(), 2);
}

#[tokio::test]
async fn backup_without_these_tables_is_changed_and_restored() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    fill(directory.path(), 2, 1).await;
    support::downgrade(directory.path(), 4);
    sql(directory.path()).execute_batch("PRAGMA journal_mode = DELETE").expect("the mode is set");
    let backup = directory.path().join("innkeeper.db.backup-1");
    fs::rename(database(directory.path()), &backup).expect("the file is renamed");
    let store = open(directory.path());
    let removal = Change::RemoveRule {
        scope: StoredRuleScope::Always,
        behavior: StoredRuleBehavior::Ask,
        rule: "Read".to_owned(),
    };
    let removals =
        [Change::RemoveSession { session: session(1) }, Change::RemoveChat { chat: chat(1) }, removal];
    store.write(removals.to_vec()).await.expect("the write succeeds");
    assert!(backup.exists(), "the session is deleted from the backup");
    assert!(store.load_session(session(0)).await.expect("the session loads").is_some());
}
