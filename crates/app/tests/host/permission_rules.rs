//! Permission rules and hard denials, with both pinned runtimes.

use std::path::Path;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, create, echo, shell, text, write};
use crate::options;

/// Options with which the runtime can switch to the mode without questions, also as root.
fn sandboxed(claude: std::path::PathBuf) -> HostOptions {
    options(claude).with_variable("IS_SANDBOX", "1")
}

/// Whether `git init` ran in this folder.
fn is_repository(folder: &Path) -> bool {
    folder.join(".git").exists()
}

/// The rules that the remembering options of a request add.
fn rules(call: &Value) -> &Value {
    &call["_meta"]["innkeeper.permission"]["rules"]
}

#[tokio::test]
async fn shell_command_is_asked_with_its_rule_and_rule_allows_it_for_the_session() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = AskingSession::start(options(claude), json!({})).await?;
        let folder = asking.host.work_dir();
        asking.say("turn-1", &[shell("git init one"), shell("git init two"), text("done")]).await?;
        let call = asking.permission("turn-1").await?;
        assert_eq!(call["toolInput"], "git init one");
        assert_eq!(rules(&call), &json!(["Bash(git init:*)"]), "{call:#}");
        asking.approve("turn-1", &call, "allow-session").await?;
        assert_eq!(asking.config("permissions")?["allow"], json!(["Bash(git init:*)"]));
        asking.finish("turn-1").await?;
        assert!(is_repository(&folder.join("one")) && is_repository(&folder.join("two")));
        assert_eq!(asking.times_asked()?, 1, "a call that a rule allows was asked");

        // The rule covers neither another command in the same line nor another session.
        asking.say("turn-2", &[shell("git init three && ./deploy"), text("done")]).await?;
        let call = asking.permission("turn-2").await?;
        asking.deny("turn-2", &call, "deny", "").await?;
        asking.finish("turn-2").await?;
        assert!(!folder.join("three").exists());
        (asking.session, asking.chat) = create(&mut asking.client, &asking.host, json!({})).await?;
        asking.say("turn-1", &[shell("git init three"), text("done")]).await?;
        let call = asking.permission("turn-1").await?;
        asking.deny("turn-1", &call, "deny", "").await?;
        asking.finish("turn-1").await?;
        assert!(!folder.join("three").exists());

        for file in [folder.join(".claude"), asking.host.config_dir().join("settings.json")] {
            assert!(!file.exists(), "the runtime stored the rule in {}", file.display());
        }
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn rule_of_workspace_applies_to_other_sessions_and_after_restart() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut asking = AskingSession::start(options(native.clone()), json!({})).await?;
    asking.say("turn-1", &[shell("git init one"), text("done")]).await?;
    let call = asking.permission("turn-1").await?;
    asking.approve("turn-1", &call, "allow-workspace").await?;
    asking.finish("turn-1").await?;

    (asking.session, asking.chat) = create(&mut asking.client, &asking.host, json!({})).await?;
    asking.say("turn-1", &[shell("git init two"), text("done")]).await?;
    asking.finish("turn-1").await?;
    assert_eq!(asking.times_asked()?, 0);

    let host = asking.host.start_again(options(native)).await?;
    let mut asking = AskingSession::on(host, json!({})).await?;
    asking.say("turn-1", &[shell("git init three"), text("done")]).await?;
    asking.finish("turn-1").await?;
    assert_eq!(asking.times_asked()?, 0);
    let folder = asking.host.work_dir();
    assert!(["one", "two", "three"].iter().all(|name| is_repository(&folder.join(name))));
    Ok(())
}

