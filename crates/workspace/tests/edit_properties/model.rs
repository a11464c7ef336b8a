//! What undo is specified to do, on abstract files.
//!
//! A text consists of blocks that are far apart, so that changes of different blocks never
//! touch each other. Binary contents, links and the absence of a file are indivisible.

use std::collections::{BTreeMap, BTreeSet};

/// An abstract file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelFile {
    Absent,
    Link(String),
    File(ModelContent, u32),
}

/// An abstract content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelContent {
    Text(Vec<String>),
    Binary(u64),
}

/// The files of a directory. Absent files are left out.
pub(crate) type ModelTree = BTreeMap<String, ModelFile>;

pub(crate) fn get(tree: &ModelTree, path: &str) -> ModelFile {
    tree.get(path).cloned().unwrap_or(ModelFile::Absent)
}

pub(crate) fn set(tree: &mut ModelTree, path: &str, value: ModelFile) {
    if value == ModelFile::Absent {
        tree.remove(path);
    } else {
        tree.insert(path.to_owned(), value);
    }
}

fn one<T: Clone + PartialEq>(base: &T, ours: &T, theirs: &T) -> Option<T> {
    if base == theirs || ours == theirs {
        Some(ours.clone())
    } else if base == ours {
        Some(theirs.clone())
    } else {
        None
    }
}

/// Applies the change `base` → `theirs` to `ours`; `None` if both changed the same part.
pub(crate) fn merge(base: &ModelFile, ours: &ModelFile, theirs: &ModelFile) -> Option<ModelFile> {
    if let Some(value) = one(base, ours, theirs) {
        return Some(value);
    }
    let (
        ModelFile::File(base, base_mode),
        ModelFile::File(ours, our_mode),
        ModelFile::File(theirs, their_mode),
    ) = (base, ours, theirs)
    else {
        return None;
    };
    let mode = one(base_mode, our_mode, their_mode)?;
    let content = match (base, ours, theirs) {
        (ModelContent::Text(base), ModelContent::Text(ours), ModelContent::Text(theirs)) => {
            let blocks = base.iter().zip(ours).zip(theirs);
            ModelContent::Text(
                blocks.map(|((base, ours), theirs)| one(base, ours, theirs)).collect::<Option<_>>()?,
            )
        }
        (base, ours, theirs) => one(base, ours, theirs)?,
    };
    Some(ModelFile::File(content, mode))
}

/// The net change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelNet {
    pub(crate) before: ModelFile,
    pub(crate) after: ModelFile,
    pub(crate) mixed: bool,
}

/// The records of a turn: path, before, after.
pub(crate) type TurnRecords = Vec<(String, ModelFile, ModelFile)>;

/// The files that a turn changed.
pub(crate) fn fold(records: &TurnRecords) -> BTreeMap<String, ModelNet> {
    let mut nets: BTreeMap<String, ModelNet> = BTreeMap::new();
    for (path, before, after) in records {
        let Some(net) = nets.get_mut(path) else {
            let net = ModelNet { before: before.clone(), after: after.clone(), mixed: false };
            nets.insert(path.clone(), net);
            continue;
        };
        if before == &net.before && before != &net.after && after != &net.after {
            *net = ModelNet { before: before.clone(), after: after.clone(), mixed: false };
            continue;
        }
        match merge(before, &net.after, after) {
            Some(merged) => net.after = merged,
            None => {
                net.after = after.clone();
                net.mixed = true;
            }
        }
    }
    nets.retain(|_, net| net.before != net.after);
    nets
}

/// What an undo of a turn does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelOutcome {
    /// The files after the undo.
    pub(crate) tree: ModelTree,
    /// The files that it leaves alone because of conflicts.
    pub(crate) refused: BTreeSet<String>,
    /// The old and new paths of renames.
    pub(crate) renames: Vec<(String, String)>,
}

/// Takes a turn back.
pub(crate) fn undo(records: &TurnRecords, current: &ModelTree) -> ModelOutcome {
    let nets = fold(records);
    let mut outcome = ModelOutcome { tree: current.clone(), ..ModelOutcome::default() };
    let mut moved = BTreeSet::new();
    for (from, gone) in &nets {
        let (ModelFile::File(content, _), ModelFile::Absent) = (&gone.before, &gone.after) else { continue };
        let is_target = |net: &ModelNet| {
            net.before == ModelFile::Absent
                && matches!(&net.after, ModelFile::File(found, _) if found == content)
        };
        if let Some((to, net)) = nets.iter().find(|(_, net)| is_target(net)) {
            moved.extend([from.clone(), to.clone()]);
            outcome.renames.push((from.clone(), to.clone()));
            if !(gone.mixed || net.mixed) && undo_rename(&mut outcome.tree, current, (from, gone), (to, net))
            {
                continue;
            }
            outcome.refused.insert(to.clone());
        }
    }
    for (path, net) in nets.iter().filter(|(path, _)| !moved.contains(*path)) {
        let merged = merge(&net.after, &get(current, path), &net.before);
        match merged.filter(|_| !net.mixed) {
            Some(value) => set(&mut outcome.tree, path, value),
            None => drop(outcome.refused.insert(path.clone())),
        }
    }
    outcome
}

/// Takes a rename back; `false` if it has conflicts.
fn undo_rename(
    tree: &mut ModelTree,
    current: &ModelTree,
    from: (&str, &ModelNet),
    to: (&str, &ModelNet),
) -> bool {
    let (old, new) = (get(current, from.0), get(current, to.0));
    if new == ModelFile::Absent && old == from.1.before {
        return true;
    }
    let Some(content) = merge(&to.1.after, &new, &from.1.before) else { return false };
    if old != ModelFile::Absent && old != content {
        return false;
    }
    set(tree, from.0, content);
    set(tree, to.0, ModelFile::Absent);
    true
}
