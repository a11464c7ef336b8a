//! User-side messages of the runtime: tool results and the output of its commands.

use ahp_types::actions::StateAction;
use ahp_types::common::JsonObject;
use innkeeper_claude::wire::SystemNotice;
use innkeeper_claude::wire::content::{ContentBlock, MessageContent};
use innkeeper_claude::wire::message::UserFrameMessage;
use innkeeper_core::agent::AgentEvent;
use innkeeper_core::ids::TurnId;
use serde::Deserialize;
use serde_json::Value;

use super::local_output::{command_output, markdown};
use super::notices::text_field;
use super::stream::StreamedKind;
use super::tools::NotRun;
use super::{CallEdits, Mapper, events, text};

/// Key of the to-do list in a call's metadata.
const TODO_KEY: &str = "innkeeper.todo";

/// The runtime's note about how a call was decided.
#[derive(Deserialize)]
struct ResultNote {
    id: String,
    non_execution_kind: Option<String>,
    permission_decision: Option<PermissionNote>,
}

#[derive(Deserialize)]
struct PermissionNote {
    decision: Option<String>,
    source: Option<String>,
    reason_type: Option<String>,
}

impl ResultNote {
    /// Why the call did not run. `None` if it ran.
    fn not_run(&self) -> Option<NotRun> {
        let decision = self.permission_decision.as_ref();
        if let Some(decision) = decision.filter(|note| note.decision.as_deref() == Some("reject")) {
            return Some(NotRun::Denied(
                match (decision.source.as_deref(), decision.reason_type.as_deref()) {
                    (Some("hook"), _) => "by a hook",
                    (Some("config"), Some("mode")) => "by the permission mode",
                    (Some("config"), Some("rule" | "subcommandResults")) => "by a permission rule",
                    (Some("config"), _) => "by the runtime",
                    (_, _) => "not permitted",
                },
            ));
        }
        match self.non_execution_kind.as_deref() {
            Some("user-rejected") => Some(NotRun::Stopped),
            Some("permission-rule") => Some(NotRun::Denied("by a permission rule")),
            Some(_) | None => None,
        }
    }
}

impl Mapper {
    pub(super) fn user(
        &mut self,
        turn: &TurnId,
        message: &UserFrameMessage,
        edits: &CallEdits,
    ) -> Vec<AgentEvent> {
        let content = message.message.as_ref().and_then(|message| message.content.as_ref());
        let blocks = content.map(|content| content.blocks()).unwrap_or_default();
        let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
        let mut found = Vec::new();
        if message.parent_tool_use_id.is_some() && !blocks.iter().any(is_result) {
            self.log_once("user of a subagent");
        } else if let Some(MessageContent::Text(text)) = content
            && message.parent_tool_use_id.is_none()
            && !self.notices.compacted
            && let Some(output) = command_output(text)
        {
            found.extend(events(self.command_output(turn, &output)));
        }
        // The structured output does not name its call.
        let structured = message.tool_use_result.as_ref();
        let structured = structured.filter(|_| blocks.iter().filter(|block| is_result(block)).count() == 1);
        let structured: Option<Value> = structured.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let notes = message.extra.get("tool_result_meta");
        let notes: Vec<ResultNote> =
            notes.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        for block in blocks {
            let ContentBlock::ToolResult(result) = block else { continue };
            let note = notes.iter().find(|note| Some(&note.id) == result.tool_use_id.as_ref());
            let not_run = note.and_then(ResultNote::not_run);
            let todo = &mut self.todo;
            let is_main = message.parent_tool_use_id.is_none();
            let mut list = None;
            let edits = result.tool_use_id.as_ref().and_then(|id| edits.get(id));
            let edits = edits.map(Vec::as_slice).unwrap_or_default();
            let actions = self.tools.complete((result, structured.as_ref(), edits), not_run, |call| {
                let applies = is_main && call.success;
                let before = todo.list();
                let applied = applies && todo.apply(&call.name, &call.input, structured.as_ref());
                list = Some(todo.list()).filter(|list| *list != before);
                applied.then(|| JsonObject::from_iter([(TODO_KEY.to_owned(), todo.meta())]))
            });
            found.extend(events(actions));
            found.extend(list.map(|list| AgentEvent::TodoChanged { list }));
            self.notices.activity.tool = None;
            if let Some(call) = &result.tool_use_id {
                self.notices.activity.remove_task(call);
            }
        }
        found.extend(events(self.notices.activity.changed()));
        found
    }

    /// Adds the output of a command to the turn, once.
    pub(super) fn command_output(&mut self, turn: &TurnId, text: &str) -> Option<StateAction> {
        let text = markdown(text);
        if text.is_empty() || self.last_output.as_ref() == Some(&text) {
            return None;
        }
        self.last_output = Some(text.clone());
        self.has_text = true;
        let index = self.whole.entry(String::new()).or_default();
        let id = text::part_id(turn, "output", *index);
        *index += 1;
        Some(text::part(turn, StreamedKind::Text, id, text))
    }

    pub(super) fn is_command_output(&self, notice: &SystemNotice) -> bool {
        notice.subtype() == "local_command_output"
    }

    /// Maps a command's output in a message of its own.
    pub(super) fn command_notice(&mut self, turn: &TurnId, notice: &SystemNotice) -> Option<StateAction> {
        let SystemNotice::Envelope(message) = notice else { return None };
        let text = text_field(&message.extra, "content")?;
        let text = command_output(&text).unwrap_or(text);
        self.command_output(turn, &text)
    }
}
