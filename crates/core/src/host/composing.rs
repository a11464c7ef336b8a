//! What is known about sessions from outside of them: where they work, and what
//! helps to compose a message in them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ahp_types::common::Uri;
use serde::Deserialize;

use super::{Host, LoadError, lock};
use crate::agent::CommandInfo;
use crate::channel::ChannelUri;
use crate::directories::path_of;

/// What helps to compose a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composing {
    /// Where the session works.
    pub directories: Vec<PathBuf>,
    /// What its agent can be told at the start of a message.
    pub commands: Vec<CommandInfo>,
}

/// The directories in the list of sessions, each with the sessions that have it, and of
/// which state of the list they are.
#[derive(Debug, Default)]
pub(super) struct StoredDirectories(Mutex<Option<(u64, Arc<ListedDirectories>)>>);

type ListedDirectories = BTreeMap<PathBuf, Vec<ChannelUri>>;

impl Host {
    /// The directories that sessions work in.
    pub fn working_directories(&self) -> Vec<PathBuf> {
        let sessions: Vec<ChannelUri> = lock(&self.sessions).by_uri.keys().cloned().collect();
        let live: HashMap<ChannelUri, Vec<PathBuf>> = sessions
            .into_iter()
            .filter_map(|session| self.look(&session).map(|(_, directories)| (session, directories)))
            .collect();
        let listed = self.listed_directories();
        // Of a session in memory its own document is right: its row follows a moment later.
        let stored = listed.iter().filter(|(_, of)| of.iter().any(|session| !live.contains_key(session)));
        let mut directories: Vec<PathBuf> = stored.map(|(directory, _)| directory.clone()).collect();
        directories.extend(live.into_values().flatten());
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
        let commands = self
            .provider(Some(&provider))
            .map(|provider| provider.offer().borrow().commands.to_vec())
            .unwrap_or_default();
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

    /// The directories in the list of sessions. To find them the whole list has to be
    /// read, so they are kept until one of them changes.
    fn listed_directories(&self) -> Arc<ListedDirectories> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Row {
            resource: Uri,
            #[serde(default)]
            working_directories: Vec<Uri>,
        }
        // Before the list is read: what changes meanwhile makes it be read again.
        let edition = self.store.directories_edition();
        if let Some((known, directories)) = lock(&self.stored_directories.0).as_ref()
            && *known == edition
        {
            return Arc::clone(directories);
        }
        let mut directories = ListedDirectories::new();
        for row in self.store.list(None, None).rows {
            let Ok(row) = serde_json::from_str::<Row>(row.get()) else { continue };
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
