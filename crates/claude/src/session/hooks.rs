//! What runs around sends: hooks before them, and followers of events.
//!
//! Owns the two ordered lists and how one leaves them. Hooks and followers are called without a lock held,
//! so that they may leave, or let others join, while they run.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::event::SessionEvent;
use crate::runtime::UserContent;
use crate::transport::BoxFuture;

/// Why a hook refused a send.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Rewrites a prompt before it is sent, or refuses it.
pub(super) type Hook =
    dyn Fn(UserContent) -> BoxFuture<'static, Result<UserContent, HookError>> + Send + Sync;

/// Is told of every event.
pub(super) type Follower = dyn Fn(&SessionEvent) + Send + Sync;

/// An ordered list that can be left. Not bounded: it holds what the program itself puts in.
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
    pub(super) fn join(self: &Arc<Self>, member: Arc<T>) -> Subscription {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().push((id, member));
        let list: Weak<dyn Leave> = Arc::<Self>::downgrade(self);
        Subscription { list, id }
    }

    /// The members now, in order.
    pub(super) fn now(&self) -> Vec<Arc<T>> {
        self.lock().iter().map(|(_, member)| Arc::clone(member)).collect()
    }
}

impl<T: ?Sized> Members<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<T>)>> {
        // The list is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A list of any members, as far as leaving goes.
trait Leave: Send + Sync {
    fn leave(&self, id: u64);
}

impl<T: ?Sized + Send + Sync> Leave for Members<T> {
    fn leave(&self, id: u64) {
        self.lock().retain(|(member, _)| *member != id);
    }
}

/// A hook or follower of a session. It goes when this is dropped, unless it was kept.
#[must_use = "the hook or follower goes when this is dropped; `keep` keeps it"]
pub struct Subscription {
    list: Weak<dyn Leave>,
    id: u64,
}

impl Subscription {
    /// Takes the hook or follower away. One that runs in this moment runs to its end.
    pub fn unsubscribe(self) {}

    /// Leaves the hook or follower in place for as long as the session lives.
    pub fn keep(mut self) {
        self.id = u64::MAX;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(list) = self.list.upgrade() {
            list.leave(self.id);
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subscription").finish_non_exhaustive()
    }
}

/// Tells every follower. One that panics is a bug of its own, and costs the others nothing.
pub(super) fn tell(followers: &Members<Follower>, event: &SessionEvent) {
    for follower in followers.now() {
        if std::panic::catch_unwind(AssertUnwindSafe(|| follower(event))).is_err() {
            tracing::error!("a follower of a session's events panicked");
        }
    }
}

/// Lets every hook rewrite the prompt, in order.
pub(super) async fn rewrite(hooks: Vec<Arc<Hook>>, prompt: UserContent) -> Result<UserContent, HookError> {
    let mut prompt = prompt;
    for hook in hooks {
        prompt = hook(prompt).await?;
    }
    Ok(prompt)
}
