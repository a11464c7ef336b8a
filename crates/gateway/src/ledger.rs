//! The books of each session: what it used, what failed last, who started its
//! requests, and whose credential it has.
//!
//! Owns a bounded map by the session id in the bearer; the session that was
//! silent longest is forgotten first. One short lock, never held while waiting.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use secrecy::SecretString;

use crate::auth::SessionId;
use crate::error::ApiError;
use crate::initiator::{Ask, Initiator, Ticket, TurnBook, TurnMark};
use crate::tap::Reading;

/// Sessions with books. Each takes well below a kilobyte, and a host has
/// some hundreds alive; past it the one that was silent longest is forgotten.
const MAX_SESSIONS: usize = 4096;

/// Sessions with a credential of their own. These are never forgotten by
/// themselves, since that would silently change the account; past it a new
/// one is refused.
const MAX_CREDENTIALS: usize = 1024;

/// What the requests of one session came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUsage {
    /// Messages requests that were sent to an upstream.
    pub requests: u64,
    /// Those whose answer came to its end.
    pub completed: u64,
    /// Those that ended in an error, before or inside the answer.
    pub failed: u64,
    /// Those that the client left before their end.
    pub aborted: u64,
    /// Input tokens that were neither read from nor written to a cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens written to the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Input tokens read from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Copilot's credits, in billionths.
    pub nano_aiu: u64,
    /// Why the last finished answer stopped.
    pub last_stop_reason: Option<String>,
}

/// The last failure of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// The HTTP status, or the one that an `error` event stands for.
    pub status: u16,
    /// Anthropic's `error.type`.
    pub kind: String,
    /// What the client was told.
    pub message: String,
    /// The id of the request in logs and answers.
    pub request_id: String,
}

/// Why a session cannot have a credential of its own.
#[derive(Debug, thiserror::Error)]
#[error("{MAX_CREDENTIALS} sessions have credentials of their own; forget one that has ended first")]
pub struct TooManyCredentials;

/// All books of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    sessions: HashMap<SessionId, Entry>,
    /// Counts uses, to know which session was silent longest.
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    touched: u64,
    usage: SessionUsage,
    last_error: Option<LastError>,
    turns: TurnBook,
    credential: Option<SecretString>,
}

impl Ledger {
    /// The books of one session, to be written.
    pub(crate) fn account(self: &Arc<Self>, session: &SessionId) -> Account {
        Account { ledger: Arc::clone(self), session: session.clone() }
    }

    pub(crate) fn usage(&self, session: &str) -> Option<SessionUsage> {
        self.read(session, |entry| entry.usage.clone())
    }

    pub(crate) fn last_error(&self, session: &str) -> Option<LastError> {
        self.read(session, |entry| entry.last_error.clone())?
    }

    pub(crate) fn mark_turn(&self, session: &SessionId, mark: TurnMark) {
        self.write(session, |entry| entry.turns.mark(mark));
    }

    pub(crate) fn set_credential(
        &self,
        session: &SessionId,
        credential: SecretString,
    ) -> Result<(), TooManyCredentials> {
        let mut books = self.lock();
        let others = books.sessions.iter().filter(|(id, entry)| *id != session && entry.credential.is_some());
        if others.count() >= MAX_CREDENTIALS {
            return Err(TooManyCredentials);
        }
        books.entry(session).credential = Some(credential);
        Ok(())
    }

    pub(crate) fn forget(&self, session: &str) {
        self.lock().sessions.retain(|id, _| id.as_str() != session);
    }

    fn read<T>(&self, session: &str, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.lock().sessions.get(session).map(look)
    }

    fn write<T>(&self, session: &SessionId, change: impl FnOnce(&mut Entry) -> T) -> T {
        change(self.lock().entry(session))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn entry(&mut self, session: &SessionId) -> &mut Entry {
        self.clock += 1;
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(session) {
            self.forget_silent();
        }
        let entry = self.sessions.entry(session.clone()).or_default();
        entry.touched = self.clock;
        entry
    }

    fn forget_silent(&mut self) {
        let without = self.sessions.iter().filter(|(_, entry)| entry.credential.is_none());
        let oldest = without.min_by_key(|(_, entry)| entry.touched).map(|(session, _)| session.clone());
        if let Some(oldest) = oldest {
            self.sessions.remove(&oldest);
        }
    }
}

/// The books of one session.
#[derive(Clone)]
pub struct Account {
    ledger: Arc<Ledger>,
    session: SessionId,
}

impl Account {
    /// The credential of this session alone, if it has one.
    pub(crate) fn credential(&self) -> Option<SecretString> {
        self.ledger.read(self.session.as_str(), |entry| entry.credential.clone())?
    }

