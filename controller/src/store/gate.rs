//! The publish gate: nothing before the first list, and no list may empty the world by mistake. Pure.
//!
//! A list that shows more than half of at least 10 objects gone is held until an equal list 10 s later; one that shows
//! none at all, until somebody confirms it or `--allow-empty` was given. Removals that were seen to happen pass.

use std::collections::{BTreeMap, BTreeSet};

use config::ObjectRef;
use translate::Change;

/// An equal list this much later releases what is held, in milliseconds.
pub const EQUAL_LIST_AFTER_MS: u64 = 10_000;
/// Worlds with fewer objects may shrink by any list, but not to nothing.
pub const GUARDED_FROM: usize = 10;

/// What the gate knows from before the first list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// How many objects were in force when the controller last ran over the same agents; 0 if it never did.
    pub objects: usize,
}

/// Removals, or a whole first world, that are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    since_ms: u64,
    /// The list was empty: only a confirmation releases it.
    empty: bool,
    /// The folder itself was not there.
    missing: bool,
    /// How many objects were in force.
    of: usize,
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    allow_empty: bool,
    before: Before,
    open: bool,
    /// The objects that passed.
    known: BTreeSet<ObjectRef>,
    held: Option<Held>,
    /// Objects that a list showed to be gone and that are still in force.
    removals: BTreeSet<ObjectRef>,
    /// Before the gate is open: the first world.
    first: BTreeMap<ObjectRef, Change>,
}

fn subject(change: &Change) -> Option<ObjectRef> {
    match change {
        Change::Put(object) => Some(object.reference()),
        Change::Delete(reference) => Some(reference.clone()),
        Change::Settings(_) => None,
    }
}

impl Gate {
    /// A closed gate.
    pub fn new(before: Before, allow_empty: bool) -> Gate {
        Gate {
            allow_empty,
            before,
            open: false,
            known: BTreeSet::new(),
            held: None,
            removals: BTreeSet::new(),
            first: BTreeMap::new(),
        }
    }

    /// Whether the first world has passed.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// How many objects are in force.
    pub fn objects(&self) -> usize {
        self.known.len()
    }

    /// Why the world, or a part of it, is held; nothing when it is not.
    pub fn held(&self) -> Option<String> {
        let held = self.held.as_ref()?;
        let there = if self.open { self.known.len() - self.removals.len() } else { self.first.len() };
        let what = match (held.missing, held.empty) {
            (true, _) => "the folder is not there any more".to_owned(),
            (false, true) => "the folder has no objects any more".to_owned(),
            (false, false) => format!("the folder has only {there} objects of {}", held.of),
        };
        Some(match held.empty {
            true => format!("{what}; what is in force stays until the folder has some again or this is confirmed"),
            false => format!("{what}; what is in force stays until the same is seen for 10 s or this is confirmed"),
        })
    }

    /// When the source should be listed again, in milliseconds; an equal list then releases what is held.
    pub fn list_again_at(&self) -> Option<u64> {
        self.held.as_ref().filter(|held| !held.empty).map(|held| held.since_ms + EQUAL_LIST_AFTER_MS)
    }

    /// Changes that were seen to happen. Gives what may go on.
    pub fn observed(&mut self, changes: Vec<Change>) -> Vec<Change> {
        if !self.open {
            self.gather(changes);
            return Vec::new();
        }
        let passed = self.pass(changes, false);
        self.settle_held();
        passed
    }

