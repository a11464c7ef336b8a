//! Attachments of messages, with both runtimes and a client that serves its own files.

use ahp_types::commands::ContentEncoding;
use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{Observer, TestHost, runtimes};
use serde_json::{Value, json};

use crate::asking::{AskingSession, CLIENT, text};
use crate::options;

/// A valid image.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAADAAAAAwCAIAAADYYG7QAAAAOklEQVR42u3OQQ0AAAgEoItjRCMayxbOBxsBSPW8EiEhISEhISEhISEhISEhISEhISEhISEhISGhOwtQIKi1/VWWSgAAAABJRU5ErkJggg==";

/// A file that only the client has.
const REMOTE: &str = "vscode-remote://host/w/a.py";

/// The text of a message whose answer repeats what the model was sent.
const ECHO: &str = "#demo\necho";

fn resource(label: &str, uri: &str) -> Value {
    json!({"type": "resource", "label": label, "uri": uri})
}

/// The attachment with a selection of these lines, counted from zero.
fn lines(mut attachment: Value, first: u32, last: u32) -> Value {
    let place = |line: u32| json!({"line": line, "character": 0});
    attachment["selection"] = json!({"range": {"start": place(first), "end": place(last)}});
    attachment
}

/// A session whose client has files, and in whose directory are files.
async fn session(host: TestHost) -> Result<AskingSession> {
    let asking = AskingSession::on(host, json!({})).await?;
    asking.client.serve_files(&[
        (REMOTE, "remote one\nremote two\nremote three\n", ContentEncoding::Utf8),
        ("memory:/shot", PNG, ContentEncoding::Base64),
        ("memory:/junk.png", "AAAA", ContentEncoding::Base64),
    ]);
    let work = asking.host.work_dir();
    std::fs::write(work.join("a.rs"), "local one\nlocal two\nlocal three\n")?;
    std::fs::create_dir(work.join("src"))?;
    let png: Vec<u8> = base64_decoded(PNG)?;
    std::fs::write(work.join("shot.png"), png)?;
    Ok(asking)
}

fn base64_decoded(text: &str) -> Result<Vec<u8>> {
    use base64::Engine as _;
    Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
}

fn message(text: &str, attachments: &Value) -> Value {
    json!({"text": text, "origin": {"kind": "user"}, "attachments": attachments})
}

/// Sends a message with attachments and waits until its turn is over.
async fn send(asking: &mut AskingSession, turn: &str, attachments: Value) -> Result<Value> {
    send_text(asking, turn, ECHO, attachments).await
}

async fn send_text(asking: &mut AskingSession, turn: &str, text: &str, attachments: Value) -> Result<Value> {
    let started = json!({
        "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z",
        "message": message(text, &attachments),
    });
    asking.client.dispatch(&asking.chat, started).await?;
    asking.client.until_turn_over(&asking.chat.clone(), turn).await?;
    asking.turn(turn)
}

fn uri_in(asking: &AskingSession, name: &str) -> String {
    format!("{}/{name}", asking.host.work_uri())
}

