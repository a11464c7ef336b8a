//! One random case.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    CallOutcome, ChangeList, ChangeOperation, ChangeScope, ChangeSelection, EditLog, EditReach, EditRecorder,
    EditScope, OperationKind, OperationReport, OperationTarget, TrackedCall,
};
use innkeeper_core::ids::TurnId;
use innkeeper_workspace::{LocalEditLog, path_of};

use crate::disk::{self, BLOCKS, GitTemplate};
use crate::model::{self, ModelContent, ModelFile, ModelOutcome, ModelTree, TurnRecords, get, set};

const NAMES: [&str; 7] = ["a", "b", "c", "dir/d", "dir/e", "dir/sub/f", "new/deep/g"];
const MODES: [u32; 3] = [0o644, 0o755, 0o600];

/// What occurred in all cases.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    files: usize,
    refused: usize,
    renames: usize,
    merged: usize,
    whole: usize,
}

impl Totals {
    pub(crate) fn is_varied(&self) -> bool {
        [self.files, self.refused, self.renames, self.merged, self.whole].iter().all(|count| *count > 5)
    }
}

/// Small, fast and repeatable.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((value ^ (value >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

pub(crate) struct Scenario {
    pub(crate) seed: u64,
    random: Random,
    root: PathBuf,
    session: ChannelUri,
    tree: ModelTree,
    initial: ModelTree,
    /// The agent's records of each turn.
    turns: Vec<TurnRecords>,
    human_edits: usize,
    next_token: u64,
    history: Vec<String>,
    undone: Option<UndoneTurn>,
}

struct UndoneTurn {
    turn: usize,
    before: ModelTree,
    /// The files of the turn before the undo.
    listed: ChangeList,
    /// The files of the turn after the undo.
    list: ChangeList,
    has_operation: bool,
}

