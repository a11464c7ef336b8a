//! A chat's to-do list, in the bounded form that the session keeps and publishes.
//!
//! The published form is `{items: [{text, status}], done, total, omitted?}`: `done` and
//! `total` count all items, `omitted` those that were left out to save space.

use serde_json::{Value, json};

use crate::agent::{TodoItem, TodoList, TodoStatus};

/// Most items that are kept; more would not fit in the session's `_meta`.
const MAX_ITEMS: usize = 100;

/// Longest text of a kept item, in characters.
const MAX_TEXT: usize = 500;

/// The lengths to which texts are shortened, in characters, until the lists fit.
const TEXT_LENGTHS: [usize; 4] = [200, 100, 50, 25];

/// Upper bound of an item's encoded size without its text.
const ITEM_OVERHEAD: usize = 40;

/// Upper bound of a list's encoded size without its key and items.
const LIST_OVERHEAD: usize = 100;

/// A chat's to-do list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChatTodo {
    /// Number of finished items, including those that are left out.
    done: usize,
    /// Number of items, including those that are left out.
    total: usize,
    items: Vec<TodoItem>,
}

impl From<TodoList> for ChatTodo {
    fn from(TodoList { items }: TodoList) -> Self {
        let done = items.iter().filter(|item| item.status == TodoStatus::Completed).count();
        let mut todo = Self { done, total: items.len(), items };
        let mut excess = todo.items.len().saturating_sub(MAX_ITEMS);
        todo.items.retain(|item| {
            let is_dropped = excess > 0 && item.status == TodoStatus::Completed;
            excess -= usize::from(is_dropped);
            !is_dropped
        });
        todo.items.truncate(MAX_ITEMS);
        todo.shorten(MAX_TEXT);
        todo
    }
}

impl ChatTodo {
    /// Whether the agent has no list.
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Reads a published list.
    pub(super) fn from_published(list: &Value) -> Option<Self> {
        let count = |key: &str| usize::try_from(list.get(key)?.as_u64()?).ok();
        let (done, total) = (count("done")?, count("total")?);
        let items = list.get("items")?.as_array()?.iter().filter_map(|item| {
            let text = item.get("text")?.as_str()?.to_owned();
            Some(TodoItem { text, status: status_from(item.get("status")?.as_str()?)? })
        });
        let items: Vec<TodoItem> = items.collect();
        (items.len() <= total && done <= total).then_some(Self { done, total, items })
    }

    fn published(&self) -> Value {
        let items: Vec<Value> = self
            .items
            .iter()
            .map(|item| json!({"text": item.text, "status": status_name(item.status)}))
            .collect();
        let mut list = json!({"items": items, "done": self.done, "total": self.total});
        let omitted = self.total.saturating_sub(self.items.len());
        if let Some(list) = list.as_object_mut().filter(|_| omitted > 0) {
            list.insert("omitted".to_owned(), json!(omitted));
        }
        list
    }

    fn shorten(&mut self, length: usize) {
        for item in &mut self.items {
            if item.text.chars().nth(length).is_some() {
                item.text = item.text.chars().take(length.saturating_sub(1)).chain(['…']).collect();
            }
        }
    }

    /// Drops the first finished item. Returns its size.
    fn drop_finished(&mut self) -> Option<usize> {
        let first = self.items.iter().position(|item| item.status == TodoStatus::Completed)?;
        Some(item_size(&self.items.remove(first)))
    }
}

/// The lists of several chats, by chat, as a value that is encoded in at most `room` bytes.
/// If there is not enough room, texts are shortened, then finished items are left out, then
/// the last items of the longest lists, then the last lists.
pub(super) fn published_lists(lists: &[(&str, &ChatTodo)], room: usize) -> Option<Value> {
    let lists = lists.iter().filter(|(_, todo)| !todo.is_empty());
    let mut lists: Vec<(&str, ChatTodo)> = lists.map(|(chat, todo)| (*chat, (*todo).clone())).collect();
    let mut lengths = TEXT_LENGTHS.iter();
    let mut size = size_of(&lists);
    while size > room
        && let Some(length) = lengths.next()
    {
        lists.iter_mut().for_each(|(_, todo)| todo.shorten(*length));
        size = size_of(&lists);
    }
    while size > room
        && let Some(dropped) = lists.iter_mut().find_map(|(_, todo)| todo.drop_finished())
    {
        size = size.saturating_sub(dropped);
    }
    while size > room
        && let Some((_, longest)) = lists.iter_mut().max_by_key(|(_, todo)| todo.items.len())
        && let Some(last) = longest.items.pop()
    {
        size = size.saturating_sub(item_size(&last));
    }
    while size > room && lists.pop().is_some() {
        size = size_of(&lists);
    }
    let published = lists.iter().map(|(chat, todo)| ((*chat).to_owned(), todo.published()));
    (!lists.is_empty()).then(|| Value::Object(published.collect()))
}

/// The number of finished items and of all items in the published lists of all chats.
pub(super) fn progress(lists: &Value) -> Option<(usize, usize)> {
    let lists = lists.as_object()?.values().filter_map(ChatTodo::from_published);
    let (done, total) = lists.fold((0, 0), |(done, total), todo| (done + todo.done, total + todo.total));
    (total > 0).then_some((done, total))
}

/// An upper bound of the encoded size of the lists.
fn size_of(lists: &[(&str, ChatTodo)]) -> usize {
    let list_size = |(chat, todo): &(&str, ChatTodo)| {
        text_size(chat) + LIST_OVERHEAD + todo.items.iter().map(item_size).sum::<usize>()
    };
    lists.iter().map(list_size).sum()
}

