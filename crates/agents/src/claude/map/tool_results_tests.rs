use innkeeper_claude::wire::Wire as _;

use super::*;

fn shown_as(
    tool: &str,
    content: &Value,
    is_error: bool,
    structured: Option<Value>,
) -> (Value, Option<Value>) {
    let block = json!({"type": "tool_result", "tool_use_id": "k", "content": content, "is_error": is_error});
    let block = ToolResultBlock::from_json(&block.to_string()).unwrap();
    let shown = shown(tool, &block, structured.as_ref());
    (serde_json::to_value(shown.content).unwrap(), shown.structured.map(Value::Object))
}

fn text_of(text: &str) -> String {
    let (content, _) = shown_as("Bash", &json!(text), false, None);
    content[0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn result_keeps_text_images_documents_and_resources() {
    let content = json!([
        {"type": "text", "text": "two files"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://e.org/i.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "resource", "resource": {"uri": "a:1", "mimeType": "text/css", "blob": "CCCC"}},
        {"type": "resource", "resource": {"uri": "a:2", "text": "body"}},
        {"type": "resource_link", "uri": "a:3", "mimeType": "text/html"},
        {"type": "tool_reference", "tool_name": "TaskCreate"},
        {"type": "from_the_future", "x": 1},
        {"type": "image", "source": {"type": "unknown"}},
    ]);
    let (content, _) = shown_as("mcp__a__b", &content, false, None);
    let expected = json!([
        {"type": "text", "text": "two files"},
        {"type": "embeddedResource", "data": "AAAA", "contentType": "image/png"},
        {"type": "resource", "uri": "https://e.org/i.png"},
        {"type": "embeddedResource", "data": "BBBB", "contentType": "application/pdf"},
        {"type": "text", "text": "words"},
        {"type": "embeddedResource", "data": "CCCC", "contentType": "text/css"},
        {"type": "text", "text": "body"},
        {"type": "resource", "uri": "a:3", "contentType": "text/html"},
        {"type": "text", "text": "TaskCreate"},
        {"type": "text", "text": "{\n  \"type\": \"from_the_future\",\n  \"x\": 1\n}"},
        {"type": "text", "text": "{\n  \"source\": {\n    \"type\": \"unknown\"\n  },\n  \"type\": \"image\"\n}"},
    ]);
    assert_eq!(content, expected);
}

#[test]
fn pdf_of_older_runtime_is_embedded_once() {
    let pdf = json!({"type": "pdf", "file": {"filePath": "/a.pdf", "base64": "AAAA"}});
    let (content, structured) = shown_as("Read", &json!("PDF file read"), false, Some(pdf.clone()));
    assert_eq!(
        content[1],
        json!({"type": "embeddedResource", "data": "AAAA", "contentType": "application/pdf"})
    );
    assert_eq!(structured, Some(json!({"type": "pdf", "file": {"filePath": "/a.pdf"}})));
    let inline =
        json!([{"type": "document", "source": {"type": "base64", "media_type": "a/b", "data": "B"}}]);
    assert_eq!(shown_as("Read", &inline, false, Some(pdf)).0.as_array().unwrap().len(), 1);
}

#[test]
fn markup_for_the_model_is_removed() {
    let reminder = "<system-reminder>be careful</system-reminder>";
    assert_eq!(text_of(&format!("text\n\n{reminder}\n{reminder}\n")), "text");
    let quoted = format!("a {reminder} in the middle");
    assert_eq!(text_of(&quoted), quoted, "a file may contain the same words");
    assert_eq!(text_of("<tool_use_error>No such tool</tool_use_error>"), "No such tool");
    assert_eq!(text_of("<persisted-output>\nOutput too large\n</persisted-output>"), "Output too large");
    assert_eq!(text_of(reminder), "");
    assert_eq!(text_of("Exit code 137\n[Request interrupted by user for tool use]"), "Exit code 137");
}

#[test]
fn users_see_the_output_itself_instead_of_the_text_for_the_model() {
    let output = json!({"stdout": "all of it", "stderr": "and this"});
    let (content, _) = shown_as("Bash", &json!("<persisted-output>\nstart…"), false, Some(output));
    assert_eq!(content, json!([{"type": "text", "text": "all of it\nand this"}]));
    let hint = json!("it failed\n\nThis tool's schema was not in your prompt");
    let (content, _) = shown_as("mcp__a__b", &hint, true, Some(json!("Error: it failed")));
    assert_eq!(content, json!([{"type": "text", "text": "it failed"}]));
    let note = json!({"type": "text", "text": "<tools-used-before-summary>Bash</tools-used-before-summary>"});
    let report = json!({"status": "completed", "content": [note, {"type": "text", "text": "Found it."}]});
    let (content, structured) = shown_as("Task", &json!("[Subagent hand-back] …"), false, Some(report));
    assert_eq!(content, json!([{"type": "text", "text": "Found it."}]));
    assert_eq!(structured, Some(json!({"status": "completed"})));
    let launched = json!({"status": "async_launched", "agentId": "a"});
    let (content, _) = shown_as("Agent", &json!("internal metadata"), false, Some(launched));
    assert_eq!(content, json!([{"type": "text", "text": "The subagent works in the background."}]));
}

#[test]
fn structured_content_is_bounded() {
    let large = json!({"stdout": "é".repeat(5000), "list": vec![1; 500], "base64": "x"});
    let (_, structured) = shown_as("Bash", &json!("x"), false, Some(large));
    let structured = structured.unwrap();
    assert_eq!(structured["stdout"].as_str().unwrap().chars().count(), STRUCTURED_TEXT + 1);
    assert_eq!(structured["list"].as_array().unwrap().len(), STRUCTURED_ITEMS);
    assert!(structured.get("base64").is_none());
    let nested: Vec<Value> = (0..50).map(|_| json!({"text": "x".repeat(900)})).collect();
    assert_eq!(shown_as("Bash", &json!("x"), false, Some(json!({ "a": nested }))).1, None);
    let mcp = json!({"content": "{}", "structuredContent": {"sum": 5}});
    assert_eq!(shown_as("mcp__a__b", &json!("x"), false, Some(mcp)).1, Some(json!({"sum": 5})));
    assert_eq!(shown_as("Bash", &json!("x"), false, Some(json!(["not an object"]))).1, None);
}

#[test]
fn results_of_server_tools_are_listed() {
    let found = json!([{"type": "web_search_result", "title": "E", "url": "https://e.org/", "encrypted_content": "z"}]);
    assert_eq!(shown_server_result(&found).text, "E: https://e.org/");
    let failed = json!({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"});
    assert_eq!(shown_server_result(&failed).text, "max_uses_exceeded");
    assert_eq!(shown_server_result(&json!([])).content, []);
}
