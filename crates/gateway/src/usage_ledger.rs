//! Per-session accounting: usage, last error, turns and credential.
//!
//! Owns a bounded map by session id; the least recently used session is
//! evicted first. One lock, held briefly and never across an await. The usage
//! of a response is recorded before the client receives the end of the
//! response, so that a client that has it finds its usage.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::SecretString;

use crate::auth::SessionId;
use crate::error::ApiError;
use crate::initiator::{Initiator, RequestTraits, SessionTurns, TurnMark, TurnReservation};
use crate::tap::Reading;

/// Sessions in the map. Each takes well below a kilobyte, and a host has some
/// hundreds open; past the limit the least recently used is evicted.
const MAX_SESSIONS: usize = 4096;

/// Sessions with their own credential. These are never evicted, since that
/// would silently switch the account; past the limit a new one is rejected.
const MAX_CREDENTIALS: usize = 1024;

/// Characters kept of an error's message.
const MESSAGE_LENGTH: usize = 1000;

/// The accumulated usage of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUsage {
    /// Messages requests that were sent to an upstream.
    pub requests: u64,
    /// Requests whose response was complete.
    pub completed: u64,
    /// Requests that ended in an error, before or during the response.
    pub failed: u64,
    /// Requests that the client aborted.
    pub aborted: u64,
    /// Requests sent with the user as initiator, of upstreams that are told the initiator.
    pub user_requests: u64,
    /// Input tokens neither read from nor written to a cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens written to the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Input tokens read from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Copilot credits, in billionths.
    pub nano_aiu: u64,
    /// The stop reason of the last complete response.
    pub last_stop_reason: Option<String>,
}

/// The last failed messages request of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// The HTTP status, or the equivalent of an `error` event.
    pub status: u16,
    /// Anthropic's `error.type`.
    pub kind: String,
    /// The message that the client received, cut if it is very long.
    pub message: String,
    /// When the upstream accepts the next request, if it said so.
    pub retry_after: Option<Duration>,
    /// The id of the request in logs and responses.
    pub request_id: String,
}

impl LastError {
    fn new(error: &ApiError, request_id: &str) -> Self {
        Self {
            status: error.status().as_u16(),
            kind: error.kind().to_owned(),
            message: error.message().chars().take(MESSAGE_LENGTH).collect(),
            retry_after: error.retry_after(),
            request_id: request_id.to_owned(),
        }
    }
}

/// The limit of sessions with their own credential is reached.
#[derive(Debug, thiserror::Error)]
#[error("{MAX_CREDENTIALS} sessions already have their own credential; forget a closed session first")]
pub struct TooManyCredentials;

/// The accounts of all sessions of one gateway.
#[derive(Debug, Default)]
pub(crate) struct UsageLedger(Mutex<LedgerState>);

#[derive(Debug, Default)]
struct LedgerState {
    sessions: HashMap<SessionId, SessionEntry>,
    /// The usage of all sessions, also of forgotten ones.
    total: SessionUsage,
    /// Counts accesses; the entry with the lowest count is the least recently used.
    clock: u64,
}

#[derive(Debug, Default)]
struct SessionEntry {
    touched: u64,
    usage: SessionUsage,
    /// The usage of ended requests since it was last taken.
    untaken: SessionUsage,
    last_error: Option<LastError>,
    turns: SessionTurns,
    credential: Option<SecretString>,
}

impl UsageLedger {
    /// The account of one session.
    pub(crate) fn account(self: &Arc<Self>, session: &SessionId) -> Account {
        Account { ledger: Arc::clone(self), session: session.clone() }
    }

    pub(crate) fn usage(&self, session: &str) -> Option<SessionUsage> {
        self.read(session, |entry| entry.usage.clone())
    }

    pub(crate) fn total(&self) -> SessionUsage {
        self.lock().total.clone()
    }

