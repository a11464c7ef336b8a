//! Reading a conversation: what the user asked last and what came of it.
//!
//! Pure. What the runtime added on its own is not taken for a person's words.

use crate::request::{Block, Message, MessagesRequest, is_runtime_text, is_summary_request};

use super::fingerprint::Fingerprint;
use super::script;

/// Characters of English that make a token, roughly; usage is derived from it.
const CHARACTERS_PER_TOKEN: usize = 4;

/// What the user wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt<'a> {
    /// A `#demo` script.
    Script(&'a str),
    /// The guided tour.
    Tour,
    /// The runtime wants the conversation summed up, to go on in less room.
    Summary,
    /// Anything else.
    Plain,
}

/// One answer that was given since the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// It called this many tools.
    Tools(usize),
    /// It called none.
    Text,
}

/// A tool call since the prompt and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolCall {
    pub(super) name: String,
    /// The error text if it failed or was refused.
    pub(super) failure: Option<String>,
}

/// A conversation with its last prompt found.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    messages: &'a [Message],
    pub(super) prompt: Prompt<'a>,
    /// Messages after the one that holds the prompt.
    after: &'a [Message],
}

impl<'a> Conversation<'a> {
    /// Finds the last text that a person wrote.
    pub(super) fn read(request: &'a MessagesRequest) -> Self {
        let messages = request.messages.as_slice();
        let last = messages.iter().enumerate().rev().find_map(|(index, message)| {
            let text = user_texts(message).next_back()?;
            Some((index, text))
        });
        let (prompt, after) = match last {
            Some((index, text)) => (classify(text), messages.get(index + 1..).unwrap_or_default()),
            None => (Prompt::Plain, messages),
        };
        Self { messages, prompt, after }
    }

    /// Answers since the prompt. Neighbouring assistant entries are one
    /// answer: a runtime may store its blocks apart.
    pub(super) fn answers(&self) -> Vec<Answered> {
        let mut answers: Vec<Answered> = Vec::new();
        let mut open = false;
        for message in self.after {
            if message.role != "assistant" {
                open = false;
                continue;
            }
            let tools = message.content.0.iter().filter(|block| block.kind == "tool_use").count();
            let before = if open { answers.pop() } else { None };
            answers.push(match (before, tools) {
                (Some(Answered::Tools(earlier)), tools) => Answered::Tools(earlier + tools),
                (Some(Answered::Text) | None, 0) => Answered::Text,
                (Some(Answered::Text) | None, tools) => Answered::Tools(tools),
            });
            open = true;
        }
        answers
    }

    /// Tool calls since the prompt, in order.
    pub(super) fn tool_calls(&self) -> Vec<ToolCall> {
        let blocks = || self.after.iter().flat_map(|message| &message.content.0);
        let failure = |id: Option<&str>| {
            let result =
                blocks().find(|block| block.kind == "tool_result" && block.tool_use_id.as_deref() == id);
            let result = result.filter(|block| block.is_error == Some(true));
            result.map(Block::result_text)
        };
        blocks()
            .filter(|block| block.kind == "tool_use")
            .map(|block| ToolCall {
                name: block.name.clone().unwrap_or_default(),
                failure: failure(block.id.as_deref()),
            })
            .collect()
    }

    /// What people wrote, oldest first.
    pub(super) fn prompts(&self) -> impl Iterator<Item = &'a str> {
        self.messages.iter().flat_map(user_texts)
    }

    /// Role and text of every message, as the model was sent them.
    pub(super) fn transcript(&self) -> String {
        let lines: Vec<String> = self
            .messages
            .iter()
            .flat_map(|message| {
                message.content.0.iter().map(|block| format!("{}: {}", message.role, shown(block)))
            })
            .collect();
        lines.join("\n")
    }

    /// Identity of this state of the conversation for one bearer.
    ///
    /// The runtime's own blocks are left out: they may change between two
    /// attempts at the same request, which must be known as the same.
    pub(super) fn key(&self, session: &str) -> Fingerprint {
        let mut key = Fingerprint::EMPTY.with(session);
        for message in self.messages.iter().filter(|message| message.role != "system") {
            key = key.with(&message.role);
            let own =
                |block: &&Block| message.role != "user" || !block.as_text().is_some_and(is_runtime_text);
            for block in message.content.0.iter().filter(own) {
                key = key.with(&block.kind);
                for field in [&block.text, &block.id, &block.tool_use_id] {
                    key = key.with(field.as_deref().unwrap_or_default());
                }
            }
        }
        key
    }
}

/// What a person wrote last.
pub(super) fn last_user_text(request: &MessagesRequest) -> Option<&str> {
    request.messages.iter().rev().find_map(|message| user_texts(message).next_back())
}

/// Tokens of a request, from the lengths of its texts.
pub(super) fn input_tokens(request: &MessagesRequest) -> usize {
    let raw = [&request.system, &request.tools].into_iter().flatten().map(|raw| raw.get().len());
    let blocks = request.messages.iter().flat_map(|message| &message.content.0).map(|block| {
        let texts = [&block.text, &block.thinking, &block.name].into_iter().flatten().map(String::len);
        let raw = [&block.input, &block.content].into_iter().flatten().map(|raw| raw.get().len());
        texts.chain(raw).sum()
    });
    tokens(raw.chain(blocks).sum())
}

/// Tokens of a text of this length; never none.
pub(super) fn tokens(characters: usize) -> usize {
    characters.div_ceil(CHARACTERS_PER_TOKEN).max(1)
}

fn user_texts(message: &Message) -> impl DoubleEndedIterator<Item = &str> {
    let blocks = if message.role == "user" { message.content.0.as_slice() } else { &[] };
    blocks.iter().filter_map(Block::as_text).filter(|text| !is_runtime_text(text) && !text.trim().is_empty())
}

fn classify(text: &str) -> Prompt<'_> {
    if script::is_script(text) {
        Prompt::Script(text)
    } else if text.trim().eq_ignore_ascii_case("tour") {
        Prompt::Tour
    } else if is_summary_request(text) {
        Prompt::Summary
    } else {
        Prompt::Plain
    }
}

fn shown(block: &Block) -> String {
    let raw = |raw: &Option<Box<serde_json::value::RawValue>>| {
        raw.as_ref().map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned())
    };
    match block.kind.as_str() {
        "text" => block.text.clone().unwrap_or_default(),
        "thinking" => format!("[thinking] {}", block.thinking.as_deref().unwrap_or_default()),
        "tool_use" => {
            format!("[tool_use {}] {}", block.name.as_deref().unwrap_or_default(), raw(&block.input))
        }
        "tool_result" if block.is_error == Some(true) => {
            format!("[tool_result, error] {}", block.result_text())
        }
        "tool_result" => format!("[tool_result] {}", block.result_text()),
        other => format!("[{other}]"),
    }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
