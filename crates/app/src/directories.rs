//! Where things are kept: the data directory and what is in it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use crate::cli::DataArguments;

/// The places that this process uses.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    data: PathBuf,
    runtimes: PathBuf,
}

impl Directories {
    /// Resolves the places, without creating any.
    pub(crate) fn resolve(arguments: &DataArguments) -> Result<Self> {
        let data = match &arguments.data_dir {
            Some(data) => std::path::absolute(data).context("the data directory has no absolute path")?,
            None => default_data_dir()
                .ok_or_else(|| anyhow!("there is no home directory; name a place with --data-dir"))?,
        };
        let runtimes = match &arguments.runtimes_dir {
            Some(runtimes) => {
                std::path::absolute(runtimes).context("the runtimes directory has no absolute path")?
            }
            None => data.join("runtimes"),
        };
        Ok(Self { data, runtimes })
    }

    /// Creates the data directory, for this user alone.
    pub(crate) fn create(&self) -> Result<()> {
        create_private(&self.data)
    }

    /// The data directory itself.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Where runtimes are installed.
    pub(crate) fn runtimes(&self) -> &Path {
        &self.runtimes
    }

    /// Where the token is kept.
    pub(crate) fn token(&self) -> PathBuf {
        self.data.join("token")
    }

    /// The file by which the page is opened in a browser.
    pub(crate) fn page_link(&self) -> PathBuf {
        self.data.join("page.html")
    }

    /// Where it is written down which runtimes were started.
    pub(crate) fn started(&self) -> PathBuf {
        self.data.join("started")
    }

    /// For short-lived private files.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.data.join("scratch")
    }

    /// Where sessions work that have no directory of their own.
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
        .with_context(|| format!("cannot create {}; name another place with --data-dir", dir.display()))
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