    pub(crate) fn take_usage(&self, session: &str) -> SessionUsage {
        let mut state = self.lock();
        let entry = state.sessions.get_mut(session);
        entry.map(|entry| std::mem::take(&mut entry.untaken)).unwrap_or_default()
    }

    pub(crate) fn last_error(&self, session: &str) -> Option<LastError> {
        self.read(session, |entry| entry.last_error.clone())?
    }

    pub(crate) fn mark_turn(&self, session: &SessionId, mark: TurnMark) {
        self.write(session, |entry| {
            entry.last_error = None;
            entry.turns.mark(mark);
        });
    }

    pub(crate) fn set_credential(
        &self,
        session: &SessionId,
        credential: SecretString,
    ) -> Result<(), TooManyCredentials> {
        let mut state = self.lock();
        let others = state.sessions.iter().filter(|(id, entry)| *id != session && entry.credential.is_some());
        if others.count() >= MAX_CREDENTIALS {
            return Err(TooManyCredentials);
        }
        state.entry(session).credential = Some(credential);
        Ok(())
    }

    /// Prepares the account of the host's own requests for a session: they have the session's
    /// credential until the result is dropped, and never the user as their initiator.
    pub(crate) fn open_helper(
        self: &Arc<Self>,
        session: &str,
        helper: &SessionId,
    ) -> Result<HelperAccount, TooManyCredentials> {
        if let Some(credential) = self.read(session, |entry| entry.credential.clone()).flatten() {
            self.set_credential(helper, credential)?;
        }
        self.write(helper, |entry| entry.turns.expect_marks());
        Ok(HelperAccount { ledger: Arc::clone(self), helper: helper.clone() })
    }

    pub(crate) fn forget(&self, session: &str) {
        self.lock().sessions.retain(|id, _| id.as_str() != session);
    }

    fn read<T>(&self, session: &str, look: impl FnOnce(&SessionEntry) -> T) -> Option<T> {
        self.lock().sessions.get(session).map(look)
    }

    fn write<T>(&self, session: &SessionId, change: impl FnOnce(&mut SessionEntry) -> T) -> T {
        change(self.lock().entry(session))
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    fn entry(&mut self, session: &SessionId) -> &mut SessionEntry {
        self.clock += 1;
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(session) {
            self.evict_least_recent();
        }
        let entry = self.sessions.entry(session.clone()).or_default();
        entry.touched = self.clock;
        entry
    }

    fn evict_least_recent(&mut self) {
        let without = self.sessions.iter().filter(|(_, entry)| entry.credential.is_none());
        let oldest = without.min_by_key(|(_, entry)| entry.touched).map(|(session, _)| session.clone());
        if let Some(oldest) = oldest {
            self.sessions.remove(&oldest);
        }
    }
}

/// The account of the host's own requests for a session. Gives the credential back when dropped.
#[derive(Debug)]
pub(crate) struct HelperAccount {
    ledger: Arc<UsageLedger>,
    helper: SessionId,
}

impl Drop for HelperAccount {
    fn drop(&mut self) {
        self.ledger.write(&self.helper, |entry| entry.credential = None);
    }
}

/// The account of one session.
#[derive(Clone)]
pub struct Account {
    ledger: Arc<UsageLedger>,
    session: SessionId,
}

impl Account {
    /// The session's own credential, if it has one.
    pub(crate) fn credential(&self) -> Option<SecretString> {
        self.ledger.read(self.session.as_str(), |entry| entry.credential.clone())?
    }

    /// Records an error that the client received for a messages request.
    pub(crate) fn note_error(&self, error: &ApiError, request_id: &str) {
        let last = LastError::new(error, request_id);
        self.ledger.write(&self.session, |entry| entry.last_error = Some(last));
    }

    /// Decides the initiator of a request. The reservation is settled with the request.
    pub(crate) fn initiator(&self, traits: &RequestTraits) -> (Initiator, TurnReservation) {
        self.ledger.write(&self.session, |entry| entry.turns.decide(traits))
    }

