//! Filters the beta features of requests to Copilot.
//!
//! Owns the allow-list: the built-in one, or the one from the configuration.
//! A feature is requested with its date; a name without a date is never
//! passed on. Each removed value is logged once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that lists beta features.
pub(crate) const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// Features that Copilot's Messages endpoint accepts, without their dates.
const BUILT_IN: [&str; 4] =
    ["interleaved-thinking", "context-management", "advanced-tool-use", "per-turn-control"];

/// How many logged values are remembered. Runtimes send a dozen; past the limit
/// further values are not logged.
const MAX_LOGGED: usize = 256;

/// Passes on allowed beta features.
#[derive(Debug)]
pub struct BetaFilter {
    allowed: Vec<String>,
    logged: Mutex<HashSet<String>>,
}

impl Default for BetaFilter {
    fn default() -> Self {
        Self::new(BUILT_IN.map(str::to_owned))
    }
}

impl BetaFilter {
    /// Replaces the built-in list. A name allows the feature with any date, a
    /// name with a date only that exact value.
    pub fn new(allowed: impl IntoIterator<Item = String>) -> Self {
        let allowed = allowed.into_iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        Self { allowed: allowed.collect(), logged: Mutex::default() }
    }

    /// The header for the upstream; `None` if no value is allowed.
    pub(crate) fn header(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut kept: Vec<&str> = Vec::new();
        let values = headers.get_all(ANTHROPIC_BETA).iter().filter_map(|value| value.to_str().ok());
        for value in values.flat_map(|list| list.split(',')).map(str::trim).filter(|value| !value.is_empty())
        {
            if !self.allows(value) {
                self.log_once(value);
            } else if !kept.contains(&value) {
                kept.push(value);
            }
        }
        if kept.is_empty() { None } else { HeaderValue::from_str(&kept.join(",")).ok() }
    }

    fn allows(&self, value: &str) -> bool {
        self.allowed.iter().any(|name| match value.strip_prefix(name.as_str()) {
            Some("") => has_date(name),
            Some(rest) => {
                rest.strip_prefix('-').is_some_and(|date| date.starts_with(|c: char| c.is_ascii_digit()))
            }
            None => false,
        })
    }

    fn log_once(&self, value: &str) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_LOGGED && logged.insert(value.to_owned()) {
            tracing::info!(value, "beta feature removed from requests to Copilot");
        }
    }
}

/// Whether a name ends in a date of the form `2025-05-14`.
fn has_date(name: &str) -> bool {
    let mut parts = name.rsplitn(4, '-');
    let (day, month, year) = (parts.next(), parts.next(), parts.next());
    let is_number = |part: Option<&str>, digits: usize| {
        part.is_some_and(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    parts.next().is_some() && is_number(day, 2) && is_number(month, 2) && is_number(year, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &BetaFilter, values: &[&'static str], expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ANTHROPIC_BETA, HeaderValue::from_static(value));
        }
        assert_eq!(filter.header(&headers).as_ref().map(|value| value.to_str().unwrap()), expected);
    }

    #[test]
    fn allowed_features_keep_their_order_and_are_deduplicated() {
        let filter = BetaFilter::default();
        check(
            &filter,
            &[
                "claude-code-20250219, interleaved-thinking-2025-05-14 ,context-1m-2025-08-07",
                "advanced-tool-use-2025-11-20,interleaved-thinking-2025-05-14",
            ],
            Some("interleaved-thinking-2025-05-14,advanced-tool-use-2025-11-20"),
        );
        check(&filter, &["oauth-2025-04-20,effort-2025-11-24,,"], None);
        check(&filter, &[], None);
    }

    #[test]
    fn rejects_feature_without_date() {
        for bare in [
            "interleaved-thinking",
            "interleaved-thinking-",
            "interleaved-thinkingx-2025-05-14",
            "context-management-x",
        ] {
            check(&BetaFilter::default(), &[bare], None);
        }
    }

    #[test]
    fn configured_list_replaces_built_in_list() {
        let filter =
            BetaFilter::new(["context-1m-2025-08-07".to_owned(), " effort ".to_owned(), String::new()]);
        check(
            &filter,
            &[
                "context-1m-2025-08-07,context-1m-2026-01-01,effort-2025-11-24,interleaved-thinking-2025-05-14,effort",
            ],
            Some("context-1m-2025-08-07,effort-2025-11-24"),
        );
    }

    #[test]
    fn removed_value_is_remembered_once_up_to_limit() {
        let filter = BetaFilter::default();
        check(&filter, &["x-2025-01-01,x-2025-01-01", "x-2025-01-01"], None);
        assert_eq!(filter.logged.lock().unwrap().len(), 1);
        for number in 0..2 * MAX_LOGGED {
            let mut headers = HeaderMap::new();
            headers.insert(ANTHROPIC_BETA, HeaderValue::from_str(&format!("y{number}")).unwrap());
            assert!(filter.header(&headers).is_none());
        }
        assert_eq!(filter.logged.lock().unwrap().len(), MAX_LOGGED);
    }
}
