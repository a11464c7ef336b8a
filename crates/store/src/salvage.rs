//! Replaces a damaged database by a new one with all readable records.
//!
//! Invariant: after a crash at any point, the next start can continue. The damaged files
//! are renamed, never changed or deleted.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use jiff::Timestamp;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

use crate::database::{ConnectionPurpose, StoreFiles, TABLES, beside, connect, definitions, remove_database};
use crate::failure::is_full;
use crate::header;
use crate::lock::private;
use crate::mend::{AsideRecord, Mender};
use crate::migrate::{self, MigrateError};
use crate::restore::{self, LostTurns, RestoredCounts};
use crate::settle;

/// Why a database could not be replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SalvageError {
    /// A file could not be created or renamed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The new database could not be filled.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The new database could not be created.
    #[error(transparent)]
    Schema(#[from] MigrateError),
}

impl SalvageError {
    /// Whether the disk was full.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Io(error) => error.kind() == io::ErrorKind::StorageFull,
            Self::Sql(error) | Self::Schema(MigrateError::Sql(error)) => is_full(error),
            Self::Schema(MigrateError::Newer { .. } | MigrateError::Foreign { .. }) => false,
        }
    }
}

/// Creates a new database from the readable records of the damaged one and replaces it.
/// The caller must have closed all connections.
pub(crate) fn replace(files: &StoreFiles, mender: &Mender, reason: &str) -> Result<(), SalvageError> {
    let new = files.salvaging();
    remove_leftovers(files)?;
    let file = private().open(&new)?;
    let counts = fill(files, mender)?;
    file.sync_all()?;
    fs::rename(&new, files.salvaged())?;
    let aside = finish(files, mender)?;
    remove_leftovers(files)?;
    mender.problems().report(format!(
        "The database was damaged ({reason}). It was set aside as {}; {}.",
        aside.unwrap_or_default(),
        counts.sentence()
    ));
    Ok(())
}

/// Renames a complete new database to the database path. Continues wherever an earlier
/// attempt was interrupted. Returns the new path of the damaged one.
pub(crate) fn finish(files: &StoreFiles, mender: &Mender) -> io::Result<Option<String>> {
    if !files.salvaged().try_exists()? {
        return Ok(None);
    }
    let database = files.database();
    let aside = files.damaged(&mender.stamp());
    // Rename the log first: SQLite would apply an old log to the new database.
    for suffix in ["-wal", "-shm", ""] {
        rename_if_there(&beside(&database, suffix), &beside(&aside, suffix))?;
    }
    fs::rename(files.salvaged(), &database)?;
    if let Some(directory) = database.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(Some(aside.display().to_string()))
}

/// Counts of salvaged and lost records.
#[derive(Debug, Default)]
struct SalvageCounts {
    /// Records in the new database.
    copied: u64,
    /// Unreadable places in the file; each may hide any number of records.
    holes: u64,
    /// Records that were readable but invalid.
    invalid: u64,
    /// Records whose parent record is missing.
    orphans: usize,
    /// The time of the backup, and the records restored from it.
    restored: Option<(i64, RestoredCounts)>,
}

impl SalvageCounts {
    fn sentence(&self) -> String {
        let recovered = if self.copied == 0 {
            "no records could be read".to_owned()
        } else {
            format!(
                "{} records were recovered, {} were invalid or lost their parent record, and {} places were unreadable",
                self.copied,
                self.invalid + self.orphans as u64,
                self.holes
            )
        };
        match self.restored {
            Some((at, RestoredCounts { sessions, chats, turns })) => {
                let at =
                    Timestamp::from_millisecond(at).map_or_else(|_| String::new(), |at| format!("{at:.0}"));
                format!(
                    "{recovered}; {sessions} sessions, {chats} chats and {turns} turns were restored from the backup of {at}"
                )
            }
            None if self.copied == 0 => format!(
                "{recovered} and no backup exists, so this host starts without sessions; \
                 to use a copy of your own, stop the host and replace the database"
            ),
            None => recovered,
        }
    }
}

fn fill(files: &StoreFiles, mender: &Mender) -> Result<SalvageCounts, SalvageError> {
    let mut into = connect(&files.salvaging(), ConnectionPurpose::Fill)?;
    migrate::STORE.run(&mut into)?;
    let mut counts = SalvageCounts::default();
    let source = source(files, &definitions(&into)?)?;
    let backup = restore::attach(files, &into)?;
    let filling = into.transaction()?;
    let mut lost = LostTurns::Possible;
    if let Some(from) = source {
        let most = fs::metadata(files.database())?.len() / SMALLEST_RECORD;
        for table in TABLES {
            let holes = counts.holes;
            TableCopy { table, from: &from, into: &filling, mender, most }.run(&mut counts)?;
            if table == "turn" && counts.holes == holes {
                lost = LostTurns::None;
            }
        }
    }
    if let Some(at) = backup {
        counts.restored = Some((at, restore::complete(&filling, lost)?));
    }
    counts.orphans = settle::settle(&filling, mender)?;
    filling.commit()?;
    Ok(counts)
}