    /// Starts accounting for one messages request.
    pub(crate) fn open(&self, request_id: &str) -> OpenRequest {
        let mut state = self.ledger.lock();
        state.total.requests += 1;
        state.entry(&self.session).usage.requests += 1;
        OpenRequest {
            account: self.clone(),
            request_id: request_id.to_owned(),
            reading: Reading::default(),
            is_by_user: false,
            reservation: TurnReservation::none(),
            end: None,
            is_settled: false,
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Account").field(&self.session).finish()
    }
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum RequestEnd {
    /// The response was complete.
    Completed,
    /// The request failed, before or during the response.
    Failed(ApiError),
}

/// A request in progress. Dropping it records the usage known so far, so that
/// an aborted request is accounted for too.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    account: Account,
    request_id: String,
    reading: Reading,
    /// Whether it is sent with the user as initiator.
    is_by_user: bool,
    reservation: TurnReservation,
    end: Option<RequestEnd>,
    /// Whether the usage and the end are recorded.
    is_settled: bool,
}

impl OpenRequest {
    /// Sets the initiator, and the reservation that is settled with this request.
    pub(crate) fn hold(&mut self, initiator: Initiator, reservation: TurnReservation) {
        self.is_by_user = initiator == Initiator::User;
        self.reservation = reservation;
    }

    /// Replaces the usage reading.
    pub(crate) fn update(&mut self, reading: Reading) {
        self.reading = reading;
    }

    /// Sets the result.
    pub(crate) fn end(&mut self, end: RequestEnd) {
        self.end = Some(end);
    }

