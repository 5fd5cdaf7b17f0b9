//! Content addresses: a leaf per resource, 256 buckets, one root; and the same for member sets.
//!
//! Every input is length-prefixed, so two different inputs never give the same byte string. Nothing about file formats
//! enters a digest.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A BLAKE3 digest; as text 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// The first 12 digits, for people.
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }

    /// Reads 32 raw bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Digest> {
        bytes.try_into().ok().map(Digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.short())
    }
}

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(DigestError);
        }
        let digit = |b: u8| match b {
            b'0'..=b'9' => Ok(b - b'0'),
            b'a'..=b'f' => Ok(b - b'a' + 10),
            _ => Err(DigestError),
        };
        let mut out = [0; 32];
        for (i, slot) in out.iter_mut().enumerate() {
            *slot = digit(bytes[2 * i])? * 16 + digit(bytes[2 * i + 1])?;
        }
        Ok(Digest(out))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Kind and name of a resource, both opaque.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The kind, such as `fragment`.
    pub kind: Arc<str>,
    /// The encoded name.
    pub name: Arc<str>,
}

impl Key {
    /// A key of these two.
    pub fn new(kind: &str, name: &str) -> Key {
        Key { kind: shared_kind(kind), name: name.into() }
    }

    /// The bucket that the resource falls into: the first byte of `blake3(kind, name)`.
    pub fn bucket(&self) -> u8 {
        hash(&[self.kind.as_bytes(), self.name.as_bytes()]).0[0]
    }
}

/// The text of a kind. Those that are usual have one copy in a process: there is one for each resource.
fn shared_kind(kind: &str) -> Arc<str> {
    static USUAL: OnceLock<[Arc<str>; 6]> = OnceLock::new();
    let usual = USUAL.get_or_init(|| ["fragment", "host", "pool", "certificate", "listener", "policy"].map(Arc::from));
    usual.iter().find(|known| ***known == *kind).map_or_else(|| kind.into(), Arc::clone)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// The digest of several inputs, each prefixed with its length as 8 bytes, little end first.
pub(crate) fn hash(parts: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Digest(*hasher.finalize().as_bytes())
}

/// The leaf of a resource: `blake3(kind, name, blake3(body))`.
pub fn leaf(key: &Key, body: &[u8]) -> Digest {
    hash(&[key.kind.as_bytes(), key.name.as_bytes(), &Digest::of(body).0])
}

/// The digest of a member set: `blake3(set name, each member in order)`. Sort the members first.
pub fn members<'a>(set: &str, sorted: impl IntoIterator<Item = &'a str>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(set.as_bytes());
    sorted.into_iter().for_each(|member| add(member.as_bytes()));
    Digest(*hasher.finalize().as_bytes())
}

/// Where a body stands in a journal: an offset below 2^40 and a length below 2^24, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    const LEN_BITS: u32 = 24;

    /// A place; nothing if it is out of bounds.
    pub fn new(offset: u64, len: usize) -> Option<Place> {
        let len = u64::try_from(len).ok().filter(|len| *len < 1 << Place::LEN_BITS)?;
        (offset < 1 << (u64::BITS - Place::LEN_BITS)).then_some(Place(offset << Place::LEN_BITS | len))
    }

    /// Offset of the first byte.
    pub fn offset(self) -> u64 {
        self.0 >> Place::LEN_BITS
    }

    /// How many bytes there are.
    pub fn len(self) -> usize {
        // Below 2^24.
        (self.0 & ((1 << Place::LEN_BITS) - 1)) as usize
    }

    /// Whether there is none: then it is no place.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// One leaf, and where its body stands for whoever keeps that.
#[derive(Clone, Debug)]
struct Leaf<K> {
    key: K,
    digest: Digest,
    place: Place,
}

/// Leaves in 256 buckets under one root. A change costs one bucket and one root; the root is computed when asked for.
///
/// Leaves are kept in sorted lists: there is one for each resource in every process, and a map of nodes would be half
/// empty.
#[derive(Clone, Debug)]
pub struct Buckets<K> {
    leaves: Vec<Vec<Leaf<K>>>,
    digests: Vec<Digest>,
    root: Digest,
    stale: Vec<u8>,
    len: usize,
}

/// What falls into a bucket.
pub trait Bucketed: Ord + Clone {
    /// The bucket's number.
    fn bucket_number(&self) -> u8;
}

impl Bucketed for Key {
    fn bucket_number(&self) -> u8 {
        self.bucket()
    }
}

impl Bucketed for Arc<str> {
    fn bucket_number(&self) -> u8 {
        hash(&[self.as_bytes()]).0[0]
    }
}

