use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::advance;

use super::*;

/// Counts lookups; a gated lookup waits for a notification.
#[derive(Clone, Default)]
struct Source {
    started: Arc<AtomicUsize>,
    finished: Arc<AtomicUsize>,
    gate: Arc<Notify>,
}

impl Source {
    fn open(&self) -> impl FnOnce() -> BoxFuture<'static, Result<usize, ApiError>> + use<> {
        let source = self.clone();
        move || {
            let number = source.started.fetch_add(1, Ordering::SeqCst);
            async move { Ok(number) }.boxed()
        }
    }

    fn gated(&self) -> impl FnOnce() -> BoxFuture<'static, Result<usize, ApiError>> + use<> {
        let source = self.clone();
        move || {
            let number = source.started.fetch_add(1, Ordering::SeqCst);
            async move {
                source.gate.notified().await;
                source.finished.fetch_add(1, Ordering::SeqCst);
                Ok(number)
            }
            .boxed()
        }
    }

    fn failing(&self) -> impl FnOnce() -> BoxFuture<'static, Result<usize, ApiError>> + use<> {
        let source = self.clone();
        move || {
            source.started.fetch_add(1, Ordering::SeqCst);
            async { Err(ApiError::bad_gateway("no")) }.boxed()
        }
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
}

fn secret(text: &str) -> SecretString {
    text.to_owned().into()
}

#[tokio::test(start_paused = true)]
async fn value_is_valid_for_30_minutes_and_refreshed_5_minutes_earlier() {
    let (cache, source, token) = (Cache::new(), Source::default(), secret("t"));
    assert_eq!(cache.get(&token, source.open()).await.unwrap(), 0);
    advance(Duration::from_secs(24 * 60)).await;
    assert_eq!(cache.get(&token, source.open()).await.unwrap(), 0);
    assert_eq!(source.started(), 1);
    advance(Duration::from_secs(2 * 60)).await;
    assert_eq!(
        cache.get(&token, source.open()).await.unwrap(),
        0,
        "the old value is returned during the refresh"
    );
    while cache.peek(&token) != Some(1) {
        tokio::task::yield_now().await;
    }
    assert_eq!((cache.get(&token, source.open()).await.unwrap(), source.started()), (1, 2));
    advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(cache.peek(&token), None);
    assert_eq!(cache.get(&token, source.open()).await.unwrap(), 2, "an expired value is not returned");
}

#[tokio::test(start_paused = true)]
async fn failed_refresh_keeps_value_until_it_expires() {
    let (cache, source, token) = (Cache::new(), Source::default(), secret("t"));
    cache.get(&token, source.open()).await.unwrap();
    advance(Duration::from_secs(26 * 60)).await;
    assert_eq!(cache.get(&token, source.failing()).await.unwrap(), 0);
    tokio::task::yield_now().await;
    assert_eq!(cache.get(&token, source.failing()).await.unwrap(), 0);
    advance(Duration::from_secs(5 * 60)).await;
    assert!(cache.get(&token, source.failing()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_with_same_credential_share_one_lookup() {
    let (cache, source) = (Cache::new(), Source::default());
    let (one, two) = (secret("one"), secret("two"));
    let release = async {
        while source.started() < 2 {
            tokio::task::yield_now().await;
        }
        source.gate.notify_waiters();
    };
    let (first, second, other, ()) = tokio::join!(
        cache.get(&one, source.gated()),
        cache.get(&one, source.gated()),
        cache.get(&two, source.gated()),
        release,
    );
    assert_eq!((first.unwrap(), second.unwrap(), other.unwrap()), (0, 0, 1));
    assert_eq!(source.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn lookup_continues_after_all_callers_are_dropped() {
    let (cache, source, token) = (Cache::new(), Source::default(), secret("t"));
    {
        let waiting = cache.get(&token, source.gated());
        futures_util::pin_mut!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    }
    tokio::task::yield_now().await;
    source.gate.notify_waiters();
    while cache.peek(&token).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!((source.started(), source.finished.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_are_not_cached_and_evicted_value_is_looked_up_again() {
    let (cache, source, token) = (Cache::new(), Source::default(), secret("t"));
    assert!(cache.get(&token, source.failing()).await.is_err());
    assert_eq!(cache.get(&token, source.open()).await.unwrap(), 1);
    cache.evict(&token);
    assert_eq!(cache.peek(&token), None);
    assert_eq!(cache.get(&token, source.open()).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn cache_is_bounded_and_debug_output_hides_credentials() {
    let (cache, source) = (Cache::new(), Source::default());
    for number in 0..=MAX_ENTRIES {
        cache.get(&secret(&format!("sesame{number}")), source.open()).await.unwrap();
    }
    assert_eq!(lock(&cache.slots).by_credential.len(), MAX_ENTRIES);
    assert_eq!(cache.peek(&secret("sesame0")), None);
    assert!(!format!("{cache:?}").contains("sesame"));
}