/// Opens the damaged database, if it is readable at all.
fn source(files: &StoreFiles, expected: &[String]) -> Result<Option<Connection>, SalvageError> {
    let damaged = files.database();
    let length = fs::metadata(&damaged)?.len();
    if length == 0 {
        // SQLite would delete the log of an empty database.
        return Ok(None);
    }
    let is_as_expected = |db: &Connection| definitions(db).is_ok_and(|found| found == expected);
    let mut head = Vec::new();
    File::open(&damaged)?.take(header::LENGTH).read_to_end(&mut head)?;
    let opened = connect(&damaged, ConnectionPurpose::Salvage).ok();
    // With a wrong header, SQLite may read the definitions but not the other pages.
    let is_usable = header::damage(&head).is_none() && opened.as_ref().is_some_and(is_as_expected);
    if is_usable || length <= PAGE {
        return Ok(opened);
    }
    replace_first_page(files, length)?;
    let headed = connect(&files.headed(), ConnectionPurpose::Salvage).ok().filter(is_as_expected);
    Ok(headed.or(opened))
}

/// Page size. Databases are created with SQLite's default.
const PAGE: u64 = 4096;

/// Copies the damaged database and gives it the first page of the new one. The first page
/// contains the table definitions, and the same migrations put the same tables onto the
/// same pages. Tables that a later migration put elsewhere are not found, or do not match
/// the columns that they are read into.
fn replace_first_page(files: &StoreFiles, length: u64) -> io::Result<()> {
    let mut head = Vec::new();
    File::open(files.salvaging())?.take(PAGE).read_to_end(&mut head)?;
    let pages = u32::try_from(length / PAGE).unwrap_or(u32::MAX);
    // Offsets from the SQLite file format: 18 and 19 select the log mode, 28 is the
    // number of pages, 32 the first free page, 36 the number of free pages.
    for (offset, bytes) in [(18, &[2, 2][..]), (28, &pages.to_be_bytes()), (32, &[0; 8])] {
        if let Some(field) = head.get_mut(offset..offset + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }
    let copy = files.headed();
    copy_if_there(&files.database(), &copy)?;
    copy_if_there(&beside(&files.database(), "-wal"), &beside(&copy, "-wal"))?;
    private().open(&copy)?.write_all(&head)
}

/// Maximum number of unreadable places skipped per table. More damage than this is not
/// salvaged.
const HOLES: usize = 1000;

/// Minimum size of a record in the file.
const SMALLEST_RECORD: u64 = 4;

/// Number of record ids after an unreadable one that are tried one by one.
const ONE_BY_ONE: i64 = 4096;

/// Copies the readable records of one table.
struct TableCopy<'a> {
    table: &'static str,
    from: &'a Connection,
    into: &'a Connection,
    mender: &'a Mender,
    /// An upper bound of the number of records, because a damaged table may contain
    /// cycles.
    most: u64,
}

/// A record: its id and its columns.
type SalvagedRecord = (i64, Vec<SalvagedColumn>);

/// A column's value; invalid text is kept as bytes for inspection.
enum SalvagedColumn {
    Fine(Value),
    Wrong(Vec<u8>),
}

