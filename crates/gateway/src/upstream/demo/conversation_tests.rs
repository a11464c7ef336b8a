use super::*;

fn request(messages: &str) -> MessagesRequest {
    MessagesRequest::parse(format!(r#"{{"model":"claude-x","messages":{messages}}}"#).as_bytes()).unwrap()
}

#[test]
fn prompt_is_last_user_text() {
    for (messages, expected) in [
        (r##"[{"role":"user","content":"#demo\nend"}]"##, DemoPrompt::Script("#demo\nend")),
        (r#"[{"role":"user","content":" Tour\n"}]"#, DemoPrompt::Tour),
        (r#"[{"role":"user","content":"tour guide"}]"#, DemoPrompt::Plain),
        (
            r#"[{"role":"user","content":"TEXT ONLY.\\n\\nYour task is to create a detailed summary of the conversation so far"}]"#,
            DemoPrompt::Summary,
        ),
        (r#"[{"role":"assistant","content":"tour"}]"#, DemoPrompt::Plain),
        // Blocks added by the runtime are ignored, before, after or as a system message.
        (
            r#"[{"role":"user","content":[{"type":"text","text":"<system-reminder>\nhi"},{"type":"text","text":"tour"}]}]"#,
            DemoPrompt::Tour,
        ),
        (
            r#"[{"role":"user","content":[{"type":"text","text":"tour"},{"type":"text","text":"<local-command-stdout>"}]},
               {"role":"system","content":"Today"},
               {"role":"user","content":[{"type":"text","text":"\n<command-name>/x</command-name>"},{"type":"text","text":" "}]}]"#,
            DemoPrompt::Tour,
        ),
        (
            r#"[{"role":"user","content":"tour"},
               {"role":"user","content":"<task-notification>\n<summary>Agent finished</summary>"}]"#,
            DemoPrompt::Tour,
        ),
        (
            r#"[{"role":"user","content":"tour"},{"role":"user","content":"Tool loaded.\n[id:1]\n"}]"#,
            DemoPrompt::Tour,
        ),
        (
            r#"[{"role":"user","content":"tour"},{"role":"user","content":"Tool loaded. Why?"}]"#,
            DemoPrompt::Plain,
        ),
        (r#"[{"role":"user","content":"what does <summary> mean in HTML?"}]"#, DemoPrompt::Plain),
        // Other user text ends the tour, in the same message or a later one.
        (
            r#"[{"role":"user","content":[{"type":"text","text":"tour"},{"type":"text","text":"no"}]}]"#,
            DemoPrompt::Plain,
        ),
        (
            r#"[{"role":"user","content":"tour"},{"role":"assistant","content":"x"},{"role":"user","content":"thanks"}]"#,
            DemoPrompt::Plain,
        ),
        // Tool results are not text.
        (
            r#"[{"role":"user","content":"tour"},
               {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"Read","input":{}}]},
               {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"text"}]}]"#,
            DemoPrompt::Tour,
        ),
    ] {
        assert_eq!(DemoConversation::read(&request(messages)).prompt, expected, "{messages}");
    }
}

#[test]
fn responses_since_prompt_are_counted_by_tools() {
    let request = request(
        r#"[{"role":"assistant","content":[{"type":"tool_use","id":"0","name":"Old","input":{}}]},
            {"role":"user","content":"tour"},
            {"role":"assistant","content":"I look."},
            {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"Read","input":{}}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"2","name":"Bash","input":{}}]},
            {"role":"user","content":[
                {"type":"tool_result","tool_use_id":"2","is_error":true,"content":[{"type":"text","text":"no"}]},
                {"type":"tool_result","tool_use_id":"1","content":"fine"}]},
            {"role":"assistant","content":"Done."},
            {"role":"user","content":"<system-reminder>wake up"}]"#,
    );
    let conversation = DemoConversation::read(&request);
    assert_eq!(conversation.responses(), [PriorResponse::Tools(2), PriorResponse::Text]);
    let call = |name: &str, failure: Option<&str>, result: &str| ToolCall {
        name: name.into(),
        failure: failure.map(str::to_owned),
        result: result.into(),
    };
    assert_eq!(conversation.tool_calls(), [call("Read", None, "fine"), call("Bash", Some("no"), "")]);
}

