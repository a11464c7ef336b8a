use innkeeper_core::state::StateStore;
use serde_json::{Value, json};

use super::*;

/// A connected client whose frames the test can read.
struct World {
    clients: Arc<ClientConnections>,
    client: ClientId,
    requests: Arc<ClientRequests>,
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
        let requests =
            Arc::new(ClientRequests::new(store().attach(Arc::clone(&outbox)), Arc::clone(&outbox)));
        clients.add(&client, Arc::clone(&requests));
        Self { clients, client, requests, outbox }
    }

    fn read(&self) -> BoxFuture<Result<ahp_types::commands::ResourceReadResult, ClientResourceError>> {
        self.clients.read(self.client.clone(), "virtual:/x".to_owned())
    }

    async fn request(&self) -> Value {
        let frames = self.outbox.next_batch().await.unwrap();
        assert_eq!(frames.len(), 1);
        serde_json::from_slice(frames[0].bytes()).unwrap()
    }

    fn complete(&self, id: &Value, result: Option<&str>, error: Option<&str>) {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (result, error) = (result.map(raw), error.map(raw));
        self.requests.complete(&raw(&id.to_string()), result.as_deref(), error.as_deref());
    }
}

#[tokio::test]
async fn response_completes_its_request() {
    let world = World::new();
    let (response, ()) = tokio::join!(world.read(), async {
        let request = world.request().await;
        assert_eq!(request["method"], "resourceRead");
        assert_eq!(request["params"], json!({"channel": "ahp-root://", "uri": "virtual:/x"}));
        world.complete(&json!("1"), Some("{}"), None);
        world.complete(&json!(77), Some("{}"), None);
        world.complete(&request["id"], Some(r#"{"data":"hello","encoding":"utf-8"}"#), None);
        // The request is no longer pending.
        world.complete(&request["id"], Some("{}"), None);
    });
    assert_eq!(response.unwrap().data, "hello");
}

#[tokio::test]
async fn error_response_and_invalid_result_are_distinguished() {
    let world = World::new();
    let (response, ()) = tokio::join!(world.read(), async {
        let id = world.request().await["id"].clone();
        world.complete(&id, None, Some(r#"{"code":-32009,"message":"no"}"#));
    });
    assert_eq!(response, Err(ClientResourceError::Refused { code: -32009, message: "no".to_owned() }));
    let (response, ()) = tokio::join!(world.read(), async {
        let id = world.request().await["id"].clone();
        world.complete(&id, Some("[1]"), None);
    });
    assert!(matches!(response, Err(ClientResourceError::Unreadable(_))), "{response:?}");
}

#[tokio::test]
async fn rejects_response_that_is_too_large() {
    let world = World::new();
    let (response, ()) = tokio::join!(world.read(), async {
        let id = world.request().await["id"].clone();
        let data = "x".repeat(MAX_RESPONSE);
        world.complete(&id, Some(&format!(r#"{{"data":"{data}","encoding":"utf-8"}}"#)), None);
    });
    assert_eq!(response, Err(ClientResourceError::TooLarge));
}

#[tokio::test(start_paused = true)]
async fn request_times_out_without_response() {
    let world = World::new();
    let before = tokio::time::Instant::now();
    assert_eq!(world.read().await, Err(ClientResourceError::TimedOut));
    assert_eq!(before.elapsed(), RESPONSE_TIMEOUT);
    assert_eq!(lock(&world.requests.table).pending.len(), 0);
}

#[tokio::test]
async fn pending_requests_fail_when_connection_ends() {
    let world = World::new();
    let (response, ()) = tokio::join!(world.read(), async {
        world.request().await;
        world.clients.remove(&world.client, &world.requests);
    });
    assert_eq!(response, Err(ClientResourceError::Gone));
    assert_eq!(world.read().await, Err(ClientResourceError::Gone));
    assert!(lock(&world.clients.connections).is_empty());
}

#[tokio::test]
async fn newest_connection_of_client_is_used() {
    let world = World::new();
    let outbox = Arc::new(Outbox::default());
    let store = store();
    store.attach(Arc::default());
    let newer = Arc::new(ClientRequests::new(store.attach(Arc::clone(&outbox)), Arc::clone(&outbox)));
    world.clients.add(&world.client, Arc::clone(&newer));
    let reading = world.read();
    tokio::pin!(reading);
    tokio::select! {
        _ = &mut reading => panic!("unexpected response"),
        frames = outbox.next_batch() => assert_eq!(frames.unwrap().len(), 1),
    }
    world.clients.remove(&world.client, &newer);
    assert_eq!(reading.await, Err(ClientResourceError::Gone));
    assert!(
        world.clients.requests(&world.client).is_some_and(|requests| Arc::ptr_eq(&requests, &world.requests))
    );
}

#[tokio::test(start_paused = true)]
async fn pending_requests_are_limited() {
    let world = World::new();
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..=MAX_PENDING {
        requests.spawn(world.read());
    }
    let mut busy = 0;
    while let Some(response) = requests.join_next().await {
        match response.unwrap() {
            Err(ClientResourceError::Busy) => busy += 1,
            other => assert_eq!(other, Err(ClientResourceError::TimedOut)),
        }
    }
    assert_eq!(busy, 1);
}
