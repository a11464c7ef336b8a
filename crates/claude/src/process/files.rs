//! Private files that a runtime reads at startup.
//!
//! The files contain secrets: only this user can read them, and they are deleted when the runtime exits.

use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use tempfile::TempPath;

use crate::options::{LaunchFiles, LaunchPlan};

/// The private files of one launch; deleted on drop.
#[derive(Debug, Default)]
pub(crate) struct PrivateFiles {
    settings: Option<TempPath>,
    mcp: Option<TempPath>,
}

impl PrivateFiles {
    /// Writes the files of the plan to `directory`, which is created if missing.
    pub(crate) fn write(plan: &LaunchPlan, directory: &Path) -> io::Result<Self> {
        let write = |name: &str, content: &Option<SecretString>| {
            content.as_ref().map(|content| private_file(directory, name, content)).transpose()
        };
        Ok(Self { settings: write("settings-", &plan.settings)?, mcp: write("mcp-", &plan.mcp)? })
    }

    /// Paths of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.settings, &self.mcp].into_iter().filter_map(|file| file.as_deref())
    }

    pub(crate) fn as_launch_files(&self) -> LaunchFiles<'_> {
        LaunchFiles { settings: self.settings.as_deref(), mcp: self.mcp.as_deref() }
    }
}

fn private_file(directory: &Path, prefix: &str, content: &SecretString) -> io::Result<TempPath> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Created with mode 0600 and an unpredictable name.
    let mut file = tempfile::Builder::new().prefix(prefix).suffix(".json").tempfile_in(directory)?;
    file.write_all(content.expose_secret().as_bytes())?;
    Ok(file.into_temp_path())
}
