//! The desired state of one fleet: resources, secrets and member sets, and what is needed to bring any agent there.
//!
//! Pure: no clock, no sockets. One owner publishes, all sessions of the fleet read.

mod admission;
mod bodies;
mod condemned;
mod frames;
mod history;
mod members;
mod refusals;
mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use journal::digest::leaf;
use journal::mutants::{self, Mutant};
use journal::{Digest, Key, Tree};
use prost::Message;
use proto::v1::{Change, Put, change};

use crate::Version;
use crate::secret::Secret;

pub use admission::{Admission, Admitted};
pub use frames::Frames;
pub use members::{MemberSet, MemberSets, SetDelta, Tombstone};
pub use refusals::{Refusals, Retry};

use bodies::Bodies;
use condemned::Condemned;
use frames::{FrameCache, FrameKey};
use history::History;
use secrets::Secrets;

/// A resource to put: its body as it travels, and the secrets that the body names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Kind and name.
    pub key: Key,
    /// One compact JSON value without bytes below 0x20.
    pub body: Bytes,
    /// Digests of the secrets that the body names.
    pub secrets: Vec<Digest>,
}

/// The members of a set, `address:port` each.
pub type Members = Arc<[Arc<str>]>;

/// One step of a fleet: applied as a whole.
#[derive(Clone, Debug, Default)]
pub struct FleetChange {
    /// Resources that are new or whose bytes changed.
    pub puts: Vec<Item>,
    /// Resources that are gone.
    pub removes: Vec<Key>,
    /// Secrets that puts of this or a later change name.
    pub secrets: Vec<(Digest, Secret)>,
    /// Secrets that are no longer needed. One that a body still names stays until none does.
    pub drop_secrets: Vec<Digest>,
    /// Member sets: the members (sorted or not), or `None` when the set is gone.
    pub members: Vec<(Arc<str>, Option<Members>)>,
}

/// What a publication led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The version now. Raised only when the root changed.
    pub version: Version,
    /// The root now.
    pub root: Digest,
    /// Counts the changes of this fleet's member sets; an agent that reports it or more has these.
    pub member_version: u64,
    /// The member root now.
    pub member_root: Digest,
    /// Secrets that a body names and nobody gave: a fault of the caller. Agents will lack them.
    pub missing_secrets: Vec<Digest>,
}

/// A resource, encoded once for every session.
struct Resource {
    /// The length-delimited `Change`.
    encoded: Bytes,
    /// A slice of `encoded`.
    body: Bytes,
    secrets: Arc<[Digest]>,
    leaf: Digest,
    /// The serial that brought these bytes.
    since: u64,
}

/// The desired state of one fleet.
pub struct Fleet {
    epoch: u64,
    /// Counts roots since this `Fleet` began; unlike the generation it goes on over epochs.
    serial: u64,
    /// The serial before the first generation of this epoch.
    epoch_start: u64,
    /// The last generation of a fleet of this name that ended in this epoch.
    generation_before: u64,
    /// Nothing is desired any more of whoever had its configuration.
    ended: bool,
    root: Digest,
    empty_root: Digest,
    tree: Tree,
    resources: BTreeMap<Key, Resource>,
    secrets: Secrets,
    history: History,
    bodies: Bodies,
    cache: FrameCache,
    members: MemberSets,
    condemned: Condemned,
    refusals: BTreeMap<Arc<str>, Refusals>,
    admission: Arc<Admission>,
}

/// Agents whose refusals are remembered.
const REFUSING_AGENTS: usize = 16_384;

impl Fleet {
    /// A fleet without anything, not published yet, in this epoch.
    pub fn new(epoch: u64) -> Fleet {
        let empty_root = Tree::default().root();
        Fleet {
            epoch,
            serial: 0,
            epoch_start: 0,
            generation_before: 0,
            ended: false,
            root: empty_root,
            empty_root,
            tree: Tree::default(),
            resources: BTreeMap::new(),
            secrets: Secrets::default(),
            history: History::new(empty_root),
            bodies: Bodies::default(),
            cache: FrameCache::default(),
            members: MemberSets::default(),
            condemned: Condemned::default(),
            refusals: BTreeMap::new(),
            admission: Arc::new(Admission::default()),
        }
    }

    /// Uses this admission control, which several fleets may share.
    pub fn with_admission(mut self, admission: Arc<Admission>) -> Fleet {
        self.admission = admission;
        self
    }

    /// Begins after this generation: there was a fleet of this name in this epoch, and its agents take nothing older.
    pub fn after_generation(mut self, generation: u64) -> Fleet {
        self.generation_before = generation;
        self
    }

