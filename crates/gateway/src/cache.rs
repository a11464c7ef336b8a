//! What is looked up once for each credential and shared.
//!
//! Owns the values and the lookups on their way. A lookup belongs to nobody
//! who waits for it: it goes on when they leave, and all of them get its
//! result. Failures are not kept. A value is renewed some time before its
//! end, while it still serves.

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

/// How long a value serves.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// How long before its end it is renewed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// Credentials with a value. A person has a few accounts; past it the value
/// that is oldest is looked up again when it is needed.
const MAX_ENTRIES: usize = 64;

/// A lookup on its way.
type Lookup<T> = Shared<BoxFuture<'static, Result<T, ApiError>>>;

/// Values by credential.
pub(crate) struct Cache<T: Clone + Send + Sync + 'static> {
    slots: Arc<Mutex<Slots<T>>>,
    background: Background,
}

struct Slots<T> {
    by_credential: HashMap<Key, Slot<T>>,
    /// Tells a slot from an earlier one of the same credential.
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

    /// The value, looked up if there is none; waits for a lookup that is on
    /// its way already.
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
                (_, None) => return Err(ApiError::internal("a lookup was neither there nor started")),
            }
        };
        lookup.await
    }

    /// The value if it is there.
    pub(crate) fn peek(&self, credential: &SecretString) -> Option<T> {
        let slots = lock(&self.slots);
        let (value, since) = slots.by_credential.get(&Key(credential.clone()))?.value.as_ref()?;
        (since.elapsed() < LIFETIME).then(|| value.clone())
    }

    /// Forgets a value that turned out to be wrong; the next call looks it up.
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
            // Whoever waits gets the result from the shared lookup.
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

/// A credential as a key, shown nowhere.
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
