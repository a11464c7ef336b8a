//! Prompt hooks and event subscribers.
//!
//! Owns the two ordered lists. Hooks and subscribers are called without a lock held, so that they may add
//! or remove members.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::event::SessionEvent;
use crate::runtime::UserContent;
use crate::transport::BoxFuture;

/// Why a hook rejected a send.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Rewrites or rejects a prompt before it is sent.
pub(super) type Hook =
    dyn Fn(UserContent) -> BoxFuture<'static, Result<UserContent, HookError>> + Send + Sync;

/// Called for every event.
pub(super) type Follower = dyn Fn(&SessionEvent) + Send + Sync;

/// An ordered list with removable members. Unbounded: it contains only what the program itself adds.
pub(super) struct Members<T: ?Sized> {
    members: Mutex<Vec<(u64, Arc<T>)>>,
    next: AtomicU64,
}

impl<T: ?Sized> Default for Members<T> {
    fn default() -> Self {
        Self { members: Mutex::new(Vec::new()), next: AtomicU64::new(0) }
    }
}

impl<T: ?Sized> fmt::Debug for Members<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Members").field("count", &self.lock().len()).finish()
    }
}

impl<T: ?Sized + Send + Sync + 'static> Members<T> {
    /// Adds a member at the end.
    pub(super) fn join(self: &Arc<Self>, member: Arc<T>) -> SessionSubscription {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().push((id, member));
        let list: Weak<dyn Leave> = Arc::<Self>::downgrade(self);
        SessionSubscription { list, id }
    }

    /// The current members, in order.
    pub(super) fn now(&self) -> Vec<Arc<T>> {
        self.lock().iter().map(|(_, member)| Arc::clone(member)).collect()
    }
}

impl<T: ?Sized> Members<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<T>)>> {
        // The list is consistent after every statement, so a poisoned lock can be used.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removal from a list of any member type.
trait Leave: Send + Sync {
    fn leave(&self, id: u64);
}

impl<T: ?Sized + Send + Sync> Leave for Members<T> {
    fn leave(&self, id: u64) {
        self.lock().retain(|(member, _)| *member != id);
    }
}

/// The registration of a hook or subscriber. Dropping it removes the hook or subscriber, unless `keep`
/// was called.
#[must_use = "dropping this removes the hook or subscriber; call `keep` to retain it"]
pub struct SessionSubscription {
    list: Weak<dyn Leave>,
    id: u64,
}

impl SessionSubscription {
    /// Removes the hook or subscriber. A running call is completed.
    pub fn unsubscribe(self) {}

    /// Retains the hook or subscriber for the lifetime of the session.
    pub fn keep(mut self) {
        self.id = u64::MAX;
    }
}

impl Drop for SessionSubscription {
    fn drop(&mut self) {
        if let Some(list) = self.list.upgrade() {
            list.leave(self.id);
        }
    }
}

impl fmt::Debug for SessionSubscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionSubscription").finish_non_exhaustive()
    }
}

/// Calls all subscribers. A panic in one does not affect the others.
pub(super) fn tell(followers: &Members<Follower>, event: &SessionEvent) {
    for follower in followers.now() {
        if std::panic::catch_unwind(AssertUnwindSafe(|| follower(event))).is_err() {
            tracing::error!("session event subscriber panicked");
        }
    }
}

/// Runs all hooks on the prompt, in order.
pub(super) async fn rewrite(hooks: Vec<Arc<Hook>>, prompt: UserContent) -> Result<UserContent, HookError> {
    let mut prompt = prompt;
    for hook in hooks {
        prompt = hook(prompt).await?;
    }
    Ok(prompt)
}
