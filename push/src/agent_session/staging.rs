//! A configuration transfer while it comes in: chunks in order, within bounds, then decoded and checked.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use journal::digest::leaf;
use journal::mutants::{self, Mutant};
use journal::{Digest, Key};
use prost::Message;
use proto::v1::{Begin, Change, Patch, Put, change};
use zeroize::Zeroizing;

use super::{Holdings, Transfer, TransferPut};
use crate::limits;
use crate::secret::Secret;
use crate::wire::{self, Broken};
use crate::{Prefix, Version};

/// Why a transfer cannot be used; a code for programs and a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unusable(pub(super) &'static str, pub(super) &'static str);

/// What became of a complete transfer.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It applies on another root than the one that is held.
    NoBase,
    /// The agent holds the result already.
    Held,
    /// To be applied.
    Apply(Box<Transfer>),
}

/// See the module.
pub(super) struct Staging {
    pub(super) transfer: u64,
    pub(super) version: Version,
    pub(super) base_root: Prefix,
    pub(super) root: Digest,
    pub(super) member_seq: u64,
    replaced: Vec<u8>,
    expected: u64,
    limit: u64,
    received: u64,
    /// May hold keys: wiped when it goes. Its capacity is enough from the start, so that no copy is left behind.
    buffer: Zeroizing<Vec<u8>>,
    puts: BTreeMap<Key, TransferPut>,
    /// Differences from bodies that are held; puts once it is known that the base is.
    patches: BTreeMap<Key, Patch>,
    removes: BTreeSet<Key>,
    blobs: BTreeMap<Digest, Secret>,
    /// When it was complete, secrets included.
    pub(super) complete: Option<u64>,
    /// Secrets were asked for.
    pub(super) asked: bool,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Staging({} {:?} to {:?}, {} of {} bytes)",
            self.version, self.base_root, self.root, self.received, self.expected
        )
    }
}

impl Staging {
    /// Begins; a transfer above the limit is refused before a byte of it is kept.
    pub(super) fn new(begin: &Begin, limit: u64) -> Result<Result<Staging, Unusable>, Broken> {
        let version = Version::from(begin.version.ok_or(Broken("Begin without a version"))?);
        let replaced = wire::bucket_numbers(&begin.replaced_buckets)?.to_vec();
        let (base_root, root) = (Prefix::from_wire(&begin.base_root)?, wire::digest(&begin.root)?);
        if begin.bytes > limit {
            return Ok(Err(Unusable("too_large", "the transfer is larger than this agent stages")));
        }
        let capacity = usize::try_from(begin.bytes).unwrap_or(usize::MAX);
        let mut buffer = Zeroizing::new(Vec::new());
        if buffer.try_reserve_exact(capacity).is_err() {
            return Ok(Err(Unusable("too_large", "there is no memory for the transfer")));
        }
        Ok(Ok(Staging {
            transfer: begin.transfer,
            version,
            base_root,
            root,
            member_seq: begin.member_seq,
            replaced,
            expected: begin.bytes,
            limit,
            received: 0,
            buffer,
            puts: BTreeMap::new(),
            patches: BTreeMap::new(),
            removes: BTreeSet::new(),
            blobs: BTreeMap::new(),
            complete: None,
            asked: false,
        }))
    }

    /// Takes a chunk. One that came before is ignored; one that is missing breaks the stream.
    pub(super) fn chunk(&mut self, data: &[u8], offset: u64) -> Result<(), Broken> {
        if data.len() > limits::CHUNK {
            return Err(Broken("a chunk is too long"));
        }
        if offset < self.received || self.complete.is_some() {
            return Ok(());
        }
        let end = self.received.saturating_add(data.len() as u64);
        let most = if self.asked { self.limit } else { self.expected };
        if offset > self.received || end > most {
            return Err(Broken("a chunk is missing, or there are too many"));
        }
        if self.buffer.capacity() - self.buffer.len() < data.len() {
            // Only blobs that were asked for come beyond what Begin announced.
            let mut larger = Zeroizing::new(Vec::with_capacity((self.buffer.len() + data.len()).next_power_of_two()));
            larger.extend_from_slice(&self.buffer);
            self.buffer = larger;
        }
        self.buffer.extend_from_slice(data);
        self.received = end;
        Ok(())
    }

