//! A runtime of either version with its pipes, for the random interleavings.

use std::collections::{BTreeSet, VecDeque};

use super::super::*;
use crate::wire::message::{
    AssistantMessage, CommandLifecycleMessage, InitMessage, SessionStateChangedMessage, StreamEventMessage,
    TaskMessage, UserFrameMessage,
};

/// Which version of the runtime is modelled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Style {
    /// Echoes a message with the first finished block; results do not name messages.
    Older,
    /// Reports the lifecycle of each message; results name the messages that they answer.
    Newer,
}

/// The turn that a modelled message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Truth {
    /// Not part of a turn.
    Side,
    /// Part of this turn, which the host requested.
    Requested(u64),
    /// Part of this turn, which the runtime started.
    Background(u64),
}

/// Marks results of background turns, combined with their number.
pub(super) const BACKGROUND_MARK: u64 = 1 << 32;

#[derive(Debug, Clone, Copy)]
pub(super) struct Prompt {
    pub(super) uuid: Uuid,
    /// The turn that the prompt opens or steers.
    pub(super) truth: Truth,
    pub(super) kind: PromptKind,
    pub(super) is_steering: bool,
    /// Whether it cuts off the answer and overtakes waiting prompts.
    pub(super) is_urgent: bool,
}

#[derive(Debug)]
pub(super) enum Written {
    User(Prompt),
    Interrupt,
}

#[derive(Debug)]
pub(super) struct ModelTurn {
    pub(super) truth: Truth,
    pub(super) answers: Vec<Prompt>,
    /// Number of answered messages that were echoed.
    pub(super) echoed: usize,
}

/// A modelled runtime with its pipes. Anything can be in transit for any time.
#[derive(Debug)]
pub(super) struct ModelRuntime {
    pub(super) style: Style,
    pub(super) stdin: VecDeque<Written>,
    pub(super) stdout: VecDeque<(Message, Truth)>,
    /// Interrupts that were read and have not taken effect.
    pub(super) effects: u32,
    /// Responses to interrupts. They are not ordered with messages and can overtake them.
    pub(super) answers: u32,
    pub(super) queued: VecDeque<Prompt>,
    pub(super) turn: Option<ModelTurn>,
    /// The turn whose result was withheld.
    pub(super) withheld: Option<Truth>,
    pub(super) is_busy: bool,
    /// Number of the last background turn.
    pub(super) background: u64,
}

pub(super) fn state(state: &str) -> Message {
    let changed = SessionStateChangedMessage { state: Some(state.to_owned()), ..Default::default() };
    Message::System(SystemMessage::SessionStateChanged(changed))
}

pub(super) fn names(prompts: &[Prompt]) -> Option<Vec<String>> {
    (!prompts.is_empty()).then(|| prompts.iter().map(|prompt| prompt.uuid.to_string()).collect())
}

impl ModelRuntime {
    pub(super) fn new(style: Style, background: u64) -> Self {
        Self {
            style,
            stdin: VecDeque::new(),
            stdout: VecDeque::new(),
            effects: 0,
            answers: 0,
            queued: VecDeque::new(),
            turn: None,
            withheld: None,
            is_busy: false,
            background,
        }
    }

    pub(super) fn side(&mut self, message: Message) {
        self.stdout.push_back((message, Truth::Side));
    }

    pub(super) fn lifecycle(&mut self, uuid: Uuid, state: &str) {
        if self.style == Style::Newer {
            self.side(Message::CommandLifecycle(CommandLifecycleMessage {
                command_uuid: Some(uuid.to_string()),
                state: Some(state.to_owned()),
                ..Default::default()
            }));
        }
    }

    pub(super) fn echo(&mut self, uuid: Uuid) {
        self.side(Message::User(Box::new(UserFrameMessage {
            uuid: Some(uuid.to_string()),
            is_replay: Some(true),
            ..Default::default()
        })));
    }

