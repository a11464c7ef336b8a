//! Files and storage for the tests of operations.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    EditRecord, EditSource, EditStorage as _, FileVersion, OperationRecord, OperationStep, StoredBlob,
};
use innkeeper_store::{EditDatabase, EditDatabaseConfig};
use uuid::Uuid;

use super::VersionedFile;

/// A directory with a root and a storage.
pub(super) struct Workbench {
    directory: PathBuf,
    pub(super) root: PathBuf,
    pub(super) storage: EditDatabase,
    _temporary: Option<tempfile::TempDir>,
}

impl Workbench {
    pub(super) fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut bench = Self::open(temporary.path());
        bench._temporary = Some(temporary);
        bench
    }

    /// Opens a directory of another process.
    pub(super) fn open(directory: &Path) -> Self {
        let directory = directory.canonicalize().unwrap();
        let root = directory.join("root");
        std::fs::create_dir_all(&root).unwrap();
        let config = EditDatabaseConfig::new(1 << 30);
        let storage = EditDatabase::open(directory.join("blobs.db"), config).unwrap();
        Self { directory, root, storage, _temporary: None }
    }

    /// A path beside the root.
    pub(super) fn outside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn operation(&self, changes: &[TestChange]) -> (OperationRecord, Vec<StoredBlob>) {
        operation(&self.root, changes)
    }

    /// All records of the session.
    pub(super) fn records(&self) -> Vec<EditRecord> {
        self.storage.records(&session()).unwrap()
    }

    pub(super) fn unfinished(&self) -> usize {
        self.storage.unfinished_operations().unwrap().len()
    }
}

pub(super) fn session() -> ChannelUri {
    ChannelUri::new("ahp-session:/test")
}

/// A change of one file.
#[derive(Clone, Debug)]
pub(super) struct TestChange {
    pub(super) name: String,
    pub(super) before: VersionedFile,
    pub(super) after: VersionedFile,
    pub(super) removed_parents: u32,
}

pub(super) fn change(name: &str, before: VersionedFile, after: VersionedFile) -> TestChange {
    TestChange { name: name.to_owned(), before, after, removed_parents: 0 }
}

pub(super) fn text(content: &str) -> VersionedFile {
    VersionedFile::regular(content.as_bytes().to_vec(), 0o644)
}

pub(super) fn operation(root: &Path, changes: &[TestChange]) -> (OperationRecord, Vec<StoredBlob>) {
    let id = Uuid::new_v4();
    let step = |change: &TestChange| OperationStep {
        path: root.join(&change.name),
        before: change.before.version.clone(),
        after: change.after.version.clone(),
        removed_parents: change.removed_parents,
        records: vec![EditRecord {
            number: 0,
            session: session(),
            chat: session(),
            turn: "turn".to_owned(),
            tool_call: None,
            source: EditSource::Undo,
            path: root.join(&change.name),
            before: change.before.version.clone(),
            after: change.after.version.clone(),
            new_parents: 0,
            overlaps: false,
            operation: Some(id),
            recorded_at: 1,
        }],
    };
    let operation = OperationRecord {
        id,
        session: session(),
        chat: None,
        label: "Undo".to_owned(),
        can_redo: true,
        roots: vec![root.to_owned()],
        steps: changes.iter().map(step).collect(),
    };
    let blobs = changes.iter().flat_map(|change| [change.before.blob(), change.after.blob()]);
    (operation, blobs.flatten().collect())
}

/// Brings a file into a state.
pub(super) fn put(path: &Path, file: &VersionedFile) {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).unwrap();
    }
    match &file.version {
        FileVersion::Absent => return,
        FileVersion::Unknown(_) => panic!("the content is not known"),
        FileVersion::File { .. } | FileVersion::Link { .. } => {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
    }
    match &file.version {
        FileVersion::Link { target } => symlink(target, path).unwrap(),
        FileVersion::File { mode, .. } => {
            std::fs::write(path, file.content.as_ref().unwrap()).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(*mode)).unwrap();
        }
        FileVersion::Absent | FileVersion::Unknown(_) => {}
    }
}

/// The mode and content of each entry of a directory.
pub(super) type TestTree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// All entries below a directory: their kind, mode and content. Also finds temporary files.
pub(super) fn tree(root: &Path) -> TestTree {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let content = if metadata.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.mode(), content));
        }
    }
    found
}
