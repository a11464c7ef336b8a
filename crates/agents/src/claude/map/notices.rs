//! Messages around the conversation: retries, compactions, hooks, tasks, limits, notes.
//!
//! A message about the present becomes the chat's activity; a message that the user may want to read
//! later becomes a part of the turn.

use ahp_types::actions::StateAction;
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{ResponsePart, SystemNotificationResponsePart};
use innkeeper_claude::wire::message::{
    ApiRetryMessage, CompactBoundaryMessage, HookMessage, NoticeMessage, RateLimitMessage, StatusMessage,
    TaskMessage,
};
use innkeeper_claude::wire::{Extra, SystemMessage, SystemNotice};
use innkeeper_core::ids::TurnId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::failures::{for_users, readable_error};
use super::activity::ChatActivity;
use super::text::response_part;
use super::tools::ToolCalls;

/// Longest quoted output of a hook, in characters.
const QUOTE_LENGTH: usize = 400;

/// Maps the messages around the conversation.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) activity: ChatActivity,
    /// Whether the turn contains a compaction.
    pub(super) compacted: bool,
}

impl Notices {
    /// Maps a system message to a part. The outer `None` is one without a mapping.
    #[expect(clippy::option_option, reason = "no mapping and no part are different results")]
    pub(super) fn system(
        &mut self,
        turn: &TurnId,
        message: &SystemMessage,
        tools: &ToolCalls,
    ) -> Option<Option<StateAction>> {
        Some(match message {
            SystemMessage::ApiRetry(retry) => {
                self.activity.retry = Some(retry_text(retry));
                None
            }
            SystemMessage::Status(status) => self.status(turn, status),
            SystemMessage::CompactBoundary(boundary) => {
                self.activity.compaction = None;
                self.compacted = true;
                Some(part(turn, "compaction", compaction_text(boundary)))
            }
            SystemMessage::HookStarted(hook) => {
                let name = hook.hook_name.as_deref().unwrap_or("unknown");
                self.activity.set_hook(id_of(&hook.hook_id), format!("Running hook {name}"));
                None
            }
            SystemMessage::HookResponse(hook) => {
                self.activity.remove_hook(id_of(&hook.hook_id));
                hook_failure(hook).map(|text| part(turn, "hook", text))
            }
            SystemMessage::TaskStarted(task) | SystemMessage::TaskProgress(task) => {
                // The chat has a list of the work in the background.
                if self.is_in_foreground(task, tools) {
                    let text = task_text(message, task);
                    self.activity.set_task(call_of(task), text);
                }
                None
            }
            SystemMessage::TaskUpdated(_) | SystemMessage::HookProgress(_) => None,
            SystemMessage::TaskNotification(task) => {
                self.activity.remove_task(call_of(task));
                finished_task(task, tools).map(|text| part(turn, "task", text))
            }
            SystemMessage::Notice(notice) => self.notice(turn, notice, tools)?,
            SystemMessage::Init(_) | SystemMessage::SessionStateChanged(_) => None,
            SystemMessage::Unknown(_) => return None,
        })
    }

    /// Whether the turn waits for a task: the call that started it is open.
    fn is_in_foreground(&self, task: &TaskMessage, tools: &ToolCalls) -> bool {
        let is_detached = task.extra.get("is_backgrounded").is_some_and(|raw| raw.get() == "true");
        !is_detached && task.tool_use_id.as_deref().is_none_or(|call| tools.is_open(call))
    }

    /// Whether a message reports activity that can precede a turn's first message.
    pub(super) fn is_activity(message: &SystemMessage) -> bool {
        match message {
            SystemMessage::Status(_) | SystemMessage::HookStarted(_) | SystemMessage::HookResponse(_) => true,
            SystemMessage::Init(_)
            | SystemMessage::ApiRetry(_)
            | SystemMessage::SessionStateChanged(_)
            | SystemMessage::CompactBoundary(_)
            | SystemMessage::TaskStarted(_)
            | SystemMessage::TaskProgress(_)
            | SystemMessage::TaskUpdated(_)
            | SystemMessage::TaskNotification(_)
            | SystemMessage::HookProgress(_)
            | SystemMessage::Notice(_)
            | SystemMessage::Unknown(_) => false,
        }
    }

    /// Maps a system message of the second kind. The outer `None` is one without a mapping.
    #[expect(clippy::option_option, reason = "no mapping and no part are different results")]
    fn notice(
        &mut self,
        turn: &TurnId,
        notice: &SystemNotice,
        tools: &ToolCalls,
    ) -> Option<Option<StateAction>> {
        Some(match notice {
            SystemNotice::Informational(message) => {
                let text = message.content.as_deref().and_then(for_users);
                text.map(|text| part(turn, "information", plain(&text)))
            }
            SystemNotice::ModelFallback(message) | SystemNotice::ModelRefusalFallback(message) => {
                let text = message.content.as_deref().and_then(for_users);
                let text = text.as_deref().map(plain).or_else(|| {
                    let model = message.fallback_model.as_ref()?;
                    Some(format!("{model} answers instead of the chosen model."))
                });
                text.map(|text| part(turn, "model", text))
            }
            SystemNotice::Notification(message) => {
                let text = message.text.as_deref().and_then(for_users);
                self.activity.notice = text.as_deref().map(without_key_hint);
                None
            }
            // The call's own row names the denial.
            SystemNotice::PermissionDenied(message) => {
                let is_shown = message.tool_use_id.as_deref().is_some_and(|id| tools.is_open(id));
                let text = message.message.as_deref().filter(|_| !is_shown).and_then(for_users);
                text.map(|text| part(turn, "permission", plain(&text)))
            }
            SystemNotice::BackgroundTasksChanged(_)
            | SystemNotice::CommandsChanged(_)
            | SystemNotice::ControlRequestProgress(_)
            | SystemNotice::SessionTitleChanged(_)
            | SystemNotice::ThinkingTokens(_)
            | SystemNotice::Envelope(_) => return None,
        })
    }

