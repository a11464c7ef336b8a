use super::*;

const TOOL: &str = r#"{"role":"assistant","content":[{"type":"text","text":"."},{"type":"tool_use","id":"1","name":"A","input":{}}]}"#;
const TWO_TOOLS: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"A","input":{}},{"type":"tool_use","id":"2","name":"B","input":{}}]}"#;
const RESULT: &str = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}"#;
const TEXT: &str = r#"{"role":"assistant","content":"said"}"#;
const WAKE: &str = r#"{"role":"user","content":"<system-reminder>go on"}"#;
const PLAIN: &str = r#"{"role":"user","content":"and now?"}"#;

/// Plans the response to a script and the messages after it.
fn plan(script: &str, after: &[&str]) -> ModelCall {
    let prompt = serde_json::json!({"role": "user", "content": script}).to_string();
    let messages: Vec<&str> = std::iter::once(prompt.as_str()).chain(after.iter().copied()).collect();
    let body = format!(r#"{{"model":"claude-x","messages":[{}]}}"#, messages.join(","));
    let request = MessagesRequest::parse(body.as_bytes()).unwrap();
    next_call(&DemoConversation::read(&request), &request)
}

/// A comparable form of a call.
fn shown(call: &ModelCall) -> String {
    let actions = call.actions.iter().map(|action| match action {
        CallAction::Send(Part::Text(text)) => format!("text {text}"),
        CallAction::Send(Part::Thinking(text)) => format!("think {text}"),
        CallAction::Send(Part::ToolUse { name, input }) => format!("tool {name} {}", input.get()),
        CallAction::Wait(pause) => format!("wait {}", pause.as_millis()),
        CallAction::Chunk(characters) => format!("chunk {characters}"),
        CallAction::Fault { place, kind: FaultKind::Drop, .. } => format!("drop@{place}"),
        CallAction::Fault { place, kind: FaultKind::Error { status, .. }, .. } => {
            format!("error {}@{place}", status.as_u16())
        }
    });
    actions.chain([format!("{:?}", call.stop)]).collect::<Vec<_>>().join("; ")
}

#[test]
fn call_plays_to_next_tool_and_next_call_continues_after_it() {
    let script = "#demo\ntext a\nthink b\ntool A {}\nwait 5\ntext c\ntool B {\"x\":1}\ntext d";
    for (after, expected) in [
        (&[][..], "text a; think b; tool A {}; ToolUse"),
        (&[TOOL, RESULT], "wait 5; text c; tool B {\"x\":1}; ToolUse"),
        (&[TOOL, RESULT, TOOL, RESULT], "text d; EndTurn"),
        (&[TWO_TOOLS, RESULT], "text d; EndTurn"),
        (&[TOOL, RESULT, TOOL, RESULT, TEXT, WAKE], "text The demo script ends here.; EndTurn"),
        // A response whose tool call was lost is played again.
        (&[TEXT, WAKE], "text a; think b; tool A {}; ToolUse"),
    ] {
        assert_eq!(shown(&plan(script, after)), expected, "{after:?}");
    }
}

#[test]
fn plan_file_is_filled_into_tool_input() {
    let script = r##"#demo
        tool A {}
        tool Write {"file_path":"{plan-file}"}"##;
    let named =
        r###"{"role":"system","content":"## Plan File Info:\nCreate your plan at /a \"b\"/p.md now."}"###;
    for (after, expected) in [
        (&[TOOL, RESULT, named][..], r#"tool Write {"file_path":"/a \"b\"/p.md"}; ToolUse"#),
        (&[TOOL, RESULT], r#"tool Write {"file_path":"{plan-file}"}; ToolUse"#),
    ] {
        assert_eq!(shown(&plan(script, after)), expected, "{after:?}");
    }
}

#[test]
fn parallel_tools_are_in_one_message() {
    let script = "#demo\ntool A {}\n+tool B {}\nwait 1\n+tool C {}\nwait 2\ntool D {}\ntext z";
    for (after, expected) in [
        (&[][..], "tool A {}; tool B {}; wait 1; tool C {}; ToolUse"),
        (&[TWO_TOOLS, RESULT], "wait 1; tool C {}; ToolUse"),
        (&[TWO_TOOLS, RESULT, TOOL, RESULT], "wait 2; tool D {}; ToolUse"),
    ] {
        assert_eq!(shown(&plan(script, after)), expected, "{after:?}");
    }
}

#[test]
fn end_stops_response_and_next_call_continues_after_it() {
    let script = "#demo\ntext a\nend\ntext b\nend\ntool A {}";
    for (after, expected) in [
        (&[][..], "text a; EndTurn"),
        (&[TEXT, WAKE], "text b; EndTurn"),
        (&[TEXT, WAKE, TEXT, WAKE], "tool A {}; ToolUse"),
        (&[TEXT, WAKE, TEXT, WAKE, TOOL, RESULT], "text The demo script ends here.; EndTurn"),
    ] {
        assert_eq!(shown(&plan(script, after)), expected, "{after:?}");
    }
}

#[test]
fn chunk_size_applies_to_later_calls() {
    let script = "#demo\nchunk 3\ntool A {}\ntext b\nchunk 5\ntext c";
    assert_eq!(plan(script, &[]).chunk, DEFAULT_CHUNK);
    let later = plan(script, &[TOOL, RESULT]);
    assert_eq!((later.chunk, shown(&later).as_str()), (3, "text b; chunk 5; text c; EndTurn"));
}

#[test]
fn faults_keep_their_script_position() {
    let script = "#demo\nerror 529\ntool A {}\nerror 500\ndrop\ntext b";
    assert_eq!(shown(&plan(script, &[])), "error 529@0; tool A {}; ToolUse");
    assert_eq!(shown(&plan(script, &[TOOL, RESULT])), "error 500@2; drop@3; text b; EndTurn");
}

#[test]
fn echo_responds_with_received_conversation() {
    assert_eq!(
        shown(&plan("#demo\necho", &[WAKE])),
        "text user: #demo\necho\nuser: <system-reminder>go on; EndTurn"
    );
}

#[test]
fn other_user_text_ends_script() {
    for after in [&[PLAIN][..], &[TOOL, RESULT, PLAIN], &[TEXT, PLAIN, WAKE]] {
        let call = plan("#demo\ntext a\ntool A {}\ntext b", after);
        assert_eq!(shown(&call), format!("text {}; EndTurn", words::WELCOME), "{after:?}");
    }
}

#[test]
fn invalid_line_is_reported_before_any_step_is_played() {
    let response = shown(&plan("#demo\ntext a\ntool A {}\njump", &[]));
    assert!(
        response.starts_with("text Line 4 of") && response.contains("jump") && response.ends_with("EndTurn"),
        "{response}"
    );
}

#[test]
fn call_without_visible_content_reports_end_of_script() {
    let over = "text The demo script ends here.; EndTurn";
    for (script, after, expected) in [
        ("#demo", &[][..], over.to_owned()),
        ("#demo\ntool A {}", &[TOOL, RESULT], over.to_owned()),
        ("#demo\nthink a", &[], format!("think a; {over}")),
        ("#demo\ndrop\nend\ntext b", &[], format!("drop@0; {over}")),
    ] {
        assert_eq!(shown(&plan(script, after)), expected, "{script}");
    }
}
