//! The publish gate: nothing before the first list, and no list may empty the world by mistake. Pure.
//!
//! A list that shows more than half of at least 10 objects gone is held until an equal list 10 s later; one that shows
//! none at all, until somebody confirms it or `--allow-empty` was given. Removals that were seen to happen pass. Of an API server
//! that is known to be the one of before, no objects of a kind that had fewer than 10 are like any other shrunken list.

use journal::mutants::{self, Mutant};
use std::collections::{BTreeMap, BTreeSet, HashSet};

use translate::{Change, ObjectId};

use crate::pipeline::subject;

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
    /// The list was empty.
    empty: bool,
    /// An equal list releases it; otherwise only a confirmation does.
    heals: bool,
    /// An equal list came in its time, and only what gave it has to be known still.
    shown: bool,
    /// The folder itself was not there.
    missing: bool,
    /// How many objects were in force.
    of: usize,
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    /// The kind of objects; empty for a whole folder.
    part: &'static str,
    allow_empty: bool,
    before: Before,
    open: bool,
    /// The objects that passed.
    known: HashSet<ObjectId>,
    held: Option<Held>,
    /// Objects that a list showed to be gone and that are still in force.
    removals: BTreeSet<ObjectId>,
    /// Before the gate is open: the first world.
    first: BTreeMap<ObjectId, Change>,
}

impl Gate {
    /// A closed gate.
    pub fn new(before: Before, allow_empty: bool) -> Gate {
        Gate {
            part: "",
            allow_empty,
            before,
            open: false,
            known: HashSet::new(),
            held: None,
            removals: BTreeSet::new(),
            first: BTreeMap::new(),
        }
    }

    /// The same for one kind of objects; empty for a whole folder.
    pub fn of_part(self, part: &'static str) -> Gate {
        Gate { part, ..self }
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
        let of = held.of;
        let (what, source) = match (self.part, held.missing, held.empty) {
            ("", true, _) => ("the folder is not there any more".to_owned(), "the folder"),
            ("", _, true) => ("the folder has no objects any more".to_owned(), "the folder"),
            ("", ..) => (format!("the folder has only {there} objects of {of}"), "the folder"),
            (part, true, _) => (format!("the API server does not serve {part} any more"), "it"),
            (part, _, true) => (format!("the API server has no {part} any more"), "it"),
            (part, ..) => (format!("the API server has only {there} objects of kind {part} of {of}"), "it"),
        };
        Some(match !held.heals {
            true => format!("{what}; what is in force stays until {source} has some again or this is confirmed"),
            false => format!("{what}; what is in force stays until the same is seen for 10 s or this is confirmed"),
        })
    }

    /// When the source should be listed again, in milliseconds; an equal list then releases what is held.
    pub fn list_again_at(&self) -> Option<u64> {
        self.held.as_ref().filter(|held| held.heals).map(|held| held.since_ms + EQUAL_LIST_AFTER_MS)
    }

    /// Since when a list without objects is held that may be believed: what it needs for that has to be newer.
    pub fn empty_since(&self) -> Option<u64> {
        self.held.as_ref().filter(|held| held.empty && held.heals).map(|held| held.since_ms)
    }

