//! Storage failures: the disk is full, read-only, damaged or in use.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use innkeeper_testkit::{TestHost, leave_out, runtimes};
use innkeeper_workspace::uri_of;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{Opened, new_session, options, without_runtime};

/// Runs `innkeeper serve` on a data directory and expects it to exit.
fn refused(data: &Path) -> Result<(Option<i32>, String)> {
    refused_at(data, "127.0.0.1:0")
}

/// Like [`refused`], with a listen address.
fn refused_at(data: &Path, listen: &str) -> Result<(Option<i32>, String)> {
    #[expect(clippy::disallowed_methods, reason = "a host that fails to start exits")]
    let output = Command::new(env!("CARGO_BIN_EXE_innkeeper"))
        .args(["serve", "--json", "--no-open", "--upstream", "demo", "--listen", listen, "--data-dir"])
        .arg(data)
        .env("HOME", data)
        .output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// A mount for one test, removed when dropped.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// Mounts, or skips the test if mounting is not permitted.
    fn new(arguments: &[&str], place: &'a Path) -> Result<Option<Self>> {
        #[expect(clippy::disallowed_methods, reason = "waited for here")]
        let mounted = Command::new("mount").args(arguments).arg(place).output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Ok(Some(Self(place))),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        leave_out(&format!("mounting is not permitted ({reason}); run this test as root"))?;
        Ok(None)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "waited for here")]
        let gone = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(gone.is_ok_and(|status| status.success()), "cannot unmount {}", self.0.display());
    }
}

#[tokio::test]
async fn second_host_on_the_same_data_directory_is_rejected() -> Result<()> {
    let host = TestHost::start(without_runtime()).await?;
    let (code, said) = refused(&host.data_dir())?;
    assert_ne!(code, Some(0));
    assert!(said.contains("another innkeeper host") && said.contains(&host.pid()?.to_string()), "{said}");
    Ok(())
}

#[tokio::test]
async fn data_directory_of_newer_version_is_rejected_and_unchanged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    #[expect(clippy::disallowed_methods, reason = "no store has it open")]
    let database = rusqlite::Connection::open(folder.path().join("innkeeper.db"))?;
    database.pragma_update(None, "user_version", 9_999)?;
    drop(database);
    let (code, said) = refused(folder.path())?;
    assert_ne!(code, Some(0));
    assert!(said.contains("newer version"), "{said}");
    #[expect(clippy::disallowed_methods, reason = "no store has it open")]
    let database = rusqlite::Connection::open(folder.path().join("innkeeper.db"))?;
    let version: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let tables: i64 = database.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    assert_eq!((version, tables), (9_999, 0));
    Ok(())
}

#[tokio::test]
async fn read_only_data_directory_is_rejected_with_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", "ro,size=1m,mode=0700", "tmpfs"], folder.path())?
    else {
        return Ok(());
    };
    let (code, said) = refused(folder.path())?;
    assert_ne!(code, Some(0));
    assert!(said.contains("--data-dir"), "{said}");
    Ok(())
}

#[tokio::test]
async fn full_disk_is_reported_to_the_client_and_loses_nothing() -> Result<()> {
    let [native, _] = runtimes()?;
    let folder = tempfile::tempdir()?;
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs"], folder.path())?
    else {
        return Ok(());
    };
    let mut with_disk = options(native);
    with_disk.data_dir = Some(folder.path().to_owned());
    let host = TestHost::start(with_disk.clone()).await?;
    let Opened { mut client, chat, session } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "#demo\ntext a finished answer").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    let filler = folder.path().join("filler");
    fill(&filler)?;
    let mut refusal = None;
    for number in 0..2_000 {
        let title = format!("{number} {}", "x".repeat(1_000));
        let seq = client.dispatch(&session, json!({"type": "session/titleChanged", "title": title})).await?;
        client.settle().await?;
        let reason = client.answers("first", seq).first().and_then(|answer| answer.rejection_reason.clone());
        if reason.is_some() {
            refusal = reason;
            break;
        }
    }
    let refusal = refusal.context("no action was rejected on a full disk")?;
    ensure!(refusal.contains("disk is full"), "{refusal}");

    std::fs::remove_file(&filler)?;
    let seq = client.dispatch(&session, json!({"type": "session/titleChanged", "title": "room"})).await?;
    client.settle().await?;
    let answers = client.answers("first", seq);
    assert!(answers.first().is_some_and(|answer| answer.rejection_reason.is_none()), "{answers:?}");
    let host = host.start_again(with_disk).await?;
    let mut again = host.observer("again").await?;
    again.subscribe(&session).await?;
    again.subscribe(&chat).await?;
    assert_eq!(again.chat(&chat)?.turns, client.chat(&chat)?.turns);
    assert_eq!(again.session(&session)?.title, "room");
    host.signal(Signal::SIGTERM)?;
    Ok(())
}

