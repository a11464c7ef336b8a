//! The subset of `cargo metadata` that the checks need.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The workspace and its dependencies on all platforms.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// Ids of the workspace packages.
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
}

/// A package.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression, if the package has one.
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency in a manifest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build`, or `None` for a normal dependency.
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

impl Metadata {
    /// Runs `cargo metadata` for the workspace of the current directory.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        #[expect(clippy::disallowed_methods, reason = "the only child process, and the call waits for it")]
        let mut command = std::process::Command::new(cargo);
        let output = command
            .args(["metadata", "--format-version", "1", "--locked"])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo metadata failed; check that Cargo.lock is up to date");
        serde_json::from_slice(&output.stdout).context("cannot parse the output of cargo metadata")
    }

    /// The workspace packages.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The packages from outside the workspace.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !self.workspace_members.contains(&package.id))
    }
}