/// The digests of a configuration: leaves are those of [`leaf`].
pub type Tree = Buckets<Key>;

/// The digests of the member sets: leaves are those of [`members`], by set name.
pub type MemberTree = Buckets<Arc<str>>;

impl<K: Bucketed> Default for Buckets<K> {
    fn default() -> Self {
        let empty = hash(&[]);
        let digests = vec![empty; 256];
        let root = root_of(&digests);
        Buckets { leaves: vec![Vec::new(); 256], digests, root, stale: Vec::new(), len: 0 }
    }
}

/// The root over the digests of all 256 buckets, in order.
pub fn root_of(digests: &[Digest]) -> Digest {
    hash_all(digests)
}

/// As [`hash`] over these digests. In one piece: hashing many small pieces costs several times as much, and every change
/// asks for a few roots at each end.
fn hash_all<'a>(digests: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let digests = digests.into_iter();
    let mut bytes = Vec::with_capacity(digests.size_hint().0 * 40);
    for Digest(digest) in digests {
        bytes.extend_from_slice(&(digest.len() as u64).to_le_bytes());
        bytes.extend_from_slice(digest);
    }
    Digest::of(&bytes)
}

impl<K: Bucketed> Buckets<K> {
    /// Sets a leaf; gives the one that was there.
    pub fn insert(&mut self, key: K, leaf: Digest) -> Option<Digest> {
        self.insert_at(key, leaf, Place::default()).map(|(old, _)| old)
    }

    /// Sets a leaf and where its body stands; gives what was there.
    pub fn insert_at(&mut self, key: K, digest: Digest, place: Place) -> Option<(Digest, Place)> {
        let bucket = key.bucket_number();
        let leaves = &mut self.leaves[usize::from(bucket)];
        // Mostly they come in order.
        let last = leaves.last().map(|last| last.key.cmp(&key));
        let found = match last {
            None | Some(Ordering::Less) => Err(leaves.len()),
            Some(_) => leaves.binary_search_by(|leaf| leaf.key.cmp(&key)),
        };
        match found {
            Ok(at) => {
                let leaf = &mut leaves[at];
                let old = (leaf.digest, leaf.place);
                (leaf.digest, leaf.place) = (digest, place);
                if old.0 != digest {
                    self.stale.push(bucket);
                }
                Some(old)
            }
            Err(at) => {
                if leaves.len() == leaves.capacity() {
                    leaves.reserve_exact(leaves.len() / 8 + 4);
                }
                leaves.insert(at, Leaf { key, digest, place });
                self.len += 1;
                self.stale.push(bucket);
                None
            }
        }
    }

    /// Takes a leaf away; gives the one that was there.
    pub fn remove(&mut self, key: &K) -> Option<Digest> {
        let bucket = key.bucket_number();
        let leaves = &mut self.leaves[usize::from(bucket)];
        let at = leaves.binary_search_by(|leaf| leaf.key.cmp(key)).ok()?;
        let old = leaves.remove(at);
        self.len -= 1;
        self.stale.push(bucket);
        Some(old.digest)
    }

    /// The leaf of a key.
    pub fn get(&self, key: &K) -> Option<Digest> {
        self.get_at(key).map(|(digest, _)| digest)
    }

    /// The leaf of a key and where its body stands.
    pub fn get_at(&self, key: &K) -> Option<(Digest, Place)> {
        let leaves = &self.leaves[usize::from(key.bucket_number())];
        let at = leaves.binary_search_by(|leaf| leaf.key.cmp(key)).ok()?;
        leaves.get(at).map(|leaf| (leaf.digest, leaf.place))
    }

    /// How many leaves there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The leaves of one bucket, by key.
    pub fn bucket(&self, number: u8) -> impl ExactSizeIterator<Item = (&K, &Digest)> {
        self.leaves[usize::from(number)].iter().map(|leaf| (&leaf.key, &leaf.digest))
    }

