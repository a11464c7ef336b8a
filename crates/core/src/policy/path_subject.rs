//! A path of a request, prepared for many comparisons.

use std::path::{Path, PathBuf};

use super::path_pattern::{PathPattern, PatternBase, names_of};
use super::{PolicyContext, ResolvedPath};

/// A path in the forms that patterns are compared with.
#[derive(Debug)]
pub(super) struct PathSubject<'a> {
    pub(super) path: &'a ResolvedPath,
    lexical: PathNames,
    real: Option<PathNames>,
    /// The index of the root that contains the path in both forms.
    pub(super) root: Option<usize>,
}

#[derive(Debug)]
struct PathNames {
    names: Vec<String>,
    lower: Vec<String>,
}

impl PathNames {
    fn of(path: &Path) -> Self {
        let names = names_of(path);
        let lower = names.iter().map(|name| name.to_lowercase()).collect();
        Self { names, lower }
    }
}

impl<'a> PathSubject<'a> {
    pub(super) fn new(path: &'a ResolvedPath, context: &PolicyContext<'_>) -> Self {
        let has_nul = path.given.contains('\0') || path.lexical.to_string_lossy().contains('\0');
        let root = context.roots.iter().position(|root| {
            let (Some(real), Some(real_root)) = (&path.real, &root.real) else { return false };
            let is_lexical = path.lexical.starts_with(&root.lexical) || path.lexical.starts_with(real_root);
            is_lexical && real.starts_with(real_root) && !has_nul && path.lexical.is_absolute()
        });
        Self {
            path,
            lexical: PathNames::of(&path.lexical),
            real: path.real.as_deref().filter(|_| !has_nul).map(PathNames::of),
            root,
        }
    }

    /// Whether the path is inside of a root, before and after links are resolved.
    pub(super) fn is_inside(&self) -> bool {
        self.root.is_some()
    }

    /// Whether a pattern of a rule that restricts matches either form.
    pub(super) fn is_restricted_by(&self, pattern: &PathPattern, bases: &PatternBases) -> bool {
        let matches = |form: &PathNames| {
            bases.of(pattern.base()).iter().any(|base| {
                form.lower.strip_prefix(base.lower.as_slice()).is_some_and(|rest| pattern.matches(rest))
            })
        };
        matches(&self.lexical) || self.real.as_ref().is_some_and(matches)
    }

    /// Whether a pattern of a rule that allows matches both forms.
    pub(super) fn is_allowed_by(&self, pattern: &PathPattern, bases: &PatternBases) -> bool {
        let matches = |form: &PathNames| {
            bases.of(pattern.base()).iter().any(|base| {
                form.names.strip_prefix(base.names.as_slice()).is_some_and(|rest| pattern.matches(rest))
            })
        };
        matches(&self.lexical) && self.real.as_ref().is_some_and(matches)
    }

    /// The names of both forms in lower case.
    pub(super) fn lower_forms(&self) -> impl Iterator<Item = &[String]> {
        std::iter::once(&self.lexical).chain(self.real.as_ref()).map(|form| form.lower.as_slice())
    }

    /// Whether the path is inside of a root that is below a directory given in lower case.
    pub(super) fn is_in_root_below(&self, directory: &[String], context: &PolicyContext<'_>) -> bool {
        let root = self.root.and_then(|index| context.roots.get(index));
        root.is_some_and(|root| {
            let names = PathNames::of(&root.lexical).lower;
            names.len() > directory.len() && names.starts_with(directory)
        })
    }

    /// Whether one of the forms is a directory or below it.
    pub(super) fn is_below(&self, directory: &Path) -> bool {
        let directory = PathNames::of(directory);
        self.lower_forms().any(|form| form.starts_with(&directory.lower))
    }

    /// Whether a directory is below the path.
    pub(super) fn contains(&self, directory: &Path) -> bool {
        let directory = PathNames::of(directory);
        self.lower_forms().any(|form| directory.lower.starts_with(form))
    }
}

/// The directories that patterns of one rule set are relative to.
#[derive(Debug)]
pub(super) struct PatternBases {
    file_system: Vec<PathNames>,
    home: Vec<PathNames>,
    project: Vec<PathNames>,
}

impl PatternBases {
    /// `base` is the directory of the rules; without one, they apply to every root.
    pub(super) fn new(base: Option<&PathBuf>, context: &PolicyContext<'_>) -> Self {
        let mut project: Vec<PathNames> = base.map(|base| PathNames::of(base)).into_iter().collect();
        for root in context.roots {
            let is_base = base.is_none_or(|base| *base == root.lexical || Some(base) == root.real.as_ref());
            if is_base {
                project
                    .extend(std::iter::once(&root.lexical).chain(&root.real).map(|path| PathNames::of(path)));
            }
        }
        Self {
            file_system: vec![PathNames { names: Vec::new(), lower: Vec::new() }],
            home: context.home.map(PathNames::of).into_iter().collect(),
            project,
        }
    }

    fn of(&self, base: PatternBase) -> &[PathNames] {
        match base {
            PatternBase::FileSystem => &self.file_system,
            PatternBase::Home => &self.home,
            PatternBase::Project => &self.project,
        }
    }
}
