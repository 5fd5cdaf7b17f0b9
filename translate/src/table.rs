//! Lookup by key at a cost that hardly depends on how much is kept; read through only in the order of the keys.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A hash table that shows no order but that of its keys, so that no result can depend on how it is laid out.
///
/// The keys are long texts. In an ordered map of 50,000 a lookup compares some thirty of them, each in another place of
/// memory; here it compares one. The hash has no secret: with made-up names a tenant can make lookups of those names slow
/// (one comparison for each of them), and of no others.
#[derive(Clone)]
pub(crate) struct Table<K, V>(HashMap<K, V, BuildHasherDefault<Folded>>);

/// Hashes eight bytes at a time: each is multiplied with a constant, and both halves of the product are folded together.
#[derive(Clone, Copy)]
struct Folded(u64);

/// The fractional digits of the square roots of 2 and 3.
const SEED: u64 = 0x6a09_e667_f3bc_c908;
const FACTOR: u64 = 0xbb67_ae85_84ca_a73b;

impl Default for Folded {
    fn default() -> Folded {
        Folded(SEED)
    }
}

impl Folded {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word) * u128::from(FACTOR);
        #[allow(clippy::cast_possible_truncation, reason = "the halves of the product")]
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.0 = low ^ high;
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = *self;
        last.add(SEED);
        last.0
    }
}

impl<K: Ord + Hash, V> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// The value of a key; the default one from now on if there is none.
    pub(crate) fn or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        self.0.entry(key.clone()).or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Everything, in the order of the keys. Sorts what is kept.
    pub(crate) fn sorted(&self) -> Vec<(&K, &V)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table(HashMap::default())
    }
}

impl<K: Ord + Hash + fmt::Debug, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.sorted()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_little_are_spread_over_the_table() {
        let mut places = [0u32; 1 << 12];
        for number in 0..40_960 {
            let mut hasher = Folded::default();
            (format!("team-{}", number / 10), format!("app-{number}")).hash(&mut hasher);
            let hash = hasher.finish();
            places[usize::try_from(hash % (1 << 12)).unwrap()] += 1;
        }
        // Ten each on average; chance leaves none empty by far, and none with five times as many.
        assert!(places.iter().all(|count| *count < 50), "{:?}", places.iter().max());
        assert!(places.iter().filter(|count| **count == 0).count() < 10);
    }

    #[test]
    fn shows_the_order_of_its_keys_whatever_was_put_in_first() {
        let (mut up, mut down) = (Table::default(), Table::default());
        for key in 0..1_000 {
            up.insert(key, ());
            down.insert(999 - key, ());
        }
        down.insert(1_000, ());
        down.remove(&1_000);
        assert!(up.sorted().is_sorted(), "by key");
        assert_eq!(up.sorted(), down.sorted(), "the same keys show the same");
        assert_eq!(format!("{up:?}"), format!("{down:?}"), "in messages too");
    }
}
