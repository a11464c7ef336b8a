//! The session's `_meta`: data for clients that the protocol does not define.
//!
//! `session/metaChanged` replaces the whole object, so only [`update`] composes it, from its
//! contributors. It is small, because it is part of every snapshot. Keys that do not belong
//! to a contributor are kept. The session's row in the list gets a still smaller object.
//!
//! To add a contributor, add its data to [`MetaSources`] and its key and value to
//! [`contributions`].

use std::collections::HashMap;

use ahp_types::actions::{SessionMetaChangedAction, StateAction};
use ahp_types::common::JsonObject;
use ahp_types::state::{SessionInputRequest, SessionState};
use serde_json::{Value, json};

use super::chat_todo::{self, ChatTodo};
use super::projection;
use crate::channel::ChannelUri;
use crate::projects::{GitReading, GitState};
use crate::usage::{self, ModelUse};

/// Most bytes of a session's `_meta`, in JSON.
const MAX_META: usize = 4096;

/// The key of the state of the git repository, in the session and in the row. VS Code reads it.
const GIT: &str = "git";

/// The key of the to-do lists: by chat in the session, only counts in the row.
const TODO: &str = "innkeeper.todo";

/// The key of the time since when the session waits for the user.
const WAITING_SINCE: &str = "innkeeper.waitingSince";

/// The data from which a session's `_meta` is composed.
#[derive(Debug)]
pub(super) struct MetaSources<'a> {
    /// The to-do lists, by chat.
    pub(super) todos: Vec<(&'a str, &'a ChatTodo)>,
    /// The repository of the session's first directory.
    pub(super) git: GitReading,
    /// What was used since the last update; it is added to the published usage.
    pub(super) used: ModelUse,
}

/// The value of a contributor that is encoded in at most this many bytes, if it has one.
type Contribution<'a> = Box<dyn Fn(usize) -> Option<Value> + 'a>;

/// The contributors, by key. Each takes the room that the ones before it have left.
fn contributions<'a>(
    published: Option<&'a JsonObject>,
    sources: &'a MetaSources<'a>,
) -> [(&'static str, Contribution<'a>); 4] {
    let used = published.map(ModelUse::from_meta).unwrap_or_default().plus(sources.used);
    let totals = (!used.is_empty()).then(|| json!(used.totals()));
    let credits = used.credits();
    let git = move |room| {
        let value = match &sources.git {
            // The session was loaded, or its directory was replaced.
            GitReading::Unknown => published?.get(GIT)?.clone(),
            GitReading::NoRepository => return None,
            GitReading::Known(state) => git_value(state),
        };
        Some(value).filter(|value| fits(value, room))
    };
    [
        // First, because each update adds to them; the lists are shortened to the remaining room.
        (usage::TOTALS, Box::new(move |room| totals.clone().filter(|totals| fits(totals, room)))),
        (usage::CREDITS, Box::new(move |room| credits.clone().filter(|credits| fits(credits, room)))),
        (GIT, Box::new(git)),
        (TODO, Box::new(|room| chat_todo::published_lists(&sources.todos, room))),
    ]
}

/// The state of a repository in the shape that VS Code reads. `worktree` is an addition.
fn git_value(state: &GitState) -> Value {
    let GitState { branch, upstream, incoming, outgoing, uncommitted, worktree } = state;
    let values = [
        ("branchName", branch.as_ref().map(|name| json!(name))),
        ("isDetachedHead", branch.is_none().then_some(json!(true))),
        ("upstreamBranchName", upstream.as_ref().map(|name| json!(name))),
        ("incomingChanges", incoming.map(|count| json!(count))),
        ("outgoingChanges", outgoing.map(|count| json!(count))),
        ("uncommittedChanges", Some(json!(uncommitted))),
        ("worktree", worktree.as_ref().map(|uri| json!(uri))),
    ];
    values
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect::<JsonObject>()
        .into()
}

