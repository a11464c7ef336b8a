//! What is written down about a running runtime.
//!
//! Owns the file's format. A record of another run of the system names no process any more.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::process_table::{Identity, boot};

/// A runtime that was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRuntime {
    /// The conversation it works on.
    pub conversation: Uuid,
    /// The process that watches over it, if it is alive.
    pub warden: Option<u32>,
    /// The directory of the registry.
    pub registry: PathBuf,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) conversation: Uuid,
    /// The warden; nothing where processes cannot be told apart.
    pub(super) warden: Option<Identity>,
    /// What the runtime's processes have in their environment.
    pub(super) mark: Uuid,
    /// The run of the system that the processes belong to.
    pub(super) boot: Option<String>,
}

impl Record {
    pub(super) fn new(conversation: Uuid, warden: u32, mark: Uuid) -> Self {
        let warden = i32::try_from(warden).ok().and_then(Identity::of);
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

    /// Reads a record; nothing if it was not written to its end.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        let record: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| record.get(name)?.as_str().map(str::to_owned);
        let warden = record.get("warden").and_then(|warden| {
            let pid = i32::try_from(warden.get("pid")?.as_i64()?).ok()?;
            Some(Identity { pid, started: warden.get("started")?.as_u64()? })
        });
        Some(Self {
            conversation: text("conversation")?.parse().ok()?,
            warden,
            mark: text("mark")?.parse().ok()?,
            boot: text("boot"),
        })
    }

    /// Whether its processes could still be there.
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
