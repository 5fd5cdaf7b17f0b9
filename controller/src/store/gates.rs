//! The publish gates: one for each part of the source, and nothing passes before all of them are open. Pure.

use std::collections::{BTreeMap, BTreeSet};

use translate::{Change, ObjectId};

use super::gate::{Before, Gate};
use crate::pipeline::subject;
use crate::watch::Listing;

/// All gates.
#[derive(Debug)]
pub struct Gates {
    gates: BTreeMap<&'static str, Gate>,
    open: bool,
    /// What passed while others were still closed: what is there, and what is not any more.
    first: BTreeMap<ObjectId, Change>,
    /// Parts that were asked for an equal list.
    asked: BTreeSet<&'static str>,
}

impl Gates {
    /// A closed gate for each part. `before` says how much of a part was in force when the controller last ran.
    pub fn new(parts: &[&'static str], before: impl Fn(&str) -> Before, allow_empty: bool) -> Gates {
        let gates = parts.iter().map(|part| (*part, Gate::new(before(part), allow_empty).of_part(part)));
        Gates { gates: gates.collect(), open: false, first: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Whether the first world has passed.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// How many objects of each part are in force.
    pub fn objects(&self) -> BTreeMap<String, usize> {
        self.gates.iter().map(|(part, gate)| ((*part).to_owned(), gate.objects())).collect()
    }

    /// Why the world, or a part of it, is held; nothing when it is not.
    pub fn held(&self) -> Option<String> {
        let held: Vec<String> = self.gates.values().filter_map(Gate::held).collect();
        (!held.is_empty()).then(|| held.join("; "))
    }

    /// When [`Gates::due`] has something to say, in milliseconds.
    pub fn list_again_at(&self) -> Option<u64> {
        let waiting = self.gates.iter().filter(|(part, _)| !self.asked.contains(*part));
        waiting.filter_map(|(_, gate)| gate.list_again_at()).min()
    }

    /// The parts that have to be listed again now, because an equal list releases what is held. Each is said once.
    pub fn due(&mut self, now_ms: u64) -> Vec<&'static str> {
        let due = self.gates.iter().filter(|(_, gate)| gate.list_again_at().is_some_and(|at| at <= now_ms));
        let due: Vec<_> = due.map(|(part, _)| *part).filter(|part| !self.asked.contains(part)).collect();
        self.asked.extend(&due);
        due
    }

    /// Changes of a part that were seen to happen. Gives what may go on.
    pub fn observed(&mut self, part: &str, changes: Vec<Change>) -> Vec<Change> {
        let passed = self.gates.get_mut(part).map(|gate| gate.observed(changes)).unwrap_or_default();
        self.through(passed)
    }

    /// What a list of a part showed to be different. Gives what may go on.
    pub fn listed(&mut self, now_ms: u64, part: &str, listing: Listing) -> Vec<Change> {
        self.asked.remove(part);
        let Listing { changes, objects, missing } = listing;
        let gate = self.gates.get_mut(part);
        let passed = gate.map(|gate| gate.listed(now_ms, changes, objects, missing)).unwrap_or_default();
        self.through(passed)
    }

    /// Somebody says that the world is meant as it is. Gives what was held.
    pub fn confirm(&mut self) -> Vec<Change> {
        let passed = self.gates.values_mut().flat_map(Gate::confirm).collect();
        self.through(passed)
    }

    /// Keeps what passed one gate until all are open.
    fn through(&mut self, passed: Vec<Change>) -> Vec<Change> {
        if self.open {
            return passed;
        }
        for change in passed {
            let Some(object) = subject(&change) else { continue };
            match change {
                Change::Delete(_) => self.first.remove(&object),
                change => self.first.insert(object, change),
            };
        }
        self.open = self.gates.values().all(Gate::is_open);
        if self.open { std::mem::take(&mut self.first).into_values().collect() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use translate::Object;

    fn put(kind: &str, name: usize) -> Change {
        let value = serde_json::json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": format!("o{name}") } });
        Change::Put(Arc::new(Object::from_value(value).unwrap()))
    }

    fn delete(change: &Change) -> Change {
        Change::Delete(subject(change).unwrap().reference())
    }

    fn list(changes: Vec<Change>, objects: usize) -> Listing {
        Listing { changes, objects, missing: false }
    }

    fn gates() -> Gates {
        Gates::new(&["Secret", "ConfigMap"], |_| Before::default(), false)
    }

    #[test]
    fn nothing_passes_before_every_kind_has_listed() {
        let mut gates = gates();
        let maps: Vec<_> = (0..3).map(|name| put("ConfigMap", name)).collect();
        assert!(gates.listed(0, "ConfigMap", list(maps.clone(), 3)).is_empty());
        assert!(gates.observed("ConfigMap", vec![delete(&maps[0])]).is_empty());
        assert!(gates.observed("Secret", vec![put("Secret", 0)]).is_empty());
        assert!(!gates.is_open());
        let first = gates.listed(0, "Secret", list(Vec::new(), 1));
        assert_eq!(first.len(), 3, "two ConfigMaps and the Secret that was seen before its list: {first:?}");
        assert!(gates.is_open());
        assert_eq!(gates.observed("Secret", vec![put("Secret", 1)]).len(), 1);
    }

    #[test]
    fn each_kind_is_guarded_by_itself() {
        let mut gates = gates();
        let secrets: Vec<_> = (0..20).map(|name| put("Secret", name)).collect();
        gates.listed(0, "Secret", list(secrets.clone(), 20));
        gates.listed(0, "ConfigMap", list((0..20).map(|name| put("ConfigMap", name)).collect(), 20));
        let gone: Vec<_> = secrets[..11].iter().map(delete).collect();
        assert!(gates.listed(0, "Secret", list(gone, 9)).is_empty());
        assert!(gates.held().unwrap().contains("Secret"), "{:?}", gates.held());
        assert_eq!(gates.observed("ConfigMap", vec![put("ConfigMap", 30)]).len(), 1, "the other kind goes on");
        assert_eq!((gates.list_again_at(), gates.due(9_999)), (Some(10_000), Vec::new()));
        assert_eq!(gates.due(10_000), ["Secret"]);
        assert_eq!((gates.list_again_at(), gates.due(10_001)), (None, Vec::new()), "it is asked for once");
        assert_eq!(gates.listed(10_050, "Secret", list(Vec::new(), 9)).len(), 11);
        assert_eq!(gates.held(), None);
    }

    #[test]
    fn what_was_in_force_of_a_kind_before_a_restart_holds_a_smaller_first_list_of_it() {
        let before = |part: &str| Before { objects: if part == "Secret" { 20 } else { 0 } };
        let mut gates = Gates::new(&["Secret", "ConfigMap"], before, false);
        gates.listed(0, "ConfigMap", list(Vec::new(), 0));
        assert!(gates.listed(0, "Secret", list(vec![put("Secret", 1)], 1)).is_empty());
        assert!(!gates.is_open() && gates.held().is_some());
        assert_eq!(gates.confirm().len(), 1);
        assert!(gates.is_open());
    }
}
