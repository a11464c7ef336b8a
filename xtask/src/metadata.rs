//! What `cargo metadata` says about the workspace and its dependencies; only what the checks need.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The workspace and everything it depends on, on any platform.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// Ids of the packages that are ours.
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
}

/// A package.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, where the package has one.
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A line of a manifest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build`, or nothing for a normal one.
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

impl Metadata {
    /// Asks cargo about the workspace around the current folder.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the one child of this program, which is waited for at once"
        )]
        let mut command = std::process::Command::new(cargo);
        let output = command
            .args(["metadata", "--format-version", "1", "--locked"])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo metadata failed; is Cargo.lock up to date?");
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata says")
    }

    /// The packages that are ours.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The packages that are not ours.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !self.workspace_members.contains(&package.id))
    }
}
