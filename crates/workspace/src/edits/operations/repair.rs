//! Completes operations that the end of the host interrupted.
//!
//! An interrupted operation is stored with everything it needs, so it is completed: files
//! with the version before the operation get the version after it. A file that has neither
//! was changed by another program and is left alone. If the operation cannot be completed,
//! it is rolled back; if that fails, too, it is tried again on the next start.
//!
//! An operation that changed no file is not completed: it may be one that failed long ago and
//! could not be deleted, and its client was told that nothing was changed.

use std::path::PathBuf;

use innkeeper_core::edits::{
    EditRecord, EditStorage, EditStorageError, FileVersion, OperationRecord, OperationStep,
};

use super::apply::OperationRun;
use super::faults::FaultPoints;
use super::places::FileFailure;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepairReport {
    /// Operations that were completed.
    pub(crate) completed: usize,
    /// Operations that were taken back.
    pub(crate) rolled_back: usize,
    /// Operations that could be neither completed nor taken back.
    pub(crate) unfinished: usize,
    /// Files that another program changed, which were left alone.
    pub(crate) left: Vec<PathBuf>,
}

/// Completes all interrupted operations. Called once on start, before any other operation.
pub(crate) fn repair(storage: &dyn EditStorage) -> Result<RepairReport, EditStorageError> {
    repair_with(storage, &FaultPoints::none())
}

pub(super) fn repair_with(
    storage: &dyn EditStorage,
    faults: &FaultPoints,
) -> Result<RepairReport, EditStorageError> {
    let mut report = RepairReport::default();
    for operation in storage.unfinished_operations()? {
        let label = &operation.label;
        if is_untouched(storage, &operation, faults) {
            storage.cancel_operation(operation.id)?;
            tracing::info!(label, "deleted an interrupted operation that changed nothing");
            report.rolled_back += 1;
            continue;
        }
        match complete(storage, &operation, faults) {
            Ok(completed) => {
                let consumed = consumed_by(storage, &operation)?;
                storage.finish_operation(operation.id, completed.records, consumed)?;
                tracing::info!(label, "completed an interrupted operation");
                report.completed += 1;
                report.left.extend(completed.left);
                continue;
            }
            Err(failure) => {
                let path = failure.path.display();
                tracing::warn!(label, %path, reason = failure.reason, "cannot complete an interrupted operation");
            }
        }
        match take_back(storage, &operation, faults) {
            Ok(()) => {
                storage.cancel_operation(operation.id)?;
                report.rolled_back += 1;
            }
            Err(failure) => {
                let path = failure.path.display();
                tracing::error!(label, %path, reason = failure.reason, "cannot take an interrupted operation back");
                report.unfinished += 1;
            }
        }
    }
    Ok(report)
}

/// Whether none of the files has its new version. Then removes the staged files.
fn is_untouched(storage: &dyn EditStorage, operation: &OperationRecord, faults: &FaultPoints) -> bool {
    let run = OperationRun::new(storage, operation, faults);
    let is_untouched = operation.steps.iter().enumerate().all(|(index, step)| {
        let found = run.place(index).and_then(|place| run.has_version(&place, &step.after));
        found.is_ok_and(|found| found.is_none())
    });
    if is_untouched {
        run.remove_staged();
    }
    is_untouched
}

/// The operation that an interrupted redo took back. A redo always takes back the last one.
fn consumed_by(
    storage: &dyn EditStorage,
    operation: &OperationRecord,
) -> Result<Option<uuid::Uuid>, EditStorageError> {
    if operation.can_redo {
        return Ok(None);
    }
    Ok(storage.last_operation(&operation.session)?.map(|last| last.id))
}

struct CompletedOperation {
    /// The records of the files that have their new version.
    records: Vec<EditRecord>,
    /// The other files.
    left: Vec<PathBuf>,
}

/// Brings all files to the version after the operation.
fn complete(
    storage: &dyn EditStorage,
    operation: &OperationRecord,
    faults: &FaultPoints,
) -> Result<CompletedOperation, FileFailure> {
    let mut run = OperationRun::new(storage, operation, faults);
    run.remove_staged();
    let mut completed = CompletedOperation { records: Vec::new(), left: Vec::new() };
    let mut pending = Vec::new();
    for (index, step) in operation.steps.iter().enumerate() {
        let place = run.place(index)?;
        if run.has_version(&place, &step.before)?.is_some() {
            pending.push(index);
        } else if run.has_version(&place, &step.after)?.is_none() {
            tracing::warn!(path = %step.path.display(), "a file of an interrupted operation was changed; left as it is");
            completed.left.push(step.path.clone());
            continue;
        }
        completed.records.extend(step.records.iter().cloned());
    }
    let executed = run.check(&pending).and_then(|()| run.execute(&pending));
    if let Err(failure) = executed {
        run.roll_back()?;
        return Err(failure);
    }
    Ok(completed)
}

/// Brings all files that were changed back to the version before the operation.
fn take_back(
    storage: &dyn EditStorage,
    operation: &OperationRecord,
    faults: &FaultPoints,
) -> Result<(), FileFailure> {
    let reversed = reversed(operation);
    let mut run = OperationRun::new(storage, &reversed, faults);
    run.remove_staged();
    let mut pending = Vec::new();
    for (index, step) in reversed.steps.iter().enumerate() {
        let place = run.place(index)?;
        if run.has_version(&place, &step.after)?.is_none() && run.has_version(&place, &step.before)?.is_some()
        {
            pending.push(index);
        }
    }
    let executed = run.check(&pending).and_then(|()| run.execute(&pending));
    if executed.is_err() {
        run.roll_back()?;
    }
    executed
}

/// The operation that takes another one back.
pub(super) fn reversed(operation: &OperationRecord) -> OperationRecord {
    let reverse = |step: &OperationStep| OperationStep {
        path: step.path.clone(),
        before: step.after.clone(),
        after: step.before.clone(),
        removed_parents: created_parents(operation, step),
        records: Vec::new(),
    };
    OperationRecord { steps: operation.steps.iter().map(reverse).collect(), ..operation.clone() }
}

/// How many parent directories a step of an operation created: those that its records name,
/// and those in the place of a file that the operation deleted.
pub(super) fn created_parents(operation: &OperationRecord, step: &OperationStep) -> u32 {
    if step.before != FileVersion::Absent {
        return 0;
    }
    let recorded = step.records.iter().map(|record| record.new_parents);
    let in_place_of_files = operation.steps.iter().filter_map(|other| {
        let below = step.path.strip_prefix(&other.path).ok()?.components().count();
        let was_file = other.path != step.path && other.before != FileVersion::Absent;
        was_file.then(|| u32::try_from(below).unwrap_or(u32::MAX))
    });
    recorded.chain(in_place_of_files).max().unwrap_or_default()
}

#[cfg(test)]
#[path = "crash_tests.rs"]
mod tests;
