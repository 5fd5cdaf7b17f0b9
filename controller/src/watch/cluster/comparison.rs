//! Whether what is held is what the API server has: one list of uids and versions, compared while everything goes on. Pure.

use std::collections::{BTreeMap, BTreeSet};

use translate::NamespacedName;

use super::held::{Store, Trace};
use super::version::Version;

/// A comparison. The server's list is of one moment; what is held may be of any later one, for each object by itself.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The version of the list.
    version: Version,
    listed: BTreeMap<NamespacedName, Trace>,
    /// What the list has and is not held so.
    lacking: BTreeMap<NamespacedName, Trace>,
    /// What is held and should not be.
    extra: BTreeSet<NamespacedName>,
    complete: bool,
}

impl Comparison {
    /// Takes in a page of the list.
    pub fn page(&mut self, traces: Vec<Trace>, version: Version) {
        self.version = version;
        self.listed.extend(traces.into_iter().map(|trace| (trace.key.clone(), trace)));
    }

    /// The list is complete.
    pub fn complete(&mut self, store: &Store) {
        let listed = std::mem::take(&mut self.listed);
        self.extra =
            store.keys().filter(|key| !listed.contains_key(key) && self.is_extra(key, store)).cloned().collect();
        self.lacking = listed.into_iter().filter(|(_, trace)| !self.is_held(trace, store)).collect();
        self.complete = true;
    }

    /// An object changed in the store.
    pub fn touched(&mut self, key: &NamespacedName, store: &Store) {
        if self.extra.contains(key) && !self.is_extra(key, store) {
            self.extra.remove(key);
        }
        if self.lacking.get(key).is_some_and(|trace| self.is_held(trace, store)) {
            self.lacking.remove(key);
        }
    }

    /// Whether the list is complete.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether everything agrees.
    pub fn agrees(&self) -> bool {
        self.complete && self.differences() == 0
    }

    /// How many objects differ.
    pub fn differences(&self) -> usize {
        self.lacking.len() + self.extra.len()
    }

    /// Whether what is held of an object is what was listed, or of a time after the list.
    fn is_held(&self, listed: &Trace, store: &Store) -> bool {
        match store.get(&listed.key) {
            Some((uid, version)) => {
                (*version == listed.version && *uid == listed.uid) || version.is_newer_than(&self.version)
            }
            None => store.ended(&listed.key).is_some_and(|ended| ended.is_newer_than(&self.version)),
        }
    }

    /// Whether an object that was not listed is held although it was not made after the list.
    fn is_extra(&self, key: &NamespacedName, store: &Store) -> bool {
        store.get(key).is_some_and(|(_, version)| !version.is_newer_than(&self.version))
    }
}
