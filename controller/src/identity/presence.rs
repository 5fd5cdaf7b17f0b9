//! Which pods there are in the namespaces of the fleets: who is gone loses its stream, and gets none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A pod that the API server showed us at enrolment counts as there for so long, even if the watch has not shown it yet: longer than a
/// watch on a dead connection is waited for, and with the time between two questions who may stay less than 10 s.
const VOUCHED: Duration = Duration::from_secs(7);

/// The UIDs of the pods that have not ended, by namespace.
#[derive(Debug, Default)]
pub struct Presence {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    pods: BTreeMap<String, HashSet<String>>,
    /// By UID: the namespace, and when.
    vouched: HashMap<String, (String, Instant)>,
}

impl Presence {
    /// These are the pods of a namespace, and no others, by a list that was asked for at this time: it overrules who vouched before.
    pub fn listed(&self, namespace: &str, uids: impl IntoIterator<Item = String>, asked: Instant) {
        let mut known = self.lock();
        known.vouched.retain(|_, (of, at)| of != namespace || *at > asked);
        known.pods.insert(namespace.to_owned(), uids.into_iter().collect());
    }

    /// A pod came, or goes on.
    pub fn came(&self, namespace: &str, uid: String) {
        self.lock().pods.entry(namespace.to_owned()).or_default().insert(uid);
    }

    /// A pod is gone, or has ended.
    pub fn went(&self, namespace: &str, uid: &str) {
        let mut known = self.lock();
        if let Some(pods) = known.pods.get_mut(namespace) {
            pods.remove(uid);
        }
        known.vouched.remove(uid);
    }

    /// A namespace is not followed any more.
    pub fn forget(&self, namespace: &str) {
        self.lock().pods.remove(namespace);
    }

    /// The API server has just shown this pod alive.
    pub fn vouch(&self, namespace: &str, uid: &str, now: Instant) {
        let mut known = self.lock();
        known.vouched.retain(|_, (_, at)| now.saturating_duration_since(*at) < VOUCHED);
        known.vouched.insert(uid.to_owned(), (namespace.to_owned(), now));
    }

    /// Whether a pod is there. One of a namespace that was not listed yet is not, unless somebody has just vouched for it.
    pub fn is_there(&self, namespace: &str, uid: &str, now: Instant) -> bool {
        let known = self.lock();
        known.pods.get(namespace).is_some_and(|pods| pods.contains(uid))
            || known.vouched.get(uid).is_some_and(|(_, at)| now.saturating_duration_since(*at) < VOUCHED)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_there_while_the_watch_shows_it_or_somebody_just_vouched_for_it() {
        let (presence, start) = (Presence::default(), Instant::now());
        assert!(!presence.is_there("a", "1", start), "nothing was listed");
        presence.listed("a", ["1".to_owned(), "2".to_owned()], start);
        assert!(presence.is_there("a", "1", start) && !presence.is_there("b", "1", start), "in its own namespace");
        presence.came("a", "3".to_owned());
        presence.went("a", "1");
        assert!(presence.is_there("a", "3", start) && !presence.is_there("a", "1", start));
        presence.listed("a", ["2".to_owned()], start);
        assert!(!presence.is_there("a", "3", start), "a list is the whole truth");

        presence.vouch("a", "4", start);
        assert!(presence.is_there("a", "4", start + VOUCHED / 2), "the watch may lag");
        assert!(!presence.is_there("a", "4", start + VOUCHED), "and not for ever");
        presence.vouch("a", "4", start);
        presence.went("a", "4");
        assert!(!presence.is_there("a", "4", start), "it is gone since");
        presence.vouch("a", "4", start);
        presence.listed("a", ["2".to_owned()], start - VOUCHED / 7);
        assert!(presence.is_there("a", "4", start), "the list may be older than who vouched");
        presence.listed("b", [], start + VOUCHED / 7);
        assert!(presence.is_there("a", "4", start), "a list of another namespace says nothing of it");
        presence.listed("a", ["2".to_owned()], start + VOUCHED / 7);
        assert!(!presence.is_there("a", "4", start), "a list that was asked for later knows better");
        presence.forget("a");
        assert!(!presence.is_there("a", "2", start));
    }
}
