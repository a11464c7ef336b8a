//! Permission rules that apply beyond one session.

use innkeeper_core::storage::{StoredRule, StoredRuleBehavior, StoredRuleScope};
use rusqlite::{Connection, params};

use crate::checksum;
use crate::failure::StoreFailure;
use crate::index::text;
use crate::mend::{AsideRecord, Mender};

/// Stores a rule, unless it is stored already.
pub(crate) fn put(db: &Connection, rule: &StoredRule) -> Result<(), StoreFailure> {
    let key = params![rule.scope.root(), rule.behavior.as_str(), rule.rule];
    let mut known =
        db.prepare_cached("SELECT 1 FROM rule WHERE root = ?1 AND behavior = ?2 AND rule = ?3")?;
    if known.exists(key)? {
        return Ok(());
    }
    let stored: i64 = db.prepare_cached("SELECT count(*) FROM rule")?.query_row([], |row| row.get(0))?;
    rule.check_limits(usize::try_from(stored).unwrap_or(usize::MAX)).map_err(StoreFailure::Rejected)?;
    db.prepare_cached(
        "INSERT INTO rule (root, behavior, rule, created_at, checksum)
             VALUES (?1, ?2, ?3, ?4, record_checksum(?1, ?2, ?3, ?4))",
    )?
    .execute(params![rule.scope.root(), rule.behavior.as_str(), rule.rule, rule.created_at])?;
    Ok(())
}

/// Deletes a rule.
pub(crate) fn remove(
    db: &Connection,
    scope: &StoredRuleScope,
    behavior: StoredRuleBehavior,
    rule: &str,
) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM rule WHERE root = ?1 AND behavior = ?2 AND rule = ?3")?
        .execute(params![scope.root(), behavior.as_str(), rule])?;
    Ok(())
}

/// Loads all rules, oldest first. Unusable ones are set aside: a rule with changed bytes
/// could allow something that the user did not allow.
pub(crate) fn load(db: &Connection, mender: &Mender) -> Result<Vec<StoredRule>, StoreFailure> {
    let mut rules = Vec::new();
    let mut broken = Vec::new();
    {
        let mut select =
            db.prepare("SELECT id, root, behavior, rule, created_at, checksum FROM rule ORDER BY id")?;
        let mut records = select.query([])?;
        while let Some(record) = records.next()? {
            match checksum::check(record, 5, &[1, 2, 3, 4])?.and(read(record)?) {
                Ok(rule) => rules.push(rule),
                Err(reason) => broken.push((record.get::<_, i64>(0)?, reason)),
            }
        }
    }
    for (id, reason) in broken {
        let body: Vec<u8> = db.query_row(
            "SELECT CAST(behavior || ' ' || rule || ' ' || root AS BLOB) FROM rule WHERE id = ?1",
            [id],
            |row| row.get(0),
        )?;
        let key = format!("record {id}");
        let record = AsideRecord { kind: "permission rule", key: &key, session: None, body: &body };
        mender.set_aside(db, &record, &reason)?;
        db.execute("DELETE FROM rule WHERE id = ?1", [id])?;
    }
    Ok(rules)
}

fn read(record: &rusqlite::Row<'_>) -> rusqlite::Result<Result<StoredRule, String>> {
    let (root, behavior, rule) = (text(record, 1)?, text(record, 2)?, text(record, 3)?);
    let created_at = record.get(4)?;
    let read = || {
        let behavior = behavior?;
        let behavior =
            StoredRuleBehavior::parse(behavior).ok_or_else(|| format!("unknown behavior {behavior:?}"))?;
        let scope = StoredRuleScope::from_root(root?.to_owned());
        Ok(StoredRule { scope, behavior, rule: rule?.to_owned(), created_at })
    };
    Ok(read())
}