impl TableCopy<'_> {
    fn run(&self, counts: &mut SalvageCounts) -> Result<(), SalvageError> {
        let mut from = i64::MIN;
        for _ in 0..HOLES {
            let mut next = from;
            if matches!(self.copy_from(&mut next, counts)?, Walk::End) {
                return Ok(());
            }
            counts.holes += 1;
            // Damaged ids may decrease; the search must not, or it would not terminate.
            match self.after_hole(next.max(from)) {
                Some(found) => from = found,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Copies records starting at an id, until the end or an unreadable record. `next` is
    /// set to the id where it stopped.
    fn copy_from(&self, next: &mut i64, counts: &mut SalvageCounts) -> Result<Walk, SalvageError> {
        let sql = format!("SELECT rowid, * FROM {} NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid", self.table);
        let Ok(mut select) = self.from.prepare_cached(&sql) else { return Ok(Walk::End) };
        let Ok(mut records) = select.query([*next]) else { return Ok(Walk::Hole) };
        for _ in 0..self.most {
            let record = match records.next() {
                Ok(Some(row)) => read_record(row),
                Ok(None) => return Ok(Walk::End),
                Err(_) => return Ok(Walk::Hole),
            };
            let Ok((id, columns)) = record else { return Ok(Walk::Hole) };
            self.insert(id, columns, counts)?;
            *next = id.saturating_add(1);
        }
        Ok(Walk::End)
    }

    /// The smallest id after a hole from which records can be read again. Tries ids one
    /// by one first, since a page holds few records, then doubles the step, then bisects
    /// the last step.
    fn after_hole(&self, hole: i64) -> Option<i64> {
        let hole = hole.max(0);
        let mut step: i64 = 1;
        let mut unreadable = hole;
        let mut readable = loop {
            let candidate = hole.checked_add(step)?;
            if self.can_read(candidate) {
                break candidate;
            }
            unreadable = candidate;
            step = if step < ONE_BY_ONE { step + 1 } else { step.checked_mul(2)? };
        };
        while readable - unreadable > 1 {
            let middle = unreadable + (readable - unreadable) / 2;
            if self.can_read(middle) {
                readable = middle;
            } else {
                unreadable = middle;
            }
        }
        Some(readable)
    }

    /// Whether the first record at or after this id is readable, or does not exist.
    fn can_read(&self, from: i64) -> bool {
        let sql = format!("SELECT rowid, * FROM {} NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid", self.table);
        let Ok(mut select) = self.from.prepare_cached(&sql) else { return false };
        let Ok(mut records) = select.query([from]) else { return false };
        match records.next() {
            Ok(Some(row)) => read_record(row).is_ok(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    fn insert(
        &self,
        id: i64,
        columns: Vec<SalvagedColumn>,
        counts: &mut SalvageCounts,
    ) -> Result<(), SalvageError> {
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            match column {
                SalvagedColumn::Fine(value) => values.push(value),
                SalvagedColumn::Wrong(bytes) => {
                    counts.invalid += 1;
                    return self.keep(id, &bytes, "not text");
                }
            }
        }
        let places = vec!["?"; values.len()].join(", ");
        let sql = format!("INSERT INTO {} VALUES ({places})", self.table);
        let inserted =
            self.into.prepare_cached(&sql).and_then(|mut insert| insert.execute(params_from_iter(&values)));
        match inserted {
            Ok(_) => counts.copied += 1,
            Err(error) if is_full(&error) => return Err(error.into()),
            // Already copied before the hole.
            Err(_) if self.has(id) => {}
            Err(error) => {
                counts.invalid += 1;
                return self.keep(id, format!("{values:?}").as_bytes(), &error.to_string());
            }
        }
        Ok(())
    }

    fn has(&self, id: i64) -> bool {
        let sql = format!("SELECT 1 FROM {} WHERE rowid = ?1", self.table);
        self.into.prepare_cached(&sql).and_then(|mut select| select.exists([id])).unwrap_or(false)
    }

    fn keep(&self, id: i64, body: &[u8], reason: &str) -> Result<(), SalvageError> {
        let record = AsideRecord { kind: self.table, key: &format!("record {id}"), session: None, body };
        Ok(self.mender.keep(self.into, &record, reason)?)
    }
}

/// How a scan ended.
enum Walk {
    End,
    Hole,
}

fn read_record(row: &rusqlite::Row<'_>) -> rusqlite::Result<SalvagedRecord> {
    let id = row.get(0)?;
    let mut columns = Vec::with_capacity(row.as_ref().column_count());
    for column in 1..row.as_ref().column_count() {
        columns.push(match row.get_ref(column)? {
            ValueRef::Null => SalvagedColumn::Fine(Value::Null),
            ValueRef::Integer(number) => SalvagedColumn::Fine(Value::Integer(number)),
            ValueRef::Real(number) => SalvagedColumn::Fine(Value::Real(number)),
            ValueRef::Blob(bytes) => SalvagedColumn::Fine(Value::Blob(bytes.to_vec())),
            ValueRef::Text(bytes) => match str::from_utf8(bytes) {
                Ok(text) => SalvagedColumn::Fine(Value::Text(text.to_owned())),
                Err(_) => SalvagedColumn::Wrong(bytes.to_vec()),
            },
        });
    }
    Ok((id, columns))
}

/// Removes temporary files of this repair or of an interrupted one.
fn remove_leftovers(files: &StoreFiles) -> io::Result<()> {
    for base in [files.salvaging(), files.headed(), files.restoring()] {
        remove_database(&base)?;
    }
    Ok(())
}

fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
