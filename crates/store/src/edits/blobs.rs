//! Contents: compressed on the caller's thread, stored once per digest.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;

use bytes::Bytes;
use innkeeper_core::edits::{BlobDigest, StoredBlob};
use rusqlite::{Connection, OptionalExtension as _};

use super::failure::EditFailure;

/// The compression level. Higher ones save little on source code, but take several times as
/// long.
const LEVEL: i32 = 3;

/// Shorter contents are not compressed: little can be saved.
const SHORTEST_COMPRESSED: usize = 64;

/// Memory that is reserved for a content before its size is known to be right.
const RESERVED: usize = 4 * 1024 * 1024;

/// Contents that a request needs in storage.
#[derive(Debug)]
pub(crate) struct BlobBatch {
    /// The contents.
    pub(crate) blobs: Vec<PackedBlob>,
    /// The time, in milliseconds since 1970.
    pub(crate) at: i64,
    /// Contents that were put after this time need not be put again.
    pub(crate) fresh_since: i64,
}

/// A content as it is stored.
#[derive(Debug)]
pub(crate) struct PackedBlob {
    /// The digest of the content.
    pub(crate) digest: BlobDigest,
    /// The content; `None` if it was stored already when the request was made. The writer
    /// checks that it still is.
    pub(crate) body: Option<PackedBody>,
}

/// The stored form of a content.
#[derive(Debug)]
pub(crate) struct PackedBody {
    compressed: bool,
    size: u64,
    bytes: Bytes,
}

/// Compresses a content, unless it gets larger.
pub(crate) fn pack(blob: &StoredBlob) -> PackedBlob {
    let size = blob.content.len() as u64;
    let long = blob.content.len() >= SHORTEST_COMPRESSED;
    let packed = if long { zstd::bulk::compress(&blob.content, LEVEL).ok() } else { None };
    let body = match packed.filter(|packed| packed.len() < blob.content.len()) {
        Some(packed) => PackedBody { compressed: true, size, bytes: packed.into() },
        None => PackedBody { compressed: false, size, bytes: blob.content.clone() },
    };
    PackedBlob { digest: blob.digest, body: Some(body) }
}

/// Stores contents, and sets the time of those that are stored already, unless it is fresh.
pub(crate) fn put(db: &Connection, batch: &BlobBatch) -> Result<(), EditFailure> {
    let mut select = db.prepare_cached("SELECT put_at FROM blob WHERE digest = ?1")?;
    let mut refresh = db.prepare_cached("UPDATE blob SET put_at = ?2 WHERE digest = ?1")?;
    let mut insert_content = db.prepare_cached("INSERT INTO content (body) VALUES (?1)")?;
    let mut insert = db.prepare_cached(
        "INSERT INTO blob (digest, content, compressed, size, stored, put_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for PackedBlob { digest, body } in &batch.blobs {
        let found = select.query_row([digest.as_bytes()], |row| row.get::<_, i64>(0)).optional()?;
        if let Some(put_at) = found {
            if put_at <= batch.fresh_since {
                refresh.execute((digest.as_bytes(), batch.at))?;
            }
            continue;
        }
        let body = body.as_ref().ok_or(EditFailure::Missing)?;
        let content = insert_content.insert([body.bytes.as_ref()])?;
        let (size, stored) = (body.size.cast_signed(), body.bytes.len().cast_signed());
        insert.execute((digest.as_bytes(), content, body.compressed, size, stored as i64, batch.at))?;
    }
    Ok(())
}

/// When contents were last put; without those that are not stored.
pub(crate) fn put_times(
    db: &Connection,
    digests: impl Iterator<Item = BlobDigest>,
) -> Result<HashMap<BlobDigest, i64>, EditFailure> {
    let mut select = db.prepare_cached("SELECT put_at FROM blob WHERE digest = ?1")?;
    let mut times = HashMap::new();
    for digest in digests {
        if let Some(at) = select.query_row([digest.as_bytes()], |row| row.get(0)).optional()? {
            times.insert(digest, at);
        }
    }
    Ok(times)
}

/// Which of these contents are stored.
pub(crate) fn stored(
    db: &Connection,
    digests: impl IntoIterator<Item = BlobDigest>,
) -> Result<HashSet<BlobDigest>, EditFailure> {
    let mut select = db.prepare_cached("SELECT 1 FROM blob WHERE digest = ?1")?;
    let mut found = HashSet::new();
    for digest in digests {
        if select.exists([digest.as_bytes()])? {
            found.insert(digest);
        }
    }
    Ok(found)
}

/// Reads the stored form of a content.
pub(crate) fn read(db: &Connection, digest: BlobDigest) -> Result<Option<PackedBody>, EditFailure> {
    let mut select = db.prepare_cached(
        "SELECT compressed, size, body FROM blob LEFT JOIN content ON content.id = blob.content WHERE digest = ?1",
    )?;
    let found = select.query_row([digest.as_bytes()], |row| {
        let body: Option<Vec<u8>> = row.get(2)?;
        Ok((row.get::<_, i64>(0)? != 0, row.get::<_, i64>(1)?, body))
    });
    let Some((compressed, size, body)) = found.optional()? else { return Ok(None) };
    let bytes = body.ok_or_else(|| damaged(digest, "it is missing"))?.into();
    Ok(Some(PackedBody { compressed, size: size.cast_unsigned(), bytes }))
}

/// Decompresses a content and checks it.
pub(crate) fn unpack(body: PackedBody, digest: BlobDigest) -> Result<Bytes, EditFailure> {
    let content = if body.compressed {
        let mut content = Vec::with_capacity(usize::try_from(body.size).unwrap_or(RESERVED).min(RESERVED));
        // A damaged content must not fill the memory.
        let unpacked = zstd::stream::read::Decoder::with_buffer(body.bytes.as_ref())
            .and_then(|decoder| decoder.take(body.size).read_to_end(&mut content));
        unpacked.map_err(|error| damaged(digest, &error.to_string()))?;
        content.into()
    } else {
        body.bytes
    };
    if BlobDigest::of(&content) != digest {
        return Err(damaged(digest, "it does not match its digest"));
    }
    Ok(content)
}

fn damaged(digest: BlobDigest, reason: &str) -> EditFailure {
    EditFailure::Damaged(format!("content {digest}: {reason}"))
}
