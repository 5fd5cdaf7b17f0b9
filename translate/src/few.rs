//! Ordered sets and maps that mostly hold one or two things and may hold a hundred thousand.
//!
//! A node of a B-tree has places for eleven, so a set of one thing costs as much as a set of eleven. Of what is indexed
//! here there is mostly one: one claim of a host, one reader of a Service. Those stand in a list that is just long enough.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

/// From so many entries on a list is a tree: putting one into a list moves all that are behind it.
const FEW: usize = 16;

/// A map in the order of its keys.
#[derive(Clone)]
pub enum Map<K, V> {
    /// Sorted, each key once; hardly longer than it must be.
    Few(Vec<(K, V)>),
    /// Stays a tree until it is empty.
    Many(Box<BTreeMap<K, V>>),
}

/// A set in the order of what it holds.
pub type Set<T> = Map<T, ()>;

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map::Few(Vec::new())
    }
}

impl<K: Ord, V> Map<K, V> {
    fn place<Q: Ord + ?Sized>(entries: &[(K, V)], key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        entries.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match self {
            Map::Few(entries) => Self::place(entries, key).ok().map(|at| &entries[at].1),
            Map::Many(tree) => tree.get(key),
        }
    }

    /// The value of a key, to change.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match self {
            Map::Few(entries) => Self::place(entries, key).ok().map(|at| &mut entries[at].1),
            Map::Many(tree) => tree.get_mut(key),
        }
    }

    /// Whether there is something under a key.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The value of a key; that of `make` from now on if there is none.
    pub fn or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.make_room();
        match self {
            Map::Few(entries) => {
                let at = match Self::place(entries, &key) {
                    Ok(at) => at,
                    Err(at) => {
                        // Mostly one entry, and hardly ever many: one more place at a time wastes none.
                        entries.reserve_exact(1);
                        entries.insert(at, (key, make()));
                        at
                    }
                };
                &mut entries[at].1
            }
            Map::Many(tree) => tree.entry(key).or_insert_with(make),
        }
    }

    /// The value of a key; the default one from now on if there is none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.or_insert_with(key, V::default)
    }

    /// Gives the value that the key had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let mut value = Some(value);
        let new = self.or_insert_with(key, || value.take().expect("made once"));
        value.map(|value| std::mem::replace(new, value))
    }

    /// Gives the value that the key had.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match self {
            Map::Few(entries) => {
                let removed = Self::place(entries, key).ok().map(|at| entries.remove(at).1);
                entries.shrink_to_fit();
                removed
            }
            Map::Many(tree) => {
                let removed = tree.remove(key);
                if tree.is_empty() {
                    *self = Map::default();
                }
                removed
            }
        }
    }

    fn make_room(&mut self) {
        if let Map::Few(entries) = self
            && entries.len() >= FEW
        {
            *self = Map::Many(Box::new(std::mem::take(entries).into_iter().collect()));
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Everything, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = match self {
            Map::Few(entries) => (Some(entries.iter()), None),
            Map::Many(tree) => (None, Some(tree.iter())),
        };
        few.into_iter().flatten().map(|(key, value)| (key, value)).chain(many.into_iter().flatten())
    }

    /// Everything, in the order of the keys, the values to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let (few, many) = match self {
            Map::Few(entries) => (Some(entries.iter_mut()), None),
            Map::Many(tree) => (None, Some(tree.iter_mut())),
        };
        few.into_iter().flatten().map(|(key, value)| (&*key, value)).chain(many.into_iter().flatten())
    }

    /// All keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, in the order of the keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        match self {
            Map::Few(entries) => entries.first().map(|(key, value)| (key, value)),
            Map::Many(tree) => tree.first_key_value(),
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Map<K, V> {
        let mut map = Map::default();
        entries.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

impl<K: Ord, V: PartialEq> PartialEq for Map<K, V> {
    fn eq(&self, other: &Map<K, V>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord, V: Eq> Eq for Map<K, V> {}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_done_it_is_what_a_tree_is(steps in prop::collection::vec((0..40u8, any::<bool>()), 0..300)) {
            let (mut map, mut tree) = (Map::default(), BTreeMap::new());
            for (number, (key, put)) in steps.into_iter().enumerate() {
                let old = if put { (map.insert(key, number), tree.insert(key, number)) } else { (map.remove(&key), tree.remove(&key)) };
                prop_assert_eq!(old.0, old.1);
                prop_assert!(map.iter().eq(tree.iter()), "in the same order");
                prop_assert_eq!(map.first(), tree.first_key_value());
                prop_assert_eq!(map.is_empty(), tree.is_empty());
                let anew: Map<u8, usize> = tree.clone().into_iter().collect();
                prop_assert_eq!(&map, &anew, "however it came to be");
                for key in 0..40 {
                    prop_assert_eq!(map.get(&key), tree.get(&key));
                }
            }
        }
    }
}