    pub(super) fn read(&mut self) {
        match self.stdin.pop_front() {
            Some(Written::User(prompt)) => {
                self.lifecycle(prompt.uuid, "queued");
                let urgent = self.queued.iter().take_while(|queued| queued.is_urgent).count();
                self.queued.insert(if prompt.is_urgent { urgent } else { self.queued.len() }, prompt);
                if prompt.is_urgent {
                    self.cut();
                }
            }
            Some(Written::Interrupt) => self.effects += 1,
            None => {}
        }
    }

    /// Carries out an interrupt. A newer runtime that is about to start on a message ignores it.
    pub(super) fn interrupt(&mut self, heeds: bool, abandoned: &BTreeSet<Truth>) {
        if self.effects == 0 {
            return;
        }
        self.effects -= 1;
        self.answers += 1;
        if heeds {
            let hit = self.turn.iter().flat_map(|turn| &turn.answers);
            for prompt in hit.filter(|prompt| !prompt.is_steering) {
                assert!(abandoned.contains(&prompt.truth), "an interrupt hit the wrong turn");
            }
            self.finish("aborted_streaming");
            // Newer runtimes drop queued messages on request; older ones cannot.
            if self.style == Style::Newer {
                for prompt in std::mem::take(&mut self.queued) {
                    assert!(abandoned.contains(&prompt.truth), "an interrupt dropped the wrong message");
                    self.lifecycle(prompt.uuid, "cancelled");
                }
            }
            self.rest();
        }
    }

    pub(super) fn begin(&mut self, answers: Vec<Prompt>) {
        if self.turn.is_some() {
            return;
        }
        if !self.is_busy {
            self.is_busy = true;
            self.side(state("running"));
        }
        let truth = match (answers.first(), self.withheld) {
            (Some(prompt), _) => prompt.truth,
            (None, Some(withheld)) => withheld,
            (None, None) => {
                self.background += 1;
                Truth::Background(self.background)
            }
        };
        let mut echoed = 0;
        for prompt in &answers {
            self.lifecycle(prompt.uuid, "started");
            // Of merged messages, all but the last are echoed immediately.
            if self.style == Style::Older && echoed + 1 < answers.len() {
                self.echo(prompt.uuid);
                echoed += 1;
            }
        }
        let mut init = InitMessage::default();
        match self.style {
            Style::Newer => {
                init.capabilities = Some(Vec::new());
                init.user_message_uuids = names(&answers);
            }
            Style::Older if answers.is_empty() => {
                let task = TaskMessage { output_file: Some("task.output".to_owned()), ..Default::default() };
                self.side(Message::System(SystemMessage::TaskNotification(Box::new(task))));
            }
            Style::Older => {}
        }
        self.side(Message::System(SystemMessage::Init(Box::new(init))));
        self.turn = Some(ModelTurn { truth, answers, echoed });
    }

    /// Starts on waiting messages: a command alone, other messages of the same urgency together.
    pub(super) fn take_up(&mut self) {
        let Some(first) = self.queued.front().copied().filter(|_| self.turn.is_none()) else { return };
        let joins = |prompt: &&Prompt| prompt.kind == PromptKind::Text && prompt.is_urgent == first.is_urgent;
        let count = self.queued.iter().take_while(joins).count().max(1);
        let answers = self.queued.drain(..count).collect();
        self.begin(answers);
    }

    /// Cuts the answer off. An older runtime does not echo a message without a part of its answer.
    pub(super) fn cut(&mut self) {
        let has_command = |turn: &ModelTurn| turn.answers.iter().any(|it| it.kind == PromptKind::Command);
        if let Some(turn) = self.turn.as_mut().filter(|turn| !has_command(turn)) {
            turn.echoed = turn.answers.len();
            self.finish("aborted_streaming");
        }
    }

    pub(super) fn stream(&mut self, named: bool) {
        let Some(turn) = &self.turn else { return };
        let mut event = StreamEventMessage::default();
        if named && self.style == Style::Newer {
            event.user_message_uuid = turn.answers.first().map(|prompt| prompt.uuid.to_string());
        }
        self.stdout.push_back((Message::StreamEvent(Box::new(event)), turn.truth));
    }

