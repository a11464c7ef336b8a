//! The control requests of the driver that are not answered yet.
//!
//! Owns their order: a request is written when it is made, before anything that is written after it. Any
//! number of requests can be in flight; what has to wait for an answer is decided by the driver.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use innkeeper_claude::{Controls, Queued, RequestError};

use super::selection::Choice;

/// What a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To stop an abandoned turn.
    Interrupt,
    /// To switch to this model and effort for the message that waits.
    Select(Choice),
}

/// Requests in flight.
#[derive(Default)]
pub(super) struct Requests {
    waiting: Vec<Request>,
}

struct Request {
    purpose: Purpose,
    answer: Pin<Box<dyn Future<Output = Result<(), RequestError>> + Send>>,
}

impl Requests {
    /// Asks the runtime to stop its turn. A message that it has not taken up yet is to be dropped, too.
    pub(super) fn interrupt(&mut self, controls: &Controls) {
        let answer = controls.interrupt(Queued::Cancel);
        let answer = Box::pin(async move { answer.await.map(drop) });
        self.waiting.push(Request { purpose: Purpose::Interrupt, answer });
    }

    /// Asks the runtime to work with another model or effort than now.
    pub(super) fn select(&mut self, controls: &Controls, now: &Choice, wanted: Choice) {
        let model = (wanted.model != now.model).then(|| controls.set_model(wanted.model_name()));
        let (effort, controls) = ((wanted.effort != now.effort).then_some(wanted.effort), controls.clone());
        let answer = Box::pin(async move {
            if let Some(selected) = model {
                selected.await?;
            }
            match effort {
                Some(effort) => controls.set_effort(effort).await,
                None => Ok(()),
            }
        });
        self.waiting.push(Request { purpose: Purpose::Select(wanted), answer });
    }

    /// Whether a change of the model or effort is not answered yet.
    pub(super) fn is_selecting(&self) -> bool {
        self.waiting.iter().any(|request| matches!(request.purpose, Purpose::Select(_)))
    }

    /// The next answer; waits forever while nothing is asked. Cancel-safe: a request stays where it is until
    /// it is answered.
    pub(super) async fn next(&mut self) -> (Purpose, Result<(), RequestError>) {
        poll_fn(|context| {
            for (index, request) in self.waiting.iter_mut().enumerate() {
                if let Poll::Ready(answer) = request.answer.as_mut().poll(context) {
                    let purpose = self.waiting.remove(index).purpose;
                    return Poll::Ready((purpose, answer));
                }
            }
            Poll::Pending
        })
        .await
    }
}
