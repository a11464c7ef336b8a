//! The documents that a new session starts with.

use std::collections::HashMap;
use std::path::PathBuf;

use ahp_types::common::{JsonObject, Uri};
use ahp_types::state::{
    AgentInfo, ChatSummary, ConfigSchema, RootConfigState, RootState, SessionConfigState, SessionLifecycle,
    SessionState, SessionStatus,
};
use url::Url;

use super::{CreateError, NewSession};
use crate::agent::ResolvedConfig;

/// The root of a host with these agents and configuration values.
pub(super) fn root_state(agents: Vec<AgentInfo>, values: JsonObject) -> RootState {
    RootState {
        agents,
        active_sessions: Some(0),
        terminals: Some(Vec::new()),
        // Published even if it is empty: reducers ignore changes to an absent
        // configuration.
        config: Some(RootConfigState {
            schema: ConfigSchema { r#type: "object".to_owned(), properties: HashMap::new(), required: None },
            values,
        }),
        meta: None,
    }
}

/// A session with one chat, which is its default one.
pub(super) fn session_state(
    provider: &str,
    chat: ChatSummary,
    config: ResolvedConfig,
    new: &NewSession,
) -> SessionState {
    SessionState {
        provider: provider.to_owned(),
        title: String::new(),
        status: SessionStatus::Idle.0,
        activity: None,
        origin: None,
        project: None,
        working_directories: (!new.working_directories.is_empty()).then(|| new.working_directories.clone()),
        annotations: None,
        lifecycle: SessionLifecycle::Creating,
        creation_error: None,
        server_tools: None,
        active_clients: new.active_client.iter().cloned().collect(),
        default_chat: Some(chat.resource.clone()),
        chats: vec![chat],
        config: Some(SessionConfigState { schema: config.schema, values: config.values }),
        customizations: None,
        changesets: None,
        input_needed: None,
        meta: None,
    }
}

pub(super) fn working_directory(directories: &[Uri]) -> Result<Option<PathBuf>, CreateError> {
    match directories {
        [] => Ok(None),
        [directory] => Url::parse(directory)
            .ok()
            .filter(|url| url.scheme() == "file")
            .and_then(|url| url.to_file_path().ok())
            .map(Some)
            .ok_or_else(|| {
                CreateError::Invalid(format!(
                    "the working directory {directory:?} is not a file: address of this machine"
                ))
            }),
        [_, _, ..] => Err(CreateError::Invalid("an agent here works in one directory at a time".to_owned())),
    }
}
