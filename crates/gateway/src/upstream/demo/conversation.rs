//! Finds the last user prompt of a conversation and the responses since.
//!
//! Pure. Text that the runtime added is not treated as user text.

use crate::request::{
    MessagesRequest, RequestBlock, RequestContent, RequestMessage, is_runtime_text, is_summary_request,
};

use super::fingerprint::Fingerprint;
use super::script;

/// Rough number of characters per token; usage is derived from it.
const CHARACTERS_PER_TOKEN: usize = 4;

/// Precedes the working directory in the runtime's description of the environment.
const DIRECTORY_MARK: &str = "Primary working directory: ";

/// Precedes the sentence that names the plan file in the runtime's description of plan mode.
const PLAN_FILE_MARK: &str = "## Plan File Info:";

/// The kind of response that the prompt asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoPrompt<'a> {
    /// A `#demo` script.
    Script(&'a str),
    /// The guided tour.
    Tour,
    /// The runtime requests a summary to compact the history.
    Summary,
    /// Anything else.
    Plain,
}

/// One response since the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriorResponse {
    /// It has this many tool calls.
    Tools(usize),
    /// It has no tool call.
    Text,
}

/// A tool call since the prompt and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolCall {
    pub(super) name: String,
    /// The error text if the call failed or was denied.
    pub(super) failure: Option<String>,
    /// The text of the result; empty if the call failed.
    pub(super) result: String,
}

/// A conversation and its last prompt.
#[derive(Debug)]
pub(super) struct DemoConversation<'a> {
    messages: &'a [RequestMessage],
    pub(super) prompt: DemoPrompt<'a>,
    /// Messages after the one with the prompt.
    after: &'a [RequestMessage],
}

impl<'a> DemoConversation<'a> {
    /// Finds the last user text.
    pub(super) fn read(request: &'a MessagesRequest) -> Self {
        let messages = request.messages.as_slice();
        let last = messages.iter().enumerate().rev().find_map(|(index, message)| {
            let text = user_texts(message).next_back()?;
            Some((index, text))
        });
        let (prompt, after) = match last {
            Some((index, text)) => (classify(text), messages.get(index + 1..).unwrap_or_default()),
            None => (DemoPrompt::Plain, messages),
        };
        Self { messages, prompt, after }
    }

    /// Responses since the prompt. Adjacent assistant messages count as one,
    /// because a runtime may store the blocks of a response separately.
    pub(super) fn responses(&self) -> Vec<PriorResponse> {
        let mut responses: Vec<PriorResponse> = Vec::new();
        let mut open = false;
        for message in self.after {
            if message.role != "assistant" {
                open = false;
                continue;
            }
            let tools = message.content.0.iter().filter(|block| block.kind == "tool_use").count();
            let before = if open { responses.pop() } else { None };
            responses.push(match (before, tools) {
                (Some(PriorResponse::Tools(earlier)), tools) => PriorResponse::Tools(earlier + tools),
                (Some(PriorResponse::Text) | None, 0) => PriorResponse::Text,
                (Some(PriorResponse::Text) | None, tools) => PriorResponse::Tools(tools),
            });
            open = true;
        }
        responses
    }

    /// Tool calls since the prompt, in order.
    pub(super) fn tool_calls(&self) -> Vec<ToolCall> {
        let blocks = || self.after.iter().flat_map(|message| &message.content.0);
        let result = |id: Option<&str>| {
            blocks().find(|block| block.kind == "tool_result" && block.tool_use_id.as_deref() == id)
        };
        blocks()
            .filter(|block| block.kind == "tool_use")
            .map(|block| {
                let name = block.name.clone().unwrap_or_default();
                let Some(result) = result(block.id.as_deref()) else {
                    return ToolCall { name, failure: None, result: String::new() };
                };
                let text = result.result_text();
                if result.is_error == Some(true) {
                    ToolCall { name, failure: Some(text), result: String::new() }
                } else {
                    ToolCall { name, failure: None, result: text }
                }
            })
            .collect()
    }