impl Scenario {
    pub(crate) fn new(seed: u64, directory: &Path, template: &GitTemplate) -> Self {
        let root = directory.canonicalize().unwrap().join(format!("case-{seed}"));
        std::fs::create_dir(&root).unwrap();
        let mut scenario = Self {
            seed,
            random: Random(seed),
            root,
            session: ChannelUri::new(&format!("s:/{seed}")),
            tree: ModelTree::new(),
            initial: ModelTree::new(),
            turns: Vec::new(),
            human_edits: 0,
            next_token: 0,
            history: Vec::new(),
            undone: None,
        };
        for name in NAMES.iter().take(5) {
            let value = match scenario.random.below(8) {
                0 => ModelFile::Absent,
                1 => ModelFile::Link("a".to_owned()),
                2 => scenario.binary(),
                _ => scenario.text(),
            };
            scenario.put(name, value);
        }
        scenario.initial = scenario.tree.clone();
        scenario.history.push(format!("initial {:?}", scenario.tree));
        if seed.is_multiple_of(3) {
            template.commit(&scenario.root);
        }
        scenario
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn block(&mut self) -> String {
        let token = self.token();
        let lines = 1 + self.random.below(3);
        (0..lines).map(|line| format!("text {token} {line}")).collect::<Vec<_>>().join("\n")
    }

    fn text(&mut self) -> ModelFile {
        let blocks = (0..BLOCKS).map(|_| self.block()).collect();
        ModelFile::File(ModelContent::Text(blocks), self.random.pick(&MODES))
    }

    fn binary(&mut self) -> ModelFile {
        let id = self.token();
        ModelFile::File(ModelContent::Binary(id), self.random.pick(&MODES))
    }

    fn put(&mut self, name: &str, value: ModelFile) {
        disk::write(&self.root, name, &value);
        set(&mut self.tree, name, value);
    }

    /// Changes some blocks of a text, or gives it back a block it had in the beginning.
    fn changed_text(&mut self, name: &str) -> Option<ModelFile> {
        let ModelFile::File(ModelContent::Text(mut blocks), mode) = get(&self.tree, name) else {
            return None;
        };
        for _ in 0..=self.random.below(2) {
            let index = self.random.below(BLOCKS);
            let initial = match get(&self.initial, name) {
                ModelFile::File(ModelContent::Text(initial), _) => Some(initial[index].clone()),
                ModelFile::File(ModelContent::Binary(_), _) | ModelFile::Absent | ModelFile::Link(_) => None,
            };
            blocks[index] = match initial {
                Some(initial) if self.random.below(8) == 0 => initial,
                _ => self.block(),
            };
        }
        Some(ModelFile::File(ModelContent::Text(blocks), mode))
    }

    /// Makes one random change of a file.
    fn change(&mut self, actor: &str) {
        let name = self.random.pick(&NAMES);
        let old = get(&self.tree, name);
        let kind = self.random.below(12);
        let value = match (kind, &old) {
            (0, ModelFile::File(..)) => {
                let free: Vec<_> =
                    NAMES.into_iter().filter(|name| get(&self.tree, name) == ModelFile::Absent).collect();
                if !free.is_empty() {
                    let to = self.random.pick(&free);
                    self.history.push(format!("{actor} moves {name} to {to}"));
                    disk::rename(&self.root, name, to);
                    set(&mut self.tree, name, ModelFile::Absent);
                    set(&mut self.tree, to, old);
                }
                return;
            }
            (1, ModelFile::File(..) | ModelFile::Link(_)) => ModelFile::Absent,
            (2, _) => ModelFile::Link(format!("target-{}", self.token())),
            (3, _) => self.binary(),
            (4, ModelFile::File(content, _)) => ModelFile::File(content.clone(), self.random.pick(&MODES)),
            (5, _) => self.text(),
            _ => match self.changed_text(name) {
                Some(value) => value,
                None if old == ModelFile::Absent => self.text(),
                None => return,
            },
        };
        self.history.push(format!("{actor} sets {name} to {value:?}"));
        self.put(name, value);
    }

    /// Makes random edits over several turns.
    pub(crate) async fn edit(&mut self, log: &LocalEditLog) {
        let chat = ChannelUri::new(&format!("c:/{}", self.seed));
        let scope = EditScope { session: self.session.clone(), chat, roots: vec![self.root.clone()] };
        let recorder = log.recorder(scope);
        let has_humans = self.random.below(4) != 0;
        for turn in 0..=self.random.below(3) {
            self.turns.push(TurnRecords::new());
            let id = TurnId::new(&format!("t{turn}"));
            recorder.begin_turn(&id);
            for call in 0..=self.random.below(3) {
                self.call(&recorder, &id, call).await;
                while has_humans && self.random.below(2) == 0 {
                    self.human_edits += 1;
                    self.change("human");
                }
            }
            recorder.end_turn(id, HashSet::new()).await;
        }
    }

    async fn call(&mut self, recorder: &Arc<dyn EditRecorder>, turn: &TurnId, call: usize) {
        let tool_call = format!("{turn} {call}");
        let is_tool = self.random.below(2) == 0;
        let name = self.random.pick(&NAMES);
        let reach = if is_tool { EditReach::Files(vec![self.root.join(name)]) } else { EditReach::AnyFile };
        let announced = TrackedCall { turn: turn.clone(), tool_call: tool_call.clone(), reach };
        recorder.before_call(announced).await;
        let before = self.tree.clone();
        if is_tool {
            let value = match get(&self.tree, name) {
                ModelFile::File(ModelContent::Text(_), _) => self.changed_text(name),
                ModelFile::Absent => Some(self.text()),
                ModelFile::File(ModelContent::Binary(_), _) | ModelFile::Link(_) => None,
            };
            if let Some(value) = value {
                self.history.push(format!("{turn} tool sets {name} to {value:?}"));
                self.put(name, value);
            }
        } else {
            for _ in 0..=self.random.below(3) {
                self.change(&format!("{turn} shell"));
            }
        }
        recorder.after_call(tool_call, CallOutcome::default()).await;
        let records = self.turns.last_mut().unwrap();
        for name in NAMES {
            let (old, new) = (get(&before, name), get(&self.tree, name));
            if old != new {
                records.push((name.to_owned(), old, new));
            }
        }
    }

    fn scope(&self, turns: impl IntoIterator<Item = usize>) -> ChangeScope {
        let turns = turns.into_iter().map(|turn| format!("t{turn}")).collect();
        ChangeScope {
            session: self.session.clone(),
            chat: None,
            roots: vec![self.root.clone()],
            selection: ChangeSelection::Turns(turns),
        }
    }

    async fn operate(&self, log: &LocalEditLog, kind: OperationKind, scope: ChangeScope) -> OperationReport {
        let target = OperationTarget::Changeset;
        log.operate(ChangeOperation { scope, kind, target, force: false }).await.unwrap()
    }

    fn context(&self, what: &str) -> String {
        format!("case {}: {what}\n{}", self.seed, self.history.join("\n"))
    }

    fn names_of<'u>(&self, uris: impl Iterator<Item = &'u String>) -> BTreeSet<String> {
        let name = |uri: &String| {
            path_of(uri).unwrap().strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned()
        };
        uris.map(name).collect()
    }

    /// Takes a random turn back, and compares the result with the model.
    pub(crate) async fn undo(&mut self, log: &LocalEditLog, totals: &mut Totals) {
        let turn = self.random.below(self.turns.len());
        let expected = model::undo(&self.turns[turn], &self.tree);
        self.history.push(format!("undo of t{turn}"));
        disk::assert_equal(&self.root, &self.tree, &self.context("before the undo"));
        let listed = log.changes(self.scope([turn])).await.unwrap();
        let names = self.names_of(listed.files.iter().map(|file| &file.uri));
        let nets = model::fold(&self.turns[turn]);
        // A file that is as it was before is not listed, unless a later turn changed it.
        let later: BTreeSet<&String> =
            self.turns[turn + 1..].iter().flatten().map(|(path, ..)| path).collect();
        let is_shown = |path: &String| later.contains(path) || get(&self.tree, path) != nets[path].before;
        let is_moved = |path: &String| {
            expected.renames.iter().any(|(from, to)| from == path && is_shown(from) && is_shown(to))
        };
        let changed: BTreeSet<String> =
            nets.keys().filter(|path| is_shown(path) && !is_moved(path)).cloned().collect();
        assert_eq!(names, changed, "{}", self.context("files of the turn"));

        let before = std::mem::replace(&mut self.tree, expected.tree.clone());
        let report = self.operate(log, OperationKind::Undo, self.scope([turn])).await;
        let refused = self.names_of(report.refused.iter().map(|conflict| &conflict.uri));
        assert_eq!(refused, expected.refused, "{}\n{report:?}", self.context("refused files"));
        disk::assert_equal(&self.root, &self.tree, &self.context("after the undo"));
        self.check_without_model(turn, &before, &expected);

        totals.files += nets.len();
        totals.refused += refused.len();
        totals.renames += expected.renames.len();
        totals.merged += nets
            .iter()
            .filter(|(path, net)| !refused.contains(*path) && get(&before, path) != net.after)
            .count();
        let list = log.changes(self.scope([turn])).await.unwrap();
        let has_operation = report.operation.is_some();
        assert_eq!(list.redo.is_some(), has_operation, "{}", self.context("redo"));
        self.undone = Some(UndoneTurn { turn, before, listed, list, has_operation });
    }