    /// What a list showed to be different. `objects` is how many the source has now. Gives what may go on.
    pub fn listed(&mut self, now_ms: u64, changes: Vec<Change>, objects: usize, missing: bool) -> Vec<Change> {
        if !self.open {
            return self.first_list(now_ms, changes, objects, missing);
        }
        let held_before = self.removals.clone();
        let passed = self.pass(changes, true);
        if self.removals.is_empty() {
            self.held = None;
            return passed;
        }
        let of = self.known.len();
        let empty = objects == 0 && !self.allow_empty;
        let shrinks = of >= GUARDED_FROM && self.removals.len() * 2 > of;
        let equal_later = self.held.as_ref().is_some_and(|held| {
            held.empty == empty && held_before == self.removals && now_ms >= held.since_ms + EQUAL_LIST_AFTER_MS
        });
        // What is held once waits for its equal list even when a part of it came back.
        let hold = empty || ((shrinks || self.held.is_some()) && !equal_later);
        if !hold {
            return self.release(passed);
        }
        let same = self.held.as_ref().is_some_and(|held| held.empty == empty) && held_before == self.removals;
        let since_ms = self.held.as_ref().filter(|_| same).map_or(now_ms, |held| held.since_ms);
        self.held = Some(Held { since_ms, empty, missing, of });
        passed
    }

    /// Somebody says that the world is meant as it is. Gives what was held.
    pub fn confirm(&mut self) -> Vec<Change> {
        if self.held.is_none() {
            return Vec::new();
        }
        if !self.open {
            return self.open_up();
        }
        self.release(Vec::new())
    }

    fn first_list(&mut self, now_ms: u64, changes: Vec<Change>, objects: usize, missing: bool) -> Vec<Change> {
        let references = |first: &BTreeMap<ObjectRef, Change>| first.keys().cloned().collect::<BTreeSet<_>>();
        let before = references(&self.first);
        self.gather(changes);
        let of = self.before.objects;
        let empty = objects == 0 && of > 0 && !self.allow_empty;
        let shrinks = of >= GUARDED_FROM && objects * 2 < of;
        let equal_later = self
            .held
            .as_ref()
            .is_some_and(|held| before == references(&self.first) && now_ms >= held.since_ms + EQUAL_LIST_AFTER_MS);
        if !empty && (!shrinks || equal_later) {
            return self.open_up();
        }
        let same = self.held.as_ref().is_some_and(|held| held.empty == empty) && before == references(&self.first);
        let since_ms = self.held.as_ref().filter(|_| same).map_or(now_ms, |held| held.since_ms);
        self.held = Some(Held { since_ms, empty, missing, of });
        Vec::new()
    }

    fn open_up(&mut self) -> Vec<Change> {
        self.open = true;
        self.held = None;
        let first = std::mem::take(&mut self.first);
        self.pass(first.into_values().collect(), false)
    }

    fn gather(&mut self, changes: Vec<Change>) {
        for change in changes {
            match (&change, subject(&change)) {
                (Change::Delete(_), Some(reference)) => {
                    self.first.remove(&reference);
                }
                (_, Some(reference)) => {
                    self.first.insert(reference, change);
                }
                (_, None) => {}
            }
        }
    }

    /// Lets changes pass; removals that a list showed are kept back in `removals`.
    fn pass(&mut self, changes: Vec<Change>, by_list: bool) -> Vec<Change> {
        let mut passed = Vec::with_capacity(changes.len());
        for change in changes {
            let Some(reference) = subject(&change) else {
                passed.push(change);
                continue;
            };
            match &change {
                Change::Delete(_) if by_list => {
                    if self.known.contains(&reference) {
                        self.removals.insert(reference);
                    }
                    continue;
                }
                Change::Delete(_) => {
                    self.known.remove(&reference);
                    self.removals.remove(&reference);
                }
                _ => {
                    self.removals.remove(&reference);
                    self.known.insert(reference);
                }
            }
            passed.push(change);
        }
        passed
    }

    fn settle_held(&mut self) {
        if self.removals.is_empty() {
            self.held = None;
        }
    }

    fn release(&mut self, mut passed: Vec<Change>) -> Vec<Change> {
        self.held = None;
        for reference in std::mem::take(&mut self.removals) {
            self.known.remove(&reference);
            passed.push(Change::Delete(reference));
        }
        passed
    }
}
