//! Changes of files by tools and commands: shown, kept and taken back. With both pinned runtimes.

use std::os::unix::fs::PermissionsExt as _;

use ahp_types::errors::ahp_error_codes::CONFLICT;
use anyhow::Result;
use innkeeper_testkit::runtimes;
use serde_json::{Value, json};

use crate::asking::{AskingSession, shell, text, tool, write};
use crate::editing::{EditingSession, edits_of, git, unasked};
use crate::options;

#[tokio::test]
async fn one_file_is_kept_and_the_other_undone() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        editing.write("one.txt", "1\n2\n3\n")?;
        editing.write("two.txt", "a\r\nb\r\n")?;
        let [read_one, edit_one] = editing.edit("one.txt", "2", "two");
        let [read_two, edit_two] = editing.edit("two.txt", "b", "B");
        let calls = editing.turn("turn-1", &[read_one, edit_one, read_two, edit_two, text("done")]).await?;
        let edits = edits_of(&calls[1]);
        assert_eq!(edits.len(), 1, "{:#}", calls[1]);
        assert_eq!(edits[0]["diff"], json!({"added": 1, "removed": 1}));
        assert_eq!(editing.sides(&edits[0]).await?, ("1\n2\n3\n".to_owned(), "1\ntwo\n3\n".to_owned()));

        editing.shows("turn/turn-1", &["one.txt", "two.txt"]).await?;
        editing.shows("session", &["one.txt", "two.txt"]).await?;
        editing.operate("turn/turn-1", "keep", Some("one.txt")).await?;
        editing.operate("turn/turn-1", "undo", None).await?;
        assert_eq!(
            (editing.read("one.txt")?, editing.read("two.txt")?),
            ("1\ntwo\n3\n".into(), "a\r\nb\r\n".into())
        );
        editing.shows("turn/turn-1", &["one.txt"]).await?;
        assert_eq!(editing.changed("turn/turn-1", "one.txt")?["reviewed"], true);
        editing.operate("turn/turn-1", "redo", None).await?;
        assert_eq!(editing.read("two.txt")?, "a\r\nB\r\n");

        // A second edit updates the changeset and ends the review.
        let [read_again, edit_again] = editing.edit("one.txt", "3", "three");
        editing
            .turn("turn-2", &[read_again, edit_again, write(&editing.file("new.txt"), "n\n"), text("done")])
            .await?;
        editing.shows("session", &["new.txt", "one.txt", "two.txt"]).await?;
        editing.shows("turn/turn-2", &["new.txt", "one.txt"]).await?;
        let edit = editing.changed("session", "one.txt")?["edit"].clone();
        assert_eq!(editing.sides(&edit).await?, ("1\n2\n3\n".into(), "1\ntwo\nthree\n".into()));
        let edit = editing.changed("turn/turn-2", "one.txt")?["edit"].clone();
        assert_eq!(editing.sides(&edit).await?, ("1\ntwo\n3\n".into(), "1\ntwo\nthree\n".into()));
        // The user's own change of other lines stays.
        editing.write("one.txt", "0\n1\ntwo\nthree\n")?;
        editing.operate("session", "undo", None).await?;
        assert_eq!(
            (editing.read("one.txt")?, editing.read("two.txt")?),
            ("0\n1\n2\n3\n".into(), "a\r\nb\r\n".into())
        );
        assert!(!editing.file("new.txt").exists());
        editing.shows("session", &[]).await?;
        editing.asking.agrees_with_a_fresh_client().await?;
    }
    Ok(())
}

#[tokio::test]
async fn changes_of_a_command_are_undone_and_conflicts_refused() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        for (name, content) in [("base.txt", "1\n2\n3\n"), ("gone.txt", "gone\n"), ("run.sh", "exit\n")] {
            editing.write(name, content)?;
        }
        std::fs::set_permissions(editing.file("run.sh"), std::fs::Permissions::from_mode(0o640))?;
        let command = "sed -i s/2/two/ base.txt; mkdir -p gen/deep; echo made > gen/deep/new.txt; \
                       rm gone.txt; chmod 755 run.sh";
        let calls = editing.turn("turn-1", &[shell(command), text("done")]).await?;
        assert_eq!(edits_of(&calls[0]).len(), 4, "{:#}", calls[0]);
        editing.shows("turn/turn-1", &["base.txt", "gen/deep/new.txt", "gone.txt", "run.sh"]).await?;
        let sources =
            editing.changed("turn/turn-1", "base.txt")?["_meta"]["innkeeper.edit"]["sources"].clone();
        assert_eq!(sources, json!(["shell"]));

        editing.operate("turn/turn-1", "undo", Some("gen/deep/new.txt")).await?;
        assert!(!editing.file("gen").exists(), "the created directories stay");
        // The user changes the same line: nothing is overwritten unless it is forced.
        editing.write("base.txt", "1\nTWO\n3\n")?;
        let refused = editing.respond("turn/turn-1", "undo", Some("base.txt"), false).await?;
        assert_eq!(refused["error"]["code"], CONFLICT, "{refused:#}");
        assert_eq!(editing.read("base.txt")?, "1\nTWO\n3\n");
        let conflict = &refused["error"]["data"]["refused"][0];
        assert_eq!(conflict["canForce"], true, "{refused:#}");
        let preview = editing.blob(&conflict["preview"]).await?;
        assert!(
            preview.contains("<<<<<<<") && preview.contains("TWO") && preview.contains("\n2\n"),
            "{preview}"
        );
        let forced = editing.respond("turn/turn-1", "undo", Some("base.txt"), true).await?;
        assert_eq!(forced["error"], Value::Null, "{forced:#}");
        assert_eq!(editing.read("base.txt")?, "1\n2\n3\n");
        editing.operate("turn/turn-1", "undo", None).await?;
        assert_eq!(editing.read("gone.txt")?, "gone\n");
        let mode = std::fs::metadata(editing.file("run.sh"))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        editing.shows("turn/turn-1", &[]).await?;
    }
    Ok(())
}

