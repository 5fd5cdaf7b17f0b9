//! Bodies that resources had a little while ago, so that a change need not send what stays.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use journal::Digest;

/// Bodies that are remembered.
const BODIES: usize = 4_096;
/// Their lengths together, in bytes.
const BYTES: usize = 8 * 1024 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Bodies {
    by_leaf: BTreeMap<Digest, Bytes>,
    /// In the order in which they went; each leaf once.
    order: VecDeque<Digest>,
    bytes: usize,
}

impl Bodies {
    /// This body is no longer the one of its resource.
    pub(super) fn was(&mut self, leaf: Digest, body: Bytes) {
        if self.by_leaf.contains_key(&leaf) {
            return;
        }
        self.bytes += body.len();
        self.by_leaf.insert(leaf, body);
        self.order.push_back(leaf);
        while (self.order.len() > BODIES || self.bytes > BYTES)
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.by_leaf.remove(&oldest).map_or(0, |body| body.len());
        }
    }

    /// The body with this leaf, if it is remembered.
    pub(super) fn get(&self, leaf: &Digest) -> Option<&Bytes> {
        self.by_leaf.get(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bodies_are_remembered_within_both_bounds() {
        let mut bodies = Bodies::default();
        let leaf = |number: usize| Digest::of(&number.to_le_bytes());
        for number in 0..BODIES + 2 {
            bodies.was(leaf(number), Bytes::from_static(b"{}"));
            bodies.was(leaf(number), Bytes::from_static(b"{}"));
        }
        assert_eq!((bodies.get(&leaf(1)), bodies.order.len(), bodies.bytes), (None, BODIES, 2 * BODIES));
        assert!(bodies.get(&leaf(2)).is_some() && bodies.get(&leaf(BODIES + 1)).is_some());
        bodies.was(leaf(BODIES + 2), Bytes::from(vec![b' '; BYTES - 10]));
        assert_eq!((bodies.order.len(), bodies.bytes), (6, BYTES), "one of nearly all bytes leaves room for five");
        bodies.was(leaf(BODIES + 3), Bytes::from(vec![b' '; BYTES + 1]));
        assert_eq!((bodies.order.len(), bodies.bytes, bodies.by_leaf.len()), (0, 0, 0), "one beyond the bound");
    }
}
