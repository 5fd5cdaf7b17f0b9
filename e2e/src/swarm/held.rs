//! What a played agent holds, in memory: digests, bodies and member sets.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use push::Prefix;
use push::agent_session::{Holdings, MembersChange, Transfer};

/// See the module. It is said to have every secret that is asked about.
#[derive(Debug, Default)]
pub struct Held {
    /// The digests of the configuration.
    pub tree: Tree,
    /// The digests of the member sets.
    pub members: MemberTree,
    /// The member sets.
    pub sets: BTreeMap<Arc<str>, MemberSet>,
    bodies: HashMap<Key, Bytes>,
}

impl Holdings for Held {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn members(&self) -> &MemberTree {
        &self.members
    }

    fn has_secret(&self, _: &Digest) -> bool {
        true
    }

    fn body(&self, key: &Key) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }
}

thread_local! {
    /// Bodies by their leaves: thousands of agents on one machine hold the same ones.
    static BODIES: RefCell<HashMap<Digest, Bytes>> = RefCell::default();
}

/// Bodies that are shared.
const MOST_BODIES: usize = 131_072;

fn shared(leaf: Digest, body: Bytes) -> Bytes {
    BODIES.with_borrow_mut(|bodies| {
        if bodies.len() >= MOST_BODIES {
            bodies.clear();
        }
        bodies.entry(leaf).or_insert(body).clone()
    })
}

impl Held {
    /// Takes a transfer over.
    pub fn apply(&mut self, transfer: Transfer) {
        for key in &transfer.removes {
            self.tree.remove(key);
            self.bodies.remove(key);
        }
        for put in transfer.puts {
            self.tree.insert(put.key.clone(), put.leaf);
            self.bodies.insert(put.key, shared(put.leaf, put.body));
        }
        self.tree.root();
    }

    /// Changes a member set. False, and nothing done, when base or result are not the promised ones.
    pub fn change(&mut self, name: &Arc<str>, change: &MembersChange, digest: Prefix) -> bool {
        if *change == MembersChange::Drop {
            self.sets.remove(name);
            self.members.remove(name);
            return true;
        }
        let result = change.result(name, self.sets.get(name)).filter(|set| digest.fits(&set.digest));
        let Some(set) = result else { return false };
        self.members.insert(Arc::clone(name), set.digest);
        self.sets.insert(Arc::clone(name), set);
        true
    }
}
