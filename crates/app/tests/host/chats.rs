//! Several chats in one session, with real runtimes.

use std::time::Duration;

use ahp_types::commands::{CreateChatParams, DisposeChatParams};
use ahp_types::state::TurnState;
use anyhow::Result;
use innkeeper_testkit::{Observer, TestHost, eventually, runtimes};

use crate::{Opened, options};

const SECOND: &str = "ahp-chat:/second";

async fn create(client: &mut Observer, session: &str) -> Result<()> {
    let params = CreateChatParams {
        channel: session.to_owned(),
        meta: None,
        chat: SECOND.to_owned(),
        initial_message: None,
        source: None,
        working_directories: None,
    };
    client.client.request::<_, ()>("createChat", params).await?;
    client.subscribe(SECOND).await
}

#[tokio::test]
async fn each_chat_has_its_own_runtime_and_context_across_restarts() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude.clone())).await?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        create(&mut client, &session).await?;
        client.say(&chat, "one", "#demo\ntext first words").await?;
        client.say(SECOND, "two", "#demo\ntext second words").await?;
        client.until_turn_over(&chat, "one").await?;
        client.until_turn_over(SECOND, "two").await?;
        assert_eq!(host.runtimes().len(), 2);

        let host = host.start_again(options(claude)).await?;
        let mut client = host.observer("first").await?;
        client.open_session(&session).await?;
        client.subscribe(SECOND).await?;
        client.say(SECOND, "three", "#demo\necho").await?;
        client.until_turn_over(SECOND, "three").await?;
        let turn = &client.chat(SECOND)?.turns[1];
        assert_eq!(turn.state, TurnState::Complete, "{turn:?}");
        let said = serde_json::to_string(&turn.response_parts)?;
        assert!(said.contains("second words") && !said.contains("first words"), "{said}");
        assert_eq!(host.runtimes().len(), 1);
        client.agrees_with_a_fresh_client(&host.address()?).await?;

        let params = DisposeChatParams { channel: SECOND.to_owned(), meta: None };
        client.client.request::<_, ()>("disposeChat", params).await?;
        eventually(Duration::from_secs(5), "the runtime exits", || host.runtimes().is_empty()).await?;
        client.settle().await?;
        assert_eq!(client.session(&session)?.chats.len(), 1);
    }
    Ok(())
}
