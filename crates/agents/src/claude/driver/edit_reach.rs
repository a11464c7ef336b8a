//! What tool calls may change, would change and have changed in files. Pure.

use std::path::{Path, PathBuf};

use innkeeper_core::edits::{CallOutcome, EditReach, PlannedChange, PlannedEdit, PlannedReplacement};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::tool_access::is_internal;

/// Tools that only read or wait, in addition to those that stay inside of the conversation.
/// Skills and slash commands are not listed, since they may run commands.
const READS_ONLY: [&str; 14] = [
    "AgentOutputTool",
    "Glob",
    "Grep",
    "LS",
    "LSP",
    "ListAgents",
    "NotebookRead",
    "Read",
    "ReadMcpResource",
    "ReadMcpResourceTool",
    "ReportFindings",
    "ScheduleWakeup",
    "WebFetch",
    "WebSearch",
];

/// The files that a call may change; `None` if it changes none. A shell command may change any
/// file, whatever it looks like: its words can be aliases or functions.
pub(super) fn reach(tool: &str, input: &Value, cwd: &Path) -> Option<EditReach> {
    let field = match tool {
        "Write" | "Edit" | "MultiEdit" => "file_path",
        "NotebookEdit" => "notebook_path",
        other => return (!changes_nothing(other)).then_some(EditReach::AnyFile),
    };
    // The runtime rejects a call without a path.
    let path = input.get(field)?.as_str()?;
    Some(match resolved(path, cwd) {
        Some(path) => EditReach::Files(vec![path]),
        None => EditReach::AnyFile,
    })
}

fn changes_nothing(tool: &str) -> bool {
    is_internal(tool) || READS_ONLY.contains(&tool)
}

/// The edits that a call would make, as far as they follow from its input.
pub(super) fn planned(tool: &str, input: &Value, cwd: &Path) -> Vec<PlannedEdit> {
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    let change = match tool {
        "Write" => text("content").map(|content| PlannedChange::Write(content.to_owned().into())),
        "Edit" => replacement(input).map(|replacement| PlannedChange::Replace(vec![replacement])),
        "MultiEdit" => input
            .get("edits")
            .and_then(Value::as_array)
            .and_then(|edits| edits.iter().map(replacement).collect::<Option<Vec<_>>>())
            .map(PlannedChange::Replace),
        _ => None,
    };
    let path = text("file_path").and_then(|path| resolved(path, cwd));
    path.zip(change).map(|(path, change)| PlannedEdit { path, change }).into_iter().collect()
}

fn replacement(edit: &Value) -> Option<PlannedReplacement> {
    let text = |field: &str| edit.get(field).and_then(Value::as_str).map(str::to_owned);
    let all = edit.get("replace_all").and_then(Value::as_bool).unwrap_or(false);
    Some(PlannedReplacement { old: text("old_string")?, new: text("new_string")?, all })
}

/// The absolute path; `None` for a path in a home directory, which only the runtime can resolve.
fn resolved(path: &str, cwd: &Path) -> Option<PathBuf> {
    (!path.starts_with('~')).then(|| cwd.join(path))
}

/// The fields of a structured result that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResultFields {
    /// `create` or `update`, for a written file.
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "filePath")]
    file_path: Option<String>,
    notebook_path: Option<String>,
    #[serde(rename = "oldString")]
    old_string: Option<String>,
    #[serde(rename = "originalFile", alias = "original_file")]
    original_file: Option<String>,
    /// The background task in which a command continues.
    #[serde(rename = "backgroundTaskId")]
    pub(super) background_task: Option<String>,
}

impl ResultFields {
    /// Reads a structured result. A result of another shape has none of the fields.
    pub(super) fn read(structured: &RawValue) -> Self {
        serde_json::from_str(structured.get()).unwrap_or_default()
    }

    /// Whether a structured result may name the content before an edit.
    pub(super) fn may_have_original(structured: &RawValue) -> bool {
        let json = structured.get();
        json.contains("\"originalFile\"") || json.contains("\"original_file\"")
    }

