//! Project settings run nothing in a folder that the user does not trust. With both pinned
//! runtimes, which run the same settings in a trusted folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ahp_types::state::TurnState;
use anyhow::{Context as _, Result};
use innkeeper_testkit::{Observer, TestHost, eventually, runtimes};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};

use crate::{Opened, options, trust_command};

/// Time for a hook to run; it usually takes far less.
const WAIT: Duration = Duration::from_secs(30);

/// A message that uses a tool, so that its hooks would run.
const USE_TOOL: &str = "#demo\ntool Read {\"file_path\":\"note.txt\"}\ntext done";

/// Hooks of the settings file.
const HOOKS: [&str; 5] = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"];

/// A project whose settings leave a file in `ran` when they run something.
struct HostileProject {
    folder: PathBuf,
    ran: PathBuf,
}

impl HostileProject {
    fn new(host: &TestHost) -> Result<Self> {
        let project = Self { folder: host.work_dir(), ran: host.home().join("ran") };
        std::fs::create_dir(&project.ran)?;
        let hooks: serde_json::Map<String, Value> =
            HOOKS.iter().map(|event| ((*event).to_owned(), project.hook(event))).collect();
        project.write(
            ".claude/settings.json",
            &json!({
                "hooks": hooks,
                "apiKeyHelper": project.command("apiKeyHelper"),
                "enableAllProjectMcpServers": true,
                "enabledPlugins": {"tool@market": true},
            })
            .to_string(),
        )?;
        let server = json!({"command": "sh", "args": ["-c", project.command("mcp")]});
        project.write(".mcp.json", &json!({"mcpServers": {"server": server}}).to_string())?;
        project.write(
            ".claude/agents/helper.md",
            &format!(
                "---\nname: helper\ndescription: Helps\nhooks:\n  SessionStart:\n    - hooks:\n        - type: command\n          \
                 command: \"{}\"\n---\nHelp.\n",
                project.command("agent")
            ),
        )?;
        project.write("note.txt", "a note")?;
        Ok(project)
    }

    fn command(&self, name: &str) -> String {
        format!("touch {}/{name}", self.ran.display())
    }

    fn hook(&self, name: &str) -> Value {
        json!([{"hooks": [{"type": "command", "command": self.command(name)}]}])
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.folder.join(path);
        std::fs::create_dir_all(path.parent().context("no parent")?)?;
        Ok(std::fs::write(path, text)?)
    }

    /// The names of the settings that ran.
    fn ran(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.ran)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn assert_nothing_ran(&self) -> Result<()> {
        assert_eq!(self.ran()?, Vec::<String>::new());
        Ok(())
    }

    /// Waits until all hooks and the MCP server have run.
    async fn until_all_ran(&self) -> Result<()> {
        let all = || {
            self.ran()
                .is_ok_and(|ran| HOOKS.iter().chain(&["mcp"]).all(|name| ran.iter().any(|had| had == name)))
        };
        eventually(WAIT, "the hooks and the MCP server of a trusted folder run", all).await
    }
}

/// Waits for the question about the folder and returns it.
async fn question(client: &mut Observer, session: &str) -> Result<Value> {
    let asked =
        |client: &Observer| client.session(session).is_ok_and(|session| session.input_needed.is_some());
    client.until("the question", asked).await?;
    let needed = serde_json::to_value(&client.session(session)?.input_needed)?;
    Ok(needed[0]["request"].clone())
}

async fn answer(client: &Observer, chat: &str, question: &Value, option: &str) -> Result<()> {
    let completed = json!({
        "type": "chat/inputCompleted", "requestId": question["id"], "response": "accept",
        "answers": {"choice": {"state": "submitted", "value": {"kind": "selected", "value": option}}},
    });
    client.dispatch(chat, completed).await.map(drop)
}

async fn until_idle(client: &mut Observer, chat: &str) -> Result<TurnState> {
    let over = |client: &Observer| client.chat(chat).is_ok_and(|chat| chat.active_turn.is_none());
    client.until("the end of the turn", over).await?;
    Ok(client.chat(chat)?.turns.last().context("no turn")?.state)
}

/// Sends a message and expects that it is answered without a question.
async fn runs_without_question(client: &mut Observer, chat: &str, turn: &str) -> Result<()> {
    client.say(chat, turn, USE_TOOL).await?;
    client.until_turn_over(chat, turn).await?;
    let last = client.chat(chat)?.turns.last().context("no turn")?;
    assert_eq!(last.state, TurnState::Complete, "{last:?}");
    let parts = serde_json::to_string(&last.response_parts)?;
    assert!(!parts.contains("inputRequest"), "asked: {parts}");
    Ok(())
}

