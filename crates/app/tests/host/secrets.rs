//! The host's secrets are hidden from other processes and from logs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{HostOptions, TestHost, eventually};
use nix::unistd::Uid;
use serde_json::json;

use crate::{Opened, options, without_runtime};

/// Secrets in the host's environment.
const SECRETS: [(&str, &str); 3] = [
    ("ANTHROPIC_API_KEY", "marker-anthropic-key"),
    ("INNKEEPER_GITHUB_TOKEN", "marker-github-token"),
    ("INNKEEPER_TOKEN", "marker-client-token"),
];

/// A user without privileges.
const NOBODY: u32 = 65534;

fn with_secrets(options: HostOptions) -> HostOptions {
    SECRETS.iter().fold(options, |options, (name, value)| options.with_variable(name, value))
}

/// Writes an executable shell script.
fn script(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, format!("#!/bin/sh\n{text}\n"))?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}

/// Runs `cat` as the user of the host.
fn read_as(user: Option<u32>, path: &str) -> Result<Output> {
    use std::os::unix::process::CommandExt as _;
    #[expect(clippy::disallowed_methods, reason = "a short command that the test waits for")]
    let mut command = Command::new("cat");
    command.arg(path);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Ok(command.output()?)
}

#[tokio::test]
async fn process_of_the_same_user_cannot_read_the_secrets_of_the_host() -> Result<()> {
    // Root can read everything, so root starts the host as another user.
    let user = Uid::effective().is_root().then_some(NOBODY);
    let place = tempfile::tempdir()?;
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    // Copied, since the other user may not have access to the build directory.
    let binary = place.path().join("innkeeper");
    std::fs::copy(env!("CARGO_BIN_EXE_innkeeper"), &binary)?;
    let claude = place.path().join("claude");
    script(&claude, "exec sleep 600")?;
    let host = TestHost::start(HostOptions { binary, user, ..with_secrets(options(claude)) }).await?;
    let Opened { client, chat, .. } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "hi").await?;
    let sleeping = || host.processes().iter().any(|process| process.arguments == ["sleep", "600"]);
    eventually(Duration::from_secs(10), "the runtime runs", sleeping).await?;

    for file in ["environ", "mem", "maps", "auxv"] {
        let output = read_as(user, &format!("/proc/{}/{file}", host.pid()?))?;
        assert!(!output.status.success() && output.stdout.is_empty(), "{file} is readable");
        assert!(String::from_utf8_lossy(&output.stderr).contains("Permission denied"), "{output:?}");
    }
    let started = host.processes();
    assert!(started.iter().any(innkeeper_testkit::processes::TestProcess::is_warden), "{started:?}");
    for process in started {
        let output = read_as(user, &format!("/proc/{}/environ", process.pid))?;
        assert!(output.status.success(), "the processes of the agent are not restricted: {output:?}");
        no_secret_in(&output.stdout, &process.arguments.join(" "));
    }
    Ok(())
}

#[track_caller]
fn no_secret_in(bytes: &[u8], place: &str) {
    let text = String::from_utf8_lossy(bytes);
    for (name, secret) in SECRETS {
        assert!(!text.contains(secret), "{name} is visible to {place}");
    }
}

#[tokio::test]
async fn browser_and_npm_do_not_inherit_secrets() -> Result<()> {
    let place = tempfile::tempdir()?;
    for program in ["xdg-open", "npm"] {
        let seen = place.path().join(format!("{program}.environment"));
        let file = seen.display();
        script(&place.path().join(program), &format!("env > {file}.part; mv {file}.part {file}"))?;
    }
    let path = format!("{}:/usr/bin:/bin", place.path().display());
    let mut options = with_secrets(without_runtime()).with_variable("PATH", &path);
    options.arguments = vec!["--open".to_owned()];
    let host = TestHost::start(options).await?;
    #[expect(clippy::disallowed_methods, reason = "a short command that the test waits for")]
    let installing = Command::new(env!("CARGO_BIN_EXE_innkeeper"))
        .args(["runtime", "--runtimes-dir"])
        .arg(place.path().join("runtimes"))
        .arg("install")
        .env_clear()
        .envs(SECRETS)
        .env("PATH", &path)
        .env("HOME", host.home())
        .current_dir(place.path())
        .output()?;
    assert!(!installing.status.success(), "the fake npm names no registry: {installing:?}");
    for program in ["xdg-open", "npm"] {
        let seen = place.path().join(format!("{program}.environment"));
        eventually(Duration::from_secs(10), program, || seen.exists()).await?;
        let environment = std::fs::read(&seen)?;
        assert!(String::from_utf8_lossy(&environment).contains("HOME="), "no environment was recorded");
        no_secret_in(&environment, program);
    }
    Ok(())
}

#[tokio::test]
async fn trace_log_and_wire_log_contain_no_tokens() -> Result<()> {
    let place = tempfile::tempdir()?;
    let (log, wire): (PathBuf, PathBuf) = (place.path().join("log"), place.path().join("wire"));
    let mut options = with_secrets(without_runtime()).with_variable("INNKEEPER_LOG", "trace");
    options.arguments = vec!["--wire-log".to_owned(), wire.display().to_string()];
    options.log_file = Some(log.clone());
    let mut host = TestHost::start(options).await?;
    let mut client = host.raw().await?;
    client.initialize("first", &[]).await?;
    let token = "marker-authenticate";
    for params in [
        json!({"channel": "ahp-root://", "resource": "https://api.test", "token": token}),
        json!({"channel": "ahp-root://", "resource": "https://api.test", "token": [token]}),
        json!({"channel": "ahp-root://", "resource": {"a": token}, "token": token, "expiresIn": token}),
        json!(token),
    ] {
        client.request("authenticate", params).await?;
    }
    client
        .send_text(&format!("{{\"method\":\"authenticate\",\"params\":{{\"token\":\"{token}\"}},}}"))
        .await?;
    client.request("ping", json!({"channel": "ahp-root://"})).await?;
    drop(client);
    host.signal(nix::sys::signal::Signal::SIGTERM)?;
    host.exit_code(Duration::from_secs(10)).await?;
    for (file, expected) in [(log, "client connected"), (wire, "initialize")] {
        let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        assert!(text.contains(expected), "{} is incomplete: {text}", file.display());
        assert!(!text.contains(token), "an authenticate token is in {}", file.display());
        no_secret_in(text.as_bytes(), &file.display().to_string());
    }
    Ok(())
}
