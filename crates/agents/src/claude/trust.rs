//! Whether a runtime may use the settings of the project that it works on.
//!
//! Project settings can run programs, so they are used only in a trusted folder. A folder
//! whose settings run nothing needs no decision: its runtime starts with the user's settings
//! only, and the project's CLAUDE.md applies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_claude::project::{ProjectEntry, ProjectSettings};
use innkeeper_core::agent::{OpenError, OpeningAnswer, OpeningOption, OpeningQuestion};
use innkeeper_core::trust::{FolderTrust, TrustDecision, TrustedFolders};

/// Ids of the options.
const TRUST: &str = "trust";
const RESTRICT: &str = "restrict";

/// Maximum number of entries that the question lists.
const MAX_LISTED: usize = 20;

/// The settings that a runtime uses, to notice when trust in them ends.
pub(super) struct TrustedProject {
    folder: ProjectFolder,
    settings: ProjectSettings,
    trust: Arc<dyn FolderTrust>,
}

impl TrustedProject {
    /// Whether the settings are still trusted. Reads the settings only if they may have
    /// changed.
    pub(super) fn is_trusted(&mut self) -> bool {
        let real = real_path(&self.folder.cwd);
        if self.folder.trusted.contain(&real, real_path) {
            return true;
        }
        if self.settings.may_have_changed() {
            self.settings = self.folder.settings();
        }
        self.trust.decision(&real, &self.settings.digest) == Some(TrustDecision::Trusted)
    }
}

/// The folder that a runtime is opened for, and what clients say about it.
#[derive(Debug)]
pub(super) struct ProjectFolder {
    pub(super) cwd: PathBuf,
    pub(super) others: Vec<PathBuf>,
    pub(super) environment: BTreeMap<OsString, OsString>,
    pub(super) trusted: TrustedFolders,
    pub(super) answer: Option<OpeningAnswer>,
}

impl ProjectFolder {
    fn settings(&self) -> ProjectSettings {
        ProjectSettings::read(&self.cwd, &self.others, &self.environment)
    }
}

/// Decides whether a runtime uses the project's settings; `None` if it ignores them. Reads files.
pub(super) fn judge(
    folder: ProjectFolder,
    trust: Arc<dyn FolderTrust>,
) -> Result<Option<TrustedProject>, OpenError> {
    let settings = folder.settings();
    let real = real_path(&folder.cwd);
    if folder.trusted.contain(&real, real_path) {
        return Ok(Some(TrustedProject { folder, settings, trust }));
    }
    let topic = format!("trust {}", settings.digest);
    // An answer counts only for the settings that the question showed.
    let answer = folder.answer.as_ref().filter(|answer| answer.topic == topic);
    let answered = answer.map(|answer| match answer.option.as_str() {
        TRUST => TrustDecision::Trusted,
        _ => TrustDecision::Restricted,
    });
    if let Some(decision) = answered {
        // The answer still holds for this start.
        if let Err(error) = trust.decide(&real, &settings.digest, decision) {
            tracing::error!(folder = %real.display(), %error, "cannot store the trust decision");
        }
    }
    match answered.or_else(|| trust.decision(&real, &settings.digest)) {
        Some(TrustDecision::Trusted) => Ok(Some(TrustedProject { folder, settings, trust })),
        Some(TrustDecision::Restricted) => Ok(None),
        None if settings.entries.is_empty() => Ok(None),
        None => Err(OpenError::Question(Box::new(question(&real, topic, &settings.entries)))),
    }
}

fn question(folder: &Path, topic: String, entries: &[ProjectEntry]) -> OpeningQuestion {
    let option = |id: &str, label: &str, description: &str| OpeningOption {
        id: id.to_owned(),
        label: label.to_owned(),
        description: description.to_owned(),
        recommended: false,
    };
    OpeningQuestion {
        topic,
        message: message(folder, entries),
        title: "Trust this folder?".to_owned(),
        question: "May Claude use the settings of this folder?".to_owned(),
        options: vec![
            // First, because clients preselect the first option.
            option(RESTRICT, "Continue without its settings", "Use only your own settings"),
            option(TRUST, "Trust this folder", "Use its settings, here and in its subfolders"),
        ],
    }
}

/// Lists what the folder's settings would run, in Markdown.
fn message(folder: &Path, entries: &[ProjectEntry]) -> String {
    let mut text = format!(
        "The folder {} has Claude settings that can run programs or grant permissions without asking:\n\n",
        code(&folder.display().to_string())
    );
    for ProjectEntry { file, what, detail } in entries.iter().take(MAX_LISTED) {
        // Writing to a string does not fail.
        write!(text, "- {} in {}", code(what), code(file)).ok();
        if !detail.is_empty() {
            write!(text, ": {}", code(detail)).ok();
        }
        text.push('\n');
    }
    if let Some(more) = entries.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        writeln!(text, "- and {more} more").ok();
    }
    text
}

/// A Markdown code span. Its text cannot end the span.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('`', "'").replace(['\n', '\r'], " "))
}

fn real_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