#[tokio::test]
async fn settings_run_only_after_user_trusts_folder_and_change_asks_again() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude)).await?;
        let project = HostileProject::new(&host)?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", USE_TOOL).await?;
        let asked = question(&mut client, &session).await?;
        let shown = asked["message"].as_str().context("no message")?;
        for wanted in HOOKS.map(|event| format!("hook {event}")).iter().map(String::as_str).chain([
            "setting apiKeyHelper",
            "setting enabledPlugins",
            "MCP server server",
            ".claude/agents/helper.md",
            &project.command("Stop"),
        ]) {
            assert!(shown.contains(wanted), "{wanted} is missing in {shown}");
        }
        assert_eq!(host.runtimes(), Vec::<u32>::new(), "a runtime was started before the answer");
        project.assert_nothing_ran()?;

        answer(&client, &chat, &asked, "trust").await?;
        assert_eq!(until_idle(&mut client, &chat).await?, TurnState::Complete);
        project.until_all_ran().await?;
        runs_without_question(&mut client, &chat, "turn-2").await?;

        // The same settings in another file also count as a change.
        project.write(
            ".claude/settings.local.json",
            &json!({"hooks": {"Stop": project.hook("later")}}).to_string(),
        )?;
        client.say(&chat, "turn-3", USE_TOOL).await?;
        let asked = question(&mut client, &session).await?;
        assert!(asked["message"].as_str().context("no message")?.contains(&project.command("later")));
        assert!(!project.ran()?.contains(&"later".to_owned()));
        answer(&client, &chat, &asked, "trust").await?;
        assert_eq!(until_idle(&mut client, &chat).await?, TurnState::Complete);
        let ran = || project.ran().is_ok_and(|ran| ran.contains(&"later".to_owned()));
        eventually(WAIT, "the added hook runs", ran).await?;

        // Without a decision, the next message asks again.
        trust_command(&host, &["remove", &project.folder.display().to_string()])?;
        assert_eq!(trust_command(&host, &["list"])?, "");
        client.say(&chat, "turn-4", "hi").await?;
        let asked = question(&mut client, &session).await?;
        answer(&client, &chat, &asked, "cancel").await?;
        assert_eq!(until_idle(&mut client, &chat).await?, TurnState::Cancelled);
    }
    Ok(())
}

#[tokio::test]
async fn restricted_folder_runs_nothing_and_keeps_its_instructions() -> Result<()> {
    for claude in runtimes()? {
        let host = TestHost::start(options(claude.clone())).await?;
        let project = HostileProject::new(&host)?;
        project.write("CLAUDE.md", "Remember the milk.")?;
        let Opened { mut client, session, chat } = Opened::new(&host).await?;
        client.say(&chat, "turn-1", USE_TOOL).await?;
        let asked = question(&mut client, &session).await?;
        answer(&client, &chat, &asked, "restrict").await?;
        assert_eq!(until_idle(&mut client, &chat).await?, TurnState::Complete);
        client.say(&chat, "turn-2", "#demo\necho").await?;
        client.until_turn_over(&chat, "turn-2").await?;
        let seen = serde_json::to_string(&client.chat(&chat)?.turns.last())?;
        assert!(seen.contains("Remember the milk."), "the model does not see CLAUDE.md: {seen}");
        drop(client);

        let host = host.start_again(options(claude)).await?;
        let mut client = host.observer("second").await?;
        client.open_session(&session).await?;
        runs_without_question(&mut client, &chat, "turn-3").await?;
        project.assert_nothing_ran()?;
    }
    Ok(())
}

#[tokio::test]
async fn folder_is_trusted_by_configuration_or_by_client() -> Result<()> {
    for claude in runtimes()? {
        let home = tempfile::tempdir()?;
        let config = home.path().join("config.toml");
        for by_client in [false, true] {
            let mut options = options(claude.clone());
            if !by_client {
                options.arguments.extend(["--config".to_owned(), config.display().to_string()]);
            }
            std::fs::write(&config, "")?;
            let host = TestHost::start(options.clone()).await?;
            let project = HostileProject::new(&host)?;
            let trusted = project.folder.parent().context("no parent")?;
            let host = if by_client {
                host
            } else {
                std::fs::write(&config, format!("trust.folders = [{trusted:?}]"))?;
                host.start_again(options).await?
            };
            let Opened { mut client, chat, .. } = Opened::new(&host).await?;
            if by_client {
                trust_as_vscode(&mut client, trusted).await?;
            }
            runs_without_question(&mut client, &chat, "turn-1").await?;
            project.until_all_ran().await?;
        }
    }
    Ok(())
}

/// Publishes a trusted folder as VS Code does.
async fn trust_as_vscode(client: &mut Observer, folder: &Path) -> Result<()> {
    let trust = json!({"enabled": true, "trustedUris": [uri_of(folder)]});
    let changed = json!({"type": "root/configChanged", "config": {"workspaceTrust": trust}});
    client.dispatch("ahp-root://", changed).await?;
    client.settle().await
}

#[tokio::test]
async fn question_is_asked_again_after_host_was_killed() -> Result<()> {
    let [native, _] = runtimes()?;
    let host = TestHost::start(options(native.clone())).await?;
    let project = HostileProject::new(&host)?;
    let Opened { mut client, session, chat } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", USE_TOOL).await?;
    question(&mut client, &session).await?;
    drop(client);

    let host = host.start_again(options(native)).await?;
    let mut client = host.observer("second").await?;
    client.open_session(&session).await?;
    assert_eq!(until_idle(&mut client, &chat).await?, TurnState::Error);
    client.dispatch(&chat, json!({"type": "chat/turnResume", "turnId": "turn-1"})).await?;
    let asked = question(&mut client, &session).await?;
    project.assert_nothing_ran()?;
    answer(&client, &chat, &asked, "restrict").await?;
    assert_eq!(until_idle(&mut client, &chat).await?, TurnState::Complete);
    project.assert_nothing_ran()
}
