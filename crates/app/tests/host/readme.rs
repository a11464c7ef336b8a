//! The commands in the README.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Returns the lines of the README that start with a word.
fn lines(word: &str) -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect())
}

#[tokio::test]
async fn curl_commands_work_as_written() -> Result<()> {
    let home = tempfile::tempdir()?;
    #[expect(clippy::disallowed_methods, reason = "the command under test, killed when dropped")]
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_innkeeper"))
        .args(["gateway", "--json", "--upstream", "demo", "--data-dir"])
        .arg(home.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdout = BufReader::new(gateway.stdout.take().context("no stdout")?).lines();
    let ready = tokio::time::timeout(Duration::from_secs(30), stdout.next_line()).await??;
    let ready: Value = serde_json::from_str(&ready.context("the gateway exited")?)?;
    let base_url = ready["base_url"].as_str().context("no address")?;
    let bearer = format!("{}.readme", ready["nonce"].as_str().context("no nonce")?);
    let lines = lines("curl ")?;
    assert_eq!(lines.len(), 3, "{lines:?}");
    let expected = ["\"has_more\"", "\"stop_reason\":\"end_turn\"", "event: message_stop"];
    for (line, expected) in lines.iter().zip(expected) {
        #[expect(clippy::disallowed_methods, reason = "the command under test, waited for immediately")]
        let output = Command::new("sh")
            .args(["-c", line])
            .env("ANTHROPIC_BASE_URL", base_url)
            .env("ANTHROPIC_AUTH_TOKEN", &bearer)
            .env("NO_PROXY", "127.0.0.1")
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(expected), "{line}: {said}");
    }
    Ok(())
}