    /// Ends the fleet: its sessions say farewell, and nothing is served from it any more. Agents keep what they run.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the fleet ended.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Makes a change the desired state. Costs what the change costs.
    pub fn publish(&mut self, change: FleetChange) -> Published {
        let serial = self.serial + 1;
        let mut changed: BTreeMap<Key, Option<Digest>> = BTreeMap::new();
        for (digest, secret) in change.secrets {
            self.secrets.give(digest, secret);
        }
        // Only now removals, so that a key that is in both ends up removed nowhere by accident: puts win.
        for key in change.removes {
            if let Some(old) = self.resources.remove(&key) {
                self.tree.remove(&key);
                self.secrets.release(&old.secrets);
                self.condemned.gone(&key);
                changed.entry(key).or_insert(Some(old.leaf));
            }
        }
        for item in change.puts {
            self.put(item, serial, &mut changed);
        }
        for digest in change.drop_secrets {
            self.secrets.drop_when_unused(&digest);
        }
        let root = self.tree.root();
        for (set, members) in change.members {
            self.members.set(set, members, serial);
        }
        if root != self.root || self.serial == 0 {
            self.history.push(serial, root, changed.into_iter().collect());
            self.serial = serial;
            self.root = root;
            if !mutants::active(Mutant::SupersededIsSent) {
                self.cache.clear();
            }
            self.members.root_changed();
        }
        self.members.settle(self.serial);
        self.published()
    }

    fn put(&mut self, item: Item, serial: u64, changed: &mut BTreeMap<Key, Option<Digest>>) {
        let leaf = leaf(&item.key, &item.body);
        let old = self.resources.get(&item.key);
        let old_leaf = old.map(|old| old.leaf);
        if old_leaf == Some(leaf) {
            return;
        }
        let mut secrets = item.secrets;
        secrets.sort_unstable();
        secrets.dedup();
        let secrets: Arc<[Digest]> = secrets.into();
        self.secrets.claim(&secrets, serial);
        if let Some(old) = old {
            let old = Arc::clone(&old.secrets);
            self.secrets.release(&old);
        }
        let resource = encode(&item.key, item.body, secrets, leaf, serial);
        self.tree.insert(item.key.clone(), leaf);
        self.condemned.desired(&item.key, &leaf);
        if let Some(old) = self.resources.insert(item.key.clone(), resource) {
            self.bodies.was(old.leaf, old.body);
        }
        changed.entry(item.key).or_insert(old_leaf);
    }

    /// The present state in the words of [`Fleet::publish`].
    pub fn published(&self) -> Published {
        Published {
            version: self.version(),
            root: self.root,
            member_version: self.members.version(),
            member_root: self.members.root(),
            missing_secrets: self.secrets.missing(),
        }
    }

    /// Whether anything, be it nothing, was published. Before that no agent is served.
    pub fn is_published(&self) -> bool {
        self.serial > 0
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Enters a higher epoch, in which the present root is generation 1. A lower or equal one changes nothing.
    pub fn raise_epoch(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.epoch_start = self.serial.saturating_sub(1);
            self.generation_before = 0;
        }
    }

    /// Epoch and generation of the desired state; before the first publication generation 0, or that of the fleet before it.
    pub fn version(&self) -> Version {
        Version::new(self.epoch, self.generation(self.serial))
    }

    /// The generation of this epoch in which a serial came.
    fn generation(&self, serial: u64) -> u64 {
        self.generation_before + serial.saturating_sub(self.epoch_start)
    }

    /// The root of the desired configuration.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// The root of a configuration without resources.
    pub fn empty_root(&self) -> Digest {
        self.empty_root
    }

    /// The member sets.
    pub fn members(&self) -> &MemberSets {
        &self.members
    }

    /// The digests of the 256 member buckets.
    pub fn member_bucket_digests(&mut self) -> Vec<Digest> {
        self.members.bucket_digests()
    }

    /// The member version that holds every set which the present root names.
    pub fn member_version_at_root(&self) -> u64 {
        self.members.at_root()
    }

    /// Counts roots over epochs: what [`Tombstone::after`] speaks of.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The newest serial that had this root, if it is remembered.
    pub fn serial_of(&self, root: &Digest) -> Option<u64> {
        self.history.serial_of(root)
    }

    /// The body of a resource.
    pub fn body(&self, key: &Key) -> Option<&Bytes> {
        self.resources.get(key).map(|resource| &resource.body)
    }

    /// Every resource, by key.
    pub fn resources(&self) -> impl Iterator<Item = (&Key, &Bytes)> {
        self.resources.iter().map(|(key, resource)| (key, &resource.body))
    }

