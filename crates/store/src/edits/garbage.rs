//! Garbage collection: finds contents on the read connection, and deletes them in small steps
//! between other writes.
//!
//! A step checks its conditions again, since a content may have been put or referred to after
//! it was found.

use std::collections::HashSet;

use innkeeper_core::edits::BlobDigest;
use rusqlite::{Connection, OptionalExtension as _};

use super::failure::EditFailure;

/// The condition for a content that nothing refers to.
const UNREFERENCED: &str = "NOT EXISTS (SELECT 1 FROM record WHERE before_blob = digest) \
                            AND NOT EXISTS (SELECT 1 FROM record WHERE after_blob = digest) \
                            AND NOT EXISTS (SELECT 1 FROM operation_blob WHERE blob = digest)";

/// The condition for a content that may be evicted: a repair after a crash does not need it.
const EVICTABLE: &str = "NOT EXISTS (SELECT 1 FROM operation_blob JOIN operation ON number = operation \
                         WHERE blob = digest AND NOT finished)";

/// Most contents in one step, so that other writes do not wait long.
const STEP: usize = 2000;

/// Most bytes in one step, for the same reason: deleted contents are overwritten.
const STEP_BYTES: u64 = 8 * 1024 * 1024;

/// Number of free pages that are removed from the file in one step.
const SHRINK_PAGES: u32 = 2000;

/// Which contents a step deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GarbageKind {
    /// Contents that nothing refers to.
    Unreferenced,
    /// Contents beyond the quota.
    Evicted,
}

impl GarbageKind {
    fn condition(self) -> &'static str {
        match self {
            Self::Unreferenced => UNREFERENCED,
            Self::Evicted => EVICTABLE,
        }
    }
}

/// A content that may be deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GarbageCandidate {
    digest: BlobDigest,
    stored: u64,
}

/// Contents that one step deletes, unless they are used since.
#[derive(Debug)]
pub(crate) struct GarbageStep {
    /// Which contents they are.
    pub(crate) kind: GarbageKind,
    /// The contents.
    pub(crate) digests: Vec<BlobDigest>,
    /// Contents that were put after this time stay.
    pub(crate) cutoff: i64,
}

/// Finds contents that nothing refers to and that were not put after a time.
pub(crate) fn unreferenced(
    db: &Connection,
    cutoff: i64,
    held: &HashSet<BlobDigest>,
) -> Result<Vec<GarbageCandidate>, EditFailure> {
    candidates(db, &format!("put_at <= ?1 AND {UNREFERENCED}"), cutoff, held, u64::MAX)
}

/// Finds the oldest contents, as many as have to be deleted for the quota.
pub(crate) fn beyond_quota(
    db: &Connection,
    cutoff: i64,
    held: &HashSet<BlobDigest>,
    quota: u64,
) -> Result<Vec<GarbageCandidate>, EditFailure> {
    let excess = total(db)?.saturating_sub(quota);
    if excess == 0 {
        return Ok(Vec::new());
    }
    candidates(db, &format!("put_at <= ?1 AND {EVICTABLE} ORDER BY put_at"), cutoff, held, excess)
}

fn candidates(
    db: &Connection,
    condition: &str,
    cutoff: i64,
    held: &HashSet<BlobDigest>,
    enough: u64,
) -> Result<Vec<GarbageCandidate>, EditFailure> {
    let mut select = db.prepare(&format!("SELECT digest, stored FROM blob WHERE {condition}"))?;
    let mut rows = select.query([cutoff])?;
    let mut found = Vec::new();
    let mut bytes = 0_u64;
    while bytes < enough
        && let Some(row) = rows.next()?
    {
        let digest = BlobDigest::from_bytes(row.get(0)?);
        if !held.contains(&digest) {
            let stored = row.get::<_, i64>(1)?.cast_unsigned();
            bytes = bytes.saturating_add(stored);
            found.push(GarbageCandidate { digest, stored });
        }
    }
    Ok(found)
}

/// The compressed size of all contents.
pub(crate) fn total(db: &Connection) -> Result<u64, EditFailure> {
    let total: i64 = db.query_row("SELECT coalesce(sum(stored), 0) FROM blob", [], |row| row.get(0))?;
    Ok(total.cast_unsigned())
}

/// Divides candidates into steps.
pub(crate) fn steps(kind: GarbageKind, found: &[GarbageCandidate], cutoff: i64) -> Vec<GarbageStep> {
    let mut steps = Vec::new();
    let mut digests = Vec::new();
    let mut bytes = 0_u64;
    for candidate in found {
        digests.push(candidate.digest);
        bytes = bytes.saturating_add(candidate.stored);
        if digests.len() >= STEP || bytes >= STEP_BYTES {
            steps.push(GarbageStep { kind, digests: std::mem::take(&mut digests), cutoff });
            bytes = 0;
        }
    }
    if !digests.is_empty() {
        steps.push(GarbageStep { kind, digests, cutoff });
    }
    steps
}

/// Deletes the contents of a step and returns how many there were.
pub(crate) fn delete(db: &Connection, step: &GarbageStep) -> Result<u64, EditFailure> {
    let condition = step.kind.condition();
    let mut select = db.prepare_cached(&format!(
        "SELECT content FROM blob WHERE digest = ?1 AND put_at <= ?2 AND {condition}"
    ))?;
    let mut delete_content = db.prepare_cached("DELETE FROM content WHERE id = ?1")?;
    let mut delete = db.prepare_cached("DELETE FROM blob WHERE digest = ?1")?;
    let mut deleted = 0;
    for digest in &step.digests {
        let found = select.query_row((digest.as_bytes(), step.cutoff), |row| row.get::<_, i64>(0));
        if let Some(content) = found.optional()? {
            delete_content.execute([content])?;
            delete.execute([digest.as_bytes()])?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Ends the grace period of contents that nothing refers to.
pub(crate) fn release(db: &Connection, contents: &HashSet<BlobDigest>) -> Result<(), EditFailure> {
    let mut release =
        db.prepare_cached(&format!("UPDATE blob SET put_at = 0 WHERE digest = ?1 AND {UNREFERENCED}"))?;
    for digest in contents {
        release.execute([digest.as_bytes()])?;
    }
    Ok(())
}

/// Removes some free pages from the file and returns how many are left.
pub(crate) fn shrink(db: &Connection) -> Result<u64, EditFailure> {
    let mut vacuum = db.prepare(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
    // Each step removes one page.
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    let left: i64 = db.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    Ok(left.cast_unsigned())
}
