//! A directory, a database and a log for one test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobUri, CallOutcome, ChangeCounts, ChangeList, ChangeOperation, ChangeScope, ChangeSelection,
    ChangedFile, EditLog, EditReach, EditRecord, EditRecorder, EditScope, EditStorage, OperationKind,
    OperationReport, OperationTarget, RecordedEdit, TrackedCall,
};
use innkeeper_core::ids::TurnId;
use innkeeper_store::{EditDatabase, EditDatabaseConfig};
use innkeeper_workspace::{EditLogConfig, LocalEditLog, TrackingLimits, path_of, uri_of};

/// A working directory, with or without git, and an edit log.
pub(crate) struct Desk {
    directory: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) storage: Arc<EditDatabase>,
    pub(crate) log: LocalEditLog,
    config: EditLogConfig,
}

/// A chat with its recorder.
pub(crate) struct RecordedChat {
    pub(crate) recorder: Arc<dyn EditRecorder>,
}

pub(crate) fn uri(text: &str) -> ChannelUri {
    ChannelUri::new(text)
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::with(EditLogConfig::default())
    }

    pub(crate) fn with(config: EditLogConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("work");
        std::fs::create_dir(&root).unwrap();
        let (storage, log) = open(directory.path(), config);
        Self { directory, root, storage, log, config }
    }

    pub(crate) fn limited(max_file_size: u64) -> Self {
        let limits = TrackingLimits { max_file_size, ..TrackingLimits::default() };
        Self::with(EditLogConfig { limits, ..EditLogConfig::default() })
    }

    /// A directory with a git repository that contains the given files.
    pub(crate) fn in_git(files: &[(&str, &str)]) -> Self {
        let desk = Self::new();
        for (name, content) in files {
            desk.write(name, content);
        }
        desk.git(&["init", "-q"]);
        desk.git(&["add", "-A"]);
        desk.git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        desk
    }

    #[expect(clippy::disallowed_methods, reason = "a test runs git")]
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .args(arguments)
            .current_dir(&self.root)
            .env("HOME", self.directory.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@example.com")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@example.com")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Opens the database and the log again, as after a restart of the host.
    pub(crate) fn reopen(&mut self) {
        self.storage.close();
        (self.storage, self.log) = open(self.directory.path(), self.config);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        self.path(name).symlink_metadata().unwrap().permissions().mode() & 0o7777
    }

    /// A chat of a session, with its first turn begun.
    pub(crate) async fn chat(&self, session: &str, chat: &str) -> RecordedChat {
        self.chat_in(session, chat, &self.root).await
    }

    pub(crate) async fn chat_in(&self, session: &str, chat: &str, root: &Path) -> RecordedChat {
        let scope = EditScope { session: uri(session), chat: uri(chat), roots: vec![root.to_owned()] };
        let chat = RecordedChat { recorder: self.log.recorder(scope) };
        chat.begin_turn("t1");
        // The contents are recorded when a command without effect has ended.
        chat.shell("t1", "warm-up", || {}).await;
        chat
    }

    pub(crate) fn scope(&self, session: &str, selection: ChangeSelection) -> ChangeScope {
        ChangeScope { session: uri(session), chat: None, roots: vec![self.root.clone()], selection }
    }

    pub(crate) async fn changes(&self, session: &str, selection: ChangeSelection) -> ChangeList {
        self.log.changes(self.scope(session, selection)).await.unwrap()
    }

    /// The changes of a session as text, one line per file.
    pub(crate) async fn listed(&self, session: &str, selection: ChangeSelection) -> Vec<String> {
        let list = self.changes(session, selection).await;
        list.files.iter().map(|file| self.describe(file)).collect()
    }

    fn relative(&self, uri: &str) -> String {
        path_of(uri).unwrap().strip_prefix(&self.root).unwrap().display().to_string()
    }

    fn describe(&self, file: &ChangedFile) -> String {
        let sources: Vec<_> = file.sources.iter().map(|source| source.as_str()).collect();
        let mut text = format!("{} {}", describe_edit(self, &file.edit), sources.join("+"));
        for (is_set, word) in [
            (file.reviewed, " reviewed"),
            (file.overlaps, " overlaps"),
            (file.mixed, " mixed"),
            (file.not_undoable.is_some(), " not-undoable"),
        ] {
            if is_set {
                text.push_str(word);
            }
        }
        text
    }

    pub(crate) async fn counts(&self, session: &str) -> ChangeCounts {
        self.log.counts(uri(session)).await.unwrap().session
    }

    pub(crate) async fn blob(&self, address: &str) -> Bytes {
        let digest = BlobUri::parse(address).unwrap().unwrap().digest;
        self.log.read_blob(digest).await.unwrap().unwrap()
    }

    pub(crate) fn records(&self, session: &str) -> Vec<EditRecord> {
        self.storage.records(&uri(session)).unwrap()
    }

    pub(crate) async fn operate(
        &self,
        kind: OperationKind,
        selection: ChangeSelection,
        target: OperationTarget,
        force: bool,
    ) -> OperationReport {
        let scope = self.scope("s:/1", selection);
        self.log.operate(ChangeOperation { scope, kind, target, force }).await.unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> OperationTarget {
        OperationTarget::File(self.uri(name))
    }

    pub(crate) fn uri(&self, name: &str) -> String {
        uri_of(&self.path(name))
    }
}

