//! Leaves that killed a `scalwsd`, and what agents have live in spite of what another one says of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use journal::{Digest, Key};

use super::Fleet;

/// Leaves that a fleet remembers. Those that were condemned first go first when there are more.
const CONDEMNED: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Condemned {
    leaves: BTreeSet<Digest>,
    /// The same, in the order in which they came.
    order: VecDeque<Digest>,
    /// Resources of the desired configuration that hold one of them.
    here: BTreeMap<Key, Digest>,
    /// Agents with a stream, by what they said last.
    live: BTreeMap<Arc<str>, Live>,
}

/// What an agent runs.
#[derive(Debug)]
struct Live {
    serial: u64,
    not_live: BTreeSet<String>,
}

impl Condemned {
    /// Whether it is new.
    fn add(&mut self, leaf: Digest, most: usize) -> bool {
        if !self.leaves.insert(leaf) {
            return false;
        }
        self.order.push_back(leaf);
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                self.leaves.remove(&oldest);
            }
        }
        true
    }

    /// A resource is desired with this leaf from now on.
    pub(super) fn desired(&mut self, key: &Key, leaf: &Digest) {
        if self.leaves.contains(leaf) {
            self.here.insert(key.clone(), *leaf);
        } else {
            self.here.remove(key);
        }
    }

    /// A resource is not desired any more.
    pub(super) fn gone(&mut self, key: &Key) {
        self.here.remove(key);
    }
}

impl Fleet {
    /// Takes note of leaves that killed a `scalwsd`. No push starts that holds them as they were; the owner publishes
    /// claims only in their place. Gives the resources that hold them now.
    pub fn condemn(&mut self, leaves: &[Digest]) -> Vec<Key> {
        let new: BTreeSet<Digest> =
            leaves.iter().copied().filter(|leaf| self.condemned.add(*leaf, CONDEMNED)).collect();
        if !new.is_empty() {
            let here = self.tree.iter().filter(|(_, leaf)| new.contains(leaf));
            self.condemned.here.extend(here.map(|(key, leaf)| (key.clone(), *leaf)));
        }
        let asked = |leaf: &Digest| leaves.contains(leaf);
        self.condemned.here.iter().filter(|(_, leaf)| asked(leaf)).map(|(key, _)| key.clone()).collect()
    }

    /// Resources of the desired configuration that are condemned: while there are any, no push starts.
    pub fn condemned(&self) -> impl Iterator<Item = (&Key, &Digest)> {
        self.condemned.here.iter()
    }

    /// Whether any leaf is condemned.
    pub fn condemns(&self) -> bool {
        !self.condemned.leaves.is_empty()
    }

    /// Whether a leaf is condemned.
    pub fn is_condemned(&self, leaf: &Digest) -> bool {
        self.condemned.leaves.contains(leaf)
    }

    /// Whether pushes may start now.
    pub fn may_push(&self) -> bool {
        self.is_published() && self.condemned.here.is_empty()
    }

    /// Notes the word of an agent: it runs this root, without these resources (`kind/name`).
    pub fn agent_runs(&mut self, agent: &Arc<str>, root: &Digest, not_live: impl Iterator<Item = String>) {
        match self.history.serial_of(root) {
            Some(serial) => {
                let live = Live { serial, not_live: not_live.collect() };
                self.condemned.live.insert(Arc::clone(agent), live);
            }
            None => self.agent_left(agent),
        }
    }

    /// Forgets what an agent runs.
    pub fn agent_left(&mut self, agent: &str) {
        self.condemned.live.remove(agent);
    }

    /// Those of these leaves that agents other than this one have live as they are desired now. What killed this one's
    /// `scalwsd` came from outside then, or is a fault of that process: no reason to take them from the whole fleet.
    pub fn live_elsewhere(&self, agent: &str, leaves: &[Digest]) -> BTreeSet<Digest> {
        let others = || self.condemned.live.iter().filter(|(name, _)| &***name != agent).map(|(_, live)| live);
        if leaves.is_empty() || others().next().is_none() {
            return BTreeSet::new();
        }
        let asked: BTreeSet<&Digest> = leaves.iter().collect();
        let live = |key: &Key, since: u64| {
            let name = key.to_string();
            others().any(|other| other.serial >= since && !other.not_live.contains(&name))
        };
        let here = self.resources.iter().filter(|(_, resource)| asked.contains(&resource.leaf));
        here.filter(|(key, resource)| live(key, resource.since)).map(|(_, resource)| resource.leaf).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaves_that_were_condemned_first_are_forgotten_first() {
        let mut condemned = Condemned::default();
        // The digests fall while the ages grow, so that the smallest digest is the youngest.
        for byte in (1..=5).rev() {
            assert!(condemned.add(Digest([byte; 32]), 3));
        }
        assert!(!condemned.add(Digest([1; 32]), 3), "said again, it is not new");
        let left: Vec<u8> = condemned.leaves.iter().map(|leaf| leaf.0[0]).collect();
        assert_eq!(left, [1, 2, 3]);
        assert_eq!(condemned.order.len(), 3);
    }
}