#[tokio::test]
async fn attachments_of_every_kind_reach_the_model_and_stay_after_a_restart() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = session(TestHost::start(options(claude.clone())).await?).await?;
        asking.say("turn-1", &[text("the secret word is plum")]).await?;
        asking.finish("turn-1").await?;
        let work = asking.host.work_dir();
        let chat = json!({"type": "chat", "label": "earlier", "resource": asking.chat, "endTurn": "turn-1"});
        let attachments = json!([
            lines(resource("a.rs", &uri_in(&asking, "a.rs")), 1, 2),
            resource("src", &uri_in(&asking, "src")),
            lines(resource("a.py", REMOTE), 1, 1),
            chat,
        ]);
        let turn = send(&mut asking, "turn-2", attachments).await?;
        let answer = asking.text("turn-2")?;
        for expected in [
            format!("- {} (lines 2-3)\n- {}", work.join("a.rs").display(), work.join("src").display()),
            format!("The user attached \"a.py\" ({REMOTE}, lines 2-2):\nremote two\n"),
            "The user attached the chat \"earlier\". It is not a part of this conversation:".to_owned(),
        ] {
            ensure!(answer.contains(&expected), "{expected:?} is missing in:\n{answer}");
        }
        ensure!(!answer.contains("remote three") && !answer.contains("local one"), "{answer}");
        let seen = turn["message"]["attachments"].clone();
        let uri = seen[2]["uri"].as_str().context("no URI")?.to_owned();
        ensure!(uri.starts_with("innkeeper-output:/"), "{seen:#}");

        // A runtime adds text after images, so the next message shows what the model was sent.
        let images =
            json!([resource("shot.png", &uri_in(&asking, "shot.png")), resource("pasted", "memory:/shot")]);
        let turn = send_text(&mut asking, "turn-3", "look", images).await?;
        ensure!(turn["state"] == "complete", "{turn:#}");

        // The queue delivers attachments, too.
        let queued = json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": "q1",
            "message": message(ECHO, &json!([resource("b.py", REMOTE)]))});
        asking.client.dispatch(&asking.chat, queued).await?;
        let chat = asking.chat.clone();
        let is_over = |client: &Observer| client.chat(&chat).is_ok_and(|chat| chat.turns.len() == 4);
        asking.client.until("the end of the queued message", is_over).await?;
        let id = asking.client.chat(&chat)?.turns.last().context("no turn")?.id.clone();
        let answer = asking.text(&id)?;
        let expected = format!("The user attached \"b.py\" ({REMOTE}):\nremote one\n");
        ensure!(answer.contains(&expected), "{answer}");
        ensure!(answer.matches("user: [image]").count() == 2, "{answer}");

        let AskingSession { host, session, .. } = asking;
        let host = host.start_again(options(claude)).await?;
        let mut client = host.observer(CLIENT).await?;
        let chat = client.open_session(&session).await?;
        let mut restored = AskingSession { host, client, session, chat };
        ensure!(restored.turn("turn-2")?["message"]["attachments"] == seen);
        let mut raw = restored.host.raw().await?;
        raw.initialize("reader", &[]).await?;
        let read = raw.request("resourceRead", json!({"uri": uri, "encoding": "utf-8"})).await?;
        ensure!(read["result"]["data"] == "remote one\nremote two\nremote three\n", "{read}");
        // The client that had the file is gone, but its attachment can be sent again.
        let mut again = seen[2].clone();
        again["label"] = json!("again");
        send(&mut restored, "turn-5", json!([again])).await?;
        let answer = restored.text("turn-5")?;
        let expected = format!("The user attached \"again\" ({REMOTE}, lines 2-2):\nremote two\n");
        ensure!(answer.contains(&expected), "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn hostile_attachments_do_not_reach_the_runtime() -> Result<()> {
    for claude in runtimes()? {
        let mut asking = session(TestHost::start(options(claude)).await?).await?;
        asking.say("turn-1", &[text("hello")]).await?;
        asking.finish("turn-1").await?;
        let pids = asking.host.runtimes();
        let work = asking.host.work_dir();
        std::fs::write(work.join("broken.png"), "\u{1}\u{2}\u{3}")?;
        std::fs::File::create(work.join("huge.png"))?.set_len(50 * 1024 * 1024)?;
        let outside = asking.host.home().join("outside.png");
        std::fs::write(&outside, base64_decoded(PNG)?)?;
        std::os::unix::fs::symlink(&outside, work.join("link.png"))?;
        for (name, problem) in [
            ("broken.png", "its data is not a PNG, JPEG, GIF or WebP image"),
            ("huge.png", "it has 50.0 MB, and the limit is 5.0 MB"),
            ("link.png", "it is not in a session's directory or a granted directory"),
            ("none.png", "it does not exist"),
            ("memory:/junk.png", "its data is not a PNG, JPEG, GIF or WebP image"),
            ("memory:/none.png", "the client returned an error: no such file"),
        ] {
            let uri = if name.contains(':') { name.to_owned() } else { uri_in(&asking, name) };
            let turn = send(&mut asking, name, json!([resource("shot", &uri)])).await?;
            let error = turn["responseParts"][0]["error"].clone();
            let said = error["message"].as_str().context("no error")?;
            ensure!(error["errorType"] == "invalid_image" && said.contains(problem), "{name}: {turn:#}");
        }

        // What is not an image is named instead.
        let attachments = json!([
            resource("none.txt", &uri_in(&asking, "none.txt")),
            resource("none.py", "vscode-remote://host/w/none.py"),
        ]);
        let turn = send(&mut asking, "unread", attachments).await?;
        ensure!(turn["state"] == "complete", "{turn:#}");
        let notice = turn["responseParts"][0]["content"].as_str().context("no notice")?;
        ensure!(notice.contains("- none.txt: it does not exist\n- none.py: the client returned"), "{notice}");
        let answer = asking.text("unread")?;
        let missing = format!("- {}: it does not exist", work.join("none.txt").display());
        ensure!(answer.contains(&missing) && answer.contains("none.py: the client returned"), "{answer}");
        ensure!(!answer.contains("[image]"), "{answer}");
        ensure!(asking.host.runtimes() == pids, "an attachment ended the runtime");
    }
    Ok(())
}