pub(crate) fn describe_edit(desk: &Desk, edit: &ahp_types::state::FileEdit) -> String {
    let name = |side: &ahp_types::state::FileEditSide| desk.relative(&side.uri);
    let what = match (&edit.before, &edit.after) {
        (None, Some(after)) => format!("created {}", name(after)),
        (Some(before), None) => format!("deleted {}", name(before)),
        (Some(before), Some(after)) if before.uri == after.uri => format!("changed {}", name(after)),
        (Some(before), Some(after)) => format!("renamed {} to {}", name(before), name(after)),
        (None, None) => "nothing".to_owned(),
    };
    match &edit.diff {
        Some(diff) => format!("{what} +{} -{}", diff.added.unwrap(), diff.removed.unwrap()),
        None => format!("{what} ?"),
    }
}

pub(crate) fn turns(turns: &[&str]) -> ChangeSelection {
    ChangeSelection::Turns(turns.iter().map(|turn| (*turn).to_owned()).collect())
}

fn open(directory: &Path, config: EditLogConfig) -> (Arc<EditDatabase>, LocalEditLog) {
    let mut database = EditDatabaseConfig::new(1 << 30);
    database.grace = Duration::ZERO;
    let storage = Arc::new(EditDatabase::open(directory.join("blobs.db"), database).unwrap());
    let log = LocalEditLog::new(Arc::clone(&storage) as Arc<dyn EditStorage>, config);
    (storage, log)
}

impl RecordedChat {
    pub(crate) fn begin_turn(&self, turn: &str) {
        self.recorder.begin_turn(&TurnId::new(turn));
    }

    pub(crate) async fn end_turn(&self, turn: &str) {
        self.end_turn_except(turn, &[]).await;
    }

    pub(crate) async fn end_turn_except(&self, turn: &str, continuing: &[&str]) {
        let continuing = continuing.iter().map(|call| (*call).to_owned()).collect();
        self.recorder.end_turn(TurnId::new(turn), continuing).await;
    }

    pub(crate) async fn announce(&self, turn: &str, call: &str, reach: EditReach) {
        let call = TrackedCall { turn: TurnId::new(turn), tool_call: call.to_owned(), reach };
        self.recorder.before_call(call).await;
    }

    pub(crate) async fn ended(&self, call: &str) -> Vec<RecordedEdit> {
        self.recorder.after_call(call.to_owned(), CallOutcome::default()).await
    }

    /// Runs a tool that names its files.
    pub(crate) async fn tool(
        &self,
        turn: &str,
        call: &str,
        paths: &[PathBuf],
        change: impl FnOnce(),
    ) -> Vec<RecordedEdit> {
        self.announce(turn, call, EditReach::Files(paths.to_vec())).await;
        change();
        self.ended(call).await
    }

    /// Runs a command.
    pub(crate) async fn shell(&self, turn: &str, call: &str, change: impl FnOnce()) -> Vec<RecordedEdit> {
        self.announce(turn, call, EditReach::AnyFile).await;
        change();
        self.ended(call).await
    }

    /// Writes a file with a tool.
    pub(crate) async fn edit(&self, desk: &Desk, turn: &str, name: &str, content: impl AsRef<[u8]>) {
        let call = format!("edit {name} {turn} {}", content.as_ref().len());
        self.tool(turn, &call, &[desk.path(name)], || desk.write(name, content)).await;
    }
}
