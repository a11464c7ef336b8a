//! Messages for the running turn of a session, with both real runtimes.

use innkeeper_claude::{
    ClaudeSession, EventKind, Interrupted, PermissionMode, Priority, Program, SteerError, SteeringOutcome,
    Turn, TurnEnding, TurnFailure,
};

use crate::for_both_runtimes;
use crate::scenarios::{SessionFixture, completes};
use crate::support::*;

for_both_runtimes!(message_steers_the_running_turn, interrupt_takes_steering_messages_back);

/// Waits until the turn's answer begins.
async fn begun(turn: &mut Turn) {
    loop {
        let event = soon(turn.next()).await.expect("the turn is over").unwrap();
        if matches!(&event.kind, EventKind::TextDelta { .. } | EventKind::ToolUse { .. }) {
            return;
        }
    }
}

fn is_taken_up(outcome: &Result<SteeringOutcome, SteerError>) -> bool {
    matches!(outcome, Ok(SteeringOutcome::TakenUp(_)))
}

async fn message_steers_the_running_turn(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.permission_mode = Some(PermissionMode::Default);
    let session: ClaudeSession = fixture.session().await;
    let idle = soon(session.steer("too early", Priority::Now)).await;
    assert!(matches!(idle, Err(SteerError::NotRunning)), "{idle:?}");

    let mut turn = session.send("#demo\ntext it begins\nwait 60000\ntext it ends").unwrap();
    begun(&mut turn).await;
    let steered = soon(session.steer("#demo\ntext steered", Priority::Now)).await;
    assert!(is_taken_up(&steered), "{steered:?}");
    let result = soon(turn.result()).await.unwrap();
    assert_eq!((result.text.as_str(), result.ending), ("steered", TurnEnding::Completed));

    // A tool that does not need permission.
    let script = "#demo\ntool Bash {\"command\":\"sleep 1\",\"description\":\"wait\"}\ntext after the tool";
    let mut turn = session.send(script).unwrap();
    begun(&mut turn).await;
    let steered = soon(session.steer("prefer short names", Priority::Next)).await;
    assert!(is_taken_up(&steered), "{steered:?}");
    let result = soon(turn.result()).await.unwrap();
    assert_eq!(result.text, "after the tool");
    let last = fixture.model.conversations().pop().unwrap();
    assert!(last.contains("prefer short names"), "{last}");
    soon(session.terminate()).await;
    let ended = soon(session.steer("too late", Priority::Now)).await;
    assert!(matches!(ended, Err(SteerError::Terminated)), "{ended:?}");
}

async fn interrupt_takes_steering_messages_back(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let script = "#demo\ntool Bash {\"command\":\"sleep 60\",\"description\":\"wait\"}\ntext never";
    let mut turn = session.send(script).unwrap();
    begun(&mut turn).await;
    // The first future is polled first, so that its message is written before the interrupt.
    let steering = session.steer("not for the model", Priority::Next);
    let (outcome, stopped) = soon(async { tokio::join!(biased; steering, session.interrupt()) }).await;
    assert_eq!(stopped, Interrupted::Turn);
    assert!(matches!(outcome, Ok(SteeringOutcome::NotTaken)), "{outcome:?}");
    let interrupted = soon(turn.result()).await;
    assert!(matches!(interrupted, Err(TurnFailure::Interrupted)), "{interrupted:?}");
    assert_eq!(completes(&session, "#demo\ntext next").await, "next");
    let seen = fixture.model.conversations().concat();
    assert!(!seen.contains("not for the model"), "the runtime ran the message");
    soon(session.terminate()).await;
}
