//! Says what a turn waits for when the runtime is silent, and finds out whether the runtime hangs.
//!
//! There is no timer unless a turn is running.

use std::collections::HashMap;
use std::time::Duration;

use innkeeper_claude::Message;
use innkeeper_claude::wire::content::ContentBlock;
use tokio::time::Instant;

use super::super::map::{Mapper, WaitNote};
use super::{ClaudeDriver, End};

/// How long the runtime may be silent before clients are told.
const FIRST_NOTE: Duration = Duration::from_secs(20);

/// Until then, the note is renewed each 10 s; later, each 30 s.
const OFTEN: Duration = Duration::from_secs(60);

/// After this time without a message, each note comes with a request to the runtime. One that does not
/// answer hangs.
const LIVENESS_CHECK: Duration = Duration::from_secs(60);

/// After this time without a message, and without anything to wait for, the runtime may hang.
const MAX_SILENCE: Duration = Duration::from_secs(300);

/// Maximum number of calls whose start is known.
const MAX_CALLS: usize = 256;

/// When the runtime last wrote a message, and what it was doing.
#[derive(Debug)]
pub(super) struct TurnProgress {
    last: Instant,
    /// How long the runtime was silent when clients were last told; zero if they were not.
    told: Duration,
    /// When the calls of the turn started.
    calls: HashMap<String, Instant>,
}

/// What a turn waits for.
#[derive(Debug, PartialEq, Eq)]
enum TurnWait<'a> {
    /// The user's answer.
    User,
    /// A tool, for this time.
    Tool(&'a str, Duration),
    /// The model.
    Model,
}

impl TurnProgress {
    pub(super) fn new() -> Self {
        Self { last: Instant::now(), told: Duration::ZERO, calls: HashMap::new() }
    }

    /// A turn began.
    pub(super) fn begin_turn(&mut self) {
        *self = Self::new();
    }

    /// The runtime wrote a message. Returns whether clients must be told that it goes on.
    fn message(&mut self, message: &Message) -> bool {
        if matches!(message, Message::KeepAlive(_)) {
            return false;
        }
        self.last = Instant::now();
        for block in blocks_of(message) {
            match block {
                ContentBlock::ToolUse(call) => {
                    if let Some(id) = call.id.clone().filter(|_| self.calls.len() < MAX_CALLS) {
                        self.calls.entry(id).or_insert(self.last);
                    }
                }
                ContentBlock::ToolResult(result) => {
                    if let Some(id) = &result.tool_use_id {
                        self.calls.remove(id);
                    }
                }
                ContentBlock::Text(_) | ContentBlock::Thinking(_) | ContentBlock::Unknown(_) => {}
            }
        }
        !std::mem::take(&mut self.told).is_zero()
    }

    /// The user answered a request, about this call if it has one. The runtime goes on from now on.
    fn user_answered(&mut self, call: Option<&str>) {
        (self.last, self.told) = (Instant::now(), Duration::ZERO);
        if let Some(began) = call.and_then(|call| self.calls.get_mut(call)) {
            *began = self.last;
        }
    }

    /// When clients are told next, if the runtime stays silent.
    fn next(&self) -> Instant {
        self.last + next_note(self.told)
    }
}

fn blocks_of(message: &Message) -> &[ContentBlock] {
    let content = if let Message::Assistant(message) = message {
        message.message.as_ref().and_then(|answer| answer.content.as_ref())
    } else if let Message::User(message) = message {
        message.message.as_ref().and_then(|user| user.content.as_ref())
    } else {
        None
    };
    content.map(|content| content.blocks()).unwrap_or_default()
}

/// The time of silence at which clients are told, after they were told at this one.
fn next_note(told: Duration) -> Duration {
    let after = |step: u64| Duration::from_secs((told.as_secs() / step + 1) * step);
    if told < FIRST_NOTE {
        FIRST_NOTE
    } else if told < OFTEN {
        after(10)
    } else {
        after(30)
    }
}

/// What clients are told after this time of silence.
fn note(silence: Duration, wait: &TurnWait<'_>) -> WaitNote {
    let is_alarm = *wait == TurnWait::Model && silence >= MAX_SILENCE;
    let text = match wait {
        TurnWait::User => "Waiting for your answer".to_owned(),
        TurnWait::Tool(title, time) => format!("Running {title} for {}", rounded_time(*time)),
        TurnWait::Model if is_alarm => {
            format!("No output from Claude for {}; restart it if this continues", rounded_time(silence))
        }
        TurnWait::Model => format!("Waiting for the model for {}", rounded_time(silence)),
    };
    WaitNote { text, is_alarm }
}