    /// All leaves, bucket by bucket.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Digest)> {
        self.leaves.iter().flatten().map(|leaf| (&leaf.key, &leaf.digest))
    }

    /// All keys with where their bodies stand, bucket by bucket.
    pub fn places(&self) -> impl Iterator<Item = (&K, Place)> {
        self.leaves.iter().flatten().map(|leaf| (&leaf.key, leaf.place))
    }

    /// The root. Costs what changed since it was last asked for.
    pub fn root(&mut self) -> Digest {
        self.settle();
        self.root
    }

    /// The digests of all 256 buckets.
    pub fn bucket_digests(&mut self) -> &[Digest] {
        self.settle();
        &self.digests
    }

    /// The root it would have after these changes (`None` takes a leaf away), without making them. Costs the buckets
    /// that change. Call [`Buckets::root`] before, or it also costs what changed since.
    pub fn root_after(&self, changes: &BTreeMap<K, Option<Digest>>) -> Digest {
        if changes.is_empty() && self.stale.is_empty() {
            return self.root;
        }
        root_of(&self.digests_after(changes))
    }

    /// The digests of all 256 buckets as in [`Buckets::root_after`].
    pub fn digests_after(&self, changes: &BTreeMap<K, Option<Digest>>) -> Vec<Digest> {
        let mut by_bucket: BTreeMap<u8, Vec<(&K, &Option<Digest>)>> =
            self.stale.iter().map(|bucket| (*bucket, Vec::new())).collect();
        for (key, leaf) in changes {
            by_bucket.entry(key.bucket_number()).or_default().push((key, leaf));
        }
        let mut digests = self.digests.clone();
        for (bucket, changes) in by_bucket {
            let index = usize::from(bucket);
            digests[index] = hash_all(merged(&self.leaves[index], &changes));
        }
        digests
    }

    fn settle(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        let mut stale = std::mem::take(&mut self.stale);
        stale.sort_unstable();
        stale.dedup();
        for bucket in stale {
            let index = usize::from(bucket);
            self.digests[index] = hash_all(self.leaves[index].iter().map(|leaf| &leaf.digest));
        }
        self.root = root_of(&self.digests);
    }
}

/// The leaves of a bucket after changes, which are sorted by key.
fn merged<'a, K: Ord>(leaves: &'a [Leaf<K>], changes: &[(&K, &'a Option<Digest>)]) -> Vec<&'a Digest> {
    let mut out = Vec::with_capacity(leaves.len() + changes.len());
    let mut changes = changes.iter().peekable();
    for Leaf { key, digest: leaf, .. } in leaves {
        while let Some((_, new)) = changes.next_if(|(changed, _)| *changed < key) {
            out.extend(new.as_ref());
        }
        match changes.next_if(|(changed, _)| *changed == key) {
            Some((_, new)) => out.extend(new.as_ref()),
            None => out.push(leaf),
        }
    }
    out.extend(changes.filter_map(|(_, new)| new.as_ref()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        Key::new("fragment", &format!("f-{number}"))
    }

    fn leaf_of(number: u32) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    #[test]
    fn a_bucket_and_a_root_are_the_hash_of_their_parts_in_order() {
        for count in [0, 1, 2, 256, 1000] {
            let digests: Vec<Digest> = (0..count).map(leaf_of).collect();
            let parts: Vec<&[u8]> = digests.iter().map(|digest| digest.0.as_slice()).collect();
            assert_eq!(root_of(&digests), hash(&parts), "{count} digests");
        }
        let mut tree = Tree::default();
        assert_eq!(tree.root(), root_of(&[hash(&[]); 256]), "a tree without leaves");
        tree.insert(key(1), leaf_of(1));
        let mut digests = [hash(&[]); 256];
        digests[usize::from(key(1).bucket())] = hash(&[&leaf_of(1).0]);
        assert_eq!(tree.root(), root_of(&digests));
    }

    #[test]
    fn a_place_says_what_it_was_made_of_and_nothing_out_of_bounds_is_one() {
        for (offset, len) in [(0, 0), (1, 7), ((1 << 40) - 1, (1 << 24) - 1)] {
            let place = Place::new(offset, len).unwrap();
            assert_eq!((place.offset(), place.len(), place.is_empty()), (offset, len, len == 0));
        }
        assert_eq!(Place::new(1 << 40, 1), None);
        assert_eq!(Place::new(0, 1 << 24), None);
    }

    #[test]
    fn a_root_after_changes_is_the_root_that_they_lead_to() {
        // With few and with many leaves in a bucket, settled and not, and with changes before, among and behind them.
        for (there, settled) in [(0, true), (10, true), (10, false), (3000, true), (3000, false)] {
            let mut tree = Tree::default();
            for n in 0..there {
                tree.insert(key(2 * n), leaf_of(n));
            }
            if settled {
                tree.root();
            }
            for changed in [0, 1, 700] {
                let changes: BTreeMap<Key, Option<Digest>> =
                    (0..changed).map(|n| (key(3 * n), (n % 4 != 0).then(|| leaf_of(n + 1)))).collect();
                let mut after = tree.clone();
                for (key, leaf) in &changes {
                    match leaf {
                        Some(leaf) => after.insert(key.clone(), *leaf),
                        None => after.remove(key),
                    };
                }
                let said = (tree.root_after(&changes), tree.digests_after(&changes));
                assert_eq!(said, (after.root(), after.bucket_digests().to_vec()), "{there} leaves, {changed} changes");
            }
        }
    }
}
