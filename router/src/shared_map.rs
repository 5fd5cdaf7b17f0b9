//! A map from text whose copies share their parts: copying costs nothing, a change costs its own branch.
//!
//! A trie over the bits of a hash, four at a time, with small sorted leaves. The hash is fixed, so that equal
//! maps are equal in every process; texts that are made to collide only make one leaf larger, which is searched in halves.

use std::sync::Arc;

const BITS: u32 = 4;
const FAN: usize = 1 << BITS;
/// A leaf with more entries is split, unless all bits of the hash are used up.
const LEAF_ENTRIES_MAX: usize = 16;

/// The map.
#[derive(Debug)]
pub(crate) struct SharedMap<V> {
    root: Node<V>,
    len: usize,
}

/// There is a map for each host, mostly of one entry: nodes are as large as what is in them.
#[derive(Debug)]
enum Node<V> {
    Empty,
    /// Sorted by text.
    Leaf(Arc<[Entry<V>]>),
    Branch(Arc<[Node<V>; FAN]>),
}

#[derive(Clone, Debug)]
struct Entry<V> {
    text: Arc<str>,
    value: V,
}

/// A hash that can be read off while a text grows (FNV-1a, then mixed).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher(u64);

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn push(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    pub(crate) fn hash(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    }

    fn of(text: &str) -> u64 {
        let mut hasher = Hasher::new();
        text.bytes().for_each(|byte| hasher.push(byte));
        hasher.hash()
    }
}

impl<V> Clone for SharedMap<V> {
    fn clone(&self) -> SharedMap<V> {
        SharedMap { root: self.root.clone(), len: self.len }
    }
}

impl<V> Default for SharedMap<V> {
    fn default() -> SharedMap<V> {
        SharedMap { root: Node::Empty, len: 0 }
    }
}

impl<V> Clone for Node<V> {
    fn clone(&self) -> Node<V> {
        match self {
            Node::Empty => Node::Empty,
            Node::Leaf(entries) => Node::Leaf(Arc::clone(entries)),
            Node::Branch(children) => Node::Branch(Arc::clone(children)),
        }
    }
}

impl<V: Clone> SharedMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, text: &str) -> Option<&V> {
        self.get_hashed(Hasher::of(text), text)
    }

    /// As [`SharedMap::get`], for a text whose hash is known.
    pub(crate) fn get_hashed(&self, hash: u64, text: &str) -> Option<&V> {
        let mut node = &self.root;
        let mut depth = 0;
        loop {
            match node {
                Node::Empty => return None,
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|entry| (*entry.text).cmp(text)).ok()?;
                    return Some(&entries[at].value);
                }
                Node::Branch(children) => {
                    node = &children[slot(hash, depth)];
                    depth += 1;
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, text: impl Into<Arc<str>>, value: V) {
        let entry = Entry { text: text.into(), value };
        if self.root.insert(Hasher::of(&entry.text), entry, 0) {
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, text: &str) {
        let hash = Hasher::of(text);
        // Looked up first: a removal of what is not there must not copy anything.
        if self.get_hashed(hash, text).is_some() {
            self.root.remove(hash, text, 0);
            self.len -= 1;
        }
    }

    /// Every text and value, in no useful order.
    pub(crate) fn for_each(&self, visit: &mut impl FnMut(&str, &V)) {
        self.root.for_each(visit);
    }
}

fn slot(hash: u64, depth: u32) -> usize {
    // `depth` stays below 16: leaves at the last level are not split.
    ((hash >> (depth * BITS)) & (FAN as u64 - 1)) as usize
}

impl<V: Clone> Node<V> {
    /// True if the text is new.
    fn insert(&mut self, hash: u64, entry: Entry<V>, depth: u32) -> bool {
        match self {
            Node::Empty => {
                *self = Node::Leaf(Arc::new([entry]));
                true
            }
            Node::Branch(children) => Arc::make_mut(children)[slot(hash, depth)].insert(hash, entry, depth + 1),
            Node::Leaf(entries) => {
                let (at, new) = match entries.binary_search_by(|other| other.text.cmp(&entry.text)) {
                    Ok(at) => (at, false),
                    Err(at) => (at, true),
                };
                if new && entries.len() >= LEAF_ENTRIES_MAX && (depth + 1) * BITS < u64::BITS {
                    let mut branch: [Node<V>; FAN] = std::array::from_fn(|_| Node::Empty);
                    for entry in entries.iter().cloned().chain([entry]) {
                        let hash = Hasher::of(&entry.text);
                        branch[slot(hash, depth)].insert(hash, entry, depth + 1);
                    }
                    *self = Node::Branch(Arc::new(branch));
                    return true;
                }
                let behind = &entries[at + usize::from(!new)..];
                let list = entries[..at].iter().cloned().chain([entry]).chain(behind.iter().cloned()).collect();
                *self = Node::Leaf(list);
                new
            }
        }
    }

    fn remove(&mut self, hash: u64, text: &str, depth: u32) {
        match self {
            Node::Empty => {}
            Node::Leaf(entries) => {
                if entries.len() > 1 {
                    *entries = entries.iter().filter(|entry| *entry.text != *text).cloned().collect();
                } else {
                    *self = Node::Empty;
                }
            }
            Node::Branch(children) => {
                let children = Arc::make_mut(children);
                children[slot(hash, depth)].remove(hash, text, depth + 1);
                if children.iter().all(|child| matches!(child, Node::Empty)) {
                    *self = Node::Empty;
                }
            }
        }
    }

    fn for_each(&self, visit: &mut impl FnMut(&str, &V)) {
        match self {
            Node::Empty => {}
            Node::Leaf(entries) => entries.iter().for_each(|entry| visit(&entry.text, &entry.value)),
            Node::Branch(children) => children.iter().for_each(|child| child.for_each(visit)),
        }
    }
}

#[cfg(test)]
mod tests;
