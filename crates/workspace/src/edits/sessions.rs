//! The records of sessions in memory, and what is computed from them.
//!
//! The records of a session are read from storage when they are first needed. They stay in
//! memory while a recorder works for the session; of other sessions, only the recently used
//! ones. Invariant: all records that this process adds go through [`CachedSession::append`]
//! or are followed by [`CachedSession::forget`], so that memory and storage agree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{BlobDigest, EditRecord, EditSource, EditStorage, EditStorageError};

use super::folding::{self, Contents, NetChange};

/// Sessions without a recorder that are kept.
const MAX_IDLE_SESSIONS: usize = 64;

/// Records of sessions without a recorder that are kept, about 100 MB.
const MAX_IDLE_RECORDS: usize = 200_000;

/// The sessions in memory.
#[derive(Debug)]
pub(crate) struct SessionCache {
    storage: Arc<dyn EditStorage>,
    entries: Mutex<HashMap<ChannelUri, Arc<CachedSession>>>,
    uses: AtomicU64,
}

/// One session. A recorder keeps it, so that it stays in memory.
#[derive(Debug)]
pub(crate) struct CachedSession {
    session: ChannelUri,
    storage: Arc<dyn EditStorage>,
    last_use: AtomicU64,
    size: AtomicUsize,
    state: Mutex<Option<SessionRecords>>,
}

/// The net changes of all turns, by file; the key is the chat, or `None` for all chats.
pub(crate) type FoldedScopes = HashMap<Option<ChannelUri>, BTreeMap<PathBuf, NetChange>>;

/// The loaded records of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionRecords {
    records: Vec<Arc<EditRecord>>,
    /// Files that an agent changed, with the chat that did it last.
    touched: HashMap<PathBuf, ChannelUri>,
    folded: FoldedScopes,
    /// How many records are folded.
    folded_count: usize,
}

impl SessionRecords {
    fn push(&mut self, record: EditRecord) {
        match record.source {
            EditSource::Tool | EditSource::Shell => {
                self.touched.insert(record.path.clone(), record.chat.clone());
            }
            EditSource::External | EditSource::Undo | EditSource::Redo => {}
        }
        self.records.push(Arc::new(record));
    }

    fn fold_new(&mut self, contents: &dyn Contents) -> Result<(), EditStorageError> {
        let new = self.records.get(self.folded_count..).unwrap_or_default().to_vec();
        for record in new {
            folding::add_record(self.folded.entry(None).or_default(), &record, contents)?;
            let chat = self.folded.entry(Some(record.chat.clone())).or_default();
            folding::add_record(chat, &record, contents)?;
            self.folded_count += 1;
        }
        Ok(())
    }
}

impl SessionCache {
    pub(crate) fn new(storage: Arc<dyn EditStorage>) -> Self {
        Self { storage, entries: Mutex::default(), uses: AtomicU64::new(0) }
    }

    /// The entry of a session.
    pub(crate) fn entry(&self, session: &ChannelUri) -> Arc<CachedSession> {
        let mut entries = self.entries();
        let entry = entries.entry(session.clone()).or_insert_with(|| {
            Arc::new(CachedSession {
                session: session.clone(),
                storage: Arc::clone(&self.storage),
                last_use: AtomicU64::new(0),
                size: AtomicUsize::new(0),
                state: Mutex::new(None),
            })
        });
        entry.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let entry = Arc::clone(entry);
        drop_idle(&mut entries);
        entry
    }

    /// Contents that only cached net changes refer to.
    pub(crate) fn held_blobs(&self) -> HashSet<BlobDigest> {
        let entries: Vec<_> = self.entries().values().cloned().collect();
        let mut held = HashSet::new();
        for entry in entries {
            if let Some(records) = &*entry.state() {
                let nets = records.folded.values().flat_map(BTreeMap::values);
                held.extend(nets.flat_map(NetChange::merged_blobs));
            }
        }
        held
    }

