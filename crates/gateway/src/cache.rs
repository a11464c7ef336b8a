//! A cache of values looked up once per credential.
//!
//! Owns the values and the running lookups. A lookup runs in the background:
//! it continues when all callers that wait for it are dropped, and all of them
//! share its result. Failures are not cached. A value is refreshed before it
//! expires, and the old one is returned meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use crate::background::Background;
use crate::error::ApiError;

/// How long a value is valid.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// How long before its expiry a value is refreshed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// Cached credentials. A user has a few accounts; past the limit the oldest
/// entry is evicted.
const MAX_ENTRIES: usize = 64;

/// A running lookup.
type Lookup<T> = Shared<BoxFuture<'static, Result<T, ApiError>>>;

/// Values by credential.
pub(crate) struct Cache<T: Clone + Send + Sync + 'static> {
    slots: Arc<Mutex<Slots<T>>>,
    background: Background,
}

struct Slots<T> {
    by_credential: HashMap<Key, Slot<T>>,
    /// Number of the last slot; distinguishes a slot from an evicted one of the same credential.
    next: u64,
}

struct Slot<T> {
    number: u64,
    value: Option<(T, Instant)>,
    lookup: Option<Lookup<T>>,
}

impl<T: Clone + Send + Sync + 'static> Cache<T> {
    pub(crate) fn new() -> Self {
        let slots = Slots { by_credential: HashMap::new(), next: 0 };
        Self { slots: Arc::new(Mutex::new(slots)), background: Background::default() }
    }

    /// Returns the value and looks it up if it is missing. Concurrent calls
    /// share one lookup.
    pub(crate) async fn get<F>(&self, credential: &SecretString, look_up: F) -> Result<T, ApiError>
    where
        F: FnOnce() -> BoxFuture<'static, Result<T, ApiError>>,
    {
        let lookup = {
            let mut slots = lock(&self.slots);
            let slot = slots.slot(credential);
            let age = slot.value.as_ref().map(|(_, since)| since.elapsed());
            let serves = age.is_some_and(|age| age < LIFETIME);
            let is_fresh = age.is_some_and(|age| age < LIFETIME - RENEWAL);
            if !is_fresh && slot.lookup.is_none() {
                let number = slot.number;
                slot.lookup = Some(self.start(credential, number, look_up()));
            }
            match (&slot.value, &slot.lookup) {
                (Some((value, _)), _) if serves => return Ok(value.clone()),
                (_, Some(lookup)) => lookup.clone(),
                (_, None) => return Err(ApiError::internal("cache lookup was not started")),
            }
        };
        lookup.await
    }

    /// Looks the value up even if it is cached; joins a lookup that is running. A failed lookup
    /// keeps the cached value.
    pub(crate) async fn refresh<F>(&self, credential: &SecretString, look_up: F) -> Result<T, ApiError>
    where
        F: FnOnce() -> BoxFuture<'static, Result<T, ApiError>>,
    {
        let lookup = {
            let mut slots = lock(&self.slots);
            let slot = slots.slot(credential);
            let number = slot.number;
            slot.lookup.get_or_insert_with(|| self.start(credential, number, look_up())).clone()
        };
        lookup.await
    }

    /// Returns the value if it is cached.
    pub(crate) fn peek(&self, credential: &SecretString) -> Option<T> {
        let slots = lock(&self.slots);
        let (value, since) = slots.by_credential.get(&Key(credential.clone()))?.value.as_ref()?;
        (since.elapsed() < LIFETIME).then(|| value.clone())
    }

    /// Removes a value that is no longer correct; the next call looks it up.
    pub(crate) fn evict(&self, credential: &SecretString) {
        lock(&self.slots).by_credential.remove(&Key(credential.clone()));
    }

    fn start(
        &self,
        credential: &SecretString,
        number: u64,
        work: BoxFuture<'static, Result<T, ApiError>>,
    ) -> Lookup<T> {
        let (slots, key) = (Arc::downgrade(&self.slots), Key(credential.clone()));
        let lookup = async move {
            let result = work.await;
            settle(&slots, &key, number, &result);
            result
        };
        let lookup = lookup.boxed().shared();
        let driven = lookup.clone();
        self.background.spawn(async move {
            // The callers receive the result through the shared lookup.
            driven.await.ok();
        });
        lookup
    }
}

fn settle<T: Clone>(slots: &Weak<Mutex<Slots<T>>>, key: &Key, number: u64, result: &Result<T, ApiError>) {
    let Some(slots) = slots.upgrade() else { return };
    let mut slots = lock(&slots);
    let Some(slot) = slots.by_credential.get_mut(key).filter(|slot| slot.number == number) else { return };
    slot.lookup = None;
    if let Ok(value) = result {
        slot.value = Some((value.clone(), Instant::now()));
    }
}

impl<T> Slots<T> {
    fn slot(&mut self, credential: &SecretString) -> &mut Slot<T> {
        let key = Key(credential.clone());
        if self.by_credential.len() >= MAX_ENTRIES && !self.by_credential.contains_key(&key) {
            let oldest = self.by_credential.iter().min_by_key(|(_, slot)| slot.number);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_credential.remove(&oldest);
            }
        }
        let next = &mut self.next;
        self.by_credential.entry(key).or_insert_with(|| {
            *next += 1;
            Slot { number: *next, value: None, lookup: None }
        })
    }
}

fn lock<T>(slots: &Mutex<Slots<T>>) -> MutexGuard<'_, Slots<T>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Clone + Send + Sync + 'static> fmt::Debug for Cache<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cache").field("entries", &lock(&self.slots).by_credential.len()).finish()
    }
}

/// A credential as a map key, without `Debug`.
#[derive(Clone)]
struct Key(SecretString);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.expose_secret().hash(state);
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
