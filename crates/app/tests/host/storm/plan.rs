//! The plan of a storm: which operation happens when, in which session and by which client.
//!
//! Follows from the seed alone, so that a storm can be repeated. What an operation does
//! depends also on the state that its client sees.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// How long and how strong a storm is.
#[derive(Clone, Copy, Debug)]
pub(super) struct StormOptions {
    pub(super) seed: u64,
    pub(super) sessions: usize,
    pub(super) operations: usize,
    pub(super) seconds: u64,
}

impl StormOptions {
    /// The short form of the test suite, changed by `INNKEEPER_STORM_…` variables.
    pub(super) fn from_environment() -> Result<Self> {
        Ok(Self {
            seed: number("SEED", 7)?,
            sessions: usize::try_from(number("SESSIONS", 4)?)?,
            operations: usize::try_from(number("OPERATIONS", 48)?)?,
            seconds: number("SECONDS", 5)?,
        })
    }
}

fn number(name: &str, default: u64) -> Result<u64> {
    let name = format!("INNKEEPER_STORM_{name}");
    match std::env::var(&name) {
        Ok(value) => value.parse().with_context(|| format!("{name} is not a number: {value:?}")),
        Err(_) => Ok(default),
    }
}

/// One operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Starts a turn, or queues the message if a turn is running.
    Send,
    /// Starts a turn, even if another one is running.
    SendAnyway,
    /// Starts a turn with another model.
    SwitchModel,
    /// Cancels the running turn.
    Cancel,
    /// Steers the running turn.
    Steer,
    /// Takes the steering message back.
    TakeBack,
    /// Adds a message to the queue.
    Queue,
    /// Changes the text of a queued message.
    Edit,
    /// Removes a queued message.
    Remove,
    /// Reverses the queue.
    Reorder,
    /// VS Code's "Send Immediately" of the last queued message.
    SendImmediately,
    /// Changes the permission mode.
    SwitchMode,
    /// Answers a permission request.
    Answer,
    /// Resumes a failed turn.
    Resume,
    /// Stops the turn and all background work.
    StopAll,
    /// Stops one tool call.
    StopCall,
    /// Stops one background task.
    StopWork,
    /// Restarts the agent's process.
    RestartAgent,
    /// Kills the session's runtime with SIGKILL.
    Kill,
    /// Disconnects and reconnects.
    Reconnect,
}

/// The operations with their frequencies. Most requests for permission are answered, some are
/// left open.
const FREQUENCIES: [(Operation, u32); 20] = [
    (Operation::Send, 20),
    (Operation::SendAnyway, 4),
    (Operation::SwitchModel, 5),
    (Operation::Cancel, 9),
    (Operation::Steer, 12),
    (Operation::TakeBack, 4),
    (Operation::Queue, 10),
    (Operation::Edit, 3),
    (Operation::Remove, 3),
    (Operation::Reorder, 3),
    (Operation::SendImmediately, 3),
    (Operation::SwitchMode, 3),
    (Operation::Answer, 12),
    (Operation::Resume, 4),
    (Operation::StopAll, 4),
    (Operation::StopCall, 4),
    (Operation::StopWork, 4),
    (Operation::RestartAgent, 4),
    (Operation::Kill, 5),
    (Operation::Reconnect, 5),
];

/// An operation at a point in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Time since the start of the storm.
    pub(super) at: Duration,
    pub(super) operation: Operation,
    /// Which of the session's two clients acts.
    pub(super) client: usize,
    /// Decides the rest: the script, the queued message, the answer.
    pub(super) choice: u64,
}

/// The steps of each session, in order.
pub(super) fn plan(options: StormOptions) -> Vec<Vec<Step>> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut steps = vec![Vec::new(); options.sessions];
    for _ in 0..options.operations {
        let session = random.random_range(0..options.sessions);
        let step = Step {
            at: Duration::from_millis(random.random_range(0..=options.seconds * 1_000)),
            operation: operation(&mut random),
            client: random.random_range(0..2),
            choice: random.random(),
        };
        steps[session].push(step);
    }
    for steps in &mut steps {
        steps.sort_by_key(|step| step.at);
    }
    steps
}

fn operation(random: &mut StdRng) -> Operation {
    let all: u32 = FREQUENCIES.iter().map(|(_, frequency)| frequency).sum();
    let mut left = random.random_range(0..all);
    for (operation, frequency) in FREQUENCIES {
        if left < frequency {
            return operation;
        }
        left -= frequency;
    }
    Operation::Send
}

/// A script for the demo model. Each one says `answer`, the token and a full stop once, at its end.
pub(super) fn script(token: &str, choice: u64) -> String {
    let mut random = StdRng::seed_from_u64(choice);
    let pause = random.random_range(0..1_500);
    let words = random.random_range(20..400);
    let steps = match random.random_range(0..13) {
        0..=2 => String::new(),
        3 | 4 => format!("chunk 6\nrepeat {words} word\nwait {pause}\n"),
        5 => format!("think about it\nwait {pause}\n"),
        6 => format!("wait {pause}\n"),
        7 => format!("tool Bash {{\"command\":\"touch {token}\"}}\n"),
        8 => format!("tool Bash {{\"command\":\"sleep 0.{}; touch {token}\"}}\n", pause % 10),
        9 => format!(
            "tool Write {{\"file_path\":\"{token}.txt\",\"content\":\"x\"}}\n+tool Bash {{\"command\":\"touch {token}\"}}\n"
        ),
        10 => "tool Read {\"file_path\":\"note.txt\"}\n".to_owned(),
        11 => {
            format!("tool Bash {{\"command\":\"sleep 1.{}\",\"run_in_background\":true}}\n", pause % 10)
        }
        _ => format!("text it begins\nwait {}\nerror 529 overloaded_error\n", pause / 5),
    };
    format!("#demo\n{steps}text answer {token}.")
}

/// The token in a message or an answer.
pub(super) fn token_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("answer ")?;
    rest.split_once('.').map(|(token, _)| token)
}