    /// The secrets that this resource's body names.
    pub fn secrets_of(&self, key: &Key) -> &[Digest] {
        self.resources.get(key).map_or(&[], |resource| &resource.secrets)
    }

    /// The generation of this epoch that brought the present bytes of a resource (1 when it was an earlier epoch): an
    /// agent that applied it, or a later one, has them.
    pub fn generation_of(&self, key: &Key) -> Option<u64> {
        self.resources.get(key).map(|resource| self.generation(resource.since).max(1))
    }

    /// The digests of the desired configuration.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The difference from a root that the fleet had, or from nothing; `None` when that root is not remembered.
    /// All sessions that need the same difference share it.
    pub fn delta(&mut self, base: &Digest) -> Option<Arc<Frames>> {
        if let Some(frames) = self.cache.get(&FrameKey::Delta(*base)) {
            return Some(frames);
        }
        let mut builder = frames::Builder::new(*base, self.root);
        if *base == self.empty_root {
            for resource in self.resources.values() {
                builder.put(&resource.encoded, self.secrets.known(&resource.secrets), |_| true);
            }
        } else if *base != self.root {
            let from = self.history.serial_of(base)?;
            for (key, before) in self.history.changed_since(from) {
                match self.resources.get(key) {
                    Some(now) if Some(now.leaf) == before => {}
                    Some(now) => {
                        let old = before.and_then(|leaf| self.bodies.get(&leaf));
                        let encoded = old.and_then(|old| frames::patch(key, old, now)).unwrap_or(now.encoded.clone());
                        builder.put(&encoded, self.secrets.known(&now.secrets), |since| since > from);
                    }
                    None if before.is_some() => builder.remove(key),
                    None => {}
                }
            }
        }
        let frames = Arc::new(builder.build());
        self.cache.insert(FrameKey::Delta(*base), &frames);
        Some(frames)
    }

    /// Whole buckets for an agent with these bucket digests: every bucket that differs. The agent asks for the secrets
    /// that it lacks.
    pub fn replacement(&mut self, agent: &[Digest]) -> Arc<Frames> {
        let base = journal::digest::root_of(agent);
        let ours = self.tree.bucket_digests().to_vec();
        let differing: Vec<u8> =
            (0..=u8::MAX).filter(|n| agent.get(usize::from(*n)) != ours.get(usize::from(*n))).collect();
        let key = FrameKey::Buckets(base, differing.clone());
        if let Some(frames) = self.cache.get(&key) {
            return frames;
        }
        let mut builder = frames::Builder::new(base, self.root);
        for number in &differing {
            for (name, _) in self.tree.bucket(*number) {
                if let Some(resource) = self.resources.get(name) {
                    builder.put(&resource.encoded, self.secrets.known(&resource.secrets), |_| false);
                }
            }
        }
        builder.replace(differing);
        let frames = Arc::new(builder.build());
        self.cache.insert(key, &frames);
        frames
    }

    /// What this agent refused, for good or for now. Forgotten when its `scalwsd` is another version.
    pub fn refusals(&mut self, agent: &Arc<str>, scalwsd_version: &str) -> &mut Refusals {
        while self.refusals.len() >= REFUSING_AGENTS && !self.refusals.contains_key(agent) {
            self.refusals.pop_first();
        }
        let refusals = self.refusals.entry(Arc::clone(agent)).or_default();
        refusals.of_version(scalwsd_version);
        refusals
    }

    /// Forgets an agent whose pod is gone.
    pub fn forget_agent(&mut self, agent: &str) {
        self.refusals.remove(agent);
        self.agent_left(agent);
    }

    /// The admission control.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.resources.len();
        f.debug_struct("Fleet")
            .field("version", &self.version())
            .field("root", &self.root)
            .field("resources", &count)
            .finish_non_exhaustive()
    }
}

/// Encodes a put once; the body becomes a slice of the encoding, so that the bytes are held once.
fn encode(key: &Key, body: Bytes, secrets: Arc<[Digest]>, leaf: Digest, since: u64) -> Resource {
    let put = Put {
        kind: key.kind.to_string(),
        name: key.name.to_string(),
        body: body.clone(),
        secrets: secrets.iter().map(|digest| Bytes::copy_from_slice(&digest.0)).collect(),
    };
    let encoded = encode_change(change::Change::Put(put));
    let body = match Change::decode_length_delimited(encoded.clone()) {
        Ok(Change { change: Some(change::Change::Put(put)) }) => put.body,
        _ => body,
    };
    Resource { encoded, body, secrets, leaf, since }
}

fn encode_change(change: change::Change) -> Bytes {
    Bytes::from(Change { change: Some(change) }.encode_length_delimited_to_vec())
}