    /// Checks that do not depend on the model's merge.
    fn check_without_model(&self, turn: usize, before: &ModelTree, expected: &ModelOutcome) {
        let is_last = turn + 1 == self.turns.len();
        if self.human_edits == 0 && is_last {
            assert!(expected.refused.is_empty(), "{}", self.context("only the agent changed the files"));
            let mut restored = before.clone();
            for (path, old, _) in self.turns[turn].iter().rev() {
                set(&mut restored, path, old.clone());
            }
            assert_eq!(self.tree, restored, "{}", self.context("exact undo of the last turn"));
        }
        let touched: BTreeSet<&String> = self.turns[turn].iter().map(|(path, ..)| path).collect();
        for name in NAMES.iter().filter(|name| !touched.contains(&(**name).to_owned())) {
            assert_eq!(get(&self.tree, name), get(before, name), "{}", self.context("untouched file"));
        }
        self.check_other_blocks(turn, before, expected);
        for path in &expected.refused {
            assert_eq!(get(&self.tree, path), get(before, path), "{}", self.context("refused file"));
        }
    }

    /// Blocks of a text that the turn did not change stay as they are.
    fn check_other_blocks(&self, turn: usize, before: &ModelTree, expected: &ModelOutcome) {
        let blocks_of = |value: &ModelFile| match value {
            ModelFile::File(ModelContent::Text(blocks), _) => Some(blocks.clone()),
            ModelFile::File(ModelContent::Binary(_), _) | ModelFile::Absent | ModelFile::Link(_) => None,
        };
        for (path, current) in before {
            let moved = expected.renames.iter().any(|(from, to)| from == path || to == path);
            let records: Vec<_> = self.turns[turn].iter().filter(|(name, ..)| name == path).collect();
            let texts: Option<Vec<_>> =
                records.iter().map(|(_, old, new)| Some((blocks_of(old)?, blocks_of(new)?))).collect();
            let (Some(texts), Some(current), false) = (texts, blocks_of(current), moved) else { continue };
            let after = blocks_of(&get(&self.tree, path)).unwrap();
            for index in 0..BLOCKS {
                if texts.iter().all(|(old, new)| old[index] == new[index]) {
                    assert_eq!(after[index], current[index], "{}", self.context("block of another author"));
                }
            }
        }
    }

    /// The reopened log shows the same changes.
    pub(crate) async fn check_after_restart(&self, log: &LocalEditLog) {
        let undone = self.undone.as_ref().unwrap();
        let list = log.changes(self.scope([undone.turn])).await.unwrap();
        assert_eq!(list, undone.list, "{}", self.context("after a restart"));
    }

    /// Takes the undo back: all files are as before it.
    pub(crate) async fn redo(&mut self, log: &LocalEditLog) {
        let undone = self.undone.take().unwrap();
        if undone.has_operation {
            let report = self.operate(log, OperationKind::Redo, self.scope([undone.turn])).await;
            assert_eq!(report.refused, [], "{}", self.context("redo"));
        }
        self.tree = undone.before;
        disk::assert_equal(&self.root, &self.tree, &self.context("after the redo"));
        let list = log.changes(self.scope([undone.turn])).await.unwrap();
        let edits = |list: ChangeList| -> Vec<_> {
            list.files.into_iter().map(|file| (file.uri, file.edit, file.mixed, file.overlaps)).collect()
        };
        assert_eq!(edits(list), edits(undone.listed), "{}", self.context("files after the redo"));
    }

    /// Takes all turns back. Without human edits, all files are as in the beginning.
    pub(crate) async fn undo_everything(&mut self, log: &LocalEditLog, totals: &mut Totals) {
        if self.human_edits > 0 {
            return;
        }
        let scope = self.scope(0..self.turns.len());
        let report = self.operate(log, OperationKind::Restore, scope).await;
        assert_eq!(report.refused, [], "{}", self.context("undo of all turns"));
        self.tree = self.initial.clone();
        disk::assert_equal(&self.root, &self.tree, &self.context("after the undo of all turns"));
        totals.whole += 1;
    }
}
