//! `innkeeper/audit`: the stored decisions about tool calls, newest first.

use innkeeper_core::ChannelUri;
use innkeeper_core::audit::{AuditCursor, AuditQuery, AuditRecord, MAX_AUDIT_PAGE};
use innkeeper_core::clock::wire_time_of_millis;
use innkeeper_core::ids::ClientId;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::AuditParams;
use crate::rpc::RpcError;

/// The name of the method.
pub(super) const METHOD: &str = "innkeeper/audit";

/// Records in a page if the client does not set a limit.
const DEFAULT_LIMIT: usize = 100;

impl Connection {
    /// Sends a page of audit records.
    pub(super) async fn audit(&self, id: &RawValue, params: AuditParams) -> Result<(), RpcError> {
        let page = self.shared.host.load_audit(query(params)?).await?;
        let records = page.records.iter().map(AuditEntry::of).collect();
        self.reply(id, &AuditResult { records, next: page.next.map(|cursor| cursor.to_string()) })
    }
}

fn query(params: AuditParams) -> Result<AuditQuery, RpcError> {
    let before = match params.before {
        None => None,
        Some(text) => Some(AuditCursor::parse(&text).ok_or_else(|| {
            RpcError::invalid_params("invalid before; pass the value of next from an earlier response")
        })?),
    };
    let limit = match params.limit {
        None => DEFAULT_LIMIT,
        Some(limit) => {
            let accepted = usize::try_from(limit).ok().filter(|limit| (1..=MAX_AUDIT_PAGE).contains(limit));
            let wrong = || format!("limit is {limit}; it must be between 1 and {MAX_AUDIT_PAGE}");
            accepted.ok_or_else(|| RpcError::invalid_params(wrong()))?
        }
    };
    Ok(AuditQuery { session: params.session.as_deref().map(ChannelUri::new), before, limit })
}

#[derive(Serialize)]
struct AuditResult<'a> {
    records: Vec<AuditEntry<'a>>,
    /// The cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    session: &'a str,
    chat: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<&'a str>,
    tool_call: &'a str,
    tool: &'a str,
    input_digest: &'a str,
    decision: &'static str,
    layer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
}

impl<'a> AuditEntry<'a> {
    fn of(record: &'a AuditRecord) -> Self {
        Self {
            time: wire_time_of_millis(record.at),
            session: record.session.as_str(),
            chat: record.chat.as_str(),
            turn: record.turn.as_deref(),
            tool_call: &record.tool_call,
            tool: &record.tool,
            input_digest: &record.input_digest,
            decision: record.decision.as_str(),
            layer: &record.layer,
            rule: record.rule.as_deref(),
            client: record.client.as_ref().map(ClientId::as_str),
        }
    }
}
