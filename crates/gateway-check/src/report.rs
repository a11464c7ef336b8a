//! The results of a check.
//!
//! Plain data: one finding per named check. The caller decides how to show it.
//! No text in it contains the credentials that were used.

/// The results of a check of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// One finding per check, in order.
    pub findings: Vec<Finding>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check, such as `stream.blocks`.
    pub name: String,
    /// The outcome.
    pub outcome: CheckOutcome,
    /// Unusual observations that are not defects.
    pub notes: Vec<String>,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// No defect.
    Ok,
    /// At least one defect.
    Failed(Vec<Defect>),
    /// The check could not be made or does not apply.
    Skipped {
        /// Why the check was skipped.
        reason: String,
    },
}

/// A violation of what clients rely on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The expected behaviour.
    pub expected: String,
    /// The observed behaviour.
    pub seen: String,
}

impl Defect {
    pub(super) fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { expected: expected.into(), seen: seen.into() }
    }
}

impl CheckReport {
    /// Whether no check failed.
    pub fn is_ok(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| matches!(finding.outcome, CheckOutcome::Failed(_)))
    }

    /// The finding with this name.
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }

    /// Adds the result of a check; no defects mean success.
    pub(super) fn add(&mut self, name: impl Into<String>, defects: Vec<Defect>, notes: Vec<String>) {
        let outcome = if defects.is_empty() { CheckOutcome::Ok } else { CheckOutcome::Failed(defects) };
        self.findings.push(Finding { name: name.into(), outcome, notes });
    }

    /// Adds a skipped check.
    pub(super) fn skip(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        let outcome = CheckOutcome::Skipped { reason: reason.into() };
        self.findings.push(Finding { name: name.into(), outcome, notes: Vec::new() });
    }

    /// Removes a secret from every text: an endpoint may repeat what it received.
    pub(super) fn redact(&mut self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        for finding in &mut self.findings {
            let texts: Vec<&mut String> = match &mut finding.outcome {
                CheckOutcome::Ok => Vec::new(),
                CheckOutcome::Failed(defects) => defects.iter_mut().map(|defect| &mut defect.seen).collect(),
                CheckOutcome::Skipped { reason } => vec![reason],
            };
            for text in texts.into_iter().chain(&mut finding.notes) {
                if text.contains(secret) {
                    *text = text.replace(secret, "[redacted]");
                }
            }
        }
    }
}
