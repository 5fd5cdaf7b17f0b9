//! The member sets of a fleet: newest state, a little of the past for deltas, and what changed since when.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use journal::{Digest, MemberTree};

use crate::limits;

/// Earlier states of one set that a delta can start from.
const PAST: usize = 4;
/// Sets that are gone and still remembered, so that agents can be told.
const TOMBSTONES: usize = 65_536;

/// A difference between two states of one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDelta {
    /// The digest before.
    pub base: Digest,
    /// Members that came, sorted.
    pub add: Vec<Arc<str>>,
    /// Members that went: positions in the state before, ascending.
    pub remove: Vec<u32>,
    /// About how many bytes it is shorter than the whole set.
    pub saves: usize,
}

struct Past {
    version: u64,
    members: Arc<[Arc<str>]>,
    digest: Digest,
    /// To the present state; computed once for all sessions. `None`: longer than the whole set.
    delta: OnceLock<Option<Arc<SetDelta>>>,
}

/// A set that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// An agent may be told when it applied this serial or a later one.
    pub after: u64,
    /// The member version of its last content.
    pub last_version: u64,
    /// The digest of its last content.
    pub last_digest: Digest,
}

/// One member set.
pub struct MemberSet {
    id: u32,
    version: u64,
    /// Sorted, each once.
    members: Arc<[Arc<str>]>,
    digest: Digest,
    past: VecDeque<Past>,
    gone: Option<Tombstone>,
    /// The version that it had when the present configuration came, if it has changed since.
    with_root: Option<u64>,
}

impl MemberSet {
    /// The short id, which is the same on every stream of this fleet.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The member version of its last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its members, sorted, each once.
    pub fn members(&self) -> &Arc<[Arc<str>]> {
        &self.members
    }

    /// Its digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether the whole set fits into one message and within what an agent takes.
    pub fn fits(&self) -> bool {
        // Each member has a tag and a length of at most three bytes before it.
        let length: usize = self.members.iter().map(|member| member.len() + 4).sum();
        let members =
            self.members.len() <= limits::MEMBERS && self.members.iter().all(|member| member.len() <= limits::MEMBER);
        members && length <= limits::CONTENT
    }

    /// Set when it is gone.
    pub fn gone(&self) -> Option<&Tombstone> {
        self.gone.as_ref()
    }

    /// The difference for whoever holds the state that was the newest at this member version; `None` if that is not
    /// remembered or the whole set is shorter.
    pub fn delta_from(&self, version: u64) -> Option<Arc<SetDelta>> {
        let past = self.past.iter().rev().find(|past| past.version <= version)?;
        past.delta.get_or_init(|| difference(past, &self.members).map(Arc::new)).clone()
    }
}

/// Walks both sorted lists once.
fn difference(past: &Past, now: &[Arc<str>]) -> Option<SetDelta> {
    let mut delta = SetDelta { base: past.digest, add: Vec::new(), remove: Vec::new(), saves: 0 };
    let (mut old, mut new) = ((0..).zip(past.members.iter()).peekable(), now.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (Some((_, a)), Some(b)) if a == b => {
                old.next();
                new.next();
            }
            (Some((_, a)), Some(b)) if a < b => delta.remove.extend(old.next().map(|(at, _)| at)),
            (Some(_), None) => delta.remove.extend(old.next().map(|(at, _)| at)),
            (_, Some(_)) => delta.add.extend(new.next().cloned()),
            (None, None) => break,
        }
    }
    // A member has its tag and its length before it; positions are one to three bytes each, after a tag and a length.
    let members = |all: &[Arc<str>]| all.iter().map(|member| member.len() + 2).sum::<usize>();
    let length = members(&delta.add) + 3 * delta.remove.len() + 2;
    delta.saves = members(now).checked_sub(length).filter(|saves| *saves > 0)?;
    Some(delta)
}

/// All member sets of a fleet.
#[derive(Default)]
pub struct MemberSets {
    sets: BTreeMap<Arc<str>, MemberSet>,
    /// Each set under the version of its last change, and under the one that it had when the present configuration came:
    /// whoever goes through them has sent every set of that configuration once it is at [`MemberSets::at_root`], whatever
    /// changed meanwhile.
    by_version: BTreeMap<u64, Arc<str>>,
    tree: MemberTree,
    root: Option<Digest>,
    version: u64,
    at_root: u64,
    /// Sets that have [`MemberSet::with_root`].
    moved: Vec<Arc<str>>,
    next_id: u32,
    tombstones: BTreeMap<u64, Arc<str>>,
    /// Sets that went up to this version are forgotten.
    forgotten: u64,
}

impl MemberSets {
    /// Sets or takes away one set; `serial` is that of the configuration which comes with it.
    pub(super) fn set(&mut self, name: Arc<str>, members: Option<Arc<[Arc<str>]>>, serial: u64) {
        match members {
            Some(members) => self.put(name, sorted(members)),
            None => self.remove(name, serial),
        }
    }