    /// Whether this Commit is one that counts: all announced bytes are there, and it is not a second copy.
    pub(super) fn may_commit(&self) -> bool {
        self.complete.is_none() && self.received >= self.expected && (!self.asked || !self.buffer.is_empty())
    }

    /// Decodes what came since the last Commit.
    pub(super) fn decode(&mut self) -> Result<(), Unusable> {
        const BROKEN: Unusable = Unusable("broken", "the transfer does not decode");
        let mut bytes = Bytes::from_owner(std::mem::take(&mut self.buffer));
        while !bytes.is_empty() {
            let change = Change::decode_length_delimited(&mut bytes).map_err(|_| BROKEN)?;
            match change.change.ok_or(BROKEN)? {
                change::Change::Blob(blob) => {
                    let secret = Secret::new(blob.data.to_vec());
                    if secret.digest().0[..] != blob.digest[..] {
                        return Err(Unusable("broken", "a secret does not have its digest"));
                    }
                    self.blobs.insert(secret.digest(), secret);
                }
                _ if self.asked => return Err(Unusable("broken", "only secrets were asked for")),
                change::Change::Put(put) => self.put(put)?,
                change::Change::Patch(patch) => {
                    let key = self.unnamed(&patch.kind, &patch.name)?;
                    wire::digests(&patch.secrets, limits::SECRETS).map_err(|Broken(what)| Unusable("broken", what))?;
                    // Copies, so that they do not keep the whole transfer with its keys.
                    let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
                    let secrets = patch.secrets.iter().map(copy).collect();
                    self.patches.insert(key, Patch { middle: copy(&patch.middle), secrets, ..patch });
                }
                change::Change::Remove(remove) => {
                    let key = self.unnamed(&remove.kind, &remove.name)?;
                    self.removes.insert(key);
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, put: Put) -> Result<(), Unusable> {
        let key = self.unnamed(&put.kind, &put.name)?;
        let secrets = wire::digests(&put.secrets, limits::SECRETS).map_err(|Broken(what)| Unusable("broken", what))?;
        // A copy, so that a body does not keep the whole transfer with its keys.
        let put = checked(key, Bytes::copy_from_slice(&put.body), secrets)?;
        self.puts.insert(put.key.clone(), put);
        Ok(())
    }

    /// The key of a change, which is the first of its resource.
    fn unnamed(&self, kind: &str, name: &str) -> Result<Key, Unusable> {
        let key = key(kind, name)?;
        let named = self.puts.contains_key(&key) || self.patches.contains_key(&key) || self.removes.contains(&key);
        if named { Err(Unusable("broken", "a resource is named twice")) } else { Ok(key) }
    }

    /// Makes puts of the differences. `None` when a body is not as they need it: whole buckets put that right.
    fn patched(&mut self, holdings: &dyn Holdings) -> Option<()> {
        for (key, patch) in std::mem::take(&mut self.patches) {
            let held = holdings.tree().get(&key).and_then(|_| holdings.body(&key))?;
            let secrets = wire::digests(&patch.secrets, limits::SECRETS).ok()?;
            let put = checked(key.clone(), spliced(&held, &patch)?, secrets).ok()?;
            self.puts.insert(key, put);
        }
        Some(())
    }

    /// Secrets that a put needs and that are neither here nor on the volume.
    pub(super) fn missing(&self, holdings: &dyn Holdings) -> Vec<Digest> {
        if mutants::active(Mutant::MissingKeyIsNotAskedFor) || mutants::active(Mutant::KeyIsNotWaitedFor) {
            return Vec::new();
        }
        let needed = self.puts.values().filter(|put| holdings.tree().get(&put.key) != Some(put.leaf));
        let mut needed: BTreeSet<Digest> = needed.flat_map(|put| put.secrets.iter().copied()).collect();
        // What a difference names was counted when it was decoded.
        needed
            .extend(self.patches.values().flat_map(|patch| &patch.secrets).flat_map(|named| Digest::from_slice(named)));
        needed.into_iter().filter(|digest| !self.blobs.contains_key(digest) && !holdings.has_secret(digest)).collect()
    }

    /// Works out what it means for what is held now, and checks the root.
    pub(super) fn conclude(mut self, holdings: &dyn Holdings) -> Result<Outcome, Unusable> {
        let tree = holdings.tree();
        let base_root = tree.root_after(&BTreeMap::new());
        if !self.base_root.fits(&base_root) || self.patched(holdings).is_none() {
            return Ok(Outcome::NoBase);
        }
        let mut removes: BTreeSet<Key> = self.removes.into_iter().filter(|key| tree.get(key).is_some()).collect();
        for number in &self.replaced {
            let held = tree.bucket(*number).map(|(key, _)| key);
            removes.extend(held.filter(|key| !self.puts.contains_key(key)).cloned());
        }
        let puts: Vec<TransferPut> =
            self.puts.into_values().filter(|put| tree.get(&put.key) != Some(put.leaf)).collect();
        let mut changes: BTreeMap<Key, Option<Digest>> = removes.iter().map(|key| (key.clone(), None)).collect();
        changes.extend(puts.iter().map(|put| (put.key.clone(), Some(put.leaf))));
        if tree.root_after(&changes) != self.root {
            return Err(Unusable("root_mismatch", "the transfer does not lead to the root that it names"));
        }
        if changes.is_empty() {
            return Ok(Outcome::Held);
        }
        let needed: BTreeSet<&Digest> = puts.iter().flat_map(|put| &put.secrets).collect();
        let blobs = self.blobs.into_iter().filter(|(digest, _)| needed.contains(digest)).collect();
        Ok(Outcome::Apply(Box::new(Transfer {
            version: self.version,
            base_root,
            root: self.root,
            removes: removes.into_iter().collect(),
            puts,
            blobs,
        })))
    }

    /// Whether it replaces whole buckets.
    pub(super) fn replaces(&self) -> bool {
        !self.replaced.is_empty()
    }
}

fn key(kind: &str, name: &str) -> Result<Key, Unusable> {
    let checked = wire::name(kind, limits::NAME).and_then(|()| wire::name(name, limits::NAME));
    checked.map_err(|Broken(what)| Unusable("broken", what))?;
    Ok(Key::new(kind, name))
}

/// A put whose body may stand in a journal.
fn checked(key: Key, body: Bytes, secrets: Vec<Digest>) -> Result<TransferPut, Unusable> {
    if !is_one_json_line(&body) {
        return Err(Unusable("invalid_body", "a body is not one JSON value on one line"));
    }
    let leaf = leaf(&key, &body);
    Ok(TransferPut { key, body, leaf, secrets })
}

/// The body that a difference makes of the one that is held; `None` when that is too short for it.
fn spliced(held: &[u8], patch: &Patch) -> Option<Bytes> {
    let (head, tail) = (usize::try_from(patch.head).ok()?, usize::try_from(patch.tail).ok()?);
    let from = held.len().checked_sub(tail).filter(|from| head <= *from)?;
    Some([&held[..head], &patch.middle, &held[from..]].concat().into())
}

/// It becomes the end of a line of the journal as it is.
fn is_one_json_line(body: &[u8]) -> bool {
    body.iter().all(|byte| *byte >= 0x20)
        && serde_json::from_slice::<&serde_json::value::RawValue>(body)
            .is_ok_and(|value| value.get().len() == body.len())
}