    /// Finishes a block. An older runtime echoes its messages before the first one.
    pub(super) fn block(&mut self) {
        self.echo_rest();
        if let Some(turn) = &self.turn {
            self.stdout.push_back((Message::Assistant(Box::<AssistantMessage>::default()), turn.truth));
        }
    }

    pub(super) fn echo_rest(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        let left: Vec<Prompt> = turn.answers.iter().skip(turn.echoed).copied().collect();
        turn.echoed = turn.answers.len();
        for prompt in left {
            // Older runtimes do not echo a command that is not sent to the model.
            if self.style == Style::Older && prompt.kind == PromptKind::Text {
                self.echo(prompt.uuid);
            }
        }
    }

    /// Folds a waiting message into the running turn, as at the end of a tool call.
    pub(super) fn fold(&mut self) {
        let is_command =
            |turn: &ModelTurn| turn.answers.iter().any(|prompt| prompt.kind == PromptKind::Command);
        if self.turn.as_ref().is_none_or(is_command) {
            return;
        }
        let Some(prompt) = self.queued.pop_front_if(|prompt| prompt.kind == PromptKind::Text) else { return };
        self.block();
        self.lifecycle(prompt.uuid, "started");
        if self.style == Style::Older {
            self.echo(prompt.uuid);
        }
        if let Some(turn) = &mut self.turn {
            turn.answers.push(prompt);
            turn.echoed += 1;
            turn.truth = prompt.truth;
        }
    }

    pub(super) fn finish(&mut self, reason: &str) {
        self.echo_rest();
        let Some(turn) = self.turn.take() else { return };
        let mark = match turn.truth {
            Truth::Requested(number) => number,
            Truth::Background(number) => number | BACKGROUND_MARK,
            Truth::Side => return,
        };
        let is_command = matches!(turn.answers.as_slice(), [only] if only.kind == PromptKind::Command);
        let mut result = ResultMessage {
            terminal_reason: (!is_command).then(|| reason.to_owned()),
            duration_ms: Some(mark),
            ..Default::default()
        };
        if self.style == Style::Newer {
            result.user_message_uuids = names(&turn.answers);
            if turn.answers.is_empty() {
                let kind = Some("task-notification".to_owned());
                result.origin = Some(ResultOrigin { kind, ..Default::default() });
            }
        }
        self.withheld = None;
        self.stdout.push_back((Message::Result(Box::new(result)), turn.truth));
        for prompt in turn.answers {
            self.lifecycle(prompt.uuid, if reason == "completed" { "completed" } else { "cancelled" });
        }
        self.rest();
    }

    /// Ends the turn of an older runtime and withholds its result until the next turn ends.
    pub(super) fn withhold(&mut self) {
        self.echo_rest();
        let has_command = |turn: &ModelTurn| turn.answers.iter().any(|it| it.kind == PromptKind::Command);
        if self.style == Style::Older && !self.turn.as_ref().is_some_and(has_command) {
            self.withheld = self.turn.take().map(|turn| turn.truth).or(self.withheld);
            self.rest();
        }
    }

    /// Drops a steering message. An older runtime does not report it.
    pub(super) fn drop_steering(&mut self) {
        if let Some(prompt) = self.queued.pop_back_if(|prompt| prompt.is_steering) {
            self.lifecycle(prompt.uuid, "cancelled");
            self.rest();
        }
    }

    pub(super) fn rest(&mut self) {
        if self.turn.is_none() && self.queued.is_empty() && self.is_busy {
            self.is_busy = false;
            self.withheld = None;
            self.side(state("idle"));
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        let nothing_on_its_way = self.stdin.is_empty() && self.stdout.is_empty() && self.effects == 0;
        nothing_on_its_way && self.turn.is_none() && self.queued.is_empty()
    }
}
