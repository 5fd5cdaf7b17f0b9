//! What changed from root to root, as far back as bounds allow.

use std::collections::{BTreeMap, VecDeque};

use journal::{Digest, Key};

/// Steps that are remembered.
const STEPS: usize = 4_096;
/// Changed keys that are remembered, over all steps.
const KEYS: usize = 262_144;

struct Step {
    serial: u64,
    before: Digest,
    /// Each key that changed, and its leaf before.
    changed: Vec<(Key, Option<Digest>)>,
}

/// See the module.
pub(super) struct History {
    steps: VecDeque<Step>,
    keys: usize,
    newest: Digest,
    /// The newest serial of each root that a difference can start from.
    serials: BTreeMap<Digest, u64>,
}

impl History {
    pub(super) fn new(root: Digest) -> History {
        History { steps: VecDeque::new(), keys: 0, newest: root, serials: BTreeMap::from([(root, 0)]) }
    }

    pub(super) fn push(&mut self, serial: u64, root: Digest, changed: Vec<(Key, Option<Digest>)>) {
        self.keys += changed.len();
        self.steps.push_back(Step { serial, before: self.newest, changed });
        self.newest = root;
        self.serials.insert(root, serial);
        while self.steps.len() > STEPS || (self.keys > KEYS && self.steps.len() > 1) {
            let Some(oldest) = self.steps.pop_front() else { break };
            self.keys -= oldest.changed.len();
            // The same root may have come again since; then that later one stays.
            if self.serials.get(&oldest.before).is_some_and(|newest| *newest < oldest.serial) {
                self.serials.remove(&oldest.before);
            }
        }
    }

    pub(super) fn serial_of(&self, root: &Digest) -> Option<u64> {
        self.serials.get(root).copied()
    }

    /// Every key that changed after this serial, with the leaf it had then.
    pub(super) fn changed_since(&self, serial: u64) -> BTreeMap<&Key, Option<Digest>> {
        let mut changed = BTreeMap::new();
        // Serials are dense, so the position follows from the number.
        let first = self.steps.front().map_or(0, |step| step.serial);
        let skip = usize::try_from((serial + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        for (key, before) in self.steps.iter().skip(skip).flat_map(|step| &step.changed) {
            changed.entry(key).or_insert(*before);
        }
        changed
    }
}