#[tokio::test]
async fn copy_that_would_fill_the_disk_is_rejected_and_cleaned_up() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", "size=40m,mode=0700", "tmpfs"], folder.path())?
    else {
        return Ok(());
    };
    let host = TestHost::start(without_runtime()).await?;
    let mut client = host.raw().await?;
    client.initialize("c", &[]).await?;
    let uri = |name: &str| uri_of(&folder.path().join(name));
    let session = json!({"channel": new_session(), "workingDirectories": [uri_of(folder.path())]});
    client.request("createSession", session).await?;
    // The second copy would fit, but not with the reserve that must stay free.
    std::fs::write(folder.path().join("large"), vec![0; 13 * 1024 * 1024])?;
    let mut copy = async |name| {
        client.request("resourceCopy", json!({"source": uri("large"), "destination": uri(name)})).await
    };
    assert_eq!(copy("first").await?["error"], Value::Null);
    let refused = copy("second").await?;
    assert!(refused["error"]["message"].to_string().contains("almost full"), "{refused}");
    let left = std::fs::read_dir(folder.path())?.count();
    assert_eq!(left, 2, "expected the file and its first copy");
    Ok(())
}

/// Fills the file system.
fn fill(file: &Path) -> Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(file)?;
    let block = [0; 4096];
    while file.write_all(&block).is_ok() {}
    Ok(())
}

#[tokio::test]
async fn damaged_database_is_set_aside_and_readable_data_is_kept() -> Result<()> {
    let [native, _] = runtimes()?;
    let mut host = TestHost::start(options(native.clone())).await?;
    let Opened { mut client, chat, session } = Opened::new(&host).await?;
    client.say(&chat, "turn-1", "#demo\ntext a finished answer").await?;
    client.until_turn_over(&chat, "turn-1").await?;
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    let file = host.data_dir().join("innkeeper.db");
    let mut bytes = std::fs::read(&file)?;
    // The header in the first page is kept; the second page is overwritten.
    let page = 4096;
    for byte in bytes.iter_mut().skip(page).take(page) {
        *byte = 0xA5;
    }
    std::fs::write(&file, bytes)?;
    let host = host.start_again(options(native)).await?;
    let mut again = host.observer("again").await?;
    let rows = again.list_sessions().await?;
    if rows.iter().any(|row| row.resource == session) {
        again.subscribe(&chat).await?;
    }
    // The host works regardless of how much was lost.
    let Opened { client: mut fresh, chat, .. } = Opened::new(&host).await?;
    fresh.say(&chat, "turn-1", "#demo\ntext it goes on").await?;
    fresh.until_turn_over(&chat, "turn-1").await?;
    let left: Vec<_> =
        std::fs::read_dir(host.data_dir())?.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    ensure!(
        left.iter().any(|name| name.to_string_lossy().contains("damaged")),
        "a file was deleted: {left:?}"
    );
    Ok(())
}

#[tokio::test]
async fn clients_resume_after_a_failed_start() -> Result<()> {
    let mut host = TestHost::start(without_runtime()).await?;
    let hello = host.raw().await?.initialize("c1", &["ahp-root://"]).await?;
    let seen = hello["result"]["serverSeq"].clone();
    host.signal(Signal::SIGTERM)?;
    assert_eq!(host.exit_code(Duration::from_secs(10)).await?, Some(0));
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (code, said) = refused_at(&host.data_dir(), &taken.local_addr()?.to_string())?;
    assert_eq!(code, Some(1), "{said}");
    let host = host.start_again(without_runtime()).await?;
    let back = json!({"clientId": "c1", "lastSeenServerSeq": seen, "subscriptions": ["ahp-root://"]});
    let answer = host.raw().await?.request("reconnect", back).await?;
    assert_eq!(answer["result"]["type"], "replay", "{answer}");
    Ok(())
}
