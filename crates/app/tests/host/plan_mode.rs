//! Plan mode: the review of a plan and the mode after it, with both pinned runtimes.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use innkeeper_testkit::runtimes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::asking::{AskingSession, echo, shell, text, tool, write};
use crate::options;

const PLAN: &str = "# The plan\n\n1. Write the file.";

/// A session in plan mode.
struct Planning {
    asking: AskingSession,
    /// The plan file that the runtime tells the model.
    plan_file: PathBuf,
    /// Contains the runtime's configuration.
    _home: TempDir,
}

impl Planning {
    async fn start(claude: PathBuf) -> Result<Self> {
        // The usual name of the runtime's folder, whose other files are asked for.
        let home = tempfile::tempdir()?;
        let config = home.path().join(".claude");
        // With `IS_SANDBOX` the runtime can also bypass permissions as root.
        let options = options(claude)
            .with_variable("IS_SANDBOX", "1")
            .with_variable("CLAUDE_CONFIG_DIR", config.to_str().context("path is not UTF-8")?);
        let mut asking = AskingSession::start(options, json!({"permissionMode": "plan"})).await?;
        asking.say("turn-1", &[echo()]).await?;
        asking.finish("turn-1").await?;
        let said = asking.text("turn-1")?;
        let plans = config.join("plans").display().to_string();
        let at = said.find(&plans).with_context(|| format!("no plan file in {said}"))?;
        let path = said.get(at..).unwrap_or_default();
        let end = path.find(".md").context("the plan file is not Markdown")?;
        let plan_file = PathBuf::from(path.get(..end + 3).unwrap_or_default());
        Ok(Self { asking, plan_file, _home: home })
    }
}

/// Has the agent write its plan and ask for approval, then write a file. Returns the request.
async fn review(planning: &mut Planning, then: &[String]) -> Result<Value> {
    let Planning { asking, plan_file, .. } = planning;
    let mut steps = vec![write(plan_file, PLAN), tool("ExitPlanMode", &json!({}))];
    steps.extend_from_slice(then);
    asking.say("turn-2", &steps).await?;
    let call = asking.permission("turn-2").await?;
    assert_eq!((&call["toolName"], &call["_meta"]["innkeeper.plan"]), (&json!("ExitPlanMode"), &json!(true)));
    assert!(call["invocationMessage"].to_string().contains("1. Write the file."), "{call:#}");
    let options = call["options"].as_array().context("no options")?;
    let ids: Vec<&str> = options.iter().filter_map(|option| option["id"].as_str()).collect();
    assert_eq!(ids, ["approve", "approve-accept-edits", "keep-planning"]);
    assert_eq!(asking.times_asked()?, 1, "the plan file was asked for");
    Ok(call)
}

#[tokio::test]
async fn approved_plan_ends_plan_mode_and_edits_are_asked() -> Result<()> {
    for claude in runtimes()? {
        let mut planning = Planning::start(claude).await?;
        let file = planning.asking.host.work_dir().join("made.txt");
        let call = review(&mut planning, &[write(&file, "x"), text("done")]).await?;
        let asking = &mut planning.asking;
        asking.approve("turn-2", &call, "approve").await?;
        let call = asking.permission("turn-2").await?;
        assert_eq!(call["toolName"], "Write");
        assert_eq!(asking.config("permissionMode")?, "default", "the mode after the plan is not published");
        asking.approve("turn-2", &call, "allow-once").await?;
        asking.finish("turn-2").await?;
        assert!(file.exists());
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn plan_approved_with_edits_runs_edits_of_the_same_turn_without_asking() -> Result<()> {
    for claude in runtimes()? {
        let mut planning = Planning::start(claude).await?;
        let file = planning.asking.host.work_dir().join("made.txt");
        let call = review(&mut planning, &[write(&file, "x"), text("done")]).await?;
        let asking = &mut planning.asking;
        asking.approve("turn-2", &call, "approve-accept-edits").await?;
        asking.finish("turn-2").await?;
        assert!(file.exists());
        assert_eq!(asking.times_asked()?, 1);
        assert_eq!(asking.config("permissionMode")?, "acceptEdits");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn rejected_plan_keeps_plan_mode_and_model_gets_the_feedback() -> Result<()> {
    for claude in runtimes()? {
        let mut planning = Planning::start(claude).await?;
        let call = review(&mut planning, &[echo()]).await?;
        let asking = &mut planning.asking;
        asking.deny("turn-2", &call, "keep-planning", "Add a test first.").await?;
        let calls = asking.finish("turn-2").await?;
        assert_eq!(calls[1]["status"], "cancelled", "{}", calls[1]);
        let said = asking.text("turn-2")?;
        assert!(said.contains("Add a test first."), "the model did not get the feedback: {said}");
        assert_eq!(asking.config("permissionMode")?, "plan");
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn changes_are_asked_in_plan_mode_and_mode_that_agent_chooses_is_published() -> Result<()> {
    for claude in runtimes()? {
        let options = options(claude).with_variable("IS_SANDBOX", "1");
        let mut asking = AskingSession::start(options, json!({})).await?;
        let folder = asking.host.work_dir();
        let steps = [
            tool("EnterPlanMode", &json!({})),
            write(&folder.join("made.txt"), "x"),
            shell("git init one"),
            text("done"),
        ];
        asking.say("turn-1", &steps).await?;
        for name in ["Write", "Bash"] {
            let call = asking.permission("turn-1").await?;
            assert_eq!(call["toolName"], name);
            assert_eq!(asking.config("permissionMode")?, "plan", "the agent's mode is not published");
            asking.deny("turn-1", &call, "deny", "").await?;
        }
        asking.finish("turn-1").await?;
        assert!(!folder.join("made.txt").exists() && !folder.join("one").exists());
        asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}