    fn status(&mut self, turn: &TurnId, status: &StatusMessage) -> Option<StateAction> {
        match status.status.as_deref() {
            Some("compacting") => {
                self.activity.compaction = Some("Compacting the conversation".to_owned());
                None
            }
            Some(_) | None => {
                self.activity.compaction = None;
                let error = readable_error(&text_field(&status.extra, "compact_error")?);
                let cause = for_users(&error).map(|cause| format!("Compaction failed: {}", plain(&cause)));
                Some(part(turn, "compaction", cause.unwrap_or_else(|| "Compaction failed.".to_owned())))
            }
        }
    }

    /// Maps the progress of a running tool.
    pub(super) fn tool_progress(&mut self, progress: &NoticeMessage) -> Option<StateAction> {
        let name = text_field(&progress.extra, "tool_name")?;
        let title = super::description::title(&name);
        let seconds = progress.extra.get("elapsed_time_seconds");
        let seconds = seconds.and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
        self.activity.tool = Some(match seconds {
            Some(seconds) => format!("{title}: running for {seconds:.0} s"),
            None => format!("{title}: running"),
        });
        self.activity.changed()
    }

    /// Maps the account's rate limits. A limit that is reached ends the turn with an error.
    pub(super) fn rate_limit(turn: &TurnId, message: &RateLimitMessage) -> Option<StateAction> {
        let info: RateLimitInfo = serde_json::from_str(message.rate_limit_info.as_ref()?.get()).ok()?;
        let name = match info.rate_limit_type.as_deref() {
            Some("five_hour") => "5-hour limit",
            Some("seven_day" | "seven_day_opus" | "seven_day_sonnet") => "weekly limit",
            Some(_) | None => "usage limit",
        };
        let reset = info.resets_at.map(|at| format!(" It resets at {}.", utc_time(at))).unwrap_or_default();
        let text = match (info.status.as_deref(), info.utilization) {
            (Some("allowed_warning"), Some(used)) => {
                format!("{:.0} % of your {name} is used.{reset}", used * 100.0)
            }
            (Some("allowed_warning"), None) => format!("Your {name} is almost reached.{reset}"),
            (_, _) if info.is_using_overage == Some(true) => {
                format!("Your {name} is reached; this turn uses paid extra usage.{reset}")
            }
            (_, _) => return None,
        };
        Some(part(turn, "limit", text))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimitInfo {
    status: Option<String>,
    resets_at: Option<i64>,
    rate_limit_type: Option<String>,
    utilization: Option<f64>,
    is_using_overage: Option<bool>,
}

/// A note in the turn.
pub(super) fn part(turn: &TurnId, kind: &str, text: String) -> StateAction {
    let notification = SystemNotificationResponsePart {
        content: StringOrMarkdown::from(text),
        meta: Some(JsonObject::from_iter([("innkeeper.notice".to_owned(), json!(kind))])),
    };
    response_part(turn, ResponsePart::SystemNotification(notification))
}

/// Cause, number and time of the next attempt.
fn retry_text(retry: &ApiRetryMessage) -> String {
    let name = retry.error.as_deref().unwrap_or_default();
    let cause = match (retry.error_status, name) {
        (Some(529), _) | (None, "overloaded") => "The model is overloaded",
        (Some(429), _) | (None, "rate_limit") => "The model service limits requests",
        (Some(401 | 403), _) | (None, "authentication_failed") => "The model service rejects the credentials",
        (Some(408), _) => "The model service did not answer in time",
        (Some(_), _) => "The model service failed",
        (None, _) => "The connection to the model service failed",
    };
    let status = retry.error_status.map(|status| format!(" ({status})")).unwrap_or_default();
    let attempt = match (retry.attempt, retry.max_retries) {
        (Some(attempt), Some(most)) => format!("Retry {attempt} of {most}"),
        (Some(attempt), None) => format!("Retry {attempt}"),
        (None, _) => "Retry".to_owned(),
    };
    let delay = retry.retry_delay().map(|delay| format!(" in {:.0} s", delay.as_secs_f64().max(1.0)));
    format!("{cause}{status}. {attempt}{}.", delay.unwrap_or_default())
}

fn compaction_text(boundary: &CompactBoundaryMessage) -> String {
    #[derive(Default, Deserialize)]
    struct CompactMetadata {
        trigger: Option<String>,
        pre_tokens: Option<u64>,
        post_tokens: Option<u64>,
    }
    let metadata = boundary.compact_metadata.as_ref();
    let metadata: CompactMetadata =
        metadata.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let how = if metadata.trigger.as_deref() == Some("auto") { " automatically" } else { "" };
    match (metadata.pre_tokens, metadata.post_tokens) {
        (Some(before), Some(after)) => {
            format!("The conversation was compacted{how}: {before} tokens before, {after} after.")
        }
        (Some(before), None) => format!("The conversation was compacted{how}: {before} tokens before."),
        (None, _) => format!("The conversation was compacted{how}."),
    }
}

/// The text for a hook that failed or blocked something.
fn hook_failure(hook: &HookMessage) -> Option<String> {
    let name = hook.hook_name.as_deref().unwrap_or("unknown");
    let code = hook.extra.get("exit_code").and_then(|raw| serde_json::from_str::<i64>(raw.get()).ok());
    let (stdout, stderr) = (text_field(&hook.extra, "stdout"), text_field(&hook.extra, "stderr"));
    if let Some(reason) = stdout.as_deref().and_then(blocking_reason) {
        return Some(format!("Hook {name} blocked: {}", quote(&reason)));
    }
    let output = [stderr, stdout, text_field(&hook.extra, "output")].into_iter().flatten();
    let output = output.map(|text| quote(&text)).find(|text| !text.is_empty());
    let output = output.map(|text| format!(": {text}")).unwrap_or_default();
    match (code, hook.outcome.as_deref()) {
        // By convention, this code blocks the action.
        (Some(2), _) => Some(format!("Hook {name} blocked{output}")),
        (Some(0) | None, Some("success") | None) => None,
        (Some(code), _) => Some(format!("Hook {name} failed with exit code {code}{output}")),
        (None, Some("cancelled")) => Some(format!("Hook {name} was cancelled{output}")),
        (None, Some(_)) => Some(format!("Hook {name} failed{output}")),
    }
}

/// Why a hook's JSON output blocks, if it does.
fn blocking_reason(stdout: &str) -> Option<String> {
    let output: Value = serde_json::from_str(stdout.trim()).ok()?;
    let field = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let specific = output.get("hookSpecificOutput").unwrap_or(&Value::Null);
    let reason =
        |value: &Value, name: &str| Some(field(value, name).unwrap_or_else(|| "no reason".to_owned()));
    if output.get("continue") == Some(&Value::Bool(false)) {
        reason(&output, "stopReason")
    } else if field(&output, "decision").as_deref() == Some("block") {
        reason(&output, "reason")
    } else if field(specific, "permissionDecision").as_deref() == Some("deny") {
        reason(specific, "permissionDecisionReason")
    } else {
        None
    }
}

fn task_text(message: &SystemMessage, task: &TaskMessage) -> String {
    let description = task.description.as_deref().unwrap_or("task");
    match (message, task.task_type.as_deref()) {
        (SystemMessage::TaskProgress(_), _) => format!("Subagent: {description}"),
        (_, Some("local_agent")) => format!("Subagent: {description}"),
        (_, _) => format!("Running: {description}"),
    }
}

/// The text for a finished background task. A task in the foreground has a running tool call.
fn finished_task(task: &TaskMessage, tools: &ToolCalls) -> Option<String> {
    let is_background = task.output_file.as_deref().is_some_and(|file| !file.is_empty());
    if !is_background || task.tool_use_id.as_deref().is_some_and(|id| tools.is_open(id)) {
        return None;
    }
    let status = task.status.as_deref().unwrap_or("completed");
    let summary = task.summary.as_deref().filter(|summary| !summary.is_empty());
    Some(match summary {
        Some(summary) => format!("Background task {status}: {}", plain(summary)),
        None => format!("Background task {status}."),
    })
}

/// The call that a task belongs to, which has at most one task.
fn call_of(task: &TaskMessage) -> &str {
    task.tool_use_id.as_deref().unwrap_or_else(|| id_of(&task.task_id))
}

fn id_of(id: &Option<String>) -> &str {
    id.as_deref().unwrap_or_default()
}

/// A text field of a message without a type for it.
pub(super) fn text_field(extra: &Extra, name: &str) -> Option<String> {
    serde_json::from_str(extra.get(name)?.get()).ok()
}

fn quote(text: &str) -> String {
    let text = plain(text);
    let mut short: String = text.chars().take(QUOTE_LENGTH).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn plain(text: &str) -> String {
    super::local_output::without_escapes(text).trim().to_owned()
}

/// Removes the runtime's hint about a key of its own user interface.
fn without_key_hint(text: &str) -> String {
    let text = plain(text);
    match text.rsplit_once(" · ") {
        Some((before, hint)) if hint.starts_with("ctrl+") => before.to_owned(),
        Some(_) | None => text,
    }
}

/// A time of day with its date, in UTC, from seconds since 1970.
fn utc_time(seconds: i64) -> String {
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Counts from 1 March of year 0, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", time / 3600, time % 3600 / 60)
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
