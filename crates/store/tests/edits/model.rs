//! Random calls have the same results as on a simple model in memory.

use std::collections::BTreeMap;

use innkeeper_core::edits::{FileReview, UnknownContent};
use proptest::prelude::*;

use super::*;

/// Longer than the grace period.
const LONG: Duration = Duration::from_secs(700);

/// One call. Small numbers choose sessions, chats, turns, files and contents, so that calls
/// meet often.
#[derive(Clone, Debug)]
enum Call {
    Put(u8),
    Append { session: usize, turn: u8, path: u8, before: u8, after: u8, with_contents: bool },
    Begin { session: usize, before: u8, after: u8, can_redo: bool },
    Finish { which: usize, consumes: bool },
    Cancel { which: usize },
    Review { session: usize, path: u8, with_chat: bool, reviewed: bool },
    Copy { from: usize, to: usize, turn: u8 },
    Move { chat: usize, to: usize },
    RemoveChat(usize),
    RemoveSession(usize),
    Collect { held: u8 },
    Wait,
    Reopen,
}

fn call() -> impl Strategy<Value = Call> {
    let (session, number) = (0..3_usize, 0..4_u8);
    let append = (session.clone(), 0..3_u8, 0..2_u8, number.clone(), number.clone(), any::<bool>()).prop_map(
        |(session, turn, path, before, after, with_contents)| Call::Append {
            session,
            turn,
            path,
            before,
            after,
            with_contents,
        },
    );
    let begin = (session.clone(), number.clone(), number.clone(), any::<bool>())
        .prop_map(|(session, before, after, can_redo)| Call::Begin { session, before, after, can_redo });
    let review = (session.clone(), 0..2_u8, any::<bool>(), any::<bool>())
        .prop_map(|(session, path, with_chat, reviewed)| Call::Review { session, path, with_chat, reviewed });
    prop_oneof![
        3 => number.clone().prop_map(Call::Put),
        6 => append,
        3 => begin,
        3 => (0..3_usize, any::<bool>()).prop_map(|(which, consumes)| Call::Finish { which, consumes }),
        1 => (0..3_usize).prop_map(|which| Call::Cancel { which }),
        2 => review,
        2 => (session.clone(), session.clone(), 0..3_u8).prop_map(|(from, to, turn)| Call::Copy { from, to, turn }),
        1 => (session.clone(), session.clone()).prop_map(|(chat, to)| Call::Move { chat, to }),
        1 => session.clone().prop_map(Call::RemoveChat),
        1 => session.prop_map(Call::RemoveSession),
        3 => number.prop_map(|held| Call::Collect { held }),
        3 => Just(Call::Wait),
        1 => Just(Call::Reopen),
    ]
}

/// Number 0 is compressed, the others are not.
fn content(number: u8) -> StoredBlob {
    if number == 0 { blob("zero ".repeat(1000)) } else { blob([number]) }
}

fn path(number: u8) -> PathBuf {
    if number == 0 { odd_path() } else { PathBuf::from("/w/b") }
}

/// What the database should contain.
#[derive(Default)]
struct EditModel {
    last_number: u64,
    records: Vec<EditRecord>,
    /// Whether each content was put since the last wait.
    contents: BTreeMap<BlobDigest, bool>,
    unfinished: Vec<OperationRecord>,
    finished: Vec<OperationRecord>,
    reviews: Vec<(ChannelUri, FileReview)>,
}

impl EditModel {
    fn append(&mut self, mut record: EditRecord) {
        self.last_number += 1;
        record.number = self.last_number;
        self.records.push(record);
    }

    fn put(&mut self, numbers: &[u8]) {
        self.contents.extend(numbers.iter().map(|number| (content(*number).digest, true)));
    }

    fn referenced(&self) -> HashSet<BlobDigest> {
        let operations = self.unfinished.iter().chain(&self.finished);
        let steps = operations.flat_map(|operation| &operation.steps);
        let of_operations = steps.flat_map(|step| [&step.before, &step.after]);
        let of_records = self.records.iter().flat_map(|record| [&record.before, &record.after]);
        of_records.chain(of_operations).filter_map(FileVersion::stored_blob).collect()
    }

    /// Deletes records and operations, and ends the grace period of their contents.
    fn remove(
        &mut self,
        is_record: impl Fn(&EditRecord) -> bool,
        is_operation: impl Fn(&OperationRecord) -> bool,
    ) {
        let before = self.referenced();
        self.records.retain(|record| !is_record(record));
        self.unfinished.retain(|operation| !is_operation(operation));
        self.finished.retain(|operation| !is_operation(operation));
        let after = self.referenced();
        for digest in before.difference(&after) {
            if let Some(is_recent) = self.contents.get_mut(digest) {
                *is_recent = false;
            }
        }
    }

