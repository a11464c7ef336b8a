//! The session's `_meta` and that of its row: to-do lists, usage, and since when the session
//! waits for the user.

use innkeeper_core::agent::{AgentEvent, TodoItem, TodoList, TodoStatus};
use innkeeper_core::ids::TurnId;
use innkeeper_core::usage::{ContextUse, ModelUse, UsageReport};
use innkeeper_core_fakes::Player;
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE, TWO, host_on};
use crate::scene::{Scene, confirmed, started};

const TODO: &str = "innkeeper.todo";
const WAITING_SINCE: &str = "innkeeper.waitingSince";

/// Reports a list with items of these statuses: `d` done, `w` worked on, `p` pending.
async fn list(player: &Player, statuses: &str) {
    let item = |(at, status): (usize, char)| TodoItem {
        text: format!("Step {at}"),
        status: match status {
            'd' => TodoStatus::Completed,
            'w' => TodoStatus::InProgress,
            _ => TodoStatus::Pending,
        },
    };
    let items = statuses.chars().enumerate().map(item).collect();
    player.send(AgentEvent::TodoChanged { list: TodoList { items } }).await.unwrap();
}

/// The to-do lists of a session, by chat.
fn lists(client: &Observer, session: &str) -> Value {
    json!(client.session(session).unwrap().meta)[TODO].clone()
}

/// The number of finished items and of all items in the list of a chat.
fn progress(client: &Observer, session: &str, chat: &str) -> Option<(u64, u64)> {
    let list = lists(client, session)[chat].clone();
    Some((list["done"].as_u64()?, list["total"].as_u64()?))
}

fn meta_changes(client: &Observer, session: &str) -> usize {
    client.actions(session).unwrap().iter().filter(|action| *action == "session/metaChanged").count()
}

async fn row_meta(client: &Observer, session: &str) -> Value {
    let rows = client.list_sessions().await.unwrap();
    json!(rows.iter().find(|row| row.resource == session).unwrap().meta)
}

#[tokio::test]
async fn todo_list_is_published_in_the_session_and_counted_in_its_row() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    list(&player, "dwp").await;
    scene.alice.until("the list", |alice| !lists(alice, &session).is_null()).await.unwrap();
    scene.agree().await;
    let items = json!([
        {"text": "Step 0", "status": "completed"},
        {"text": "Step 1", "status": "in_progress"},
        {"text": "Step 2", "status": "pending"},
    ]);
    assert_eq!(lists(&scene.bob, &session), json!({chat.clone(): {"items": items, "done": 1, "total": 3}}));
    let counted = |observer: &Observer| json!(observer.rows[&session].meta);
    assert_eq!(counted(&scene.bob), json!({TODO: {"done": 1, "total": 3}}));

    // The same list again is not published.
    list(&player, "dwp").await;
    list(&player, "ddw").await;
    scene
        .alice
        .until("the next list", |alice| progress(alice, &session, &chat) == Some((2, 3)))
        .await
        .unwrap();
    scene.agree().await;
    assert_eq!(meta_changes(&scene.alice, &session), 2);

    // It outlives the turn.
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(progress(&scene.alice, &session, &chat), Some((2, 3)));

    list(&player, "").await;
    scene.alice.until("no list", |alice| lists(alice, &session).is_null()).await.unwrap();
    scene.agree().await;
    assert_eq!(scene.alice.session(&session).unwrap().meta, None);
    assert_eq!(
        counted(&scene.alice),
        json!({}),
        "clients replace a field by an empty object, not by nothing"
    );
}

#[tokio::test]
async fn large_todo_list_is_shortened() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let item = |at: usize| TodoItem {
        text: format!("{at} {}", "ü".repeat(5000)),
        status: if at < 500 { TodoStatus::Completed } else { TodoStatus::Pending },
    };
    let items = (0..520).map(item).collect();
    player.send(AgentEvent::TodoChanged { list: TodoList { items } }).await.unwrap();
    scene.alice.until("the list", |alice| !lists(alice, &session).is_null()).await.unwrap();
    scene.agree().await;
    let meta = json!(scene.alice.session(&session).unwrap().meta);
    assert!(meta.to_string().len() <= 4096, "{}", meta.to_string().len());
    let list = &meta[TODO][&chat];
    let items = list["items"].as_array().unwrap();
    assert_eq!((&list["done"], &list["total"]), (&json!(500), &json!(520)));
    assert_eq!(items.iter().filter(|item| item["status"] == "pending").count(), 20);
    assert_eq!(list["omitted"], 520 - items.len());
}

