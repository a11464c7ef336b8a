//! Describes tool calls for users: what a call does, did, or needs permission for.

use ahp_types::common::{JsonObject, StringOrMarkdown};
use serde_json::{Value, json};

use super::tool_table::{TargetStyle, ToolWords, status_verbs, words};
use super::tool_text::{code, escape, file_link, file_name, page_link, summary};

/// How a call is shown when it needs permission.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::claude) struct CallDescription {
    /// Name of the tool.
    pub(in crate::claude) display_name: String,
    /// What the call does.
    pub(in crate::claude) invocation: StringOrMarkdown,
    /// The command, pattern or page, or all of the input as JSON.
    pub(in crate::claude) tool_input: String,
    /// Title of the confirmation.
    pub(in crate::claude) question: String,
    /// The command or path, on one line.
    pub(in crate::claude) target: String,
}

/// The words for one call.
pub(super) struct CallWords {
    /// Name of the tool.
    pub(super) title: String,
    verbs: [&'static str; 3],
    /// What the verb refers to, as Markdown.
    object: String,
    /// Whether the object contains markup.
    is_markdown: bool,
    /// The target as plain text; for a file its path.
    target: String,
    /// The target as it is named in a question.
    name: String,
    question: Option<&'static str>,
}

/// A tool of an MCP server: the server's name and the tool's.
pub(super) fn mcp_names(name: &str) -> Option<(&str, &str)> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty() && !tool.is_empty()).then_some((server, tool))
}

/// The name of a tool for users.
pub(super) fn title(name: &str) -> String {
    let words = words(name);
    match mcp_names(name) {
        Some((server, tool)) => format!("{server}: {tool}"),
        None if words.title.is_empty() => name.to_owned(),
        None => words.title.to_owned(),
    }
}

/// The metadata of a call: VS Code's hint, and the names of an MCP tool.
pub(super) fn meta(name: &str) -> JsonObject {
    let mut meta = JsonObject::new();
    if let Some(kind) = words(name).kind {
        meta.insert("toolKind".to_owned(), json!(kind));
    }
    if let Some((server, tool)) = mcp_names(name) {
        meta.insert("mcpServerName".to_owned(), json!(server));
        meta.insert("mcpToolName".to_owned(), json!(tool));
    }
    meta
}

impl CallWords {
    /// The words for a call with this input.
    pub(super) fn of(name: &str, input: &Value) -> Self {
        let words = words(name);
        let title = title(name);
        if let Some((server, tool)) = mcp_names(name) {
            let name = format!("{tool} of {server}");
            let object = format!("{} of {}", code(tool), escape(server));
            return Self::new(title, words, object, name.clone(), name);
        }
        if words.title.is_empty() {
            return Self::new(title, words, code(&summary(name)), name.to_owned(), summary(name));
        }
        let target = words.fields.iter().find_map(|field| target_text(input.get(field)?));
        let Some(target) = target.filter(|target| !target.trim().is_empty()) else {
            return Self { is_markdown: false, ..Self::without_target(title, words) };
        };
        let short = summary(&target);
        let (object, name) = match words.style {
            TargetStyle::File => (file_link(&target), file_name(&target)),
            TargetStyle::Code => (code(&short), short.clone()),
            TargetStyle::Page => (page_link(&target), short.clone()),
            TargetStyle::Words => (escape(&short), short.clone()),
        };
        let mut call = Self::new(title, words, object, short, name);
        if let Some(verbs) = input.get("status").and_then(Value::as_str).and_then(status_verbs)
            && words.fields == ["taskId"]
        {
            call.verbs = verbs;
        }
        call
    }

    fn new(title: String, words: &ToolWords, object: String, target: String, name: String) -> Self {
        let (verbs, question) = (words.verbs, words.question);
        Self { title, verbs, object, is_markdown: true, target, name, question }
    }

    fn without_target(title: String, words: &ToolWords) -> Self {
        let object = words.object.to_owned();
        Self::new(title, words, object.clone(), object.clone(), object)
    }

    /// What the call does.
    pub(super) fn invocation(&self) -> StringOrMarkdown {
        let [present, _, _] = self.verbs;
        self.message(self.phrase(present))
    }

    /// What the call did.
    pub(super) fn past_tense(&self) -> StringOrMarkdown {
        let [_, past, _] = self.verbs;
        self.message(self.phrase(past))
    }

    /// A message about a call whose command continues in the background.
    pub(super) fn in_background(&self) -> StringOrMarkdown {
        self.message(format!("Started in the background: {}", self.object))
    }

    /// A message about a call that did not succeed.
    pub(super) fn failed(&self) -> StringOrMarkdown {
        self.message(format!("Failed to {}", self.infinitive()))
    }

    /// A message about a call that was stopped.
    pub(super) fn stopped(&self) -> StringOrMarkdown {
        self.message(format!("Stopped: {}", self.infinitive()))
    }

    /// A message about a call that was denied, with the layer or rule that denied it.
    pub(super) fn denied(&self, by: &str) -> StringOrMarkdown {
        let markdown = format!("Denied: {} ({})", self.infinitive(), escape(by));
        StringOrMarkdown::Markdown { markdown }
    }

    /// A message in present tense with a note after it.
    pub(super) fn progress(&self, note: &str) -> StringOrMarkdown {
        let [present, _, _] = self.verbs;
        self.message(format!("{}{note}", self.phrase(present)))
    }

    fn infinitive(&self) -> String {
        let [_, _, infinitive] = self.verbs;
        self.phrase(infinitive)
    }

    fn phrase(&self, verb: &str) -> String {
        format!("{verb} {}", self.object).trim_end().to_owned()
    }

    fn message(&self, text: String) -> StringOrMarkdown {
        if self.is_markdown { StringOrMarkdown::Markdown { markdown: text } } else { text.into() }
    }

    fn question(&self) -> String {
        if let Some(question) = self.question {
            return question.to_owned();
        }
        let [_, _, verb] = self.verbs;
        let mut letters = verb.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        let verb: String = first.into_iter().chain(letters).collect();
        format!("{} {}?", verb, self.name)
    }
}

/// Describes a call.
pub(super) fn describe(name: &str, input: &Value) -> CallDescription {
    let words = CallWords::of(name, input);
    CallDescription {
        invocation: words.invocation(),
        tool_input: shown_input(name, input),
        question: words.question(),
        target: words.target,
        display_name: words.title,
    }
}

/// The input to display: one field of it or the JSON.
pub(super) fn shown_input(name: &str, input: &Value) -> String {
    let field = words(name).shown_field.and_then(|field| input.get(field)?.as_str());
    match field {
        Some(field) => field.to_owned(),
        None => serde_json::to_string_pretty(input).unwrap_or_default(),
    }
}

/// The text of an input field. Of several questions, the first one.
fn target_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(items) => Some(items.first()?.get("question")?.as_str()?.to_owned()),
        Value::Object(_) | Value::Bool(_) | Value::Null => None,
    }
}
