//! The record of a running runtime.
//!
//! Owns the file format. A record of an earlier boot does not refer to any running process.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::process_table::{ProcessIdentity, boot};

/// A recorded runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRuntime {
    /// The runtime's conversation.
    pub conversation: Uuid,
    /// Process id of the warden, if it is running.
    pub warden: Option<u32>,
    /// Directory of the registry.
    pub registry: PathBuf,
}

/// The content of a record file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) conversation: Uuid,
    /// The warden; `None` on systems without a process table.
    pub(super) warden: Option<ProcessIdentity>,
    /// Mark in the environment of the runtime's processes.
    pub(super) mark: Uuid,
    /// The boot during which the record was written.
    pub(super) boot: Option<String>,
}

impl Record {
    pub(super) fn new(conversation: Uuid, warden: u32, mark: Uuid) -> Self {
        let warden = i32::try_from(warden).ok().and_then(ProcessIdentity::of);
        Self { conversation, warden, mark, boot: boot() }
    }

    pub(super) fn to_json(&self) -> String {
        let warden = self.warden.map(|warden| json!({ "pid": warden.pid, "started": warden.started }));
        let record = json!({
            "conversation": self.conversation.to_string(), "warden": warden,
            "mark": self.mark.to_string(), "boot": self.boot,
        });
        format!("{record}\n")
    }

    /// Parses a record; `None` if it is incomplete.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        let record: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| record.get(name)?.as_str().map(str::to_owned);
        let warden = record.get("warden").and_then(|warden| {
            let pid = i32::try_from(warden.get("pid")?.as_i64()?).ok()?;
            Some(ProcessIdentity { pid, started: warden.get("started")?.as_u64()? })
        });
        Some(Self {
            conversation: text("conversation")?.parse().ok()?,
            warden,
            mark: text("mark")?.parse().ok()?,
            boot: text("boot"),
        })
    }

    /// Whether the processes of the record may still exist.
    pub(super) fn is_of_this_boot(&self) -> bool {
        self.boot.is_some() && self.boot == boot()
    }

    pub(super) fn to_running(&self, path: &Path) -> RunningRuntime {
        let warden = self.warden.filter(|warden| self.is_of_this_boot() && warden.is_alive());
        RunningRuntime {
            conversation: self.conversation,
            warden: warden.map(|warden| warden.pid.unsigned_abs()),
            registry: path.parent().unwrap_or(path).to_owned(),
        }
    }
}
