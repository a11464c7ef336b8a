//! Information about sessions for other parts of the host: their directories, and data for
//! completions while composing a message.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ahp_types::common::Uri;
use serde::Deserialize;

use super::{Host, LoadError, lock};
use crate::agent::CommandInfo;
use crate::channel::ChannelUri;
use crate::directories::path_of;

/// Completion data for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composing {
    /// The session's working directories.
    pub directories: Vec<PathBuf>,
    /// The agent's commands, which can start a message.
    pub commands: Vec<CommandInfo>,
}

/// A cache of the directories in the session list, each with its sessions, and the version
/// of the list from which it was built.
#[derive(Debug, Default)]
pub(super) struct StoredDirectories(Mutex<Option<(u64, Arc<ListedDirectories>)>>);

type ListedDirectories = BTreeMap<PathBuf, Vec<ChannelUri>>;

impl Host {
    /// The directories of all sessions.
    pub fn working_directories(&self) -> Vec<PathBuf> {
        let sessions: Vec<ChannelUri> = lock(&self.sessions).by_uri.keys().cloned().collect();
        let live: HashMap<ChannelUri, Vec<PathBuf>> = sessions
            .into_iter()
            .filter_map(|session| {
                self.provider_and_directories(&session).map(|(_, directories)| (session, directories))
            })
            .collect();
        let listed = self.listed_directories();
        // For a session in memory the document is used, because its row is updated later.
        let stored = listed.iter().filter(|(_, of)| of.iter().any(|session| !live.contains_key(session)));
        let mut directories: Vec<PathBuf> = stored.map(|(directory, _)| directory.clone()).collect();
        directories.extend(live.into_values().flatten());
        directories.sort_unstable();
        directories.dedup();
        directories
    }

    /// Completion data for a message in a session or chat.
    pub async fn composing(&self, channel: &ChannelUri) -> Result<Option<Composing>, LoadError> {
        self.load(channel).await?;
        let session = self.addresses.session_of(channel);
        let Some((provider, directories)) =
            self.provider_and_directories(session.as_ref().unwrap_or(channel))
        else {
            return Ok(None);
        };
        let commands = self
            .provider(Some(&provider))
            .map(|provider| provider.offer().borrow().commands.to_vec())
            .unwrap_or_default();
        Ok(Some(Composing { directories, commands }))
    }

    /// The provider and the directories of a session in memory.
    fn provider_and_directories(&self, session: &ChannelUri) -> Option<(String, Vec<PathBuf>)> {
        self.store.read(session, |state| {
            let state = state.session()?;
            let directories = state.working_directories.as_deref().unwrap_or_default();
            Some((state.provider.clone(), paths(directories).collect()))
        })?
    }

    /// The directories in the session list. Cached until a directory changes, because the
    /// whole list has to be read.
    fn listed_directories(&self) -> Arc<ListedDirectories> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct DirectoriesRow {
            resource: Uri,
            #[serde(default)]
            working_directories: Vec<Uri>,
        }
        // Read before the list, so that a concurrent change invalidates the cache.
        let edition = self.store.directories_edition();
        if let Some((known, directories)) = lock(&self.stored_directories.0).as_ref()
            && *known == edition
        {
            return Arc::clone(directories);
        }
        let mut directories = ListedDirectories::new();
        for row in self.store.list(None, None).rows {
            let Ok(row) = serde_json::from_str::<DirectoriesRow>(row.get()) else { continue };
            for path in paths(&row.working_directories) {
                directories.entry(path).or_default().push(ChannelUri::new(&row.resource));
            }
        }
        let directories = Arc::new(directories);
        *lock(&self.stored_directories.0) = Some((edition, Arc::clone(&directories)));
        directories
    }
}

fn paths(directories: &[Uri]) -> impl Iterator<Item = PathBuf> {
    directories.iter().filter_map(|uri| path_of(uri))
}