/// The action that sets the session's `_meta`, if it differs.
pub(super) fn update(session: &SessionState, sources: &MetaSources<'_>) -> Option<StateAction> {
    let contributions = contributions(session.meta.as_ref(), sources);
    let mut meta = session.meta.clone().unwrap_or_default();
    meta.retain(|key, _| contributions.iter().all(|(own, _)| own != key));
    for (key, contribution) in contributions {
        // The key's quotes, a colon and a comma.
        let used = encoded_size(&meta) + key.len() + 4;
        if let Some(value) = contribution(MAX_META.saturating_sub(used)) {
            meta.insert(key.to_owned(), value);
        }
    }
    let meta = (!meta.is_empty()).then_some(meta);
    (meta != session.meta).then_some(StateAction::SessionMetaChanged(SessionMetaChangedAction { meta }))
}

/// A chat's to-do list in the session's `_meta`.
pub(super) fn todo_of(session: &SessionState, chat: &ChannelUri) -> ChatTodo {
    let lists = session.meta.as_ref().and_then(|meta| meta.get(TODO));
    let list = lists.and_then(|lists| lists.get(chat.as_str()));
    list.and_then(ChatTodo::from_published).unwrap_or_default()
}

/// The `_meta` of the session's row in the session list.
pub(super) fn of_row(session: &SessionState, waiting_since: Option<&str>) -> Option<JsonObject> {
    let git = session.meta.as_ref().and_then(|meta| meta.get(GIT)).cloned();
    let lists = session.meta.as_ref().and_then(|meta| meta.get(TODO));
    let todo = lists.and_then(chat_todo::progress).map(|(done, total)| json!({"done": done, "total": total}));
    let since = waiting_since.map(|since| json!(since));
    let values = [(GIT, git), (TODO, todo), (WAITING_SINCE, since)];
    let meta: JsonObject =
        values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    (!meta.is_empty()).then_some(meta)
}

/// The times since when the requests of a session wait for the user. They are not stored: a
/// request does not outlive the host.
#[derive(Debug, Default)]
pub(super) struct WaitingTimes {
    /// By the id of the request.
    since: HashMap<String, String>,
}

impl WaitingTimes {
    /// Adds new requests of the session and removes those that are answered. Returns the
    /// earliest time.
    pub(super) fn update(&mut self, session: &SessionState, now: &str) -> Option<&str> {
        let requests = session.input_needed.iter().flatten().filter(|request| waits_for_user(request));
        let waiting: Vec<&str> = requests.filter_map(projection::request_id).collect();
        self.since.retain(|id, _| waiting.contains(&id.as_str()));
        for id in waiting {
            if !self.since.contains_key(id) {
                self.since.insert(id.to_owned(), now.to_owned());
            }
        }
        // All times have the same format, so their order is that of the texts.
        self.since.values().min().map(String::as_str)
    }
}

/// Whether a user, not a client's tool, has to answer a request.
fn waits_for_user(request: &SessionInputRequest) -> bool {
    match request {
        SessionInputRequest::ChatInput(_)
        | SessionInputRequest::ToolConfirmation(_)
        | SessionInputRequest::ToolAuthentication(_) => true,
        SessionInputRequest::ToolClientExecution(_) | SessionInputRequest::Unknown(_) => false,
    }
}

fn fits(value: &Value, room: usize) -> bool {
    value.to_string().len() <= room
}

