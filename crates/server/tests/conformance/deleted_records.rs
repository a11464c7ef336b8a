//! The agent's own records are deleted with their chats and sessions.

use std::time::Duration;

use innkeeper_core::agent::{AgentEvent, HostConversation, ResumeToken};
use innkeeper_core::storage::StorageError;
use innkeeper_core_fakes::Player;
use innkeeper_testkit::eventually;
use serde_json::json;

use crate::room::{ONE, Room, SIDE};

/// A room with a turn in each of two chats, whose agent keeps records. Returns the conversations.
async fn with_records() -> (Room, [HostConversation; 2]) {
    let mut room = Room::with_side().await;
    room.host.stage().keep_records(Vec::new());
    let main = room.chat.clone();
    let conversations = [(main.as_str(), "main"), (SIDE, "side")];
    let mut ids = Vec::new();
    for (chat, token) in conversations {
        let player: Player = room.begin(chat, "t1").await;
        let token = ResumeToken::new(token);
        player.send(AgentEvent::ResumeToken(token.clone())).await.unwrap();
        player.complete("t1").await.unwrap();
        room.alice.until_turn_over(chat, "t1").await.unwrap();
        ids.push(HostConversation { id: player.conversation, token: Some(token) });
        player.crash().await.unwrap();
    }
    (room, ids.try_into().unwrap())
}

#[tokio::test]
async fn records_are_deleted_with_chat_and_session() {
    let (mut room, [main, side]) = with_records().await;
    room.wire.ask("disposeChat", json!({"channel": SIDE})).await;
    let stage = room.host.stage().clone();
    let deleted = || stage.deleted_records() == [side.clone()];
    eventually(Duration::from_secs(5), "the chat's record is deleted", deleted).await.unwrap();
    room.wire.ask("disposeSession", json!({"channel": ONE})).await;
    assert_eq!(stage.deleted_records(), [side, main]);
}

#[tokio::test]
async fn records_are_kept_if_the_session_cannot_be_deleted() {
    let (mut room, _) = with_records().await;
    room.storage.fail_writes(Some(StorageError::Full));
    assert_eq!(room.wire.refused("disposeSession", json!({"channel": ONE})).await, -32603);
    assert_eq!(room.host.stage().deleted_records(), []);
}