    /// Notes a failure that the client is told about.
    pub(crate) fn note_error(&self, error: &ApiError, request_id: &str) {
        self.note(LastError {
            status: error.status().as_u16(),
            kind: error.kind().to_owned(),
            message: error.message().to_owned(),
            request_id: request_id.to_owned(),
        });
    }

    fn note(&self, error: LastError) {
        self.ledger.write(&self.session, |entry| entry.last_error = Some(error));
    }

    /// Says who started a request. The ticket is settled with the request.
    pub(crate) fn initiator(&self, ask: &Ask) -> (Initiator, Ticket) {
        self.ledger.write(&self.session, |entry| entry.turns.decide(ask))
    }

    /// Opens the books of one messages request.
    pub(crate) fn open(&self, request_id: &str) -> OpenRequest {
        self.ledger.write(&self.session, |entry| entry.usage.requests += 1);
        OpenRequest {
            account: self.clone(),
            request_id: request_id.to_owned(),
            reading: Reading::default(),
            ticket: Ticket::none(),
            end: None,
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Account").field(&self.session).finish()
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum RequestEnd {
    /// All of the answer came.
    Completed,
    /// It failed, before or inside the answer.
    Failed(ApiError),
}

/// A request on its way. What is known when it is dropped is booked, so that
/// an aborted request still shows what it cost.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    account: Account,
    request_id: String,
    reading: Reading,
    ticket: Ticket,
    end: Option<RequestEnd>,
}

impl OpenRequest {
    /// The ticket that is settled with this request.
    pub(crate) fn hold(&mut self, ticket: Ticket) {
        self.ticket = ticket;
    }

    /// Keeps the newest reading.
    pub(crate) fn update(&mut self, reading: Reading) {
        self.reading = reading;
    }

    /// Notes how the request ended.
    pub(crate) fn end(&mut self, end: RequestEnd) {
        self.end = Some(end);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let (reading, ticket, end) =
            (std::mem::take(&mut self.reading), std::mem::take(&mut self.ticket), self.end.take());
        if let Some(RequestEnd::Failed(error)) = &end {
            self.account.note_error(error, &self.request_id);
        }
        self.account.ledger.write(&self.account.session, |entry| {
            let usage = &mut entry.usage;
            usage.add(&reading);
            match end {
                Some(RequestEnd::Completed) => {
                    usage.completed += 1;
                    usage.last_stop_reason = reading.stop_reason;
                    entry.turns.settle_success(ticket);
                }
                Some(RequestEnd::Failed(_)) => {
                    usage.failed += 1;
                    entry.turns.settle_failure(&ticket);
                }
                None => {
                    usage.aborted += 1;
                    entry.turns.settle_failure(&ticket);
                }
            }
        });
    }
}

impl SessionUsage {
    fn add(&mut self, reading: &Reading) {
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
    fn an_aborted_request_is_booked_with_what_was_known() {
        let ledger = Arc::new(Ledger::default());
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
        assert_eq!(ledger.usage("a"), Some(expected));
        assert_eq!(ledger.usage("b"), None);
    }

    #[test]
    fn the_books_are_bounded_and_the_silent_session_goes_first() {
        let ledger = Arc::new(Ledger::default());
        ledger.set_credential(&session("kept"), "secret".to_owned().into()).unwrap();
        for number in 0..MAX_SESSIONS {
            drop(ledger.account(&session(&format!("s{number}"))).open("req"));
        }
        assert_eq!(ledger.lock().sessions.len(), MAX_SESSIONS);
        assert!(ledger.usage("s0").is_none() && ledger.usage("s1").is_some());
        assert!(ledger.account(&session("kept")).credential().is_some());
    }

    #[test]
    fn credentials_are_refused_when_there_are_too_many_and_hidden_in_debug_output() {
        let ledger = Arc::new(Ledger::default());
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