    /// Records the usage and the result, once.
    pub(crate) fn settle(&mut self) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let (reading, reservation, end) =
            (std::mem::take(&mut self.reading), std::mem::take(&mut self.reservation), self.end.take());
        let is_by_user = self.is_by_user;
        let mut state = self.account.ledger.lock();
        state.total.add(&reading, end.as_ref(), is_by_user);
        let entry = state.entry(&self.account.session);
        entry.usage.add(&reading, end.as_ref(), is_by_user);
        entry.untaken.requests += 1;
        entry.untaken.add(&reading, end.as_ref(), is_by_user);
        match end {
            Some(RequestEnd::Completed) => {
                entry.last_error = None;
                entry.turns.settle_success(reservation);
            }
            Some(RequestEnd::Failed(error)) => {
                entry.last_error = Some(LastError::new(&error, &self.request_id));
                entry.turns.settle_failure(&reservation);
            }
            None => entry.turns.settle_failure(&reservation),
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.settle();
    }
}

impl SessionUsage {
    /// Adds an ended request, which is already counted in `requests`.
    fn add(&mut self, reading: &Reading, end: Option<&RequestEnd>, is_by_user: bool) {
        match end {
            Some(RequestEnd::Completed) => {
                self.completed += 1;
                self.last_stop_reason.clone_from(&reading.stop_reason);
            }
            Some(RequestEnd::Failed(_)) => self.failed += 1,
            None => self.aborted += 1,
        }
        self.user_requests += u64::from(is_by_user);
        self.input_tokens = self.input_tokens.saturating_add(reading.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(reading.output_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.saturating_add(reading.cache_creation_input_tokens);
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.saturating_add(reading.cache_read_input_tokens);
        self.nano_aiu = self.nano_aiu.saturating_add(reading.nano_aiu.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    #[test]
    fn aborted_request_records_known_usage() {
        let ledger = Arc::new(UsageLedger::default());
        let mut open = ledger.account(&session("a")).open("req_1");
        open.update(Reading { input_tokens: 7, output_tokens: 3, nano_aiu: Some(5), ..Reading::default() });
        drop(open);
        let expected = SessionUsage {
            requests: 1,
            aborted: 1,
            input_tokens: 7,
            output_tokens: 3,
            nano_aiu: 5,
            ..SessionUsage::default()
        };
        assert_eq!(ledger.usage("a"), Some(expected.clone()));
        assert_eq!(ledger.usage("b"), None);
        assert_eq!((ledger.take_usage("a"), ledger.take_usage("b")), (expected, SessionUsage::default()));
    }

    #[test]
    fn usage_is_taken_once_and_totals_include_forgotten_sessions() {
        let ledger = Arc::new(UsageLedger::default());
        let ask = |name: &str, output_tokens: u64| {
            let mut open = ledger.account(&session(name)).open("req_1");
            open.hold(Initiator::User, TurnReservation::none());
            open.update(Reading { output_tokens, ..Reading::default() });
            open.end(RequestEnd::Completed);
            open.settle();
            // Dropping a settled request records nothing.
        };
        let used = |requests: u64, output_tokens: u64| SessionUsage {
            requests,
            completed: requests,
            user_requests: requests,
            output_tokens,
            ..SessionUsage::default()
        };
        let open = ledger.account(&session("a")).open("req_0");
        ask("a", 1);
        ask("a", 2);
        assert_eq!(ledger.take_usage("a"), used(2, 3), "an open request is not taken");
        assert_eq!(ledger.take_usage("a"), SessionUsage::default());
        drop(open);
        assert_eq!(
            ledger.take_usage("a"),
            SessionUsage { requests: 1, aborted: 1, ..SessionUsage::default() }
        );
        ask("b", 4);
        ledger.forget("a");
        assert_eq!(ledger.total(), SessionUsage { requests: 4, aborted: 1, ..used(3, 7) });
    }

    #[test]
    fn failure_is_dropped_by_next_success_and_next_message() {
        let ledger = Arc::new(UsageLedger::default());
        let account = ledger.account(&session("a"));
        let fail = || {
            let error = ApiError::from_status(http::StatusCode::TOO_MANY_REQUESTS, "x".repeat(5000))
                .with_retry_after(Some(Duration::from_secs(7)));
            account.open("req_1").end(RequestEnd::Failed(error));
        };
        fail();
        let last = ledger.last_error("a").unwrap();
        assert_eq!((last.status, last.retry_after), (429, Some(Duration::from_secs(7))));
        assert_eq!(last.message.len(), MESSAGE_LENGTH);
        drop(account.open("aborted"));
        assert!(ledger.last_error("a").is_some(), "an aborted request says nothing about the upstream");
        account.open("req_2").end(RequestEnd::Completed);
        assert_eq!(ledger.last_error("a"), None);
        fail();
        ledger.mark_turn(&session("a"), TurnMark::with_text("again"));
        assert_eq!(ledger.last_error("a"), None);
    }

    #[test]
    fn least_recently_used_session_without_credential_is_evicted() {
        let ledger = Arc::new(UsageLedger::default());
        ledger.set_credential(&session("kept"), "secret".to_owned().into()).unwrap();
        for number in 0..MAX_SESSIONS {
            drop(ledger.account(&session(&format!("s{number}"))).open("req"));
        }
        assert_eq!(ledger.lock().sessions.len(), MAX_SESSIONS);
        assert!(ledger.usage("s0").is_none() && ledger.usage("s1").is_some());
        assert!(ledger.account(&session("kept")).credential().is_some());
    }

    #[test]
    fn rejects_too_many_credentials_and_debug_output_hides_them() {
        let ledger = Arc::new(UsageLedger::default());
        for number in 0..MAX_CREDENTIALS {
            ledger.set_credential(&session(&number.to_string()), "sesame".to_owned().into()).unwrap();
        }
        assert!(ledger.set_credential(&session("more"), "x".to_owned().into()).is_err());
        ledger.set_credential(&session("0"), "changed".to_owned().into()).unwrap();
        ledger.forget("1");
        ledger.set_credential(&session("more"), "x".to_owned().into()).unwrap();
        assert!(!format!("{ledger:?}").contains("sesame"));
    }
}
