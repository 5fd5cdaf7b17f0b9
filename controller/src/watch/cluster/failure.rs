//! Why a request to the API server failed, as far as it matters for what is done next.

use std::fmt;

/// A class of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 410: the version or the token is too old.
    Expired,
    /// 403: the service account may not.
    Forbidden,
    /// 404: nobody serves the kind in this version.
    NotServed,
    /// 429, or another refusal that says when to come again.
    Busy,
    /// Any other status.
    Refused(u16),
    /// No answer.
    Unreachable,
    /// The answer broke off or makes no sense.
    Broken,
    /// A stream, or an answer, on which nothing came for too long.
    Silent,
}

impl Class {
    /// As a word, for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Expired => "expired",
            Class::Forbidden => "forbidden",
            Class::NotServed => "not_served",
            Class::Busy => "busy",
            Class::Refused(_) => "refused",
            Class::Unreachable => "unreachable",
            Class::Broken => "broken",
            Class::Silent => "silent",
        }
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its class.
    pub class: Class,
    /// For how long the server wants not to be asked, in milliseconds.
    pub retry_after_ms: u64,
    /// What happened, for people.
    pub message: String,
}

impl Failure {
    /// Of a class.
    pub fn new(class: Class, message: impl Into<String>) -> Failure {
        Failure { class, retry_after_ms: 0, message: message.into() }
    }

    /// Of an answer with this status code. `retry_after_s` is what it says of when to come again, in seconds.
    pub fn of_status(code: u16, retry_after_s: Option<u64>, message: &str) -> Failure {
        let class = match code {
            410 => Class::Expired,
            403 => Class::Forbidden,
            404 => Class::NotServed,
            429 => Class::Busy,
            _ if retry_after_s.is_some() => Class::Busy,
            code => Class::Refused(code),
        };
        // A wait of more than some minutes is nobody's intention.
        let retry_after_ms = retry_after_s.unwrap_or(0).min(300) * 1000;
        Failure { class, retry_after_ms, message: format!("HTTP {code}: {message}") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