    fn finish(&mut self, done: OperationRecord, consumed: Option<Uuid>) {
        self.finished.retain(|operation| Some(operation.id) != consumed);
        if done.can_redo {
            self.finished.retain(|operation| operation.session != done.session);
            self.finished.push(done);
        }
    }

    fn set_session(operation: &mut OperationRecord, to: &ChannelUri) {
        operation.session = to.clone();
        for record in operation.steps.iter_mut().flat_map(|step| &mut step.records) {
            record.session = to.clone();
        }
    }

    /// Finished operations are in the order in which they began.
    fn move_chat(&mut self, chat: &ChannelUri, to: &ChannelUri, order: &[Uuid]) {
        for record in self.records.iter_mut().filter(|record| record.chat == *chat) {
            record.session = to.clone();
        }
        for (session, review) in &mut self.reviews {
            if review.chat.as_ref() == Some(chat) {
                *session = to.clone();
            }
        }
        for operation in self.unfinished.iter_mut().chain(&mut self.finished) {
            if operation.chat.as_ref() == Some(chat) {
                Self::set_session(operation, to);
            }
        }
        let place = |operation: &OperationRecord| order.iter().position(|id| *id == operation.id);
        let newest = self.finished.iter().filter(|operation| operation.session == *to).map(place).max();
        self.finished.retain(|operation| operation.session != *to || Some(place(operation)) == newest);
    }

    /// A version as the database reports it.
    fn seen(&self, version: &FileVersion) -> FileVersion {
        match version.stored_blob() {
            Some(digest) if !self.contents.contains_key(&digest) => {
                FileVersion::Unknown(UnknownContent::Evicted)
            }
            _ => version.clone(),
        }
    }

    fn seen_record(&self, record: &EditRecord) -> EditRecord {
        EditRecord { before: self.seen(&record.before), after: self.seen(&record.after), ..record.clone() }
    }

    fn seen_operation(&self, operation: &OperationRecord) -> OperationRecord {
        let mut seen = operation.clone();
        for step in &mut seen.steps {
            step.before = self.seen(&step.before);
            step.after = self.seen(&step.after);
            step.records = step.records.iter().map(|record| self.seen_record(record)).collect();
        }
        seen
    }
}

/// The database, the model, and the ids of operations in the order in which they began.
struct Comparison {
    fixture: EditFixture,
    model: EditModel,
    order: Vec<Uuid>,
}

impl Comparison {
    fn run(&mut self, call: &Call) {
        match *call {
            Call::Put(number) => {
                self.fixture.database.put_blobs(vec![content(number)]).expect("stored");
                self.model.put(&[number]);
            }
            Call::Append { session, turn, path: file, before, after, with_contents } => {
                let versions = (version(&content(before)), version(&content(after)));
                let change = EditRecord {
                    path: path(file),
                    ..record(session, &turn.to_string(), versions.0, versions.1)
                };
                let contents = if with_contents { vec![content(before), content(after)] } else { Vec::new() };
                let numbers = self.fixture.database.append(vec![change.clone()], contents).expect("appended");
                if with_contents {
                    self.model.put(&[before, after]);
                }
                self.model.append(change);
                assert_eq!(numbers, [self.model.last_number]);
            }
            Call::Begin { session, before, after, can_redo } => {
                let (old, new) = (content(before), content(after));
                let begun = OperationRecord { can_redo, ..operation(session, &old, &new) };
                self.fixture.database.begin_operation(begun.clone(), vec![old, new]).expect("begun");
                self.model.put(&[before, after]);
                self.order.push(begun.id);
                self.model.unfinished.push(begun);
            }
            Call::Finish { which, consumes } if which < self.model.unfinished.len() => {
                let done = self.model.unfinished.remove(which);
                let last = self.model.finished.iter().find(|operation| operation.session == done.session);
                let consumed = last.filter(|_| consumes).map(|operation| operation.id);
                let records = done.steps[0].records.clone();
                self.fixture.database.finish_operation(done.id, records.clone(), consumed).expect("finished");
                records.into_iter().for_each(|record| self.model.append(record));
                self.model.finish(done, consumed);
            }
            Call::Cancel { which } if which < self.model.unfinished.len() => {
                let cancelled = self.model.unfinished.remove(which);
                self.fixture.database.cancel_operation(cancelled.id).expect("cancelled");
            }
            Call::Finish { .. } | Call::Cancel { .. } => {}
            Call::Review { session: number, path: file, with_chat, reviewed } => {
                let chat = with_chat.then(|| chat(number));
                let through = self.model.last_number;
                let review = FileReview { chat, turn: None, path: path(file), through };
                self.fixture
                    .database
                    .set_reviews(&session(number), vec![review.clone()], reviewed)
                    .expect("set");
                self.model.reviews.retain(|(of, old)| {
                    *of != session(number) || old.chat != review.chat || old.path != review.path
                });
                if reviewed {
                    self.model.reviews.push((session(number), review));
                }
            }
            Call::Copy { .. } | Call::Move { .. } | Call::RemoveChat(_) | Call::RemoveSession(_) => {
                self.transfer(call);
            }
            Call::Collect { held } => {
                let held = HashSet::from([content(held).digest]);
                self.fixture.database.collect_garbage(&held).expect("collected");
                let referenced = self.model.referenced();
                self.model.contents.retain(|digest, is_recent| {
                    *is_recent || held.contains(digest) || referenced.contains(digest)
                });
            }
            Call::Wait => {
                self.fixture.clock.advance(LONG);
                self.model.contents.values_mut().for_each(|is_recent| *is_recent = false);
            }
            Call::Reopen => self.fixture.reopen(),
        }
    }