    /// Forgets what is in memory about all sessions that have records of a chat.
    pub(crate) fn forget_chat(&self, chat: &ChannelUri) -> Vec<ChannelUri> {
        let entries: Vec<_> = self.entries().values().cloned().collect();
        let mut found = Vec::new();
        for entry in entries {
            let mut state = entry.state();
            if state.as_ref().is_some_and(|state| state.records.iter().any(|record| record.chat == *chat)) {
                *state = None;
                found.push(entry.session.clone());
            }
        }
        found
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ChannelUri, Arc<CachedSession>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the least recently used sessions that nothing else refers to.
fn drop_idle(entries: &mut HashMap<ChannelUri, Arc<CachedSession>>) {
    let mut idle: Vec<_> = entries
        .values()
        .filter(|entry| Arc::strong_count(entry) == 1)
        .map(|entry| {
            let (last_use, size) =
                (entry.last_use.load(Ordering::Relaxed), entry.size.load(Ordering::Relaxed));
            (last_use, size, entry.session.clone())
        })
        .collect();
    let mut records: usize = idle.iter().map(|(_, size, _)| size).sum();
    let mut count = idle.len();
    if count <= MAX_IDLE_SESSIONS && records <= MAX_IDLE_RECORDS {
        return;
    }
    idle.sort_unstable_by_key(|(last_use, _, _)| *last_use);
    for (_, size, session) in idle {
        if count <= MAX_IDLE_SESSIONS && records <= MAX_IDLE_RECORDS {
            return;
        }
        entries.remove(&session);
        count -= 1;
        records -= size;
    }
}

impl CachedSession {
    /// Appends records of this session, and returns them with their numbers.
    pub(crate) fn append(&self, records: Vec<EditRecord>) -> Result<Vec<EditRecord>, EditStorageError> {
        let mut state = self.state();
        let numbers = self.storage.append(records.clone(), Vec::new())?;
        let mut records = records;
        for (record, number) in records.iter_mut().zip(numbers) {
            record.number = number;
        }
        if let Some(state) = &mut *state {
            records.iter().cloned().for_each(|record| state.push(record));
            self.size.store(state.records.len(), Ordering::Relaxed);
        }
        Ok(records)
    }

    /// All records, in order.
    pub(crate) fn records(&self) -> Result<Vec<Arc<EditRecord>>, EditStorageError> {
        self.with(|state| Ok(state.records.clone()))
    }

    /// The chat of the session that changed a file last, if an agent changed it.
    pub(crate) fn touched_by(&self, path: &Path) -> Result<Option<ChannelUri>, EditStorageError> {
        self.with(|state| Ok(state.touched.get(path).cloned()))
    }

    /// Computes a value from the net changes of all turns.
    pub(crate) fn with_folded<T>(
        &self,
        contents: &dyn Contents,
        compute: impl FnOnce(&FoldedScopes) -> T,
    ) -> Result<T, EditStorageError> {
        self.with(|state| {
            state.fold_new(contents)?;
            Ok(compute(&state.folded))
        })
    }

    /// Runs work that adds records to storage on its own, then forgets what is in memory.
    pub(crate) fn changing<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        let result = work();
        *state = None;
        result
    }

    /// Forgets what is in memory; it is read again when it is needed.
    pub(crate) fn forget(&self) {
        *self.state() = None;
    }

    fn with<T>(
        &self,
        compute: impl FnOnce(&mut SessionRecords) -> Result<T, EditStorageError>,
    ) -> Result<T, EditStorageError> {
        let mut state = self.state();
        if let Some(records) = &mut *state {
            return compute(records);
        }
        let mut loaded = SessionRecords::default();
        for record in self.storage.records(&self.session)? {
            loaded.push(record);
        }
        self.size.store(loaded.records.len(), Ordering::Relaxed);
        compute(state.insert(loaded))
    }

    fn state(&self) -> MutexGuard<'_, Option<SessionRecords>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