#[tokio::test]
async fn deny_rule_refuses_command_under_bypass_and_other_commands_run() -> Result<()> {
    for claude in runtimes()? {
        let config = json!({
            "permissionMode": "bypassPermissions", "permissions": {"deny": ["Bash(git init:*)"]},
        });
        let mut asking = AskingSession::start(sandboxed(claude), config).await?;
        let folder = asking.host.work_dir();
        let denied = ["git init one", "touch before && git init one", "bash -c 'git init one'"];
        let mut steps: Vec<String> = denied.iter().map(|command| shell(command)).collect();
        steps.extend([shell("touch allowed"), write(&folder.join("made.txt"), "x"), echo()]);
        asking.say("turn-1", &steps).await?;
        let calls = asking.finish("turn-1").await?;
        assert_eq!(calls.len(), denied.len() + 2, "{calls:#?}");
        assert!(!folder.join("one").exists() && !folder.join("before").exists(), "a denied command ran");
        for call in &calls[..denied.len()] {
            is_refused(call);
        }
        assert!(folder.join("allowed").exists() && folder.join("made.txt").exists());
        assert_eq!(asking.times_asked()?, 0);
        let said = asking.text("turn-1")?;
        assert!(said.contains("Bash(git init:*)"), "the model is not told which rule denies: {said}");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn ask_rule_is_enforced_under_bypass() -> Result<()> {
    for claude in runtimes()? {
        let config = json!({
            "permissionMode": "bypassPermissions",
            "permissions": {"ask": ["Edit(asked.txt)", "Edit(.claude/**)", "Bash(git init:*)"]},
        });
        let mut asking = AskingSession::start(sandboxed(claude), config).await?;
        let folder = asking.host.work_dir();
        // In this mode, the native runtime does not ask about its own settings by itself.
        let files = [folder.join("asked.txt"), folder.join(".claude/settings.json")];
        let steps = [
            write(&files[0], "x"),
            write(&files[1], "{}"),
            shell("git init one"),
            write(&folder.join("free.txt"), "x"),
            write(&folder.join(".vscode/settings.json"), "{}"),
            text("done"),
        ];
        asking.say("turn-1", &steps).await?;
        for wanted in ["asked.txt", "settings.json", "git init one"] {
            let call = asking.permission("turn-1").await?;
            assert!(call.to_string().contains(wanted), "{wanted} is not asked: {call:#}");
            asking.deny("turn-1", &call, "deny", "").await?;
        }
        asking.finish("turn-1").await?;
        assert!(files.iter().all(|file| !file.exists()) && !folder.join("one").exists());
        assert!(folder.join("free.txt").exists() && folder.join(".vscode/settings.json").exists());
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

/// Checks that a call was refused without asking the user.
fn is_refused(call: &Value) {
    let cancelled = call["status"] == "cancelled" && call["reason"] == "denied";
    let failed =
        call["status"] == "completed" && call["success"] == false && call["error"]["code"] == "denied";
    assert!(cancelled || failed, "not refused: {call:#}");
}

#[tokio::test]
async fn write_to_data_directory_is_refused_under_bypass_with_hooks_disabled() -> Result<()> {
    for claude in runtimes()? {
        let mut options = sandboxed(claude);
        // Switches off the hooks of the user's files, but not those of the host.
        options.user_settings = Some(json!({"disableAllHooks": true}));
        let mut asking =
            AskingSession::start(options, json!({"permissionMode": "bypassPermissions"})).await?;
        let (folder, data) = (asking.host.work_dir(), asking.host.data_dir());
        std::os::unix::fs::symlink(&data, folder.join("link"))?;
        std::fs::create_dir(folder.join(".git"))?;
        let token = std::fs::read(data.join("token"))?;
        let data_text = data.to_str().context("path is not UTF-8")?;
        let steps = [
            write(&data.join("made.txt"), "x"),
            write(&folder.join("link/made.txt"), "x"),
            write(&folder.join(".git/config"), "x"),
            shell(&format!("echo x > {data_text}/token")),
            shell("cp note.txt link/made.txt"),
            write(&folder.join("made.txt"), "x"),
            text("done"),
        ];
        asking.say("turn-1", &steps).await?;
        let calls = asking.finish("turn-1").await?;
        assert_eq!(calls.len(), steps.len() - 1, "{calls:#?}");
        for call in &calls[..steps.len() - 2] {
            is_refused(call);
        }
        assert!(!data.join("made.txt").exists() && !folder.join(".git/config").exists());
        assert_eq!(std::fs::read(data.join("token"))?, token);
        assert!(folder.join("made.txt").exists(), "a permitted file was not written");
        assert_eq!(asking.times_asked()?, 0);
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
