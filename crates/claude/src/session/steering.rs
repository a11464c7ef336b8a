//! Messages for the running turn.

use thiserror::Error;
use uuid::Uuid;

use crate::control::SendError;

/// What became of a steering message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteeringOutcome {
    /// The runtime took the message up; the turn's result covers it. With the message's uuid, as in the
    /// transcript.
    TakenUp(Uuid),
    /// The turn ended without the message. The caller can send it.
    NotTaken,
}

/// Why a message cannot steer.
#[derive(Debug, Error)]
pub enum SteerError {
    /// No turn is running.
    #[error("no turn is running; send the message instead")]
    NotRunning,
    /// The message could not be sent to the runtime.
    #[error("cannot send the message to the runtime")]
    Send(#[source] SendError),
    /// The session has ended.
    #[error("the session was terminated")]
    Terminated,
}