#[tokio::test]
async fn todo_lists_are_restored_and_follow_their_chats() {
    let mut room = Room::with_side().await;
    let chat = room.chat.clone();
    let main = room.begin(&chat, "t1").await;
    let side = room.begin(SIDE, "t2").await;
    list(&main, "dp").await;
    list(&side, "ddd").await;
    let both = |client: &Observer| {
        (progress(client, ONE, &chat), progress(client, ONE, SIDE)) == (Some((1, 2)), Some((3, 3)))
    };
    room.alice.until("both lists", both).await.unwrap();
    room.agree().await;
    main.complete("t1").await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    // Storing a decision also stores all earlier actions.
    let title = json!({"type": "session/titleChanged", "title": "mine"});
    let seq = room.alice.dispatch(ONE, title).await.unwrap();
    room.alice.until("the echo", |alice| !alice.answers("alice", seq).is_empty()).await.unwrap();

    let next = host_on(&room.storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.open_session(ONE).await.unwrap();
    assert!(both(&again));
    assert_eq!(row_meta(&again, ONE).await, json!({TODO: {"done": 4, "total": 5}}));

    // The other list is kept when one changes after the restart.
    again.subscribe(&chat).await.unwrap();
    again.dispatch(&chat, started("t3")).await.unwrap();
    let mut player = next.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    list(&player, "dd").await;
    let changed = |client: &Observer| progress(client, ONE, &chat) == Some((2, 2));
    again.until("the changed list", changed).await.unwrap();
    assert_eq!(progress(&again, ONE, SIDE), Some((3, 3)));

    // A disposed chat takes its list with it.
    let mut wire = crate::wire::Wire::open(&next, "wire", &["1.0.0"]).await;
    assert_eq!(wire.ask("disposeChat", json!({"channel": SIDE})).await, Value::Null);
    again.until("one list", |again| lists(again, ONE)[SIDE].is_null()).await.unwrap();
    assert_eq!(progress(&again, ONE, &chat), Some((2, 2)));
    again.settle().await.unwrap();
    assert_eq!(row_meta(&again, ONE).await, json!({TODO: {"done": 2, "total": 2}}));
}

#[tokio::test]
async fn todo_list_moves_with_its_chat() {
    let mut room = Room::with_side().await;
    let side = room.begin(SIDE, "t1").await;
    list(&side, "dpp").await;
    room.alice.until("the list", |alice| progress(alice, ONE, SIDE).is_some()).await.unwrap();
    side.complete("t1").await.unwrap();
    room.alice.until_turn_over(SIDE, "t1").await.unwrap();
    room.alice.create(TWO, &[crate::scene::DIRECTORY]).await.unwrap();
    room.alice.open_session(TWO).await.unwrap();
    let (moved, left) =
        tokio::join!(room.move_to(json!({"kind": "session", "session": TWO})), side.leave_when_told());
    left.unwrap();
    assert_eq!(moved, TWO);
    room.alice.until("the list moves", |alice| progress(alice, TWO, SIDE) == Some((1, 3))).await.unwrap();
    room.alice.until("the list leaves", |alice| lists(alice, ONE).is_null()).await.unwrap();
    room.agree().await;
    assert_eq!(row_meta(&room.alice, TWO).await, json!({TODO: {"done": 1, "total": 3}}));
}

/// Reports one model call of a turn, or of none.
async fn call(player: &Player, turn: Option<&str>, input_tokens: u64) {
    let used = ModelUse {
        requests: 1,
        input_tokens,
        output_tokens: 2,
        nano_dollars: Some(10_000_000),
        nano_aiu: Some(5),
        ..ModelUse::default()
    };
    let context = Some(ContextUse { input_tokens, cache_read_tokens: 0 });
    let report = Box::new(UsageReport { used, context, model: Some("m".to_owned()) });
    player.send(AgentEvent::Used { turn: turn.map(TurnId::new), report }).await.unwrap();
}

/// The session's published usage and credits.
fn usage(client: &Observer, session: &str) -> Value {
    let meta = json!(client.session(session).unwrap().meta);
    let totals = &meta["innkeeper.usage"];
    json!([
        totals["requests"],
        totals["inputTokens"],
        totals["costUsd"],
        meta["copilotUsage"]["totalNanoAiu"]
    ])
}

#[tokio::test]
async fn usage_of_turns_and_session_is_published_and_restored() {
    let mut room = Room::with_side().await;
    let chat = room.chat.clone();
    let main = room.begin(&chat, "t1").await;
    let side = room.begin(SIDE, "t2").await;
    call(&main, Some("t1"), 100).await;
    call(&side, Some("t2"), 1).await;
    call(&main, Some("t1"), 30).await;
    let all = |client: &Observer, expected: Value| usage(client, ONE) == expected;
    room.alice.until("the usage", |alice| all(alice, json!([3, 131, 0.03, 15]))).await.unwrap();
    room.agree().await;
    let turn = room.alice.chat(&chat).unwrap().active_turn.as_ref().unwrap().usage.clone().unwrap();
    let expected = json!({
        "inputTokens": 30, "outputTokens": 4, "cacheReadTokens": 0, "model": "m",
        "_meta": {
            "innkeeper.usage": {
                "requests": 2, "inputTokens": 130, "outputTokens": 4, "cacheReadTokens": 0,
                "cacheWriteTokens": 0, "costUsd": 0.02, "initiator": "user",
            },
            "copilotUsage": {"totalNanoAiu": 10},
        },
    });
    assert_eq!(json!(turn), expected);

    // A cancelled turn stays as it is; the session is charged.
    room.alice.dispatch(&chat, crate::scene::cancelled("t1")).await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    call(&main, Some("t1"), 9).await;
    room.alice.until("the late usage", |alice| all(alice, json!([4, 140, 0.04, 20]))).await.unwrap();
    room.agree().await;
    assert_eq!(json!(room.alice.chat(&chat).unwrap().turns[0].usage), expected);
    side.complete("t2").await.unwrap();
    room.alice.until_turn_over(SIDE, "t2").await.unwrap();
    // Storing a decision also stores all earlier actions.
    let title = json!({"type": "session/titleChanged", "title": "mine"});
    let seq = room.alice.dispatch(ONE, title).await.unwrap();
    room.alice.until("the echo", |alice| !alice.answers("alice", seq).is_empty()).await.unwrap();

    let next = host_on(&room.storage.after_a_crash()).await;
    let mut again = next.observer("again").await.unwrap();
    again.open_session(ONE).await.unwrap();
    assert_eq!(usage(&again, ONE), json!([4, 140, 0.04, 20]));
    again.subscribe(&chat).await.unwrap();
    assert_eq!(json!(again.chat(&chat).unwrap().turns[0].usage), expected);
    again.dispatch(&chat, started("t3")).await.unwrap();
    let mut player = next.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    call(&player, Some("t3"), 10).await;
    again.until("more usage", |again| all(again, json!([5, 150, 0.05, 25]))).await.unwrap();
}

#[tokio::test]
async fn row_says_since_when_the_oldest_request_waits() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let session = scene.session.clone();
    let since = |observer: &Observer| json!(observer.rows[&session].meta)[WAITING_SINCE].clone();
    assert_eq!(since(&scene.alice), Value::Null);
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    scene.alice.until("the time", |alice| !since(alice).is_null()).await.unwrap();
    scene.agree().await;
    let first = since(&scene.alice);
    let time = |since: &Value| since.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // Times have milliseconds; the next request is raised in a later one.
    while jiff::Timestamp::now().as_millisecond() <= time(&first).as_millisecond() {
        tokio::task::yield_now().await;
    }
    player.ask("q1", json!([])).await.unwrap();
    let waiting = |count: usize| {
        let session = session.clone();
        move |observer: &Observer| {
            observer.session(&session).unwrap().input_needed.iter().flatten().count() == count
        }
    };
    scene.alice.until("two requests", waiting(2)).await.unwrap();
    scene.agree().await;
    assert_eq!(since(&scene.alice), first, "the oldest request counts");

    // A client that connects later gets the same time.
    let mut late = scene.host.observer("late").await.unwrap();
    assert_eq!(row_meta(&late, &session).await, json!({WAITING_SINCE: first}));
    late.settle().await.unwrap();

    scene.chat_accepts(confirmed("t1", "k1")).await;
    scene.alice.until("the later request", |alice| since(alice) != first).await.unwrap();
    let second = since(&scene.alice);
    assert!(time(&second) > time(&first), "{first} {second}");
    let completed = json!({"type": "chat/inputCompleted", "requestId": "q1", "response": "decline"});
    scene.chat_accepts(completed).await;
    scene.alice.until("no time", |alice| since(alice).is_null()).await.unwrap();
    scene.agree().await;
    assert_eq!(json!(scene.bob.rows[&session].meta), json!({}));
}

