//! Both versions of the real runtime against a small model API.

use innkeeper_claude::{
    Conversation, ExitReason, IncomingRequest, LaunchOptions, Message, Program, Runtime, RuntimeEvent,
    RuntimeEvents, StartError, UserMessage,
    wire::{ContentBlock, ResultMessage, SystemMessage},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::Api;
use crate::for_both_runtimes;
use crate::support::*;

for_both_runtimes!(
    two_turns_run_in_one_process_and_stop_exits_with_0,
    settings_files_cannot_bypass_the_endpoint,
    tool_runs_only_if_allowed,
    interrupt_ends_the_turn_and_session_continues,
    resumed_conversation_contains_earlier_turns,
    unknown_conversation_cannot_be_resumed,
    running_command_is_killed_when_session_stops,
    running_command_is_killed_when_session_is_dropped,
    background_command_is_killed_when_session_stops,
);

fn options(place: &Place, program: Program, api: &Api) -> LaunchOptions {
    let mut options = place.options(program);
    options.endpoint.as_mut().unwrap().base_url = api.base_url.clone();
    options
}

async fn result(events: &mut RuntimeEvents) -> ResultMessage {
    event(events, |event| match event {
        RuntimeEvent::Message(Message::Result(result)) => Some((**result).clone()),
        _ => None,
    })
    .await
}

async fn turn(session: &Runtime, events: &mut RuntimeEvents, text: &str) -> ResultMessage {
    session.send(&prompt(text)).unwrap();
    let result = result(events).await;
    assert_eq!(result.is_error, Some(false), "{result:?}");
    result
}

/// Waits for a permission request; returns its id and input.
async fn question(events: &mut RuntimeEvents) -> (String, Value) {
    event(events, |event| match event {
        RuntimeEvent::Request { id, request: IncomingRequest::CanUseTool(request) } => {
            let input = serde_json::from_str(request.input.as_ref().unwrap().get()).unwrap();
            Some((id.clone(), input))
        }
        _ => None,
    })
    .await
}

async fn two_turns_run_in_one_process_and_stop_exits_with_0(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let options = LaunchOptions {
        append_system_prompt: Some("Answer in one sentence.".to_owned()),
        ..options(&place, program, &api)
    };
    let (session, mut events) = start(options.clone()).await;
    assert!(lives(session.pid().unwrap()));
    assert!(session.initialized().models.as_ref().is_some_and(|models| !models.is_empty()));
    assert!(events.try_next().is_none(), "unexpected event before the first message");

    let uuid = Uuid::new_v4();
    session.send(&UserMessage::new(uuid, "hello")).unwrap();
    let (seen, result) = observed_turn(&mut events, uuid, options.conversation.id()).await;
    for kind in ["system/init", "user", "stream_event", "assistant", "system/session_state_changed"] {
        assert!(seen.iter().any(|seen| seen == kind), "no {kind} among {seen:?}");
    }
    assert_eq!(result.result.as_deref(), Some("1 messages"));
    assert_eq!(result.usage.as_ref().unwrap().output_tokens, Some(4));
    assert_eq!(turn(&session, &mut events, "again").await.result.as_deref(), Some("3 messages"));

    let calls = api.model_calls();
    assert_eq!(calls.len(), 2);
    assert!(calls[0].body["system"].to_string().contains("Answer in one sentence."));
    for call in calls {
        assert_eq!(call.header("authorization"), Some("Bearer nonce.conversation"));
        assert_eq!(call.header("x-claude-code-session-id").unwrap(), session.conversation().to_string());
    }
    let exit = soon(session.stop()).await;
    assert_eq!((exit.code, exit.reason), (Some(0), ExitReason::Stopped), "{exit:?}");
    assert!(!lives(session.pid().unwrap()));
    assert!(place.scratch_files().is_empty());
}

/// Runs a turn; returns the kinds of all messages and the result. Checks the echo and the conversation id.
async fn observed_turn(
    events: &mut RuntimeEvents,
    uuid: Uuid,
    conversation: Uuid,
) -> (Vec<String>, Box<ResultMessage>) {
    let mut seen = Vec::new();
    loop {
        let event = soon(events.next()).await.unwrap();
        let RuntimeEvent::Message(message) = event else { panic!("{event:?}") };
        seen.push(message.kind().into_owned());
        match message {
            Message::User(user) => {
                assert_eq!((user.uuid, user.is_replay), (Some(uuid.to_string()), Some(true)));
            }
            Message::System(SystemMessage::Init(init)) => {
                assert_eq!(init.session_id, Some(conversation.to_string()));
            }
            Message::Result(result) => return (seen, result),
            _ => {}
        }
    }
}

async fn settings_files_cannot_bypass_the_endpoint(program: Program) {
    let (place, api, elsewhere) = (Place::new(), Api::listen().await, Api::listen().await);
    let away = &elsewhere.base_url;
    let addresses = json!({
        "ANTHROPIC_BASE_URL": away, "ANTHROPIC_API_KEY": "users-key", "ANTHROPIC_AUTH_TOKEN": "users-token",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Users: yes", "CLAUDE_CODE_OAUTH_TOKEN": "users-oauth",
    });
    let with = |more: Value| {
        let mut env = addresses.as_object().unwrap().clone();
        env.extend(more.as_object().unwrap().clone());
        json!({ "env": env, "apiKeyHelper": "echo users-helper" })
    };
    let clouds = json!({
        "CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_BEDROCK_BASE_URL": away, "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "CLAUDE_CODE_USE_FOUNDRY": "1", "ANTHROPIC_FOUNDRY_BASE_URL": away, "ANTHROPIC_FOUNDRY_API_KEY": "c",
        "CLAUDE_CODE_API_BASE_URL": away,
    });
    let proxies = json!({
        "HTTP_PROXY": away, "HTTPS_PROXY": away, "http_proxy": away, "https_proxy": away, "ALL_PROXY": away,
        "CLAUDE_CODE_HTTP_PROXY": away, "NO_PROXY": "", "no_proxy": "",
    });
    // Each of these two once made the older runtime ignore the host's settings file.
    let switches = json!({
        "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST": "1", "ANTHROPIC_UNIX_SOCKET": "/nonexistent.sock",
    });
    for settings in [with(json!({})), with(clouds), with(proxies), with(switches)] {
        place.write("config/settings.json", &settings.to_string());
        place.write("work/.claude/settings.json", &settings.to_string());
        let mut options = options(&place, program.clone(), &api);
        for (name, value) in addresses.as_object().unwrap() {
            options.environment.insert(name.into(), value.as_str().unwrap().into());
        }
        let (session, mut events) = start(options).await;
        turn(&session, &mut events, "hello").await;
        soon(session.stop()).await;
    }
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    assert_eq!(api.model_calls().len(), 4);
    for request in api.requests() {
        assert!(!format!("{:?}", request.headers).contains("users"), "{request:?}");
    }
    for call in api.model_calls() {
        assert_eq!(call.header("authorization"), Some("Bearer nonce.conversation"));
    }
}

async fn tool_runs_only_if_allowed(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let (session, mut events) = start(options(&place, program, &api)).await;
    session.send(&prompt("run touch allowed")).unwrap();
    let (id, input) = question(&mut events).await;
    session.respond(&id, Ok(json!({ "behavior": "allow", "updatedInput": input }))).unwrap();
    assert_eq!(result(&mut events).await.result.as_deref(), Some("The command has run."));
    assert!(place.path("work/allowed").exists());

    session.send(&prompt("run touch denied")).unwrap();
    let (id, _) = question(&mut events).await;
    session.respond(&id, Ok(json!({ "behavior": "deny", "message": "denied by the test" }))).unwrap();
    let refusal = event(&mut events, |event| match event {
        RuntimeEvent::Message(Message::User(user)) => {
            let content = user.message.as_ref()?.content.as_ref()?;
            content.blocks().iter().find_map(|block| match block {
                ContentBlock::ToolResult(block) if block.is_error == Some(true) => {
                    Some(serde_json::to_string(block).unwrap())
                }
                _ => None,
            })
        }
        _ => None,
    })
    .await;
    assert!(refusal.contains("denied by the test"), "{refusal}");
    result(&mut events).await;
    assert!(!place.path("work/denied").exists());
}

async fn interrupt_ends_the_turn_and_session_continues(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let (session, mut events) = start(options(&place, program, &api)).await;
    session.send(&prompt("hang")).unwrap();
    event(&mut events, |event| matches!(event, RuntimeEvent::Message(Message::StreamEvent(_))).then_some(()))
        .await;
    soon(session.interrupt()).await.unwrap();
    let interrupted = result(&mut events).await;
    assert_eq!(interrupted.subtype.as_deref(), Some("error_during_execution"));
    assert_eq!(interrupted.terminal_reason.as_deref(), Some("aborted_streaming"));
    turn(&session, &mut events, "hello").await;
}

async fn resumed_conversation_contains_earlier_turns(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let options = options(&place, program, &api);
    let (session, mut events) = start(options.clone()).await;
    turn(&session, &mut events, "remember the number 4711").await;
    soon(session.stop()).await;
    let conversation = Conversation::Resume(options.conversation.id());
    let (session, mut events) = start(LaunchOptions { conversation, ..options }).await;
    assert_eq!(turn(&session, &mut events, "which number?").await.result.as_deref(), Some("3 messages"));
    assert!(api.model_calls()[1].body["messages"].to_string().contains("4711"));
}

async fn unknown_conversation_cannot_be_resumed(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let conversation = Conversation::Resume(Uuid::new_v4());
    let error = start_fails(LaunchOptions { conversation, ..options(&place, program, &api) }).await;
    let StartError::Exited { exit, .. } = &error else { panic!("{error:?}") };
    assert_eq!(exit.code, Some(1));
    assert!(exit.stderr_tail.contains(&conversation.id().to_string()), "{error}");
}

/// Makes the runtime run a command that writes its process id and does not exit.
async fn long_command(place: &Place, session: &Runtime, events: &mut RuntimeEvents, more: Value) -> u32 {
    session.send(&prompt("run echo $$ > pid.part; mv pid.part pid; sleep 600; true")).unwrap();
    let (id, mut input) = question(events).await;
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    session.respond(&id, Ok(json!({ "behavior": "allow", "updatedInput": input }))).unwrap();
    let pid_file = place.path("work/pid");
    until(|| pid_file.exists()).await;
    let command = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    assert!(lives(command));
    command
}

async fn running_command_is_killed_when_session_stops(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let (session, mut events) = start(options(&place, program, &api)).await;
    let command = long_command(&place, &session, &mut events, json!({})).await;
    soon(session.stop()).await;
    assert!(!lives(command) && !lives(session.pid().unwrap()));
}

async fn running_command_is_killed_when_session_is_dropped(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let (session, mut events) = start(options(&place, program, &api)).await;
    let command = long_command(&place, &session, &mut events, json!({})).await;
    let runtime = session.pid().unwrap();
    drop(session);
    drop(events);
    until(|| !lives(command) && !lives(runtime)).await;
}

async fn background_command_is_killed_when_session_stops(program: Program) {
    let (place, api) = (Place::new(), Api::listen().await);
    let (session, mut events) = start(options(&place, program, &api)).await;
    let command = long_command(&place, &session, &mut events, json!({ "run_in_background": true })).await;
    result(&mut events).await;
    assert!(lives(command), "the command ended with the turn");
    soon(session.stop()).await;
    assert!(!lives(command) && !lives(session.pid().unwrap()));
}
