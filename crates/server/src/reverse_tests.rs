use innkeeper_core::state::StateStore;
use serde_json::{Value, json};

use super::*;

/// A connected client whose frames the test can read.
struct World {
    clients: Arc<ClientConnections>,
    client: ClientId,
    line: Arc<Line>,
    outbox: Arc<Outbox>,
}

fn store() -> StateStore {
    let root = json!({"agents": []});
    StateStore::new(serde_json::from_value(root).unwrap())
}

impl World {
    fn new() -> Self {
        let (clients, client) = (Arc::new(ClientConnections::default()), ClientId::new("c"));
        let outbox = Arc::new(Outbox::default());
        let line = Arc::new(Line::new(store().attach(Arc::clone(&outbox)), Arc::clone(&outbox)));
        clients.add(&client, Arc::clone(&line));
        Self { clients, client, line, outbox }
    }

    fn read(&self) -> BoxFuture<Result<ahp_types::commands::ResourceReadResult, ClientResourceError>> {
        self.clients.read(self.client.clone(), "virtual:/x".to_owned())
    }

    async fn question(&self) -> Value {
        let frames = self.outbox.next_batch().await.unwrap();
        assert_eq!(frames.len(), 1);
        serde_json::from_slice(frames[0].bytes()).unwrap()
    }

    fn answer(&self, id: &Value, result: Option<&str>, error: Option<&str>) {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (result, error) = (result.map(raw), error.map(raw));
        self.line.answer(&raw(&id.to_string()), result.as_deref(), error.as_deref());
    }
}

#[tokio::test]
async fn response_completes_its_request() {
    let world = World::new();
    let (answer, ()) = tokio::join!(world.read(), async {
        let question = world.question().await;
        assert_eq!(question["method"], "resourceRead");
        assert_eq!(question["params"], json!({"channel": "ahp-root://", "uri": "virtual:/x"}));
        world.answer(&json!("1"), Some("{}"), None);
        world.answer(&json!(77), Some("{}"), None);
        world.answer(&question["id"], Some(r#"{"data":"hello","encoding":"utf-8"}"#), None);
        // The request is no longer pending.
        world.answer(&question["id"], Some("{}"), None);
    });
    assert_eq!(answer.unwrap().data, "hello");
}

#[tokio::test]
async fn error_response_and_invalid_result_are_distinguished() {
    let world = World::new();
    let (answer, ()) = tokio::join!(world.read(), async {
        let id = world.question().await["id"].clone();
        world.answer(&id, None, Some(r#"{"code":-32009,"message":"no"}"#));
    });
    assert_eq!(answer, Err(ClientResourceError::Refused { code: -32009, message: "no".to_owned() }));
    let (answer, ()) = tokio::join!(world.read(), async {
        let id = world.question().await["id"].clone();
        world.answer(&id, Some("[1]"), None);
    });
    assert!(matches!(answer, Err(ClientResourceError::Unreadable(_))), "{answer:?}");
}

#[tokio::test]
async fn rejects_response_that_is_too_large() {
    let world = World::new();
    let (answer, ()) = tokio::join!(world.read(), async {
        let id = world.question().await["id"].clone();
        let data = "x".repeat(MAX_ANSWER);
        world.answer(&id, Some(&format!(r#"{{"data":"{data}","encoding":"utf-8"}}"#)), None);
    });
    assert_eq!(answer, Err(ClientResourceError::TooLarge));
}

#[tokio::test(start_paused = true)]
async fn request_times_out_without_response() {
    let world = World::new();
    let before = tokio::time::Instant::now();
    assert_eq!(world.read().await, Err(ClientResourceError::TimedOut));
    assert_eq!(before.elapsed(), ANSWER_TIME);
    assert_eq!(lock(&world.line.questions).open.len(), 0);
}

#[tokio::test]
async fn pending_requests_fail_when_connection_ends() {
    let world = World::new();
    let (answer, ()) = tokio::join!(world.read(), async {
        world.question().await;
        world.clients.remove(&world.client, &world.line);
    });
    assert_eq!(answer, Err(ClientResourceError::Gone));
    assert_eq!(world.read().await, Err(ClientResourceError::Gone));
    assert!(lock(&world.clients.lines).is_empty());
}

#[tokio::test]
async fn newest_connection_of_client_is_used() {
    let world = World::new();
    let outbox = Arc::new(Outbox::default());
    let store = store();
    store.attach(Arc::default());
    let newer = Arc::new(Line::new(store.attach(Arc::clone(&outbox)), Arc::clone(&outbox)));
    world.clients.add(&world.client, Arc::clone(&newer));
    let asking = world.read();
    tokio::pin!(asking);
    tokio::select! {
        _ = &mut asking => panic!("unexpected response"),
        frames = outbox.next_batch() => assert_eq!(frames.unwrap().len(), 1),
    }
    world.clients.remove(&world.client, &newer);
    assert_eq!(asking.await, Err(ClientResourceError::Gone));
    assert!(world.clients.line(&world.client).is_some_and(|line| Arc::ptr_eq(&line, &world.line)));
}

#[tokio::test(start_paused = true)]
async fn pending_requests_are_limited() {
    let world = World::new();
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..=MAX_OPEN {
        asked.spawn(world.read());
    }
    let mut busy = 0;
    while let Some(answer) = asked.join_next().await {
        match answer.unwrap() {
            Err(ClientResourceError::Busy) => busy += 1,
            other => assert_eq!(other, Err(ClientResourceError::TimedOut)),
        }
    }
    assert_eq!(busy, 1);
}
