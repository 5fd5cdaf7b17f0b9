//! How many requests came, by verb and resource.

use std::collections::BTreeMap;

use crate::request::Verb;

/// Requests that came, answered or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    requests: BTreeMap<(Verb, String), u64>,
}

impl Counts {
    pub(crate) fn add(&mut self, verb: Verb, resource: &str) {
        *self.requests.entry((verb, resource.to_owned())).or_default() += 1;
    }

    /// How many of this verb for this resource, such as `ingresses.networking.k8s.io`.
    pub fn of(&self, verb: Verb, resource: &str) -> u64 {
        self.requests.get(&(verb, resource.to_owned())).copied().unwrap_or(0)
    }

    /// All, by verb and resource; the resource is empty for paths without objects.
    pub fn all(&self) -> impl Iterator<Item = (Verb, &str, u64)> {
        self.requests.iter().map(|((verb, resource), count)| (*verb, resource.as_str(), *count))
    }

    /// The sum.
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }

    /// Begins again at zero.
    pub fn clear(&mut self) {
        self.requests.clear();
    }
}