    /// What the result says about a call.
    pub(super) fn outcome(self, in_background: bool) -> CallOutcome {
        let path = self.file_path.or(self.notebook_path).map(PathBuf::from);
        let original = path.filter(|path| path.is_absolute()).and_then(|path| {
            let is_created = self.kind.as_deref() == Some("create");
            // An edit with an empty text to find creates the file; the original is empty then.
            let is_first = self.old_string.as_deref() == Some("");
            match self.original_file {
                Some(content) if !(is_first && content.is_empty()) => Some((path, Some(content.into()))),
                Some(_) => Some((path, None)),
                None => (is_created || is_first).then_some((path, None)),
            }
        });
        CallOutcome { in_background, original }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reach_follows_from_tool_and_input() {
        let cwd = Path::new("/project");
        let files = |path: &str| Some(EditReach::Files(vec![PathBuf::from(path)]));
        for (tool, input, expected) in [
            ("Write", json!({"file_path": "/a/b.rs"}), files("/a/b.rs")),
            ("Edit", json!({"file_path": "b.rs"}), files("/project/b.rs")),
            ("MultiEdit", json!({"file_path": "../c"}), files("/project/../c")),
            ("NotebookEdit", json!({"notebook_path": "/n.ipynb"}), files("/n.ipynb")),
            ("Write", json!({"file_path": "~/x"}), Some(EditReach::AnyFile)),
            ("Write", json!({"content": ""}), None),
            ("Bash", json!({"command": "ls"}), Some(EditReach::AnyFile)),
            ("Bash", json!({}), Some(EditReach::AnyFile)),
            ("mcp__files__read", json!({}), Some(EditReach::AnyFile)),
            ("Skill", json!({}), Some(EditReach::AnyFile)),
            ("Unheard", json!({}), Some(EditReach::AnyFile)),
            ("Read", json!({"file_path": "/a"}), None),
            ("Agent", json!({}), None),
            ("KillShell", json!({}), None),
        ] {
            assert_eq!(reach(tool, &input, cwd), expected, "{tool} {input}");
        }
    }

    #[test]
    fn planned_edits_are_read_from_the_input() {
        let cwd = Path::new("/project");
        let replace =
            |old: &str, new: &str, all| PlannedReplacement { old: old.to_owned(), new: new.to_owned(), all };
        let edit = |change| vec![PlannedEdit { path: PathBuf::from("/project/a"), change }];
        let pair = json!({"old_string": "x", "new_string": "y", "replace_all": true});
        for (tool, input, expected) in [
            ("Write", json!({"file_path": "a", "content": "c"}), edit(PlannedChange::Write("c".into()))),
            (
                "Edit",
                json!({"file_path": "a", "old_string": "", "new_string": "n"}),
                edit(PlannedChange::Replace(vec![replace("", "n", false)])),
            ),
            (
                "MultiEdit",
                json!({"file_path": "a", "edits": [pair, pair]}),
                edit(PlannedChange::Replace(vec![replace("x", "y", true); 2])),
            ),
            ("MultiEdit", json!({"file_path": "a", "edits": [pair, {}]}), Vec::new()),
            ("Write", json!({"file_path": "a"}), Vec::new()),
            ("NotebookEdit", json!({"notebook_path": "a", "new_source": ""}), Vec::new()),
            ("Bash", json!({"file_path": "a", "content": "c"}), Vec::new()),
        ] {
            assert_eq!(planned(tool, &input, cwd), expected, "{tool} {input}");
        }
    }

    #[test]
    fn original_content_is_read_from_the_result() {
        let original = |result: Value| {
            let raw = serde_json::value::to_raw_value(&result).unwrap();
            ResultFields::read(&raw).outcome(false).original
        };
        let path = || PathBuf::from("/a");
        for (result, expected) in [
            (
                json!({"type": "update", "filePath": "/a", "originalFile": "x"}),
                Some((path(), Some("x".into()))),
            ),
            (json!({"type": "create", "filePath": "/a", "originalFile": null}), Some((path(), None))),
            (
                json!({"filePath": "/a", "oldString": "x", "originalFile": ""}),
                Some((path(), Some("".into()))),
            ),
            (json!({"filePath": "/a", "oldString": "", "originalFile": ""}), Some((path(), None))),
            // A large file: the runtime does not repeat its content.
            (json!({"type": "update", "filePath": "/a", "originalFile": null}), None),
            (json!({"notebook_path": "/a", "original_file": "{}"}), Some((path(), Some("{}".into())))),
            (json!({"filePath": "a", "originalFile": "x"}), None),
            (json!({"stdout": ""}), None),
            (json!("Error: no"), None),
            (json!({"filePath": 7, "originalFile": []}), None),
        ] {
            assert_eq!(original(result.clone()), expected, "{result}");
        }
    }
}
