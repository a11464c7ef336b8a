//! Loads the recorded frames.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) const VERSIONS: [&str; 2] = ["0.2.112", "0.3.325"];

/// The recording of one process.
pub(crate) struct Recording {
    /// Scenario name, marked if it is the earlier of two processes.
    pub(crate) name: String,
    /// Frames on the runtime's stdout, in order.
    pub(crate) frames: Vec<Value>,
}

/// All recordings of a version, by name.
pub(crate) fn recordings(version: &str) -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(version);
    let mut scenarios: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    scenarios.sort();
    let mut found = Vec::new();
    for scenario in scenarios {
        let name = scenario.file_name().unwrap().to_str().unwrap().to_owned();
        let earlier = scenario.join("first-process/wire.jsonl");
        if earlier.exists() {
            found.push(Recording { name: format!("{name} (first process)"), frames: read(&earlier) });
        }
        found.push(Recording { name, frames: read(&scenario.join("wire.jsonl")) });
    }
    found
}

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["dir"] == "cli->host").map(|mut line| line["msg"].take()).collect()
}
