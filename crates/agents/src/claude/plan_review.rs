//! The review of a plan: the call that ends plan mode, and the user's decision about it.

use std::path::{Path, PathBuf};

use ahp_types::actions::{ChatToolCallReadyAction, StateAction};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{ConfirmationOption, ConfirmationOptionKind};
use innkeeper_claude::PermissionAnswer;
use innkeeper_core::agent::Approval;
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};

/// Name of the tool that ends plan mode.
pub(super) const EXIT_PLAN_MODE: &str = "ExitPlanMode";

/// Key of the call's `_meta` that marks it as a plan.
const META: &str = "innkeeper.plan";

/// Largest plan file that is read.
const MAX_PLAN_SIZE: u64 = 256 * 1024;

/// The option that approves the plan and accepts later edits.
const APPROVE_AND_ACCEPT_EDITS: &str = "approve-accept-edits";

/// Shown if the runtime did not pass a plan.
const NO_TEXT: &str = "The agent did not write down its plan; see its last message.";

/// Where a plan's text is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanSource {
    /// In the tool's input.
    Text(String),
    /// In a file that the runtime wrote.
    File(PathBuf),
    /// Nowhere.
    Missing,
}

impl PlanSource {
    /// Finds the plan of a call: in the runtime's input, in the file that it names or that the
    /// runtime wrote last, or in the input that the model wrote.
    pub(super) fn of_call(input: &Value, written: Option<&Value>, file: Option<&Path>) -> Self {
        let text = |input: &Value, field: &str| {
            let text = input.get(field).and_then(Value::as_str);
            text.filter(|text| !text.trim().is_empty()).map(str::to_owned)
        };
        if let Some(plan) = text(input, "plan") {
            return Self::Text(plan);
        }
        let file = text(input, "planFilePath").map(PathBuf::from).or_else(|| file.map(Path::to_owned));
        let written = || written.and_then(|written| text(written, "plan")).map(Self::Text);
        file.map(Self::File).or_else(written).unwrap_or(Self::Missing)
    }

    /// Reads the plan. Blocks while it reads a file.
    pub(super) fn read(self) -> String {
        let read = |path: &Path| {
            let small = path.metadata().is_ok_and(|file| file.is_file() && file.len() <= MAX_PLAN_SIZE);
            std::fs::read_to_string(path).ok().filter(|text| small && !text.trim().is_empty())
        };
        match self {
            Self::Text(text) => text,
            Self::File(path) => read(&path).unwrap_or_else(|| NO_TEXT.to_owned()),
            Self::Missing => NO_TEXT.to_owned(),
        }
    }
}

/// Asks the user about a plan.
pub(super) fn ask(turn: &TurnId, tool_call: &str, plan: String) -> StateAction {
    let option = |id: &str, label: &str, kind| ConfirmationOption {
        id: id.to_owned(),
        label: label.to_owned(),
        kind,
        group: None,
    };
    StateAction::ChatToolCallReady(ChatToolCallReadyAction {
        turn_id: turn.as_str().to_owned(),
        tool_call_id: tool_call.to_owned(),
        meta: Some(JsonObject::from_iter([(META.to_owned(), json!(true))])),
        contributor: None,
        intention: None,
        invocation_message: StringOrMarkdown::Markdown { markdown: plan },
        // VS Code would show it as another copy of the plan.
        tool_input: None,
        confirmation_title: Some(StringOrMarkdown::from("Approve this plan?".to_owned())),
        risk_assessment: None,
        edits: None,
        editable: None,
        confirmed: None,
        options: Some(vec![
            option("approve", "Approve", ConfirmationOptionKind::Approve),
            option(APPROVE_AND_ACCEPT_EDITS, "Approve and accept edits", ConfirmationOptionKind::Approve),
            option("keep-planning", "Keep planning", ConfirmationOptionKind::Deny),
        ]),
    })
}

/// The response to the runtime. The mode change is part of it, so that the next edit of the
/// same turn already follows the new mode.
pub(super) fn answered(
    approval: Approval,
    option: Option<&str>,
    suggestion: Option<&str>,
    input: &Value,
) -> PermissionAnswer {
    match approval {
        Approval::Approved => {
            let mode = if option == Some(APPROVE_AND_ACCEPT_EDITS) { "acceptEdits" } else { "default" };
            PermissionAnswer::Allow {
                updated_input: Some(input.clone()),
                updated_permissions: vec![json!({"type": "setMode", "mode": mode, "destination": "session"})],
            }
        }
        Approval::Denied => PermissionAnswer::deny(match suggestion.filter(|text| !text.trim().is_empty()) {
            Some(feedback) => format!("The user wants to keep planning. Their feedback: {feedback}"),
            None => "The user wants to keep planning. Ask what to change, and do not start yet.".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_comes_from_input_then_file_then_model() {
        let written = Some(Path::new("plans/b.md"));
        let of = |input: Value, file| PlanSource::of_call(&input, Some(&json!({"plan": "As written"})), file);
        assert_eq!(
            of(json!({"plan": "Do it", "planFilePath": "a.md"}), written),
            PlanSource::Text("Do it".to_owned())
        );
        assert_eq!(
            of(json!({"plan": " ", "planFilePath": "a.md"}), written),
            PlanSource::File("a.md".into())
        );
        assert_eq!(of(json!({}), written), PlanSource::File("plans/b.md".into()));
        assert_eq!(of(json!({}), None), PlanSource::Text("As written".to_owned()));
        assert_eq!(PlanSource::of_call(&json!({}), None, None), PlanSource::Missing);
    }

    #[test]
    fn unreadable_plan_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.md");
        assert_eq!(PlanSource::File(path.clone()).read(), NO_TEXT);
        std::fs::write(&path, "1. Do it").unwrap();
        assert_eq!(PlanSource::File(path).read(), "1. Do it");
        assert_eq!(PlanSource::File(folder.path().to_owned()).read(), NO_TEXT);
    }

    #[test]
    fn approval_changes_the_mode_and_denial_carries_the_feedback() {
        let input = json!({"plan": "Do it"});
        let mode = |answer: PermissionAnswer| match answer {
            PermissionAnswer::Allow { updated_permissions, .. } => updated_permissions[0]["mode"].clone(),
            PermissionAnswer::Deny { message, .. } => json!(message),
        };
        assert_eq!(mode(answered(Approval::Approved, Some("approve"), None, &input)), "default");
        assert_eq!(mode(answered(Approval::Approved, None, None, &input)), "default");
        assert_eq!(
            mode(answered(Approval::Approved, Some(APPROVE_AND_ACCEPT_EDITS), None, &input)),
            "acceptEdits"
        );
        let denied = mode(answered(Approval::Denied, Some("keep-planning"), Some("Add tests"), &input));
        assert!(denied.as_str().is_some_and(|text| text.ends_with("Add tests")), "{denied}");
    }
}
