//! Points at which tests interrupt an operation.
//!
//! Without `cfg(test)` there is nothing to set: each point is a constant `Ok`.

use nix::errno::Errno;

/// A point of an operation. The numbers are those of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultPoint {
    /// All files were compared with the plan.
    Planned,
    /// The operation is about to be stored.
    BeforeBegin,
    /// The operation is stored.
    AfterBegin,
    /// The new file of a step is written beside its target.
    Staged(usize),
    /// All files were compared again.
    Checked,
    /// The file of a step is about to be replaced, created or deleted.
    BeforeRename(usize),
    /// The file of a step is in its new state.
    AfterRename(usize),
    /// Empty directories were removed.
    DirectoriesRemoved,
    /// The end of the operation is about to be stored.
    BeforeFinish,
    /// The end of the operation is stored.
    AfterFinish,
}

/// Called at each point of an operation.
#[cfg(test)]
type FaultHook = Box<dyn Fn(FaultPoint) -> Result<(), Errno>>;

/// What happens at the points of an operation: nothing, except in tests.
pub(crate) struct FaultPoints {
    #[cfg(test)]
    hook: Option<FaultHook>,
}

impl std::fmt::Debug for FaultPoints {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FaultPoints").finish_non_exhaustive()
    }
}

impl FaultPoints {
    /// No faults.
    pub(crate) const fn none() -> Self {
        Self {
            #[cfg(test)]
            hook: None,
        }
    }

    /// Calls a function at each point. An error is handled like a failure of the disk.
    #[cfg(test)]
    pub(crate) fn with(hook: impl Fn(FaultPoint) -> Result<(), Errno> + 'static) -> Self {
        Self { hook: Some(Box::new(hook)) }
    }

    #[cfg(test)]
    pub(super) fn reach(&self, point: FaultPoint) -> Result<(), Errno> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook(point))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the signature of the test version")]
    pub(super) const fn reach(&self, _: FaultPoint) -> Result<(), Errno> {
        Ok(())
    }
}
