//! `innkeeper gateway check`: checks whether an endpoint follows the Messages format.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, anyhow};
use clap::Args;
use innkeeper_gateway_check::{
    CheckError, CheckOptions, CheckOutcome, CheckReport, CheckTarget, Credentials, Finding, check,
};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::failure::CommandFailure;
use crate::shutdown::Signals;

/// Variable name that means stdin.
const STDIN: &str = "-";

/// Maximum size of credentials read from stdin; tokens have a few hundred bytes.
const MOST_STDIN: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Base URL of the endpoint, without /v1/messages, such as http://127.0.0.1:8080
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Model to use [default: the first that the endpoint lists]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Environment variable with the bearer token; - reads it from stdin
    #[arg(long, value_name = "VAR", group = "credentials")]
    pub(crate) bearer_env: Option<String>,
    /// Environment variable with the API key; - reads it from stdin
    #[arg(long, value_name = "VAR", group = "credentials")]
    pub(crate) api_key_env: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(arguments: CheckArguments) -> Result<(), CommandFailure> {
    let mut signals = Signals::listen().map_err(CommandFailure::work)?;
    let credentials = credentials(&arguments).map_err(CommandFailure::usage)?;
    let target = CheckTarget { base_url: arguments.url, credentials, model: arguments.model };
    let checked = tokio::select! {
        checked = check(target, CheckOptions::default()) => checked,
        () = signals.next() => return Err(CommandFailure::Interrupted),
    };
    let report = checked.map_err(|error| match error {
        CheckError::BaseUrl { .. } | CheckError::Credentials => CommandFailure::usage(error),
        CheckError::Client(_) | CheckError::Unreachable { .. } => CommandFailure::work(error),
    })?;
    let shown = if arguments.json { format!("{}\n", as_json(&report)) } else { as_table(&report) };
    std::io::stdout().write_all(shown.as_bytes()).map_err(CommandFailure::work)?;
    match report.failed().count() {
        0 => Ok(()),
        failed => Err(CommandFailure::work(anyhow!("{failed} of {} checks failed", report.findings.len()))),
    }
}

/// Reads the secret from a variable or stdin, never from the command line, which other
/// users can read.
fn credentials(arguments: &CheckArguments) -> anyhow::Result<Credentials> {
    match (&arguments.bearer_env, &arguments.api_key_env) {
        (Some(variable), _) => Ok(Credentials::Bearer(secret(variable)?)),
        (None, Some(variable)) => Ok(Credentials::ApiKey(secret(variable)?)),
        (None, None) => Ok(Credentials::None),
    }
}

fn secret(variable: &str) -> anyhow::Result<SecretString> {
    let text = if variable == STDIN {
        let mut text = String::new();
        let mut stdin = std::io::stdin().lock().take(MOST_STDIN);
        stdin.read_to_string(&mut text).context("cannot read the credentials from stdin")?;
        text
    } else {
        std::env::var(variable).with_context(|| {
            format!("cannot read the environment variable {variable}; set it to the secret")
        })?
    };
    let text = text.trim();
    if text.is_empty() {
        let place = if variable == STDIN { "stdin" } else { variable };
        return Err(anyhow!("no credentials in {place}; put the secret there"));
    }
    Ok(text.into())
}

fn as_json(report: &CheckReport) -> Value {
    let checks: Vec<Value> = report.findings.iter().map(finding_json).collect();
    json!({"ok": report.is_ok(), "checks": checks})
}

fn finding_json(finding: &Finding) -> Value {
    let (defects, reason) = match &finding.outcome {
        CheckOutcome::Ok => (Vec::new(), None),
        CheckOutcome::Failed(defects) => {
            let defects =
                defects.iter().map(|defect| json!({"expected": defect.expected, "seen": defect.seen}));
            (defects.collect(), None)
        }
        CheckOutcome::Skipped { reason } => (Vec::new(), Some(reason)),
    };
    json!({
        "name": finding.name,
        "result": word(&finding.outcome),
        "defects": defects,
        "reason": reason,
        "notes": finding.notes,
    })
}

fn as_table(report: &CheckReport) -> String {
    let mut lines = Vec::new();
    for finding in &report.findings {
        let line = format!("{:<8} {}", word(&finding.outcome), finding.name);
        match &finding.outcome {
            CheckOutcome::Ok => lines.push(line),
            CheckOutcome::Skipped { reason } => lines.push(format!("{line}: {reason}")),
            CheckOutcome::Failed(defects) => {
                lines.push(line);
                for defect in defects {
                    lines.push(format!("           expected {}", defect.expected));
                    lines.push(format!("           seen     {}", defect.seen));
                }
            }
        }
        lines.extend(finding.notes.iter().map(|note| format!("           note     {note}")));
    }
    let count =
        |wanted: &str| report.findings.iter().filter(|finding| word(&finding.outcome) == wanted).count();
    let (ok, failed, skipped) = (count("ok"), count("failed"), count("skipped"));
    lines.push(format!("{ok} ok, {failed} failed, {skipped} skipped\n"));
    lines.join("\n")
}

fn word(outcome: &CheckOutcome) -> &'static str {
    match outcome {
        CheckOutcome::Ok => "ok",
        CheckOutcome::Failed(_) => "failed",
        CheckOutcome::Skipped { .. } => "skipped",
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_gateway_check::Defect;

    use super::*;

    fn report() -> CheckReport {
        let finding = |name: &str, outcome: CheckOutcome, notes: &[&str]| Finding {
            name: name.to_owned(),
            outcome,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        };
        let defect = Defect { expected: "one".into(), seen: "two".into() };
        CheckReport {
            findings: vec![
                finding("a", CheckOutcome::Ok, &["odd"]),
                finding("b", CheckOutcome::Failed(vec![defect]), &[]),
                finding("c", CheckOutcome::Skipped { reason: "why".into() }, &[]),
            ],
        }
    }

    #[test]
    fn table_lists_every_check_with_expected_and_seen() {
        let expected = "ok       a\n           note     odd\nfailed   b\n           expected one\n           \
                        seen     two\nskipped  c: why\n1 ok, 1 failed, 1 skipped\n";
        assert_eq!(as_table(&report()), expected);
    }

    #[test]
    fn json_contains_every_check() {
        let expected = json!({"ok": false, "checks": [
            {"name": "a", "result": "ok", "defects": [], "reason": null, "notes": ["odd"]},
            {"name": "b", "result": "failed", "defects": [{"expected": "one", "seen": "two"}], "reason": null,
             "notes": []},
            {"name": "c", "result": "skipped", "defects": [], "reason": "why", "notes": []},
        ]});
        assert_eq!(as_json(&report()), expected);
    }

    #[test]
    fn error_for_missing_variable_names_it_and_says_what_to_do() {
        let error = secret("INNKEEPER_NO_SUCH_VARIABLE").unwrap_err().to_string();
        assert!(error.contains("INNKEEPER_NO_SUCH_VARIABLE") && error.contains("set it"), "{error}");
    }
}
