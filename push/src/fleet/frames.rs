//! One difference, encoded: what every session that needs it sends, chunk by chunk.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use journal::{Digest, Key};
use proto::v1::{Blob, Patch, Remove, change};
use zeroize::Zeroizing;

use super::{Resource, encode_change};
use crate::limits;
use crate::secret::Secret;

/// The encoded difference from one root to another. Chunks are put together when first needed, then shared.
pub struct Frames {
    base: Digest,
    root: Digest,
    replaced: Vec<u8>,
    items: Vec<Bytes>,
    /// Where each item ends.
    ends: Vec<u64>,
    chunks: Vec<OnceLock<Bytes>>,
    holds_secrets: bool,
    /// The secrets that its puts name: all that an agent may ask for.
    secrets: BTreeMap<Digest, Secret>,
}

impl Frames {
    /// The root it applies on.
    pub fn base(&self) -> Digest {
        self.base
    }

    /// The root it leads to.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// Buckets that it replaces whole.
    pub fn replaced(&self) -> &[u8] {
        &self.replaced
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.replaced.is_empty()
    }

    /// How many chunks it has.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// All of it, if it is one chunk or none: then it travels in one message.
    pub fn whole(&self) -> Option<Bytes> {
        match self.chunks.len() {
            0 => Some(Bytes::new()),
            1 => self.chunk(0),
            _ => None,
        }
    }

    /// A chunk, at most [`limits::SENT_CHUNK`] long; each byte is copied at most once for all sessions.
    pub fn chunk(&self, index: usize) -> Option<Bytes> {
        Some(self.chunks.get(index)?.get_or_init(|| self.assemble(index)).clone())
    }

    fn assemble(&self, index: usize) -> Bytes {
        let start = index as u64 * limits::SENT_CHUNK as u64;
        let end = (start + limits::SENT_CHUNK as u64).min(self.len());
        let first = self.ends.partition_point(|item_end| *item_end <= start);
        let mut at = if first == 0 { 0 } else { self.ends[first - 1] };
        let mut buffer = Zeroizing::new(Vec::with_capacity((end - start) as usize));
        for item in self.items.iter().skip(first) {
            let from = start.saturating_sub(at) as usize;
            let to = (end.saturating_sub(at) as usize).min(item.len());
            let part = item.slice(from..to);
            if part.len() as u64 == end - start {
                return part;
            }
            buffer.extend_from_slice(&part);
            at += item.len() as u64;
            if at >= end {
                break;
            }
        }
        if self.holds_secrets { Bytes::from_owner(buffer) } else { Bytes::from(std::mem::take(&mut *buffer)) }
    }

    /// The blobs of these secrets, each an encoded change, if all of them are named by a put of this difference and
    /// known; else the first that is not.
    pub fn blobs(&self, digests: &[Digest]) -> Result<Vec<Bytes>, Digest> {
        digests
            .iter()
            .map(|digest| self.secrets.get(digest).map(|secret| blob(digest, secret)).ok_or(*digest))
            .collect()
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frames({:?} to {:?}, {} bytes)", self.base, self.root, self.len())
    }
}

fn blob(digest: &Digest, secret: &Secret) -> Bytes {
    let blob = Blob { digest: Bytes::copy_from_slice(&digest.0), data: Bytes::from_owner(Shared(secret.clone())) };
    Bytes::from_owner(Zeroizing::new(Vec::from(encode_change(change::Change::Blob(blob)))))
}

/// Lets `Bytes` hold a secret without a copy.
struct Shared(Secret);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The encoded difference from an older body, if that is shorter than the whole: what both begin and end with stays.
pub(super) fn patch(key: &Key, old: &[u8], now: &Resource) -> Option<Bytes> {
    let new = &now.body;
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, rest) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let patch = Patch {
        kind: key.kind.to_string(),
        name: key.name.to_string(),
        head: u32::try_from(head).ok()?,
        tail: u32::try_from(tail).ok()?,
        middle: Bytes::copy_from_slice(&rest[..rest.len() - tail]),
        secrets: now.secrets.iter().map(|digest| Bytes::copy_from_slice(&digest.0)).collect(),
    };
    Some(encode_change(change::Change::Patch(patch))).filter(|patch| patch.len() < now.encoded.len())
}

/// Collects a difference: blobs first, then puts, then removes.
pub(super) struct Builder {
    base: Digest,
    root: Digest,
    replaced: Vec<u8>,
    puts: Vec<Bytes>,
    removes: Vec<Bytes>,
    sent: BTreeMap<Digest, Bytes>,
    secrets: BTreeMap<Digest, Secret>,
}

impl Builder {
    pub(super) fn new(base: Digest, root: Digest) -> Builder {
        let (replaced, puts, removes) = (Vec::new(), Vec::new(), Vec::new());
        Builder { base, root, replaced, puts, removes, sent: BTreeMap::new(), secrets: BTreeMap::new() }
    }

    /// Adds a put. Its secrets are sent along if `send` says so of the serial since which they have been named.
    pub(super) fn put(&mut self, encoded: &Bytes, secrets: Vec<(Digest, Secret, u64)>, send: impl Fn(u64) -> bool) {
        for (digest, secret, since) in secrets {
            if send(since) {
                self.sent.entry(digest).or_insert_with(|| blob(&digest, &secret));
            }
            self.secrets.insert(digest, secret);
        }
        self.puts.push(encoded.clone());
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let remove = Remove { kind: key.kind.to_string(), name: key.name.to_string() };
        self.removes.push(encode_change(change::Change::Remove(remove)));
    }

    pub(super) fn replace(&mut self, buckets: Vec<u8>) {
        self.replaced = buckets;
    }

    pub(super) fn build(self) -> Frames {
        let holds_secrets = !self.sent.is_empty();
        let items: Vec<Bytes> = self.sent.into_values().chain(self.puts).chain(self.removes).collect();
        let mut end = 0;
        let ends: Vec<u64> = items
            .iter()
            .map(|item| {
                end += item.len() as u64;
                end
            })
            .collect();
        let chunks = end.div_ceil(limits::SENT_CHUNK as u64);
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        let (base, root, replaced, secrets) = (self.base, self.root, self.replaced, self.secrets);
        Frames { base, root, replaced, items, ends, chunks, holds_secrets, secrets }
    }
}

/// What a difference is looked up by; the root it leads to is always the present one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrameKey {
    /// From this root.
    Delta(Digest),
    /// These buckets, for an agent at this root.
    Buckets(Digest, Vec<u8>),
}

/// Differences to the present root that sessions share. Those of older roots live on in the sessions that send them.
#[derive(Default)]
pub(super) struct FrameCache {
    frames: BTreeMap<FrameKey, Arc<Frames>>,
    bytes: u64,
}

/// Differences that are kept. Agents of one fleet are at few different roots.
const CACHED: usize = 64;
/// Their lengths together, in bytes.
const CACHED_BYTES: u64 = 256 * 1024 * 1024;

impl FrameCache {
    pub(super) fn get(&self, key: &FrameKey) -> Option<Arc<Frames>> {
        self.frames.get(key).cloned()
    }

    pub(super) fn insert(&mut self, key: FrameKey, frames: &Arc<Frames>) {
        if self.frames.len() >= CACHED || self.bytes + frames.len() > CACHED_BYTES {
            self.clear();
        }
        self.bytes += frames.len();
        self.frames.insert(key, Arc::clone(frames));
    }

    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.frames.clear();
    }
}
