//! Permission modes that a client changes while a session runs, with both pinned runtimes.

use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, shell, text, write};
use crate::options;

/// The modes that a session offers.
fn offered(client: &Observer, session: &str) -> Result<Vec<Value>> {
    let config = serde_json::to_value(&client.session(session)?.config)?;
    let property = &config["schema"]["properties"]["permissionMode"];
    assert_eq!(property["sessionMutable"], true, "{property:#}");
    Ok(property["enum"].as_array().context("no modes")?.clone())
}

#[tokio::test]
async fn mode_change_in_the_middle_of_a_turn_applies_to_open_and_later_calls() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let second = asking.second_client().await?;
        let folder = asking.host.work_dir();
        let file = |name: &str| folder.join(name);
        let steps = [
            write(&file("one"), "x"),
            write(&file("two"), "x"),
            shell("git init gate"),
            write(&file("three"), "x"),
            text("done"),
        ];
        asking.say("turn-1", &steps).await?;
        let call = asking.permission("turn-1").await?;
        assert_eq!(call["toolName"], "Write");

        // Another client's change answers the open request, and the next write is not asked.
        let changed = json!({"type": "session/configChanged", "config": {"permissionMode": "acceptEdits"}});
        second.dispatch(&asking.session, changed).await?;
        let is_shell = |client: &Observer| {
            let needed = client.session(&asking.session).map(|session| session.input_needed.clone());
            serde_json::to_string(&needed.unwrap_or_default()).is_ok_and(|needed| needed.contains("git init"))
        };
        asking.client.until("the request for the command", is_shell).await?;
        assert!(file("one").exists() && file("two").exists());
        assert_eq!(asking.config("permissionMode")?, "acceptEdits");
        let call = asking.permission("turn-1").await?;

        asking.configure(json!({"permissionMode": "default"})).await?;
        asking.approve("turn-1", &call, "allow-once").await?;
        let call = asking.permission("turn-1").await?;
        assert_eq!(call["toolName"], "Write");
        asking.deny("turn-1", &call, "deny", "").await?;
        asking.finish("turn-1").await?;
        assert!(!file("three").exists());
        assert_eq!(asking.config("permissionMode")?, "default");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn bypass_can_be_chosen_and_left_in_a_running_session() -> Result<()> {
    for claude in runtimes()? {
        let options = options(claude).with_variable("IS_SANDBOX", "1");
        let mut asking = AskingSession::start(options, json!({})).await?;
        assert!(offered(&asking.client, &asking.session)?.contains(&json!("bypassPermissions")));
        let folder = asking.host.work_dir();
        asking.say("turn-1", &[text("hello")]).await?;
        asking.finish("turn-1").await?;
        let pids = asking.host.runtimes();
        asking.configure(json!({"permissionMode": "bypassPermissions"})).await?;
        let steps = [write(&folder.join("one"), "x"), shell("git init two"), text("done")];
        asking.say("turn-2", &steps).await?;
        asking.finish("turn-2").await?;
        assert!(folder.join("one").exists() && folder.join("two").exists());
        assert_eq!(asking.times_asked()?, 0);
        assert_eq!(asking.config("permissionMode")?, "bypassPermissions");

        asking.configure(json!({"permissionMode": "default"})).await?;
        asking.say("turn-3", &[write(&folder.join("three"), "x"), text("done")]).await?;
        let call = asking.permission("turn-3").await?;
        asking.deny("turn-3", &call, "deny", "").await?;
        asking.finish("turn-3").await?;
        assert!(!folder.join("three").exists());
        assert_eq!(asking.host.runtimes(), pids, "a change of the mode restarted the runtime");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn root_is_offered_bypass_only_in_a_sandbox() -> Result<()> {
    let is_root = nix::unistd::geteuid().is_root();
    let [native, _] = runtimes()?;
    let options = options(native).with_variable("IS_SANDBOX", "");
    let mut asking = AskingSession::start(options, json!({"permissionMode": "bypassPermissions"})).await?;
    let modes = offered(&asking.client, &asking.session)?;
    assert_eq!(modes.contains(&json!("bypassPermissions")), !is_root, "{modes:?}");
    assert_eq!(asking.config("permissionMode")? == "bypassPermissions", !is_root);
    let file = asking.host.work_dir().join("made.txt");
    asking.say("turn-1", &[write(&file, "x"), text("done")]).await?;
    if is_root {
        let call = asking.permission("turn-1").await?;
        asking.deny("turn-1", &call, "deny", "").await?;
    }
    asking.finish("turn-1").await?;
    assert_eq!(file.exists(), !is_root);
    Ok(())
}
