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
    root: Arc<Node<V>>,
    len: usize,
}

#[derive(Debug)]
enum Node<V> {
    /// Sorted by text.
    Leaf(Vec<Entry<V>>),
    Branch([Option<Arc<Node<V>>>; FAN]),
}

#[derive(Clone, Debug)]
struct Entry<V> {
    hash: u64,
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
        SharedMap { root: Arc::clone(&self.root), len: self.len }
    }
}

impl<V> Default for SharedMap<V> {
    fn default() -> SharedMap<V> {
        SharedMap { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

impl<V: Clone> Clone for Node<V> {
    fn clone(&self) -> Node<V> {
        match self {
            Node::Leaf(entries) => Node::Leaf(entries.clone()),
            Node::Branch(children) => Node::Branch(children.clone()),
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
        let mut node = &*self.root;
        let mut depth = 0;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|entry| (*entry.text).cmp(text)).ok()?;
                    return Some(&entries[at].value);
                }
                Node::Branch(children) => {
                    node = children[slot(hash, depth)].as_deref()?;
                    depth += 1;
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, text: &str, value: V) {
        let entry = Entry { hash: Hasher::of(text), text: text.into(), value };
        if Arc::make_mut(&mut self.root).insert(entry, 0) {
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, text: &str) {
        let hash = Hasher::of(text);
        // Looked up first: a removal of what is not there must not copy anything.
        if self.get_hashed(hash, text).is_some() {
            Arc::make_mut(&mut self.root).remove(hash, text, 0);
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
    fn insert(&mut self, entry: Entry<V>, depth: u32) -> bool {
        match self {
            Node::Branch(children) => match &mut children[slot(entry.hash, depth)] {
                Some(child) => Arc::make_mut(child).insert(entry, depth + 1),
                free => {
                    *free = Some(Arc::new(Node::Leaf(vec![entry])));
                    true
                }
            },
            Node::Leaf(entries) => {
                match entries.binary_search_by(|other| other.text.cmp(&entry.text)) {
                    Ok(at) => {
                        entries[at] = entry;
                        return false;
                    }
                    Err(at) => entries.insert(at, entry),
                }
                if entries.len() > LEAF_ENTRIES_MAX && (depth + 1) * BITS < u64::BITS {
                    let mut branch = Node::Branch(Default::default());
                    for entry in std::mem::take(entries) {
                        branch.insert(entry, depth);
                    }
                    *self = branch;
                }
                true
            }
        }
    }

    fn remove(&mut self, hash: u64, text: &str, depth: u32) {
        match self {
            Node::Leaf(entries) => {
                if let Ok(at) = entries.binary_search_by(|entry| (*entry.text).cmp(text)) {
                    entries.remove(at);
                }
            }
            Node::Branch(children) => {
                let place = &mut children[slot(hash, depth)];
                if let Some(child) = place {
                    Arc::make_mut(child).remove(hash, text, depth + 1);
                    if child.is_empty() {
                        *place = None;
                    }
                }
                if children.iter().all(Option::is_none) {
                    *self = Node::Leaf(Vec::new());
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Node::Leaf(entries) => entries.is_empty(),
            Node::Branch(_) => false,
        }
    }

    fn for_each(&self, visit: &mut impl FnMut(&str, &V)) {
        match self {
            Node::Leaf(entries) => entries.iter().for_each(|entry| visit(&entry.text, &entry.value)),
            Node::Branch(children) => children.iter().flatten().for_each(|child| child.for_each(visit)),
        }
    }
}

#[cfg(test)]
mod tests;