fn encoded_size(meta: &JsonObject) -> usize {
    serde_json::to_string(meta).map_or(MAX_META, |encoded| encoded.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{TodoItem, TodoList, TodoStatus};

    fn session(meta: Option<Value>) -> SessionState {
        let mut session = json!({
            "provider": "x", "title": "", "status": 1, "lifecycle": "ready", "activeClients": [], "chats": [],
        });
        if let Some(meta) = meta {
            session["_meta"] = meta;
        }
        serde_json::from_value(session).unwrap()
    }

    fn todo(count: usize, text: &str) -> ChatTodo {
        let item = TodoItem { text: text.to_owned(), status: TodoStatus::Pending };
        TodoList { items: vec![item; count] }.into()
    }

    /// The new `_meta`, if it differs.
    fn updated(session: &SessionState, todos: Vec<(&str, &ChatTodo)>) -> Option<Value> {
        updated_from(session, MetaSources { todos, git: GitReading::Unknown, used: ModelUse::default() })
    }

    fn updated_from(session: &SessionState, sources: MetaSources<'_>) -> Option<Value> {
        let action = update(session, &sources)?;
        let StateAction::SessionMetaChanged(changed) = action else { panic!("{action:?}") };
        Some(json!(changed.meta))
    }

    #[test]
    fn unknown_keys_are_kept_and_nothing_is_published_without_a_change() {
        let (one, none) = (todo(1, "a"), ChatTodo::default());
        let meta = json!({"other": {"x": 1}, TODO: {"x:/gone": {"items": [], "done": 0, "total": 1}}});
        let set = updated(&session(Some(meta)), vec![("x:/1", &one)]).unwrap();
        let list = json!({"items": [{"text": "a", "status": "pending"}], "done": 0, "total": 1});
        assert_eq!(set, json!({"other": {"x": 1}, TODO: {"x:/1": list}}));
        assert_eq!(updated(&session(Some(set.clone())), vec![("x:/1", &one)]), None);
        let restored = todo_of(&session(Some(set.clone())), &ChannelUri::new("x:/1"));
        assert_eq!(restored, one);
        assert!(todo_of(&session(Some(set.clone())), &ChannelUri::new("x:/2")).is_empty());
        let cleared = updated(&session(Some(set)), vec![("x:/1", &none)]).unwrap();
        assert_eq!(cleared, json!({"other": {"x": 1}}));

        let only = session(Some(json!({TODO: {"x:/1": list}})));
        assert_eq!(updated(&only, vec![]), Some(Value::Null));
        assert_eq!(updated(&session(None), vec![("x:/1", &none)]), None);
    }

    #[test]
    fn usage_is_added_to_the_published_totals_and_leaves_the_lists_their_room() {
        let used = ModelUse {
            requests: 1,
            input_tokens: 10,
            nano_dollars: Some(500_000_000),
            nano_aiu: Some(3),
            ..ModelUse::default()
        };
        let long = todo(90, &"x".repeat(400));
        let add = |session: &SessionState, used: ModelUse| {
            let sources = MetaSources { todos: vec![("x:/1", &long)], git: GitReading::Unknown, used };
            let Some(StateAction::SessionMetaChanged(changed)) = update(session, &sources) else {
                return Value::Null;
            };
            json!(changed.meta)
        };
        let first = add(&session(Some(json!({"git": 1}))), used);
        let second = add(&session(Some(first)), used);
        assert_eq!(second[usage::CREDITS], json!({"totalNanoAiu": 6}));
        assert_eq!(
            second[usage::TOTALS],
            json!({
                "requests": 2, "inputTokens": 20, "outputTokens": 0, "cacheReadTokens": 0,
                "cacheWriteTokens": 0, "costUsd": 1.0,
            })
        );
        assert!(second[TODO]["x:/1"]["total"] == 90 && second["git"] == 1, "{second}");
        assert!(second.to_string().len() <= MAX_META);
        assert_eq!(add(&session(Some(second)), ModelUse::default()), Value::Null, "nothing changed");
    }

    #[test]
    fn composed_object_is_limited() {
        let chats: Vec<String> = (0..60).map(|number| format!("ahp-chat://c{number}/abcdef")).collect();
        let long = todo(90, &"\u{1}ü".repeat(400));
        let todos = || chats.iter().map(|chat| (chat.as_str(), &long)).collect::<Vec<_>>();
        for unknown in [0, 100, 3900, 5000] {
            let before = session(Some(json!({"other": "x".repeat(unknown)})));
            let meta = updated(&before, todos());
            if let Some(meta) = &meta {
                assert!(meta.to_string().len() <= MAX_META, "{unknown}: {}", meta.to_string().len());
                assert_eq!(meta["other"].as_str().unwrap().len(), unknown);
            }
            assert_eq!(meta.is_some(), unknown < 4000, "{unknown}");
        }
    }

    #[test]
    fn row_carries_counts_and_the_waiting_time_only() {
        let (done, two) = (
            json!({"items": [], "done": 2, "total": 2, "omitted": 2}),
            json!({"items": [], "done": 1, "total": 3}),
        );
        let session = session(Some(json!({"other": 1, TODO: {"x:/1": done, "x:/2": two}})));
        let row = of_row(&session, Some("2026-11-15T09:00:00.000Z")).unwrap();
        assert_eq!(
            json!(row),
            json!({TODO: {"done": 3, "total": 5}, WAITING_SINCE: "2026-11-15T09:00:00.000Z"})
        );
        assert_eq!(json!(of_row(&session, None)), json!({TODO: {"done": 3, "total": 5}}));
    }

    #[test]
    fn waiting_time_is_that_of_the_oldest_request_for_the_user() {
        let question =
            |id: &str| json!({"kind": "chatInput", "id": id, "chat": "c:/1", "request": {"id": id}});
        let call = json!({"toolCallId": "k", "toolName": "x", "displayName": "X", "invocationMessage": "x",
            "confirmed": "not-needed", "status": "running"});
        let tool = json!({"kind": "toolClientExecution", "id": "k", "chat": "c:/1", "turnId": "t",
            "clientId": "c", "toolCall": call});
        let waiting = |requests: &[Value]| {
            let mut waiting = session(None);
            waiting.input_needed = Some(serde_json::from_value(json!(requests)).unwrap());
            waiting
        };
        let mut times = WaitingTimes::default();
        assert_eq!(times.update(&waiting(std::slice::from_ref(&tool)), "1"), None);
        assert_eq!(times.update(&waiting(&[tool.clone(), question("q1")]), "2"), Some("2"));
        assert_eq!(times.update(&waiting(&[question("q1"), question("q2")]), "3"), Some("2"));
        assert_eq!(times.update(&waiting(&[question("q2")]), "4"), Some("3"));
        assert_eq!(times.update(&waiting(&[]), "5"), None);
        assert_eq!(times.update(&waiting(&[question("q1")]), "6"), Some("6"));
    }

    #[test]
    fn git_state_is_published_in_the_session_and_in_its_row() {
        let git = |meta: Option<Value>, git| {
            updated_from(
                &session(meta),
                MetaSources { todos: vec![], git: GitReading::clone(&git), used: ModelUse::default() },
            )
        };
        let state = GitState { branch: Some("main".to_owned()), uncommitted: 3, ..GitState::default() };
        let plain = json!({"git": {"branchName": "main", "uncommittedChanges": 3}});
        let known = GitReading::Known(state.clone());
        assert_eq!(git(None, known.clone()), Some(plain.clone()));
        assert_eq!(git(Some(plain.clone()), known), None);
        assert_eq!(git(Some(plain.clone()), GitReading::Unknown), None, "kept until the next reading");
        assert_eq!(git(Some(plain.clone()), GitReading::NoRepository), Some(Value::Null));
        assert_eq!(json!(of_row(&session(Some(plain.clone())), None)), plain);

        let all = GitState {
            branch: None,
            upstream: Some("origin/main".to_owned()),
            incoming: Some(1),
            outgoing: Some(0),
            uncommitted: 0,
            worktree: Some("file:///w".to_owned()),
        };
        let full = json!({"isDetachedHead": true, "upstreamBranchName": "origin/main", "incomingChanges": 1,
            "outgoingChanges": 0, "uncommittedChanges": 0, "worktree": "file:///w"});
        assert_eq!(git(Some(plain), GitReading::Known(all)), Some(json!({"git": full})));
        let long = GitState { branch: Some("x".repeat(MAX_META)), ..state };
        assert_eq!(git(None, GitReading::Known(long)), None, "too large");
    }
}
