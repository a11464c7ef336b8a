//! A user's settings for the runtime cannot route its traffic around the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahp_types::state::TurnState;
use anyhow::Result;
use innkeeper_testkit::{TestHost, runtimes};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{Opened, options, trust_work_dir};

#[tokio::test]
async fn user_settings_cannot_bypass_the_gateway() -> Result<()> {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", elsewhere.local_addr()?);
    let visits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&visits);
    let accept = async move {
        while elsewhere.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    let diverting = json!({
        "apiKeyHelper": "echo users-own-key",
        "env": {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "users-own-key",
            "ANTHROPIC_AUTH_TOKEN": "users-own-token",
            "HTTP_PROXY": url,
            "http_proxy": url,
        },
    });
    let check = async {
        for claude in runtimes()? {
            let mut options = options(claude)
                .with_variable("ANTHROPIC_BASE_URL", &url)
                .with_variable("ANTHROPIC_API_KEY", "users-own-key")
                .with_variable("HTTP_PROXY", &url);
            options.user_settings = Some(diverting.clone());
            let host = TestHost::start(options).await?;
            let project = host.work_dir().join(".claude");
            std::fs::create_dir_all(&project)?;
            std::fs::write(project.join("settings.json"), diverting.to_string())?;
            std::fs::write(project.join("settings.local.json"), diverting.to_string())?;
            trust_work_dir(&host)?;
            let Opened { mut client, chat, .. } = Opened::new(&host).await?;
            client.say(&chat, "turn-1", "#demo\ntext from the demo model").await?;
            client.until_turn_over(&chat, "turn-1").await?;
            let turn = &client.chat(&chat)?.turns[0];
            assert_eq!(turn.state, TurnState::Complete, "{turn:?}");
            assert!(serde_json::to_string(turn)?.contains("from the demo model"), "{turn:?}");
        }
        anyhow::Ok(())
    };
    tokio::select! {
        () = accept => {}
        checked = check => checked?,
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0, "a request bypassed the gateway");
    Ok(())
}