#[test]
fn working_directory_is_read_from_prompt_or_system_message() {
    let body = |system: &str, message: &str| {
        format!(
            r#"{{"model":"claude-x","system":{system},"messages":[{{"role":"user","content":"tour"}}{message}]}}"#
        )
    };
    let text = r#""- Primary working directory: /a b/c \n - Platform: x""#;
    for (body, expected) in [
        (body(&format!(r#"[{{"type":"text","text":{text}}}]"#), ""), Some("/a b/c")),
        (body(r#""prompt""#, &format!(r#",{{"role":"system","content":{text}}}"#)), Some("/a b/c")),
        (body(r#""prompt""#, &format!(r#",{{"role":"user","content":{text}}}"#)), None),
        (body("7", ""), None),
    ] {
        let request = MessagesRequest::parse(body.as_bytes()).unwrap();
        let found = DemoConversation::read(&request).working_directory(&request);
        assert_eq!(found.as_deref(), expected, "{body}");
    }
}

#[test]
fn plan_file_is_the_one_named_last() {
    let info =
        |sentence: &str| format!(r"Plan mode is active.\n\n## Plan File Info:\n{sentence}\nMore at x.md");
    let new = info(
        "No plan file exists yet. You should create your plan at /c d/plans/new.md using the Write tool.",
    );
    let old = info("A plan file already exists at /plans/old.md. You can read it.");
    for (messages, expected) in [
        (format!(r#"{{"role":"system","content":"{new}"}}"#), Some("/c d/plans/new.md")),
        (
            format!(
                r#"{{"role":"system","content":"{new}"}},
                   {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"1","content":"Entered.\n{old}"}}]}}"#
            ),
            Some("/plans/old.md"),
        ),
        (format!(r#"{{"role":"assistant","content":"{new}"}}"#), None),
        (format!(r#"{{"role":"user","content":"{}"}}"#, info("nothing")), None),
    ] {
        let request = request(&format!("[{messages}]"));
        assert_eq!(DemoConversation::read(&request).plan_file().as_deref(), expected, "{messages}");
    }
}

#[test]
fn key_differs_between_conversations_but_not_attempts() {
    let key = |session: &str, messages: &str| DemoConversation::read(&request(messages)).key(session);
    let plain = key("a", r#"[{"role":"user","content":"hi"}]"#);
    for same in [
        r#"[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{}}]}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"<system-reminder>9 tokens left"},{"type":"text","text":"hi"}]}]"#,
        r#"[{"role":"user","content":"hi"},{"role":"system","content":"later"}]"#,
    ] {
        assert_eq!(key("a", same), plain, "{same}");
    }
    for other in [
        r#"[{"role":"user","content":"ho"}]"#,
        r#"[{"role":"assistant","content":"hi"}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}]"#,
        r#"[{"role":"user","content":"hi"},{"role":"user","content":""}]"#,
    ] {
        assert_ne!(key("a", other), plain, "{other}");
    }
    assert_ne!(key("b", r#"[{"role":"user","content":"hi"}]"#), plain);
}

#[test]
fn transcript_shows_every_block_with_its_role() {
    let request = request(
        r#"[{"role":"user","content":[{"type":"text","text":"<system-reminder>r"},{"type":"image"},{"type":"text","text":"hi"}]},
            {"role":"system","content":"s"},
            {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
                {"type":"tool_use","id":"1","name":"Read","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"ok"},
                {"type":"tool_result","tool_use_id":"2","is_error":true,"content":"bad"}]}]"#,
    );
    let expected = "user: <system-reminder>r\nuser: [image]\nuser: hi\nsystem: s\nassistant: [thinking] hm\n\
                    assistant: [tool_use Read] {\"a\":1}\nuser: [tool_result] ok\nuser: [tool_result, error] bad";
    assert_eq!(DemoConversation::read(&request).transcript(), expected);
}

#[test]
fn token_estimate_grows_with_text() {
    let short = input_tokens(&request(r#"[{"role":"user","content":"hi"}]"#));
    let long = input_tokens(&request(&format!(r#"[{{"role":"user","content":"{}"}}]"#, "a".repeat(400))));
    assert_eq!((short, long), (1, 100));
}