    /// Whether nothing is missing any more but that what gave the list is known to be what it was.
    pub fn is_shown(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.shown)
    }

    /// Whether something is held that only a confirmation releases, or that is not sure to be what it seems.
    pub fn is_doubted(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !(held.empty && held.heals))
    }

    /// Changes that were seen to happen. Gives what may go on.
    pub fn observed(&mut self, changes: Vec<Change>) -> Vec<Change> {
        if mutants::active(Mutant::PublishedBeforeTheList) {
            self.open = true;
        }
        if !self.open {
            self.gather(changes);
            return Vec::new();
        }
        let passed = self.pass(changes, false);
        self.settle_held();
        passed
    }

    /// What a list showed to be different. `objects` is how many the source has now. `known` says that what gave the list is known to
    /// be what it was when removals of this part began to be held. Gives what may go on.
    pub fn listed(
        &mut self,
        now_ms: u64,
        changes: Vec<Change>,
        objects: usize,
        missing: bool,
        known: bool,
    ) -> Vec<Change> {
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
        let heals = !empty || !missing && !self.part.is_empty() && of < GUARDED_FROM;
        let same = self.held.as_ref().is_some_and(|held| (held.empty, held.heals) == (empty, heals))
            && held_before == self.removals;
        let since_ms = self.held.as_ref().filter(|_| same).map_or(now_ms, |held| held.since_ms);
        let equal_later = same && now_ms >= since_ms + EQUAL_LIST_AFTER_MS;
        // What is held once waits for its equal list even when a part of it came back.
        let believed = mutants::active(Mutant::ShrunkenListIsBelieved);
        let released = equal_later && heals && (!empty || known);
        let hold = !believed && (empty || shrinks || self.held.is_some()) && !released;
        if !hold {
            return self.release(passed);
        }
        // A list that could not be believed in its time gets another one, unless what gave it is known before that.
        let shown = equal_later && heals;
        let since_ms = if shown { now_ms } else { since_ms };
        self.held = Some(Held { since_ms, empty, heals, shown, missing, of });
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
        // Only what is held is compared with what was there when it was.
        let before = self.held.as_ref().map(|_| self.first.keys().cloned().collect::<BTreeSet<_>>());
        self.gather(changes);
        let same_objects = before.is_some_and(|before| before.iter().eq(self.first.keys()));
        let of = if mutants::active(Mutant::HandoverForgetsWhatWasThere) { 0 } else { self.before.objects };
        let empty = objects == 0 && of > 0 && !self.allow_empty;
        let shrinks = of >= GUARDED_FROM && objects * 2 < of;
        let equal_later =
            self.held.as_ref().is_some_and(|held| same_objects && now_ms >= held.since_ms + EQUAL_LIST_AFTER_MS);
        if !empty && (!shrinks || equal_later) {
            return self.open_up();
        }
        let same = self.held.as_ref().is_some_and(|held| held.empty == empty) && same_objects;
        let since_ms = self.held.as_ref().filter(|_| same).map_or(now_ms, |held| held.since_ms);
        self.held = Some(Held { since_ms, empty, heals: !empty, shown: false, missing, of });
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
            passed.push(Change::Delete(reference.reference()));
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use translate::Object;

    fn put(number: usize) -> Change {
        let value = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("m{number}") },
        });
        Change::Put(Arc::new(Object::from_value(value).unwrap()))
    }

    fn puts(count: usize) -> Vec<Change> {
        (0..count).map(put).collect()
    }

    fn delete(number: usize) -> Change {
        Change::Delete(subject(&put(number)).unwrap().reference())
    }

    fn deletes(numbers: std::ops::Range<usize>) -> Vec<Change> {
        numbers.map(delete).collect()
    }

    /// An open gate with so many objects in force.
    fn open(count: usize) -> Gate {
        let mut gate = Gate::new(Before::default(), false);
        assert_eq!(gate.listed(0, puts(count), count, false, false).len(), count);
        assert!(gate.is_open());
        gate
    }

    #[test]
    fn nothing_passes_before_the_first_list() {
        let mut gate = Gate::new(Before::default(), false);
        assert!(gate.observed(puts(2)).is_empty());
        assert!(!gate.is_open());
        assert_eq!(
            gate.listed(0, vec![put(2)], 3, false, false).len(),
            3,
            "the first list brings what was seen before it too"
        );
    }

    #[test]
    fn an_empty_folder_opens_the_gate_when_nothing_was_in_force() {
        let mut gate = Gate::new(Before::default(), false);
        assert!(gate.listed(0, Vec::new(), 0, false, false).is_empty());
        assert!(gate.is_open() && gate.held().is_none());
    }

    #[test]
    fn removals_that_were_seen_pass_whatever_they_leave() {
        let mut gate = open(20);
        assert_eq!(gate.observed(deletes(0..20)).len(), 20);
        assert!(gate.held().is_none());
    }

    #[test]
    fn a_list_may_remove_half_and_not_more() {
        let mut gate = open(20);
        assert_eq!(gate.listed(0, deletes(0..10), 10, false, false).len(), 10);
        let mut gate = open(20);
        assert!(gate.listed(0, deletes(0..11), 9, false, false).is_empty());
        assert!(gate.held().unwrap().contains("9 objects of 20"), "{:?}", gate.held());
        assert_eq!(gate.objects(), 20);
    }

    #[test]
    fn a_small_world_may_shrink_but_not_to_nothing() {
        let mut gate = open(9);
        assert_eq!(gate.listed(0, deletes(0..8), 1, false, false).len(), 8);
        assert!(gate.listed(0, deletes(8..9), 0, false, false).is_empty());
        assert!(gate.held().is_some());
    }

    #[test]
    fn an_equal_list_ten_seconds_later_releases_and_an_earlier_one_does_not() {
        let mut gate = open(20);
        gate.listed(1_000, deletes(0..15), 5, false, false);
        assert_eq!(gate.list_again_at(), Some(11_000));
        assert!(gate.listed(10_999, Vec::new(), 5, false, false).is_empty());
        assert_eq!(gate.list_again_at(), Some(11_000), "an equal list in between does not start anew");
        assert_eq!(gate.listed(11_000, Vec::new(), 5, false, false).len(), 15);
        assert!(gate.held().is_none() && gate.objects() == 5);
    }

    #[test]
    fn another_list_starts_the_ten_seconds_anew() {
        let mut gate = open(20);
        gate.listed(0, deletes(0..15), 5, false, false);
        assert!(gate.listed(10_000, deletes(15..16), 4, false, false).is_empty());
        assert_eq!(gate.list_again_at(), Some(20_000));
        assert_eq!(gate.listed(20_000, Vec::new(), 4, false, false).len(), 16);
    }

    #[test]
    fn what_comes_back_is_no_longer_held_and_edits_pass_meanwhile() {
        let mut gate = open(20);
        gate.listed(0, deletes(0..15), 5, false, false);
        assert_eq!(gate.observed(vec![put(17), put(20)]).len(), 2);
        // Half came back: the rest still waits for its equal list.
        assert_eq!(gate.listed(5_000, puts(10), 16, false, false).len(), 10);
        assert!(gate.held().is_some());
        assert_eq!(gate.observed((10..15).map(put).collect()).len(), 5);
        assert!(gate.held().is_none());
        assert_eq!(gate.objects(), 21);
    }

    #[test]
    fn an_empty_list_waits_for_a_confirmation_however_long() {
        let mut gate = open(20);
        gate.listed(0, deletes(0..20), 0, true, false);
        assert!(gate.held().unwrap().contains("not there"));
        assert_eq!(gate.list_again_at(), None);
        assert!(gate.listed(1_000_000, Vec::new(), 0, true, false).is_empty());
        assert_eq!(gate.confirm().len(), 20);
        assert!(gate.held().is_none() && gate.objects() == 0);
    }

    #[test]
    fn an_empty_list_that_was_allowed_waits_only_like_any_other() {
        let mut gate = Gate::new(Before::default(), true);
        gate.listed(0, puts(20), 20, false, false);
        assert!(gate.listed(0, deletes(0..20), 0, false, false).is_empty());
        assert_eq!(gate.listed(10_000, Vec::new(), 0, false, false).len(), 20);
    }

    #[test]
    fn after_a_restart_the_first_list_is_compared_with_what_was_in_force() {
        let before = Before { objects: 20 };
        let mut gate = Gate::new(before, false);
        assert!(gate.listed(0, puts(9), 9, false, false).is_empty());
        assert!(!gate.is_open() && gate.held().is_some());
        assert_eq!(gate.listed(10_000, Vec::new(), 9, false, false).len(), 9);
        let mut gate = Gate::new(before, false);
        assert_eq!(gate.listed(0, puts(10), 10, false, false).len(), 10);
        let mut gate = Gate::new(Before { objects: 1 }, false);
        assert!(gate.listed(0, Vec::new(), 0, false, false).is_empty());
        assert!(!gate.is_open());
        assert!(gate.listed(60_000, Vec::new(), 0, false, false).is_empty());
        assert!(gate.confirm().is_empty() && gate.is_open());
        let mut gate = Gate::new(Before { objects: 1 }, true);
        gate.listed(0, Vec::new(), 0, false, false);
        assert!(gate.is_open());
    }

    #[test]
    fn a_held_first_world_goes_on_when_the_folder_fills() {
        let mut gate = Gate::new(Before { objects: 20 }, false);
        gate.listed(0, puts(3), 3, false, false);
        assert!(gate.observed((3..12).map(put).collect()).is_empty());
        assert_eq!(gate.listed(50, Vec::new(), 12, false, false).len(), 12);
    }
}