/// A time without needless precision.
fn rounded_time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{} s", seconds / 10 * 10),
        seconds => format!("{} minutes", seconds / 60),
    }
}

impl ClaudeDriver {
    /// The runtime wrote a message, so the turn goes on.
    pub(super) fn progressed(&mut self, message: &Message) -> Result<(), End> {
        if self.progress.message(message) {
            for event in self.mapper.set_wait(None) {
                self.events.push(event)?;
            }
        }
        Ok(())
    }

    /// The user answered a request, so the turn goes on.
    pub(super) fn goes_on(&mut self, call: Option<&str>) -> Result<(), End> {
        self.progress.user_answered(call);
        for event in self.mapper.set_wait(None) {
            self.events.push(event)?;
        }
        Ok(())
    }

    /// When clients are told that the turn waits; never without a running turn.
    pub(super) fn watch_at(&self) -> Option<Instant> {
        let is_running =
            self.requested.is_some() || self.background.is_some() || self.question_turn.is_some();
        is_running.then(|| self.progress.next())
    }

    /// Tells clients what the turn waits for.
    pub(super) fn watch(&mut self) -> Result<(), End> {
        let silence = self.progress.last.elapsed();
        self.progress.told = silence;
        if self.edits.is_recording() {
            // The runtime's messages are not read meanwhile.
            return Ok(());
        }
        if silence >= LIVENESS_CHECK {
            self.requests.check_liveness(&self.runtime.controls());
        }
        let longest = self
            .mapper
            .running_calls()
            .map(|(id, name)| (self.progress.calls.get(id).copied().unwrap_or(self.progress.last), name))
            .min_by_key(|(since, _)| *since)
            .map(|(since, name)| (Mapper::short_name(name), since.elapsed()));
        let wait = match &longest {
            _ if self.asks_user() => TurnWait::User,
            Some((title, time)) => TurnWait::Tool(title, *time),
            None => TurnWait::Model,
        };
        for event in self.mapper.set_wait(Some(note(silence, &wait))) {
            self.events.push(event)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_claude::wire::message::decode;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn notes_are_renewed_often_at_first_and_seldom_later() {
        let mut told = Duration::ZERO;
        let times: Vec<u64> = std::iter::repeat_with(|| {
            told = next_note(told);
            told.as_secs()
        })
        .take(8)
        .collect();
        assert_eq!(times, [20, 30, 40, 50, 60, 90, 120, 150]);
        assert_eq!(next_note(Duration::from_millis(20_007)), seconds(30));
        assert_eq!(next_note(Duration::from_millis(61_200)), seconds(90));
    }

    #[test]
    fn note_names_what_the_turn_waits_for() {
        for (silence, wait, expected) in [
            (20, TurnWait::Model, "Waiting for the model for 20 s"),
            (90, TurnWait::Model, "Waiting for the model for 90 s"),
            (240, TurnWait::Model, "Waiting for the model for 4 minutes"),
            (300, TurnWait::Model, "No output from Claude for 5 minutes; restart it if this continues"),
            (20, TurnWait::Tool("Bash", seconds(47)), "Running Bash for 40 s"),
            (400, TurnWait::Tool("Bash", seconds(425)), "Running Bash for 7 minutes"),
            (1000, TurnWait::User, "Waiting for your answer"),
        ] {
            let note = note(seconds(silence), &wait);
            assert_eq!(note.text, expected);
            assert_eq!(note.is_alarm, expected.starts_with("No output"), "{expected}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn message_restarts_the_time_and_ends_the_note() {
        let mut progress = TurnProgress::new();
        let began = progress.last;
        assert_eq!(progress.next() - began, seconds(20));
        progress.told = seconds(20);
        assert_eq!(progress.next() - began, seconds(30));
        tokio::time::advance(seconds(25)).await;
        let message = |json: &str| decode(json.as_bytes()).unwrap();
        assert!(!progress.message(&message(r#"{"type":"keep_alive"}"#)), "a keep-alive is not progress");
        let call =
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"c","name":"Bash"}]}}"#;
        assert!(progress.message(&message(call)));
        assert_eq!(progress.next() - began, seconds(45));
        assert_eq!(progress.calls.len(), 1);
        let result = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c"}]}}"#;
        assert!(!progress.message(&message(result)), "clients were not told");
        assert!(progress.calls.is_empty());
    }
}