    fn put(&mut self, name: Arc<str>, members: Arc<[Arc<str>]>) {
        let digest = journal::digest::members(&name, members.iter().map(|member| &**member));
        let version = self.version + 1;
        match self.sets.get_mut(&name) {
            Some(set) if set.gone.is_none() && set.digest == digest => return,
            Some(set) => {
                if set.gone.is_none() && set.version <= self.at_root {
                    set.with_root = Some(set.version);
                    self.moved.push(Arc::clone(&name));
                } else {
                    self.by_version.remove(&set.version);
                }
                if set.gone.take().is_some() {
                    // Whoever holds the old state is told the whole set.
                    self.tombstones.remove(&set.version);
                    set.past.clear();
                } else {
                    let past = Past {
                        version: set.version,
                        members: Arc::clone(&set.members),
                        digest: set.digest,
                        delta: OnceLock::new(),
                    };
                    set.past.push_back(past);
                    if set.past.len() > PAST {
                        set.past.pop_front();
                    }
                    set.past.iter_mut().for_each(|past| past.delta = OnceLock::new());
                }
                (set.version, set.members, set.digest) = (version, members, digest);
            }
            None => {
                let id = self.next_id;
                self.next_id += 1;
                let set =
                    MemberSet { id, version, members, digest, past: VecDeque::new(), gone: None, with_root: None };
                self.sets.insert(Arc::clone(&name), set);
            }
        }
        self.version = version;
        self.by_version.insert(version, Arc::clone(&name));
        self.tree.insert(name, digest);
        self.root = None;
    }

    fn remove(&mut self, name: Arc<str>, serial: u64) {
        let Some(set) = self.sets.get_mut(&name) else { return };
        if set.gone.is_some() {
            return;
        }
        let version = self.version + 1;
        self.by_version.remove(&set.version);
        set.with_root.take().into_iter().for_each(|version| drop(self.by_version.remove(&version)));
        set.gone = Some(Tombstone { after: serial, last_version: set.version, last_digest: set.digest });
        set.past.clear();
        set.members = Arc::new([]);
        set.version = version;
        self.version = version;
        self.by_version.insert(version, Arc::clone(&name));
        self.tombstones.insert(version, Arc::clone(&name));
        self.tree.remove(&name);
        self.root = None;
        if self.tombstones.len() > TOMBSTONES
            && let Some((version, name)) = self.tombstones.pop_first()
        {
            self.by_version.remove(&version);
            self.sets.remove(&name);
            self.forgotten = version;
        }
    }

    /// Ends a publication: the root is computed, and a set that went without a change of the configuration (its serial
    /// did not come to be) waits for the present one only.
    pub(super) fn settle(&mut self, serial: u64) {
        for (_, name) in self.tombstones.iter().rev() {
            match self.sets.get_mut(name).and_then(|set| set.gone.as_mut()) {
                Some(gone) if gone.after > serial => gone.after = serial,
                _ => break,
            }
        }
        if self.root.is_none() {
            self.root = Some(self.tree.root());
        }
    }

    /// The configuration is another one from here on, and names sets as they are now.
    pub(super) fn root_changed(&mut self) {
        self.at_root = self.version;
        for name in self.moved.drain(..) {
            let version = self.sets.get_mut(&name).and_then(|set| set.with_root.take());
            version.into_iter().for_each(|version| drop(self.by_version.remove(&version)));
        }
    }

    /// The member version that holds every set which the present configuration names.
    pub fn at_root(&self) -> u64 {
        self.at_root
    }

    /// Counts changes of sets.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The member root.
    pub fn root(&self) -> Digest {
        self.root.unwrap_or_else(|| self.tree.root_after(&BTreeMap::new()))
    }

    /// The digests.
    pub fn tree(&self) -> &MemberTree {
        &self.tree
    }

    /// The digests of the 256 buckets.
    pub fn bucket_digests(&mut self) -> Vec<Digest> {
        self.tree.bucket_digests().to_vec()
    }

    /// A set, gone ones included.
    pub fn get(&self, name: &str) -> Option<&MemberSet> {
        self.sets.get(name)
    }

    /// Sets that are there, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &MemberSet)> {
        self.sets.iter().filter(|(_, set)| set.gone.is_none())
    }

    /// The set whose last change is the next after this version.
    pub fn next_after(&self, cursor: u64) -> Option<(u64, &Arc<str>)> {
        self.by_version.range(cursor + 1..).next().map(|(version, name)| (*version, name))
    }

    /// Whether everything that changed after this version is still known.
    pub fn remembers(&self, cursor: u64) -> bool {
        cursor >= self.forgotten
    }
}

fn sorted(members: Arc<[Arc<str>]>) -> Arc<[Arc<str>]> {
    if members.is_sorted_by(|a, b| a < b) {
        return members;
    }
    let mut members = members.to_vec();
    members.sort_unstable();
    members.dedup();
    members.into()
}
