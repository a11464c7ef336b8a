//! A raw client that records every message it receives, in order.

use innkeeper_testkit::RawClient;
use serde_json::{Value, json};

use crate::stage_host::StageHost;

/// A raw client connection that records every message it receives.
#[derive(Debug)]
pub(crate) struct Wire {
    raw: RawClient,
    /// The client's name.
    pub(crate) name: String,
    /// Received messages in order, without the responses that were awaited.
    pub(crate) log: Vec<Value>,
    next_id: u64,
    next_seq: i64,
}

impl Wire {
    /// Connects without a handshake.
    pub(crate) async fn connect(host: &StageHost, name: &str) -> Self {
        let raw = host.raw().await.unwrap();
        Self { raw, name: name.to_owned(), log: Vec::new(), next_id: 1, next_seq: 1 }
    }

    /// Connects and completes the handshake.
    pub(crate) async fn open(host: &StageHost, name: &str, versions: &[&str]) -> Self {
        let mut wire = Self::connect(host, name).await;
        let answer = wire.request(
            "initialize",
            json!({"channel": "ahp-root://", "protocolVersions": versions, "clientId": name, "initialSubscriptions": ["ahp-root://"]}),
        );
        assert_eq!(answer.await["result"]["protocolVersion"], versions[0]);
        wire
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        self.request_as(json!(id), method, params).await
    }

    /// Sends a request without waiting for its response. Returns its id.
    pub(crate) async fn send_request(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message.to_string()).await;
        id
    }

    /// Like [`Self::request`], with the given id.
    pub(crate) async fn request_as(&mut self, id: Value, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message.to_string()).await;
        self.answer(&id).await
    }

    /// Sends a text frame unchanged.
    pub(crate) async fn send(&mut self, text: &str) {
        self.raw.send_text(text).await.unwrap();
    }

    /// Waits for the response to a request.
    pub(crate) async fn answer(&mut self, id: &Value) -> Value {
        let wanted = |message: &Value| message.get("method").is_none() && message["id"] == *id;
        loop {
            if let Some(place) = self.log.iter().position(wanted) {
                let message = self.log.remove(place);
                assert_eq!(message["jsonrpc"], "2.0");
                return message;
            }
            let message = self.raw.receive().await.unwrap();
            self.log.push(message);
        }
    }

    /// Sends a request that must fail. Returns the error code.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.request(method, params).await;
        let error = &answer["error"];
        assert!(answer.get("result").is_none(), "{method} succeeded: {answer}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "no error message: {answer}");
        error["code"].as_i64().unwrap()
    }

    /// Sends a request that must succeed. Returns the result.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        answer.get("result").unwrap_or_else(|| panic!("{method} failed: {answer}")).clone()
    }

    /// Sends a notification.
    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.raw.notify(method, params).await.unwrap();
    }

    /// Dispatches an action under the next sequence number. Returns the number.
    pub(crate) async fn dispatch(&mut self, channel: &str, action: Value) -> i64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.dispatch_as(seq, channel, action).await;
        seq
    }

    /// Like [`Self::dispatch`], under the given sequence number.
    pub(crate) async fn dispatch_as(&mut self, seq: i64, channel: &str, action: Value) {
        let params = json!({"channel": channel, "clientSeq": seq, "action": action});
        self.notify("dispatchAction", params).await;
    }

    /// Waits for the envelope that answers a dispatch.
    pub(crate) async fn envelope(&mut self, seq: i64) -> Value {
        let own = json!({"clientId": self.name, "clientSeq": seq});
        loop {
            if let Some(found) = self.envelopes().find(|envelope| envelope["origin"] == own) {
                return found.clone();
            }
            let message = self.raw.receive().await.unwrap();
            self.log.push(message);
        }
    }

    /// Waits for a message that meets a condition, starting with those already received.
    pub(crate) async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        let mut looked = 0;
        loop {
            while looked < self.log.len() {
                if holds(&self.log[looked]) {
                    return self.log[looked].clone();
                }
                looked += 1;
            }
            let message = self.raw.receive().await.unwrap();
            self.log.push(message);
        }
    }

    /// The received envelopes, in order.
    pub(crate) fn envelopes(&self) -> impl Iterator<Item = &Value> {
        self.log.iter().filter(|message| message["method"] == "action").map(|message| &message["params"])
    }

    /// The types of the accepted actions received on a channel, in order.
    pub(crate) fn actions(&self, channel: &str) -> Vec<&str> {
        self.envelopes()
            .filter(|envelope| envelope["channel"] == channel && envelope.get("rejectionReason").is_none())
            .map(|envelope| envelope["action"]["type"].as_str().unwrap())
            .collect()
    }

    /// Counts the envelopes that answer a dispatch of the given client.
    pub(crate) fn answers(&self, client: &str, seq: i64) -> usize {
        let origin = json!({"clientId": client, "clientSeq": seq});
        self.envelopes().filter(|envelope| envelope["origin"] == origin).count()
    }

    /// Waits until the host has handled everything sent to a channel before, by this client
    /// or by answered requests on other connections. Dispatches an unknown action, which
    /// changes nothing and is answered with a rejection.
    pub(crate) async fn barrier(&mut self, channel: &str) {
        let seq = self.dispatch(channel, json!({"type": "test/barrier"})).await;
        assert!(self.envelope(seq).await["rejectionReason"].is_string());
    }

    /// Receives everything that the host has queued for this client so far.
    pub(crate) async fn settle(&mut self) {
        assert_eq!(self.ask("ping", json!({"channel": "ahp-root://"})).await, Value::Null);
    }

    /// Subscribes to a channel and returns its current state.
    pub(crate) async fn snapshot(&mut self, channel: &str) -> Value {
        self.ask("subscribe", json!({"channel": channel})).await["snapshot"]["state"].clone()
    }

    /// Reads until the host closes the connection. Returns the close code.
    pub(crate) async fn closed(&mut self) -> u16 {
        self.raw.closed().await.unwrap().expect("a close frame").code.into()
    }
}