#[tokio::test]
async fn waiting_time_is_removed_when_the_turn_or_the_host_ends() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let mut player = room.begin(&chat, "t1").await;
    let since =
        |client: &Observer| client.rows.get(ONE).is_some_and(|row| !json!(row.meta)[WAITING_SINCE].is_null());
    player.ask_to_run("t1", "k1", json!({})).await.unwrap();
    room.alice.until("the time", since).await.unwrap();
    room.alice.dispatch(&chat, crate::scene::cancelled("t1")).await.unwrap();
    room.alice.until("no time", |alice| !since(alice)).await.unwrap();
    player.command().await.unwrap();
    player.end("t1", innkeeper_core::agent::TurnOutcome::Cancelled).await.unwrap();

    room.again(&mut player, &chat, "t2").await;
    player.ask_to_run("t2", "k2", json!({})).await.unwrap();
    room.alice.until("the time", since).await.unwrap();
    let crashed = host_on(&room.storage.after_a_crash()).await;
    let again = crashed.observer("again").await.unwrap();
    assert_eq!(row_meta(&again, ONE).await[WAITING_SINCE], Value::Null);

    let ((), left) = tokio::join!(room.host.stop(), player.leave_when_told());
    left.unwrap();
    let next = host_on(&room.storage).await;
    let again = next.observer("again").await.unwrap();
    assert_eq!(row_meta(&again, ONE).await[WAITING_SINCE], Value::Null);
}
