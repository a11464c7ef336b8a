//! A killed process loses no acknowledged request.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use super::*;

/// The directory that the child process of the next test writes to; set only by its parent.
const CHILD: &str = "INNKEEPER_EDIT_TEST_CHILD";

fn content(number: usize) -> StoredBlob {
    blob(format!("{number} ").repeat(2000))
}

#[test]
#[ignore = "runs as the child process of the next test"]
fn child_process_edits_until_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let config = EditDatabaseConfig::new(LARGE);
    let database = EditDatabase::open(file(Path::new(&directory)), config).expect("the database opens");
    for undone in database.unfinished_operations().expect("operations") {
        database.finish_operation(undone.id, Vec::new(), None).expect("finished");
    }
    let first = database.records(&session(1)).expect("records").len();
    let mut out = std::io::stdout();
    for number in first.. {
        let (before, after) = (content(number), content(number + 1));
        let change = record(1, &number.to_string(), version(&before), version(&after));
        database.append(vec![change], vec![before.clone(), after.clone()]).expect("appended");
        let undo = OperationRecord { label: number.to_string(), ..operation(1, &after, &before) };
        database.begin_operation(undo.clone(), vec![before, after]).expect("begun");
        writeln!(out, "\nbegun {number}").expect("the parent reads the line");
        database.finish_operation(undo.id, Vec::new(), None).expect("finished");
    }
}

#[expect(clippy::disallowed_methods, reason = "the test needs a process that it can kill")]
fn start_child(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash::child_process_edits_until_killed", "--ignored", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts")
}

#[test]
fn acknowledged_edits_survive_kill() {
    let directory = tempfile::tempdir().expect("a temporary directory is created");
    let mut acknowledged = 0;
    for cycle in 1..=6_usize {
        let mut child = start_child(directory.path());
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut seen = 0;
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("begun ") {
                acknowledged = number.parse::<usize>().expect("a number") + 1;
                seen += 1;
            }
            if seen == cycle * 5 {
                child.kill().expect("the child is killed");
            }
        }
        assert!(seen >= cycle * 5, "the child ended early");
        child.wait().expect("the child exits");

        let config = EditDatabaseConfig::new(LARGE);
        let database = EditDatabase::open(file(directory.path()), config).expect("the database opens");
        let records = database.records(&session(1)).expect("records");
        assert!(records.len() >= acknowledged, "{} of {acknowledged}", records.len());
        for (number, record) in records.iter().enumerate() {
            assert_eq!(record.turn, number.to_string(), "no missing or duplicate records");
            let after = content(number + 1);
            assert_eq!(record.after, version(&after));
            assert_eq!(database.read_blob(after.digest).expect("read"), Some(after.content));
        }
        // The last acknowledged operation is either unfinished or the last of its session.
        let unfinished = database.unfinished_operations().expect("operations");
        let last = database.last_operation(&session(1)).expect("read");
        let newest =
            unfinished.iter().chain(&last).filter_map(|operation| operation.label.parse().ok()).max();
        assert!(newest >= Some(acknowledged - 1), "{newest:?} of {acknowledged}");
        database.close();
        let whole: String = sql(&file(directory.path()))
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("the check runs");
        assert_eq!(whole, "ok");
    }
}
