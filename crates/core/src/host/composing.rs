//! What is known about sessions from outside of them: where they work, and what
//! helps to compose a message in them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ahp_types::common::Uri;
use serde::Deserialize;
use tokio::time::Instant;

use super::documents::working_directory;
use super::{Host, LoadError, lock};
use crate::agent::CommandInfo;
use crate::channel::ChannelUri;

/// How long the directories of sessions that are not in memory are taken as known.
/// To find them, the whole list has to be read.
const FRESH: Duration = Duration::from_secs(2);

/// What helps to compose a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composing {
    /// Where the session works.
    pub directories: Vec<PathBuf>,
    /// What its agent can be told at the start of a message.
    pub commands: Vec<CommandInfo>,
}

/// The directories in the list of sessions, as they were a moment ago.
#[derive(Debug, Default)]
pub(super) struct StoredDirectories(Mutex<Option<(Instant, Arc<[PathBuf]>)>>);

impl Host {
    /// The directories that sessions work in.
    pub fn working_directories(&self) -> Vec<PathBuf> {
        let sessions: Vec<ChannelUri> = lock(&self.sessions).by_uri.keys().cloned().collect();
        let mut directories: Vec<PathBuf> =
            sessions.iter().filter_map(|session| self.look(session)).flat_map(|(_, found)| found).collect();
        directories.extend_from_slice(&self.listed_directories());
        directories.sort_unstable();
        directories.dedup();
        directories
    }

    /// What helps to compose a message for a session, or for a chat of one.
    pub async fn composing(&self, channel: &ChannelUri) -> Result<Option<Composing>, LoadError> {
        self.load(channel).await?;
        let session = self.addresses.session_of(channel);
        let Some((provider, directories)) = self.look(session.as_ref().unwrap_or(channel)) else {
            return Ok(None);
        };
        let commands = self.provider(Some(&provider)).map(|provider| provider.commands()).unwrap_or_default();
        Ok(Some(Composing { directories, commands }))
    }

    /// The agent and the directories of a session in memory.
    fn look(&self, session: &ChannelUri) -> Option<(String, Vec<PathBuf>)> {
        self.store.read(session, |state| {
            let state = state.session()?;
            let directories = state.working_directories.as_deref().unwrap_or_default();
            Some((state.provider.clone(), paths(directories).collect()))
        })?
    }

    /// The directories in the list of sessions.
    fn listed_directories(&self) -> Arc<[PathBuf]> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Row {
            #[serde(default)]
            working_directories: Vec<Uri>,
        }
        if let Some((at, known)) = lock(&self.stored_directories.0).as_ref()
            && at.elapsed() < FRESH
        {
            return Arc::clone(known);
        }
        let rows = self.store.list(0, None).rows;
        let mut directories: Vec<PathBuf> = rows
            .iter()
            .filter_map(|row| serde_json::from_str::<Row>(row.get()).ok())
            .flat_map(|row| paths(&row.working_directories).collect::<Vec<_>>())
            .collect();
        directories.sort_unstable();
        directories.dedup();
        let directories: Arc<[PathBuf]> = directories.into();
        *lock(&self.stored_directories.0) = Some((Instant::now(), Arc::clone(&directories)));
        directories
    }
}

fn paths(directories: &[Uri]) -> impl Iterator<Item = PathBuf> {
    directories.iter().filter_map(|uri| working_directory(std::slice::from_ref(uri)).ok().flatten())
}
