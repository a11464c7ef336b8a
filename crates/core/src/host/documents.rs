//! The initial documents of the host and of new sessions.

use std::collections::HashMap;

use ahp_types::common::{JsonObject, Uri};
use ahp_types::state::{
    AgentInfo, ChatSummary, ConfigSchema, RootConfigState, RootState, SessionConfigState, SessionLifecycle,
    SessionState, SessionStatus,
};

use super::{CreateError, NewSession};
use crate::agent::ResolvedConfig;
use crate::directories::{MAX_DIRECTORIES, Primary, path_of};

/// The root state with these agents and configuration values.
pub(super) fn root_state(agents: Vec<AgentInfo>, values: JsonObject) -> RootState {
    RootState {
        agents,
        active_sessions: Some(0),
        terminals: Some(Vec::new()),
        // Published even if empty: reducers ignore changes to an absent configuration.
        config: Some(RootConfigState {
            schema: ConfigSchema { r#type: "object".to_owned(), properties: HashMap::new(), required: None },
            values,
        }),
        meta: None,
    }
}

/// The state of a session with one chat, its default chat.
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

/// Checks the working directories of a new session.
pub(super) fn check_directories(directories: &[Uri], primary: Option<Primary>) -> Result<(), CreateError> {
    let invalid = |reason: String| Err(CreateError::Invalid(reason));
    if directories.len() > 1 && primary.is_none() {
        return invalid("this agent supports one working directory".to_owned());
    }
    if directories.len() > MAX_DIRECTORIES {
        return invalid(format!("a session can have at most {MAX_DIRECTORIES} directories"));
    }
    for (place, directory) in directories.iter().enumerate() {
        if path_of(directory).is_none() {
            return invalid(format!(
                "the working directory {directory:?} is not a file: URI on this machine"
            ));
        }
        if directories.iter().take(place).any(|earlier| earlier == directory) {
            return invalid(format!("duplicate working directory {directory:?}"));
        }
    }
    Ok(())
}