    fn transfer(&mut self, call: &Call) {
        let database = &self.fixture.database;
        if let Call::Copy { from, to, turn } = *call {
            let turn = turn.to_string();
            let to = (session(to), chat(to));
            database.copy_records(&chat(from), (&to.0, &to.1), std::slice::from_ref(&turn)).expect("copied");
            let is_copied = |record: &&EditRecord| record.chat == chat(from) && record.turn == turn;
            let copied: Vec<EditRecord> = self.model.records.iter().filter(is_copied).cloned().collect();
            for record in copied {
                self.model.append(EditRecord { session: to.0.clone(), chat: to.1.clone(), ..record });
            }
        } else if let Call::Move { chat: moved, to } = *call {
            database.move_records(&chat(moved), &session(to)).expect("moved");
            self.model.move_chat(&chat(moved), &session(to), &self.order);
        } else if let Call::RemoveChat(number) = *call {
            database.remove_chat(&chat(number)).expect("removed");
            let removed = Some(chat(number));
            self.model.remove(
                |record| Some(&record.chat) == removed.as_ref(),
                |operation| operation.chat == removed,
            );
            self.model.reviews.retain(|(_, review)| review.chat != removed);
        } else if let Call::RemoveSession(number) = *call {
            let removed = session(number);
            database.remove_session(&removed).expect("removed");
            self.model.remove(|record| record.session == removed, |operation| operation.session == removed);
            self.model.reviews.retain(|(session, _)| *session != removed);
        }
    }

    fn check(&self) {
        let (database, model) = (&self.fixture.database, &self.model);
        for number in 0..3 {
            let of = session(number);
            let expected: Vec<EditRecord> = model
                .records
                .iter()
                .filter(|record| record.session == of)
                .map(|record| model.seen_record(record))
                .collect();
            assert_eq!(database.records(&of).expect("records"), expected);
            let mut reviews = database.reviews(&of).expect("reviews");
            let of_session = model.reviews.iter().filter(|(session, _)| *session == of);
            let mut expected: Vec<FileReview> = of_session.map(|(_, review)| review.clone()).collect();
            for list in [&mut reviews, &mut expected] {
                list.sort_by_key(|review| (review.path.clone(), review.chat.clone(), review.through));
            }
            assert_eq!(reviews, expected);
            let last = model.finished.iter().find(|operation| operation.session == of);
            let last = last.map(|operation| model.seen_operation(operation));
            assert_eq!(database.last_operation(&of).expect("read"), last);
        }
        let seen = |operation| model.seen_operation(operation);
        let unfinished: Vec<OperationRecord> = model.unfinished.iter().map(seen).collect();
        assert_eq!(database.unfinished_operations().expect("operations"), unfinished);
        let half = model.last_number / 2;
        let since = model.records.iter().filter(|record| record.number > half && record.path == odd_path());
        let since: Vec<EditRecord> = since.map(|record| model.seen_record(record)).collect();
        assert_eq!(database.records_of_paths(&[odd_path()], half).expect("records"), since);
        for number in 0..4 {
            let content = content(number);
            let expected = model.contents.contains_key(&content.digest).then(|| content.content.clone());
            assert_eq!(database.read_blob(content.digest).expect("read"), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn database_matches_model(calls in prop::collection::vec(call(), 1..40)) {
        let mut comparison =
            Comparison { fixture: EditFixture::new(), model: EditModel::default(), order: Vec::new() };
        for call in &calls {
            comparison.run(call);
            comparison.check();
        }
    }
}
