//! The grammar of Claude model ids.
//!
//! Clients write versions with dashes and Copilot with dots; older models have
//! their family last, and both may add a date or a modifier. Pure. The result
//! is a guess; the catalogue is authoritative.

/// The only modifier that selects a different model, and only in this family.
const LONG_CONTEXT: (&str, &str) = ("opus", "1m");

/// The suffix with which a client selects the long context of a model.
const LONG_CONTEXT_MARK: &str = "[1m]";

/// Longest accepted id; real ones have about thirty characters.
const MAX_LENGTH: usize = 128;

/// A model id, independent of its spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelId(Form);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Claude {
        family: String,
        major: String,
        minor: Option<String>,
        modifiers: Vec<String>,
    },
    /// A single word, passed on unchanged.
    Word(String),
}

impl ModelId {
    /// Parses an id; `None` if it does not follow the grammar.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let lower = text.trim().to_ascii_lowercase();
        let (id, long) = match lower.strip_suffix(LONG_CONTEXT_MARK) {
            Some(id) => (id, true),
            None => (lower.as_str(), false),
        };
        let is_text = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if id.is_empty() || !id.bytes().all(is_text) {
            return None;
        }
        let Some(rest) = id.strip_prefix("claude-") else {
            let is_word = !id.contains('-') && id.starts_with(|c: char| c.is_ascii_alphanumeric());
            return is_word.then(|| Self(Form::Word(text.trim().to_owned())));
        };
        let mut parts: Vec<&str> = rest.split('-').collect();
        if parts.len() > 1 && parts.last().is_some_and(|part| is_date(part)) {
            parts.pop();
        }
        let mut form = claude(&parts)?;
        if let Form::Claude { modifiers, .. } = &mut form
            && long
            && !modifiers.iter().any(|modifier| modifier == LONG_CONTEXT.1)
        {
            modifiers.push(LONG_CONTEXT.1.to_owned());
        }
        Some(Self(form))
    }

    /// The clients' spelling.
    pub fn client_form(&self) -> String {
        self.spell('-', |modifier| self.surviving(modifier))
    }

    /// Copilot's spelling.
    pub fn endpoint_form(&self) -> String {
        self.spell('.', |modifier| self.surviving(modifier))
    }

    /// The clients' spelling of a listed model, with all modifiers.
    pub(crate) fn exact_client_form(&self) -> String {
        self.spell('-', |_| true)
    }

    /// Whether this id has no modifiers and is the same model as `other` without its modifiers.
    pub(crate) fn is_base_of(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (
                Form::Claude { family, major, minor, modifiers },
                Form::Claude { family: other_family, major: other_major, minor: other_minor, .. },
            ) => {
                let digits = |major: &str, minor: &Option<String>| {
                    format!("{major}{}", minor.as_deref().unwrap_or_default())
                };
                // Copilot has written versions without a separator, such as `41` for `4.1`.
                modifiers.is_empty()
                    && family == other_family
                    && digits(major, minor) == digits(other_major, other_minor)
            }
            (Form::Word(_), _) | (_, Form::Word(_)) => false,
        }
    }

    /// How far the versions of two models of the same family are apart; `None` for models of
    /// different families.
    pub(crate) fn version_gap(&self, other: &Self) -> Option<u32> {
        match (&self.0, &other.0) {
            (
                Form::Claude { family, major, minor, .. },
                Form::Claude { family: other_family, major: other_major, minor: other_minor, .. },
            ) if family == other_family => {
                // A part has at most two digits.
                let number =
                    |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
                let version = |major: &str, minor: &Option<String>| {
                    number(Some(major)) * 100 + number(minor.as_deref())
                };
                Some(version(major, minor).abs_diff(version(other_major, other_minor)))
            }
            (Form::Claude { .. } | Form::Word(_), _) => None,
        }
    }

    fn surviving(&self, modifier: &str) -> bool {
        matches!(&self.0, Form::Claude { family, .. } if (family.as_str(), modifier) == LONG_CONTEXT)
    }

    fn spell(&self, separator: char, keeps: impl Fn(&str) -> bool) -> String {
        match &self.0 {
            Form::Word(word) => word.clone(),
            Form::Claude { family, major, minor, modifiers } => {
                let mut id = format!("claude-{family}-{major}");
                if let Some(minor) = minor {
                    id.push(separator);
                    id.push_str(minor);
                }
                for modifier in modifiers.iter().filter(|modifier| keeps(modifier)) {
                    id.push('-');
                    id.push_str(modifier);
                }
                id
            }
        }
    }
}

fn claude(parts: &[&str]) -> Option<Form> {
    let (family, version, modifiers) = match parts {
        // Family first: `opus-4-6`, `opus-4.6`, `opus-4`.
        [family, major, minor, rest @ ..] if is_family(family) && is_number(major) && is_number(minor) => {
            (family, (*major, Some(*minor)), rest)
        }
        [family, version, rest @ ..] if is_family(family) => (family, version_of(version)?, rest),
        // Version first: `3-5-sonnet`, `3.5-sonnet`, `3-opus`.
        [major, minor, family, rest @ ..] if is_number(major) && is_number(minor) && is_family(family) => {
            (family, (*major, Some(*minor)), rest)
        }
        [version, family, rest @ ..] if is_family(family) => (family, version_of(version)?, rest),
        _ => return None,
    };
    let is_modifier = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !modifiers.iter().all(is_modifier) {
        return None;
    }
    Some(Form::Claude {
        family: (*family).to_owned(),
        major: version.0.to_owned(),
        minor: version.1.map(str::to_owned),
        modifiers: modifiers.iter().map(|part| (*part).to_owned()).collect(),
    })
}

fn version_of(text: &str) -> Option<(&str, Option<&str>)> {
    match text.split_once('.') {
        Some((major, minor)) => (is_number(major) && is_number(minor)).then_some((major, Some(minor))),
        None => is_number(text).then_some((text, None)),
    }
}

fn is_family(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// A part of a version has one or two digits; longer numbers are dates or invalid.
fn is_number(part: &str) -> bool {
    matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_date(part: &str) -> bool {
    part.len() == 8 && part.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "model_id_tests.rs"]
mod tests;
