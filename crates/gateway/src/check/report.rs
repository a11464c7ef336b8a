//! What a check found.
//!
//! Plain data: one finding for each check by name. How it is shown is up to
//! the caller. No text in it holds the credentials that were used.

/// What a check of an endpoint found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One for each check, in the order they were made.
    pub findings: Vec<Finding>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, such as `stream.blocks`.
    pub name: String,
    /// How it went.
    pub outcome: Outcome,
    /// What is no defect and yet unusual.
    pub notes: Vec<String>,
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it should be.
    Ok,
    /// At least one thing is not.
    Failed(Vec<Defect>),
    /// It could not be checked or does not apply.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// Something that is not as a client relies on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What there should be.
    pub expected: String,
    /// What there was.
    pub seen: String,
}

impl Defect {
    pub(super) fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { expected: expected.into(), seen: seen.into() }
    }
}

impl Report {
    /// Whether no check failed.
    pub fn is_ok(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| matches!(finding.outcome, Outcome::Failed(_)))
    }

    /// The result of the check of this name.
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }

    /// Adds a result with its defects, or without any.
    pub(super) fn add(&mut self, name: impl Into<String>, defects: Vec<Defect>, notes: Vec<String>) {
        let outcome = if defects.is_empty() { Outcome::Ok } else { Outcome::Failed(defects) };
        self.findings.push(Finding { name: name.into(), outcome, notes });
    }

    /// Adds a check that was not made.
    pub(super) fn skip(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        let outcome = Outcome::Skipped { reason: reason.into() };
        self.findings.push(Finding { name: name.into(), outcome, notes: Vec::new() });
    }

    /// Takes a secret out of every text: an endpoint may send back what it was sent.
    pub(super) fn redact(&mut self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        for finding in &mut self.findings {
            let texts: Vec<&mut String> = match &mut finding.outcome {
                Outcome::Ok => Vec::new(),
                Outcome::Failed(defects) => defects.iter_mut().map(|defect| &mut defect.seen).collect(),
                Outcome::Skipped { reason } => vec![reason],
            };
            for text in texts.into_iter().chain(&mut finding.notes) {
                if text.contains(secret) {
                    *text = text.replace(secret, "[redacted]");
                }
            }
        }
    }
}
