//! Titles that a test writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::titles::{TitleWriter, TitledConversation};
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the test.
const CAPACITY: usize = 16;

/// Hands requests for titles to a test. Clones share their state.
#[derive(Clone, Debug)]
pub struct ScriptedTitles {
    requests: mpsc::Sender<TitleQuery>,
    received: Arc<Mutex<mpsc::Receiver<TitleQuery>>>,
}

/// A request for a title.
#[derive(Debug)]
pub struct TitleQuery {
    /// The conversation.
    pub conversation: TitledConversation,
    answer: oneshot::Sender<Option<String>>,
}

impl TitleQuery {
    /// Answers the request; `None` fails it.
    pub fn answer(self, title: Option<&str>) {
        // The session may have stopped waiting.
        self.answer.send(title.map(str::to_owned)).ok();
    }

    /// Waits until the session no longer waits for the answer.
    pub async fn cancelled(mut self) {
        self.answer.closed().await;
    }
}

impl Default for ScriptedTitles {
    fn default() -> Self {
        let (requests, received) = mpsc::channel(CAPACITY);
        Self { requests, received: Arc::new(Mutex::new(received)) }
    }
}

impl ScriptedTitles {
    /// The next request, if there is one.
    pub fn waiting(&self) -> Option<TitleQuery> {
        self.received().try_recv().ok()
    }

    fn received(&self) -> MutexGuard<'_, mpsc::Receiver<TitleQuery>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TitleWriter for ScriptedTitles {
    fn write_title(&self, conversation: TitledConversation) -> BoxFuture<Option<String>> {
        let (answer, answered) = oneshot::channel();
        let asked = self.requests.try_send(TitleQuery { conversation, answer }).is_ok();
        Box::pin(async move { if asked { answered.await.ok().flatten() } else { None } })
    }
}