fn item_size(item: &TodoItem) -> usize {
    text_size(&item.text) + ITEM_OVERHEAD
}

/// The size of a text in JSON, with its quotes.
fn text_size(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX / 1024, |encoded| encoded.len())
}

fn status_name(status: TodoStatus) -> &'static str {
    match status {
        TodoStatus::Pending => "pending",
        TodoStatus::InProgress => "in_progress",
        TodoStatus::Completed => "completed",
    }
}

fn status_from(name: &str) -> Option<TodoStatus> {
    match name {
        "pending" => Some(TodoStatus::Pending),
        "in_progress" => Some(TodoStatus::InProgress),
        "completed" => Some(TodoStatus::Completed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(text: &str, status: TodoStatus) -> TodoItem {
        TodoItem { text: text.to_owned(), status }
    }

    fn todo(items: Vec<TodoItem>) -> ChatTodo {
        ChatTodo::from(TodoList { items })
    }

    #[test]
    fn list_that_fits_is_published_completely() {
        use TodoStatus::{Completed, InProgress, Pending};
        let list = todo(vec![item("a", Completed), item("b", InProgress), item("c", Pending)]);
        let (none, items) = (ChatTodo::default(), ["completed", "in_progress", "pending"]);
        let published = published_lists(&[("x:/1", &list), ("x:/2", &none)], 4000).unwrap();
        let items: Vec<Value> = ["a", "b", "c"]
            .iter()
            .zip(items)
            .map(|(text, status)| json!({"text": text, "status": status}))
            .collect();
        assert_eq!(published, json!({"x:/1": {"items": items, "done": 1, "total": 3}}));
        assert_eq!(ChatTodo::from_published(&published["x:/1"]), Some(list));
        assert_eq!(progress(&published), Some((1, 3)));
        assert_eq!(published_lists(&[("x:/2", &none)], 4000), None);
    }

    #[test]
    fn texts_are_shortened_before_items_are_left_out() {
        use TodoStatus::{Completed, Pending};
        let long = "w".repeat(300);
        let list = todo((0..20).map(|at| item(&long, if at < 12 { Completed } else { Pending })).collect());
        let shown = |room: usize| {
            let published = published_lists(&[("x:/1", &list)], room).unwrap();
            let items = published["x:/1"]["items"].as_array().unwrap().clone();
            let pending = items.iter().filter(|item| item["status"] == "pending").count();
            assert_eq!((&published["x:/1"]["done"], &published["x:/1"]["total"]), (&json!(12), &json!(20)));
            let length = items.first().map_or(0, |item| item["text"].as_str().unwrap().chars().count());
            let omitted = published["x:/1"]["omitted"].as_u64().unwrap_or(0);
            assert_eq!(items.len() + usize::try_from(omitted).unwrap(), 20);
            (items.len(), pending, length)
        };
        assert_eq!(shown(8000), (20, 8, 300));
        assert_eq!(shown(5500), (20, 8, 200));
        assert_eq!(shown(1600), (20, 8, 25));
        assert_eq!(shown(900), (11, 8, 25), "finished items are left out first");
        assert_eq!(shown(400), (4, 4, 25));
        assert_eq!(shown(120), (0, 0, 0), "the counts stay");
        assert_eq!(published_lists(&[("x:/1", &list)], 50), None);
    }

    #[test]
    fn huge_list_is_bounded_when_it_is_received() {
        use TodoStatus::{Completed, Pending};
        let items =
            (0..100_000).map(|at| item(&"x".repeat(600), if at % 2 == 0 { Pending } else { Completed }));
        let list = todo(items.collect());
        assert_eq!((list.done, list.total, list.items.len()), (50_000, 100_000, MAX_ITEMS));
        assert!(list.items.iter().all(|item| item.text.chars().count() == MAX_TEXT));
        assert!(list.items.iter().all(|item| item.status == Pending), "finished items are dropped first");
    }

    #[test]
    fn malformed_published_lists_are_ignored() {
        for list in [
            json!(null),
            json!([]),
            json!({"items": [], "done": 1}),
            json!({"items": [], "done": 2, "total": 1}),
            json!({"items": [{"text": "a", "status": "pending"}], "done": 0, "total": 0}),
            json!({"items": [], "done": -1, "total": 0}),
        ] {
            assert_eq!(ChatTodo::from_published(&list), None, "{list}");
        }
        let unknown = json!({"items": [{"text": "a", "status": "later"}, 7], "done": 0, "total": 2});
        let kept = ChatTodo::from_published(&unknown).unwrap();
        assert_eq!((kept.total, kept.items.len()), (2, 0));
        assert_eq!(progress(&json!({"x:/1": 7})), None);
    }

    proptest! {
        #[test]
        fn published_lists_fit(
            lists in prop::collection::vec(
                ("[a-z:/\"]{1,60}", prop::collection::vec((any::<String>(), 0_u8..3), 0..40)), 0..8),
            room in 0_usize..5000,
        ) {
            let status = |at| [TodoStatus::Pending, TodoStatus::InProgress, TodoStatus::Completed][usize::from(at)];
            let lists: Vec<(String, ChatTodo)> = lists
                .into_iter()
                .map(|(chat, items)| {
                    (chat, todo(items.into_iter().map(|(text, at)| TodoItem { text, status: status(at) }).collect()))
                })
                .collect();
            let borrowed: Vec<(&str, &ChatTodo)> =
                lists.iter().map(|(chat, todo)| (chat.as_str(), todo)).collect();
            if let Some(published) = published_lists(&borrowed, room) {
                prop_assert!(published.to_string().len() <= room);
            }
        }
    }
}
