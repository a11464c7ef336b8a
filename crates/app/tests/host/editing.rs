//! A session whose agent edits files without questions, and a client that looks at its changesets.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use innkeeper_testkit::{HostOptions, Observer, RawClient, TestHost};
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};

use crate::asking::{AskingSession, tool};
use crate::options;

/// A host with one session.
pub(crate) struct EditingSession {
    pub(crate) asking: AskingSession,
    raw: RawClient,
}

/// Options with which the runtime asks no questions, also as root.
pub(crate) fn unasked(claude: PathBuf) -> HostOptions {
    options(claude).with_variable("IS_SANDBOX", "1")
}

impl EditingSession {
    pub(crate) async fn start(options: HostOptions) -> Result<Self> {
        Self::on(TestHost::start(options).await?).await
    }

    pub(crate) async fn on(host: TestHost) -> Result<Self> {
        let config = json!({"permissionMode": "bypassPermissions"});
        Self::with(AskingSession::on(host, config).await?).await
    }

    pub(crate) async fn with(asking: AskingSession) -> Result<Self> {
        let mut raw = asking.host.raw().await?;
        raw.initialize("operator", &[]).await?;
        Ok(Self { asking, raw })
    }

    /// Kills the host, starts another one and opens the session again.
    pub(crate) async fn after_crash(self, options: HostOptions) -> Result<Self> {
        let AskingSession { host, session, .. } = self.asking;
        let host = host.start_again(options).await?;
        let mut client = host.observer(crate::asking::CLIENT).await?;
        let chat = client.open_session(&session).await?;
        Self::with(AskingSession { host, client, session, chat }).await
    }

    /// A file in the working directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.asking.host.work_dir().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Result<String> {
        std::fs::read_to_string(self.file(name)).with_context(|| format!("cannot read {name}"))
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> Result<()> {
        Ok(std::fs::write(self.file(name), content)?)
    }

    /// Runs a turn with these steps. Returns its tool calls.
    pub(crate) async fn turn(&mut self, turn: &str, steps: &[String]) -> Result<Vec<Value>> {
        self.asking.say(turn, steps).await?;
        self.asking.finish(turn).await
    }

    /// The steps that replace a text in a file.
    pub(crate) fn edit(&self, name: &str, old: &str, new: &str) -> [String; 2] {
        let path = self.file(name);
        let edit = json!({"file_path": path, "old_string": old, "new_string": new});
        [tool("Read", &json!({"file_path": path})), tool("Edit", &edit)]
    }

    fn channel(&self, view: &str) -> String {
        format!("{}/changeset/{view}", self.asking.session)
    }

    /// Subscribes to a changeset and waits until it contains exactly these files.
    pub(crate) async fn shows(&mut self, view: &str, names: &[&str]) -> Result<()> {
        let channel = self.channel(view);
        if self.asking.client.state(&channel).is_none() {
            self.asking.client.subscribe(&channel).await?;
        }
        let mut expected: Vec<String> = names.iter().map(|name| uri_of(&self.file(name))).collect();
        expected.sort();
        let listed = |client: &Observer| {
            let state = client.changeset(&channel).ok()?;
            let mut files: Vec<String> = state.files.iter().map(|file| file.id.clone()).collect();
            files.sort();
            Some((format!("{:?}", state.status), files))
        };
        let what = format!("{view} with {names:?}");
        let waited = self
            .asking
            .client
            .until(&what, |client| listed(client) == Some(("Ready".to_owned(), expected.clone())))
            .await;
        waited.with_context(|| format!("{:#?}", self.asking.client.changeset(&channel)))
    }

    /// A file of a changeset that is subscribed to.
    pub(crate) fn changed(&self, view: &str, name: &str) -> Result<Value> {
        let state = self.asking.client.changeset(&self.channel(view))?;
        let id = uri_of(&self.file(name));
        let file = state.files.iter().find(|file| file.id == id).with_context(|| format!("no {name}"))?;
        Ok(serde_json::to_value(file)?)
    }

    /// Runs an operation on a file or, without one, on the whole changeset. Returns the response.
    pub(crate) async fn respond(
        &mut self,
        view: &str,
        operation: &str,
        file: Option<&str>,
        force: bool,
    ) -> Result<Value> {
        let mut params = json!({"channel": self.channel(view), "operationId": operation});
        if let Some(name) = file {
            params["target"] = json!({"kind": "resource", "resource": uri_of(&self.file(name))});
        }
        if force {
            params["_meta"] = json!({"innkeeper.force": true});
        }
        self.raw.request("invokeChangesetOperation", params).await
    }

    /// Runs an operation that changes or marks files.
    pub(crate) async fn operate(&mut self, view: &str, operation: &str, file: Option<&str>) -> Result<()> {
        let response = self.respond(view, operation, file, false).await?;
        ensure!(response["error"].is_null(), "{operation} {file:?}: {response:#}");
        ensure!(response["result"]["_meta"]["innkeeper.refused"].is_null(), "{response:#}");
        Ok(())
    }

    /// Reads a stored content.
    pub(crate) async fn blob(&mut self, uri: &Value) -> Result<String> {
        let response = self.raw.request("resourceRead", json!({"uri": uri})).await?;
        let result = &response["result"];
        let data = result["data"].as_str().with_context(|| format!("{uri}: {response:#}"))?;
        if result["encoding"] == "base64" {
            let bytes = base64::engine::general_purpose::STANDARD.decode(data)?;
            return Ok(String::from_utf8(bytes)?);
        }
        Ok(data.to_owned())
    }

    /// The contents before and after an edit; `-` for no file.
    pub(crate) async fn sides(&mut self, edit: &Value) -> Result<(String, String)> {
        let mut sides = Vec::new();
        for side in [&edit["before"], &edit["after"]] {
            sides.push(match side["content"]["uri"].is_string() {
                true => self.blob(&side["content"]["uri"]).await?,
                false => "-".to_owned(),
            });
        }
        let after = sides.pop().context("no side")?;
        Ok((sides.pop().context("no side")?, after))
    }
}

/// The edits in the result of a call, or in the metadata of a command.
pub(crate) fn edits_of(call: &Value) -> Vec<Value> {
    let lists = [&call["content"], &call["_meta"]["innkeeper.edits"]];
    let content = lists.into_iter().filter_map(Value::as_array).flatten();
    content.filter(|content| content["type"] == "fileEdit").cloned().collect()
}

/// Runs git in a directory, without the configuration of the machine.
pub(crate) fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a short command that the test waits for")]
    let output = std::process::Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.com")])
        .output()?;
    ensure!(output.status.success(), "git {arguments:?}: {output:?}");
    Ok(())
}
