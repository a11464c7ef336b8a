//! The input requests of a session: everything that blocks one of its chats, so that a
//! client that is subscribed only to the session can respond.

use ahp_types::actions::{SessionInputNeededRemovedAction, SessionInputNeededSetAction, StateAction};
use ahp_types::state::{
    ChatState, ResponsePart, SessionChatInputRequest, SessionInputRequest, SessionState,
    SessionToolAuthenticationRequest, SessionToolClientExecutionRequest, SessionToolConfirmationRequest,
    ToolCallConfirmationState, ToolCallContributor, ToolCallState,
};

/// The actions that update the session's requests to those of this chat.
pub(super) fn updates(session: &SessionState, chat: &ChatState) -> Vec<StateAction> {
    let named = session.input_needed.as_deref().unwrap_or_default();
    let needed = needed(chat);
    let gone = named
        .iter()
        .filter(|request| chat_of(request) == Some(chat.resource.as_str()))
        .filter_map(id)
        .filter(|id| !needed.iter().any(|request| self::id(request) == Some(id)))
        .map(|id| {
            StateAction::SessionInputNeededRemoved(SessionInputNeededRemovedAction { id: id.to_owned() })
        });
    let new = needed.iter().filter(|request| !named.contains(request)).map(|request| {
        StateAction::SessionInputNeededSet(Box::new(SessionInputNeededSetAction { request: request.clone() }))
    });
    gone.chain(new).collect()
}

fn needed(chat: &ChatState) -> Vec<SessionInputRequest> {
    let Some(active) = &chat.active_turn else { return Vec::new() };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other parts do not wait for input")]
    active
        .response_parts
        .iter()
        .filter_map(|part| match part {
            ResponsePart::InputRequest(part) if part.response.is_none() => {
                Some(SessionInputRequest::ChatInput(SessionChatInputRequest {
                    id: request_id(chat, &part.request.id),
                    chat: chat.resource.clone(),
                    request: part.request.clone(),
                }))
            }
            ResponsePart::ToolCall(part) => tool_need(chat, &active.id, &part.tool_call),
            _ => None,
        })
        .collect()
}

fn tool_need(chat: &ChatState, turn: &str, call: &ToolCallState) -> Option<SessionInputRequest> {
    let confirmation = |call_id: &str, tool_call| {
        Some(SessionInputRequest::ToolConfirmation(SessionToolConfirmationRequest {
            id: request_id(chat, call_id),
            chat: chat.resource.clone(),
            turn_id: turn.to_owned(),
            tool_call,
        }))
    };
    match call {
        ToolCallState::PendingConfirmation(pending) => confirmation(
            &pending.tool_call_id,
            ToolCallConfirmationState::PendingConfirmation(pending.clone()),
        ),
        ToolCallState::PendingResultConfirmation(pending) => confirmation(
            &pending.tool_call_id,
            ToolCallConfirmationState::PendingResultConfirmation(pending.clone()),
        ),
        ToolCallState::Running(running) => match &running.contributor {
            Some(ToolCallContributor::Client(owner)) => {
                // The content so far changes often and is not needed here.
                let mut tool_call = running.clone();
                tool_call.content = None;
                Some(SessionInputRequest::ToolClientExecution(SessionToolClientExecutionRequest {
                    id: request_id(chat, &running.tool_call_id),
                    chat: chat.resource.clone(),
                    turn_id: turn.to_owned(),
                    client_id: owner.client_id.clone(),
                    tool_call,
                }))
            }
            Some(ToolCallContributor::Mcp(_) | ToolCallContributor::Unknown(_)) | None => None,
        },
        ToolCallState::AuthRequired(waiting) => {
            Some(SessionInputRequest::ToolAuthentication(Box::new(SessionToolAuthenticationRequest {
                id: request_id(chat, &waiting.tool_call_id),
                chat: chat.resource.clone(),
                turn_id: turn.to_owned(),
                tool_call: waiting.as_ref().clone(),
            })))
        }
        ToolCallState::Streaming(_)
        | ToolCallState::Completed(_)
        | ToolCallState::Cancelled(_)
        | ToolCallState::Unknown(_) => None,
    }
}

fn request_id(chat: &ChatState, inner: &str) -> String {
    format!("{}#{inner}", chat.resource)
}

/// The ids of requests whose chats do not exist.
pub(crate) fn of_others(session: &SessionState, here: impl Fn(&str) -> bool) -> Vec<String> {
    let named = session.input_needed.iter().flatten();
    named
        .filter(|request| chat_of(request).is_some_and(|chat| !here(chat)))
        .filter_map(|request| id(request).map(str::to_owned))
        .collect()
}

fn chat_of(request: &SessionInputRequest) -> Option<&str> {
    match request {
        SessionInputRequest::ChatInput(request) => Some(&request.chat),
        SessionInputRequest::ToolConfirmation(request) => Some(&request.chat),
        SessionInputRequest::ToolClientExecution(request) => Some(&request.chat),
        SessionInputRequest::ToolAuthentication(request) => Some(&request.chat),
        SessionInputRequest::Unknown(_) => None,
    }
}

/// The id of a request.
pub(crate) fn id(request: &SessionInputRequest) -> Option<&str> {
    match request {
        SessionInputRequest::ChatInput(request) => Some(&request.id),
        SessionInputRequest::ToolConfirmation(request) => Some(&request.id),
        SessionInputRequest::ToolClientExecution(request) => Some(&request.id),
        SessionInputRequest::ToolAuthentication(request) => Some(&request.id),
        SessionInputRequest::Unknown(_) => None,
    }
}
