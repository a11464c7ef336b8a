//! Files that an operation cannot change for a reason that is visible before it begins.
//!
//! Such a file does not prevent the change of the others: its step is removed from the
//! operation. Files that are moved are removed together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use innkeeper_core::edits::{EditStorage, OperationRecord};

use super::apply::OperationRun;
use super::chain::moves_of;
use super::faults::FaultPoints;
use super::plan::RefusedFile;

/// Removes the steps of an operation whose files are outside of the roots or below a link, or
/// have a directory in their place. Returns the files with the reasons.
pub(crate) fn refuse_blocked(
    storage: &dyn EditStorage,
    operation: &mut OperationRecord,
) -> Vec<(PathBuf, RefusedFile)> {
    let mut refused = Vec::new();
    loop {
        let blocked = blocked_files(storage, operation);
        if blocked.is_empty() {
            return refused;
        }
        // The remaining steps are checked again: a removed one may have made way for others.
        operation.steps.retain(|step| !blocked.contains_key(&step.path));
        refused.extend(blocked);
    }
}

fn blocked_files(storage: &dyn EditStorage, operation: &OperationRecord) -> BTreeMap<PathBuf, RefusedFile> {
    let faults = FaultPoints::none();
    let run = OperationRun::new(storage, operation, &faults);
    let mut blocked = BTreeMap::new();
    for index in 0..operation.steps.len() {
        if let Err(failure) = run.must_be_accessible(index) {
            let name = failure.path.file_name().unwrap_or(failure.path.as_os_str()).to_string_lossy();
            let reason = format!("cannot change {name}: {}", failure.reason);
            blocked.insert(failure.path, RefusedFile { reason, preview: None, can_force: false });
        }
    }
    let moves = moves_of(operation);
    for (to, from) in moves {
        let found = |path: &Path| blocked.get(path).cloned();
        if let Some(refused) = found(to).or_else(|| found(&from.path)) {
            for path in [to, &from.path] {
                blocked.entry(path.to_owned()).or_insert_with(|| refused.clone());
            }
        }
    }
    blocked
}
