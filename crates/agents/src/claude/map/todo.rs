//! The to-do list of a conversation, derived from the results of the tools that change it.
//!
//! Only successful results of the main thread count. The list survives turns; it starts empty
//! with every runtime.

use innkeeper_core::agent::{TodoItem, TodoList, TodoStatus};
use serde_json::{Value, json};

/// Most items of a list.
const MAX_ITEMS: usize = 200;

/// Longest text of an item, in characters.
const TEXT_LENGTH: usize = 300;

/// The list, with the runtime's ids of its items.
#[derive(Debug, Default)]
pub(super) struct TodoTracker {
    items: Vec<TrackedTodo>,
}

#[derive(Clone, Debug, PartialEq)]
struct TrackedTodo {
    /// The runtime's id; `TodoWrite` has none.
    id: Option<String>,
    text: String,
    status: TodoStatus,
}

impl TodoTracker {
    /// Applies the result of a call. Returns whether the call concerns the list.
    pub(super) fn apply(&mut self, tool: &str, input: &Value, result: Option<&Value>) -> bool {
        let field = |name: &str| result.and_then(|result| result.get(name));
        match tool {
            "TodoWrite" => {
                let todos = field("newTodos").or_else(|| input.get("todos"));
                self.replace(todos, "content");
            }
            "TaskList" => self.replace(field("tasks"), "subject"),
            "TaskCreate" => {
                let task = field("task");
                let id = task.and_then(|task| id(task.get("id")?));
                let subject = task.and_then(|task| task.get("subject")).or_else(|| input.get("subject"));
                if let (Some(id), Some(subject)) = (id, subject.and_then(Value::as_str)) {
                    self.items.retain(|item| item.id.as_ref() != Some(&id));
                    self.push(TrackedTodo {
                        id: Some(id),
                        text: shorten(subject),
                        status: TodoStatus::Pending,
                    });
                }
            }
            "TaskUpdate" => self.update(input),
            _ => return false,
        }
        true
    }

    /// The list for the session.
    pub(super) fn list(&self) -> TodoList {
        let items = self.items.iter();
        let items = items.map(|item| TodoItem { text: item.text.clone(), status: item.status });
        TodoList { items: items.collect() }
    }

    /// The list for the metadata of a tool call.
    pub(super) fn meta(&self) -> Value {
        let items = self.items.iter().map(|item| {
            let mut entry = json!({"text": item.text, "status": status_name(item.status)});
            if let (Some(id), Some(fields)) = (&item.id, entry.as_object_mut()) {
                fields.insert("id".to_owned(), json!(id));
            }
            entry
        });
        Value::Array(items.collect())
    }

    /// Replaces the list, unless the result has none.
    fn replace(&mut self, todos: Option<&Value>, text_field: &str) {
        let Some(todos) = todos.and_then(Value::as_array) else { return };
        self.items.clear();
        for todo in todos {
            let Some(text) = todo.get(text_field).and_then(Value::as_str) else { continue };
            let status = todo.get("status").and_then(Value::as_str).and_then(status_of);
            let status = status.unwrap_or(TodoStatus::Pending);
            self.push(TrackedTodo { id: todo.get("id").and_then(id), text: shorten(text), status });
        }
    }

    fn update(&mut self, input: &Value) {
        let Some(id) = input.get("taskId").and_then(id) else { return };
        let status = input.get("status").and_then(Value::as_str);
        if status == Some("deleted") {
            self.items.retain(|item| item.id.as_ref() != Some(&id));
        }
        // Items of an earlier runtime are unknown until the whole list is read.
        let Some(item) = self.items.iter_mut().find(|item| item.id.as_ref() == Some(&id)) else { return };
        if let Some(status) = status.and_then(status_of) {
            item.status = status;
        }
        if let Some(subject) = input.get("subject").and_then(Value::as_str) {
            item.text = shorten(subject);
        }
    }

    fn push(&mut self, item: TrackedTodo) {
        if self.items.len() < MAX_ITEMS {
            self.items.push(item);
        }
    }
}

fn id(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.chars().take(TEXT_LENGTH).collect()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(TEXT_LENGTH).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn status_of(name: &str) -> Option<TodoStatus> {
    match name {
        "pending" => Some(TodoStatus::Pending),
        "in_progress" => Some(TodoStatus::InProgress),
        "completed" => Some(TodoStatus::Completed),
        _ => None,
    }
}

fn status_name(status: TodoStatus) -> &'static str {
    match status {
        TodoStatus::Pending => "pending",
        TodoStatus::InProgress => "in_progress",
        TodoStatus::Completed => "completed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_follows_results_of_both_kinds_of_tools() {
        let mut todo = TodoTracker::default();
        assert!(!todo.apply("Bash", &json!({}), None));
        let input = json!({"todos": [{"content": "a", "status": "completed"}, {"content": "b"}, {"x": 1}]});
        assert!(todo.apply("TodoWrite", &input, None));
        assert_eq!(
            todo.meta(),
            json!([{"text": "a", "status": "completed"}, {"text": "b", "status": "pending"}])
        );

        let mut todo = TodoTracker::default();
        for number in 1..4 {
            let task = json!({"task": {"id": number.to_string(), "subject": format!("step {number}")}});
            todo.apply("TaskCreate", &json!({}), Some(&task));
        }
        todo.apply("TaskUpdate", &json!({"taskId": "1", "status": "completed"}), None);
        todo.apply("TaskUpdate", &json!({"taskId": 2, "status": "in_progress", "subject": "other"}), None);
        todo.apply("TaskUpdate", &json!({"taskId": "3", "status": "deleted"}), None);
        todo.apply("TaskUpdate", &json!({"taskId": "9", "status": "completed"}), None);
        let expected = json!([
            {"id": "1", "text": "step 1", "status": "completed"},
            {"id": "2", "text": "other", "status": "in_progress"},
        ]);
        assert_eq!(todo.meta(), expected);
        let all = json!({"tasks": [{"id": "7", "subject": "seen", "status": "pending"}]});
        todo.apply("TaskList", &json!({}), Some(&all));
        assert_eq!(todo.list().items, [TodoItem { text: "seen".to_owned(), status: TodoStatus::Pending }]);
    }

    #[test]
    fn list_and_texts_are_bounded() {
        let mut todo = TodoTracker::default();
        let todos: Vec<Value> = (0..500).map(|_| json!({"content": "é".repeat(9000)})).collect();
        todo.apply("TodoWrite", &json!({ "todos": todos }), None);
        assert_eq!(todo.items.len(), MAX_ITEMS);
        assert_eq!(todo.items[0].text.chars().count(), TEXT_LENGTH + 1);
    }
}
