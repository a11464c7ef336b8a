//! The data directory and the paths in it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use crate::cli::DataArguments;
use crate::permissions;

/// Directories used by this process.
#[derive(Clone, Debug)]
pub(crate) struct DataDirectories {
    data: PathBuf,
    runtimes: PathBuf,
}

impl DataDirectories {
    /// Resolves the directories without creating them.
    pub(crate) fn resolve(arguments: &DataArguments) -> Result<Self> {
        let data = match &arguments.data_dir {
            Some(data) => std::path::absolute(data).context("cannot resolve the data directory")?,
            None => {
                default_data_dir().ok_or_else(|| anyhow!("cannot find the home directory; set --data-dir"))?
            }
        };
        let runtimes = match &arguments.runtimes_dir {
            Some(runtimes) => {
                std::path::absolute(runtimes).context("cannot resolve the runtimes directory")?
            }
            None => data.join("runtimes"),
        };
        Ok(Self { data, runtimes })
    }

    /// Creates the data directory with mode 0700, or checks the mode of an existing one.
    pub(crate) fn create(&self) -> Result<()> {
        create_private(&self.data)?;
        permissions::check_directory(&self.data)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Directory of installed runtimes.
    pub(crate) fn runtimes(&self) -> &Path {
        &self.runtimes
    }

    /// Path of the token file.
    pub(crate) fn token(&self) -> PathBuf {
        self.data.join("token")
    }

    /// Path of the redirect file that opens the page in a browser.
    pub(crate) fn page_link(&self) -> PathBuf {
        self.data.join("page.html")
    }

    /// Path of the decisions about folders.
    pub(crate) fn trust(&self) -> PathBuf {
        self.data.join("trust.json")
    }

    /// Path of the edit log's database.
    pub(crate) fn edits(&self) -> PathBuf {
        self.data.join("blobs.db")
    }

    /// Directory that records the started runtimes.
    pub(crate) fn started(&self) -> PathBuf {
        self.data.join("started")
    }

    /// Directory for short-lived private files.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.data.join("scratch")
    }

    /// Working directory of sessions without one.
    pub(crate) fn workspace(&self) -> Result<PathBuf> {
        let workspace = self.data.join("workspace");
        create_private(&workspace)?;
        Ok(workspace)
    }
}

fn create_private(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}; choose another --data-dir", dir.display()))
}

fn default_data_dir() -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    if cfg!(target_os = "macos") {
        return Some(home?.join("Library/Application Support/innkeeper"));
    }
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = match xdg {
        Some(base) => base,
        None => home?.join(".local/share"),
    };
    Some(base.join("innkeeper"))
}
