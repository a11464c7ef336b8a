//! External signals to real runtimes during a turn.

use innkeeper_claude::{EventKind, Program, Status, TurnEnding, TurnFailure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scenarios::{SessionFixture, completes};
use crate::support::*;

/// Sends some text, and then nothing for a long time.
const HANGS: &str = "#demo\ntext One moment please\nwait 60000\ntext too late";

/// Sends SIGINT during a turn; returns the outcome of the turn. Checks that the conversation continues in another
/// runtime.
async fn turn_after_sigint(program: Program) -> Result<TurnEnding, TurnFailure> {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let conversation = session.conversation();
    completes(&session, "#demo\ntext The number is 4711.").await;
    let mut turn = session.send(HANGS).unwrap();
    while !matches!(soon(turn.next()).await.unwrap().unwrap().kind, EventKind::TextDelta { .. }) {}
    let pid = session.pid().unwrap();
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGINT).unwrap();
    let outcome = soon(turn.result()).await.map(|result| result.ending);
    // The result arrives before the exit; a message in between would go to the exiting process.
    let status =
        soon(session.status().wait_for(|status| matches!(status, Status::Error(_)))).await.unwrap().clone();
    let Status::Error(error) = status else { panic!("{status:?}") };
    assert_eq!((error.exit.code, error.exit.signal), (Some(0), None), "{error:?}");
    let seen = completes(&session, "#demo\necho").await;
    assert!(seen.contains("The number is 4711."), "{seen}");
    assert_eq!(session.conversation(), conversation);
    assert_ne!(session.pid(), Some(pid));
    assert!(!lives(pid));
    outcome
}

#[tokio::test]
async fn sigint_to_native_runtime_aborts_the_turn() {
    let outcome = turn_after_sigint(runtime("INNKEEPER_TEST_CLAUDE_NATIVE")).await;
    assert!(matches!(outcome, Ok(TurnEnding::Aborted)), "{outcome:?}");
}

#[tokio::test]
async fn sigint_to_node_runtime_ends_the_turn_without_result() {
    let outcome = turn_after_sigint(runtime("INNKEEPER_TEST_CLAUDE_NODE")).await;
    assert!(matches!(outcome, Err(TurnFailure::UnexpectedExit(_))), "{outcome:?}");
}