    /// The working directory, if the runtime names it.
    pub(super) fn working_directory(&self, request: &MessagesRequest) -> Option<String> {
        let prompt: Option<RequestContent> =
            request.system.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let prompt = prompt.iter().flat_map(|content| &content.0);
        let messages = self.messages.iter().filter(|message| message.role == "system");
        prompt.chain(messages.flat_map(|message| &message.content.0)).find_map(|block| {
            let (_, rest) = block.as_text()?.split_once(DIRECTORY_MARK)?;
            let directory = rest.lines().next()?.trim();
            (!directory.is_empty()).then(|| directory.to_owned())
        })
    }

    /// The file for the plan that the runtime named last. The name is in a
    /// system message, a reminder or the result of the tool that enters plan mode.
    pub(super) fn plan_file(&self) -> Option<String> {
        let messages = self.messages.iter().rev().filter(|message| message.role != "assistant");
        messages.flat_map(|message| message.content.0.iter().rev()).find_map(|block| {
            let text = match block.kind.as_str() {
                "text" => block.text.clone()?,
                "tool_result" => block.result_text(),
                _ => return None,
            };
            let (_, info) = text.split_once(PLAN_FILE_MARK)?;
            let (_, rest) = info.trim_start().lines().next()?.split_once(" at ")?;
            let (path, _) = rest.split_once(".md")?;
            Some(format!("{path}.md"))
        })
    }

    /// All user texts, oldest first.
    pub(super) fn prompts(&self) -> impl Iterator<Item = &'a str> {
        self.messages.iter().flat_map(user_texts)
    }

    /// Role and text of every message as received.
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

    /// Fingerprint of this conversation state in one session.
    ///
    /// Skips blocks that the runtime adds: they may differ between two attempts
    /// of the same request, which must have the same fingerprint.
    pub(super) fn key(&self, session: &str) -> Fingerprint {
        let mut key = Fingerprint::EMPTY.with(session);
        for message in self.messages.iter().filter(|message| message.role != "system") {
            key = key.with(&message.role);
            let own = |block: &&RequestBlock| {
                message.role != "user" || !block.as_text().is_some_and(is_runtime_text)
            };
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

/// The last user text.
pub(super) fn last_user_text(request: &MessagesRequest) -> Option<&str> {
    request.messages.iter().rev().find_map(|message| user_texts(message).next_back())
}

/// Estimates the tokens of a request from the lengths of its texts.
pub(super) fn input_tokens(request: &MessagesRequest) -> usize {
    let raw = [&request.system, &request.tools].into_iter().flatten().map(|raw| raw.get().len());
    let blocks = request.messages.iter().flat_map(|message| &message.content.0).map(|block| {
        let texts = [&block.text, &block.thinking, &block.name].into_iter().flatten().map(String::len);
        let raw = [&block.input, &block.content].into_iter().flatten().map(|raw| raw.get().len());
        texts.chain(raw).sum()
    });
    tokens(raw.chain(blocks).sum())
}

/// Tokens of a text of this length; at least one.
pub(super) fn tokens(characters: usize) -> usize {
    characters.div_ceil(CHARACTERS_PER_TOKEN).max(1)
}

fn user_texts(message: &RequestMessage) -> impl DoubleEndedIterator<Item = &str> {
    let blocks = if message.role == "user" { message.content.0.as_slice() } else { &[] };
    blocks
        .iter()
        .filter_map(RequestBlock::as_text)
        .filter(|text| !is_runtime_text(text) && !text.trim().is_empty())
}

fn classify(text: &str) -> DemoPrompt<'_> {
    if script::is_script(text) {
        DemoPrompt::Script(text)
    } else if text.trim().eq_ignore_ascii_case("tour") {
        DemoPrompt::Tour
    } else if is_summary_request(text) {
        DemoPrompt::Summary
    } else {
        DemoPrompt::Plain
    }
}

fn shown(block: &RequestBlock) -> String {
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
