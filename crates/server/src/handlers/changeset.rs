//! `invokeChangesetOperation`: undo, keep, redo and restore.

use ahp_types::commands::{
    ChangesetOperationFollowUp, ChangesetOperationTarget, InvokeChangesetOperationResult,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::errors::ahp_error_codes;
use ahp_types::state::{ContentRef, TextRange};
use innkeeper_core::ChannelUri;
use innkeeper_core::edits::{EditConflict, OperationKind, OperationReport, OperationTarget};
use innkeeper_core::host::{OperationOutcome, OperationRequest};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::connection::Connection;
use crate::params::InvokeOperationParams;
use crate::rpc::RpcError;

/// The key of a request's `_meta` that overwrites later changes.
const FORCE: &str = "innkeeper.force";

/// The key of a result's `_meta` with the files that were left alone.
const REFUSED: &str = "innkeeper.refused";

/// Most files that a message lists.
const MAX_LISTED: usize = 20;

impl Connection {
    /// Runs an operation on a changeset, concurrently with later requests. It continues if
    /// the connection ends.
    pub(super) async fn invoke_changeset_operation(
        &self,
        id: &RawValue,
        params: InvokeOperationParams,
    ) -> Result<(), RpcError> {
        let force = params.meta.as_ref().and_then(|meta| meta.get(FORCE)) == Some(&Value::Bool(true));
        let request = OperationRequest {
            channel: ChannelUri::new(&params.channel),
            operation: params.operation_id,
            target: target(params.target)?,
            force,
        };
        let shared = Arc::clone(&self.shared);
        let work = async move {
            let outcome = shared.host.operate_on_changeset(request).await?;
            Ok(result(&outcome)?.into())
        };
        self.concurrent.run(id, work).await;
        Ok(())
    }
}

fn target(target: Option<ChangesetOperationTarget>) -> Result<OperationTarget, RpcError> {
    match target {
        None => Ok(OperationTarget::Changeset),
        Some(ChangesetOperationTarget::Resource { resource, .. }) => Ok(OperationTarget::File(resource)),
        Some(ChangesetOperationTarget::Range { resource, range, .. }) => {
            let (start, end) = lines(&range)?;
            Ok(OperationTarget::Lines { uri: resource, start, end })
        }
        Some(ChangesetOperationTarget::Unknown(_)) => {
            Err(RpcError::invalid_params("unknown kind of target; expected \"resource\" or \"range\""))
        }
    }
}

/// The lines that a range touches: the first one, and the one after the last.
fn lines(range: &TextRange) -> Result<(u64, u64), RpcError> {
    let invalid = || RpcError::invalid_params("the range is not valid");
    let line = |number: i64| u64::try_from(number).map_err(|_| invalid());
    let (start, end) = (line(range.start.line)?, line(range.end.line)?);
    let is_ordered = (start, range.start.character) <= (end, range.end.character);
    if !is_ordered || range.start.character < 0 || range.end.character < 0 {
        return Err(invalid());
    }
    // A range that ends at the start of a line does not touch that line.
    let touches_last = range.end.character > 0 || end == start;
    Ok((start, if touches_last { end.saturating_add(1) } else { end }))
}

#[derive(Serialize)]
struct OperationResult {
    #[serde(flatten)]
    result: InvokeChangesetOperationResult,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<JsonObject>,
}

/// The response to an operation. It is an error if all files were refused.
fn result(outcome: &OperationOutcome) -> Result<OperationResult, RpcError> {
    let OperationReport { changed, refused, .. } = &outcome.report;
    let refusals: Vec<Value> = refused.iter().map(refusal).collect();
    let message = message(outcome.kind, changed.len(), refused);
    if changed.is_empty() && !refused.is_empty() {
        let data = json!({ "refused": refusals });
        return Err(RpcError::with_data(ahp_error_codes::CONFLICT, message, data));
    }
    let preview = match refused.as_slice() {
        [only] => only.preview.as_ref(),
        _ => None,
    };
    let follow_up = preview.map(|preview| ChangesetOperationFollowUp {
        content: ContentRef { uri: preview.to_string(), size_hint: None, content_type: None, nonce: None },
        external: None,
    });
    let message = Some(StringOrMarkdown::Markdown { markdown: message });
    let meta = (!refused.is_empty()).then(|| JsonObject::from_iter([(REFUSED.to_owned(), refusals.into())]));
    Ok(OperationResult { result: InvokeChangesetOperationResult { message, follow_up }, meta })
}

fn refusal(conflict: &EditConflict) -> Value {
    let mut refusal =
        json!({ "uri": conflict.uri, "reason": conflict.reason, "canForce": conflict.can_force });
    if let (Some(preview), Some(fields)) = (&conflict.preview, refusal.as_object_mut()) {
        fields.insert("preview".to_owned(), json!(preview.to_string()));
    }
    refusal
}

/// The result as text for the user.
fn message(kind: OperationKind, changed: usize, refused: &[EditConflict]) -> String {
    let (did, to_do) = match kind {
        OperationKind::Undo => ("Undid the changes of", "undo"),
        OperationKind::Keep => ("Kept the changes of", "keep"),
        OperationKind::Redo => ("Made the changes again of", "redo"),
        OperationKind::Restore => ("Restored", "restore"),
    };
    let files = |count: usize| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let mut message = match (changed, refused.len()) {
        (0, 0) => format!("There was nothing to {to_do}."),
        (0, refused) => format!("Could not {to_do} {}.", files(refused)),
        (changed, 0) => format!("{did} {}.", files(changed)),
        (changed, refused) => format!("{did} {}. Left {} alone.", files(changed), files(refused)),
    };
    for conflict in refused.iter().take(MAX_LISTED) {
        let name = conflict.uri.rsplit('/').next().unwrap_or_default();
        message.push_str(&format!("\n- `{name}`: {}", conflict.reason));
    }
    if refused.len() > MAX_LISTED {
        message.push_str(&format!("\n- and {} more", refused.len() - MAX_LISTED));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_touches_the_lines_between_its_positions() {
        let range = |start: (i64, i64), end: (i64, i64)| {
            let position = |(line, character): (i64, i64)| json!({"line": line, "character": character});
            let range = json!({"start": position(start), "end": position(end)});
            lines(&serde_json::from_value(range).unwrap()).ok()
        };
        assert_eq!(range((2, 0), (2, 0)), Some((2, 3)));
        assert_eq!(range((2, 4), (3, 1)), Some((2, 4)));
        assert_eq!(range((2, 0), (4, 0)), Some((2, 4)));
        assert_eq!(range((3, 0), (2, 0)), None);
        assert_eq!(range((2, 5), (2, 4)), None);
        assert_eq!(range((-1, 0), (2, 4)), None);
        assert_eq!(range((0, -1), (2, 4)), None);
    }
}
