//! Domains as hosts claim them: exact, `*.x` (one label), `**.x` (one or more labels), `*` (every name).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A domain in its normal form: lower case, no trailing dot, wildcards only in front. Copies share one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(Arc<str>);

/// A text that is no domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a host name: {why}")]
pub struct DomainError {
    text: String,
    why: &'static str,
}

impl Domain {
    /// The catch-all, which covers every name that nothing more specific covers.
    pub fn any() -> Domain {
        Domain("*".into())
    }

    /// The text in its normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same text, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// True for `*`.
    pub fn is_any(&self) -> bool {
        &*self.0 == "*"
    }

    /// True for `*`, `*.x` and `**.x`.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }

    /// Whether a request for this exact, lower-case name falls under the domain.
    pub fn covers(&self, name: &str) -> bool {
        if self.is_any() {
            return true;
        }
        if let Some(suffix) = self.0.strip_prefix("**") {
            return name.len() > suffix.len() && name.ends_with(suffix);
        }
        if let Some(suffix) = self.0.strip_prefix('*') {
            return name.strip_suffix(suffix).is_some_and(|label| !label.is_empty() && !label.contains('.'));
        }
        &*self.0 == name
    }
}

impl FromStr for Domain {
    type Err = DomainError;

    /// Reads a domain; upper case and one trailing dot are normalised away (RFC 4343, RFC 1034 section 3.1).
    fn from_str(text: &str) -> Result<Domain, DomainError> {
        let fail = |why| Err(DomainError { text: text.chars().take(300).collect(), why });
        // The catch-all is no name, so no dot can end it.
        let undotted = text.strip_suffix('.').filter(|rest| !rest.ends_with('*'));
        let lower = undotted.unwrap_or(text).to_ascii_lowercase();
        if lower == "*" {
            return Ok(Domain::any());
        }
        if lower.len() > 253 {
            return fail("longer than 253 characters");
        }
        let labels = lower.strip_prefix("**.").or_else(|| lower.strip_prefix("*.")).unwrap_or(&lower);
        for label in labels.split('.') {
            if label.is_empty() {
                return fail("it has an empty label");
            }
            if label.len() > 63 {
                return fail("a label is longer than 63 characters");
            }
            if !label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
                return fail(
                    "only letters, digits, '-', '_' and '.' may stand in it, and a wildcard only as its first label",
                );
            }
        }
        Ok(Domain(lower.into()))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Domain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Domain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let domain: Domain = text.parse().map_err(serde::de::Error::custom)?;
        if *domain.0 != *text {
            return Err(serde::de::Error::custom(format!("{text:?} is not in its normal form")));
        }
        Ok(domain)
    }
}