/// A notebook with one cell. The runtime formats it in another way.
const NOTEBOOK: &str = r#"{"cells":[{"cell_type":"code","id":"c1","metadata":{},"source":"x = 1","outputs":[],"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;

#[tokio::test]
async fn notebook_and_read_only_file_are_restored() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        editing.write("n.ipynb", NOTEBOOK)?;
        let notebook = editing.file("n.ipynb");
        let steps = [
            tool("Read", &json!({"file_path": notebook})),
            tool("NotebookEdit", &json!({"notebook_path": notebook, "cell_id": "c1", "new_source": "x = 2"})),
            shell("printf 'a\\0b' > binary; ln -s n.ipynb link; echo x > locked; chmod 400 locked"),
            text("done"),
        ];
        let calls = editing.turn("turn-1", &steps).await?;
        assert_eq!(edits_of(&calls[1]).len(), 1, "{:#}", calls[1]);
        editing.shows("turn/turn-1", &["binary", "link", "locked", "n.ipynb"]).await?;
        editing.operate("turn/turn-1", "undo", None).await?;
        assert_eq!(editing.read("n.ipynb")?, NOTEBOOK);
        for name in ["binary", "link", "locked"] {
            assert!(editing.file(name).symlink_metadata().is_err(), "{name} stays");
        }
    }
    Ok(())
}

#[tokio::test]
async fn untracked_file_of_a_repository_is_discarded() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude)).await?;
        let folder = editing.file("");
        editing.write("kept.txt", "1\n")?;
        for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "first"]] {
            git(&folder, arguments)?;
        }
        editing.shows("uncommitted", &[]).await?;
        editing.turn("turn-1", &[shell("echo 2 >> kept.txt; echo new > made.txt"), text("done")]).await?;
        editing.shows("uncommitted", &["kept.txt", "made.txt"]).await?;
        let edit = editing.changed("uncommitted", "kept.txt")?["edit"].clone();
        assert_eq!(editing.sides(&edit).await?, ("1\n".into(), "1\n2\n".into()));
        editing.operate("uncommitted", "undo", Some("made.txt")).await?;
        assert!(!editing.file("made.txt").exists());
        assert_eq!(editing.read("kept.txt")?, "1\n2\n");
        editing.shows("uncommitted", &["kept.txt"]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn permission_request_shows_what_the_call_would_change() -> Result<()> {
    for claude in runtimes()? {
        let asking = AskingSession::start(options(claude), json!({})).await?;
        let mut editing = EditingSession::with(asking).await?;
        editing.write("one.txt", "1\n2\n")?;
        let [read, edit] = editing.edit("one.txt", "2", "two");
        editing.asking.say("turn-1", &[read, edit, text("done")]).await?;
        let call = editing.asking.permission("turn-1").await?;
        let items = call["edits"]["items"].as_array().cloned().unwrap_or_default();
        assert_eq!(items.len(), 1, "{call:#}");
        assert_eq!(items[0]["diff"], json!({"added": 1, "removed": 1}), "{call:#}");
        assert_eq!(editing.sides(&items[0]).await?, ("1\n2\n".into(), "1\ntwo\n".into()));
        // A change that the user makes while the question is open is not the agent's.
        editing.write("other.txt", "mine\n")?;
        editing.asking.approve("turn-1", &call, "allow-once").await?;
        editing.asking.finish("turn-1").await?;
        editing.shows("turn/turn-1", &["one.txt"]).await?;

        editing.asking.say("turn-2", &[shell("touch denied.txt"), text("done")]).await?;
        let call = editing.asking.permission("turn-2").await?;
        editing.write("mine.txt", "mine\n")?;
        editing.asking.deny("turn-2", &call, "deny", "").await?;
        editing.asking.finish("turn-2").await?;
        editing.shows("turn/turn-2", &[]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn contents_and_undo_survive_a_crash_of_the_host() -> Result<()> {
    for claude in runtimes()? {
        let mut editing = EditingSession::start(unasked(claude.clone())).await?;
        editing.write("one.txt", "1\n2\n3\n")?;
        let [read, edit] = editing.edit("one.txt", "2", "two");
        let calls =
            editing.turn("turn-1", &[read, edit, shell("echo made > made.txt"), text("done")]).await?;
        let recorded = edits_of(&calls[1]);
        let mut editing = editing.after_crash(unasked(claude)).await?;
        assert_eq!(editing.sides(&recorded[0]).await?, ("1\n2\n3\n".into(), "1\ntwo\n3\n".into()));
        editing.shows("turn/turn-1", &["made.txt", "one.txt"]).await?;
        editing.write("one.txt", "1\ntwo\n3\n4\n")?;
        editing.operate("turn/turn-1", "undo", None).await?;
        assert_eq!(editing.read("one.txt")?, "1\n2\n3\n4\n");
        assert!(!editing.file("made.txt").exists());
        editing.operate("turn/turn-1", "redo", None).await?;
        assert_eq!(
            (editing.read("one.txt")?, editing.read("made.txt")?),
            ("1\ntwo\n3\n4\n".into(), "made\n".into())
        );
    }
    Ok(())
}
