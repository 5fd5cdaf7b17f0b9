//! What is loaded and not live, and why.

use std::collections::BTreeMap;

use journal::admin::{NotLive, codes};

/// Why a resource is not live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One of [`codes`].
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl Fault {
    /// The body could not be read or built.
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault { code: codes::INVALID, message: message.into() }
    }

    /// Something that this version has not built yet.
    pub fn unsupported(message: impl Into<String>) -> Fault {
        Fault { code: codes::UNSUPPORTED, message: message.into() }
    }

    /// Something that it names is missing.
    pub fn missing(message: impl Into<String>) -> Fault {
        Fault { code: codes::MISSING, message: message.into() }
    }
}

/// Every resource that is not live, by `kind/name`.
pub type Faults = BTreeMap<String, Fault>;

/// The list as the admin API gives it.
pub fn list<'a>(faults: impl IntoIterator<Item = (&'a String, &'a Fault)>) -> Vec<NotLive> {
    let entry = |(resource, fault): (&String, &Fault)| NotLive {
        resource: resource.clone(),
        code: fault.code.to_owned(),
        message: fault.message.clone(),
    };
    faults.into_iter().map(entry).collect()
}
