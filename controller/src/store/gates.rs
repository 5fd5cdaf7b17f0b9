//! The publish gates: one for each part of the source, and nothing passes before all of them are open. Pure.
//!
//! The gates vouch for each other: a kind that an API server has no objects of any more is believed when the same server still has
//! the Namespaces that it had, and nothing else of it is in doubt.

use std::collections::{BTreeMap, BTreeSet};

use translate::{Change, ObjectId};

use super::gate::{Before, Gate};
use crate::pipeline::subject;
use crate::watch::Listing;

/// The kind that tells one cluster from another: every cluster has the Namespace [`MARK`] from its beginning to its end.
const MARKED: &str = "Namespace";
/// Its name.
const MARK: &str = "kube-system";

/// All gates.
#[derive(Debug)]
pub struct Gates {
    gates: BTreeMap<&'static str, Gate>,
    open: bool,
    /// What passed while others were still closed: what is there, and what is not any more.
    first: BTreeMap<ObjectId, Change>,
    /// Parts that were asked for an equal list.
    asked: BTreeSet<&'static str>,
    /// The uid of the mark, once it was seen.
    mark: Option<Box<str>>,
    /// The mark changed or went: this is another cluster, and nobody has said that it is meant.
    another: bool,
    /// When Namespaces were listed last.
    marked_ms: u64,
}

impl Gates {
    /// A closed gate for each part. `before` says how much of a part was in force when the controller last ran.
    pub fn new(parts: &[&'static str], before: impl Fn(&str) -> Before, allow_empty: bool) -> Gates {
        let gates = parts.iter().map(|part| (*part, Gate::new(before(part), allow_empty).of_part(part)));
        Gates {
            gates: gates.collect(),
            open: false,
            first: BTreeMap::new(),
            asked: BTreeSet::new(),
            mark: None,
            another: false,
            marked_ms: 0,
        }
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
        let mut due = due;
        if due.iter().any(|part| self.gates.get(part).is_some_and(|gate| gate.empty_since().is_some())) {
            due.extend(self.gates.keys().copied().filter(|part| *part == MARKED).collect::<BTreeSet<_>>());
        }
        due
    }

    /// Whether this is the cluster that it was as far as is known, and nothing but this part of it is in doubt.
    fn is_sure_of(&self, part: &str) -> bool {
        let doubted = self.gates.iter().any(|(other, gate)| *other != part && gate.is_doubted());
        self.mark.is_some() && !self.another && !doubted
    }

    /// Looks for the mark in what is told of Namespaces.
    fn look_for_mark(&mut self, part: &str, changes: &[Change]) {
        for change in changes.iter().filter(|_| part == MARKED) {
            match change {
                Change::Put(object) if &*object.key().name == MARK => {
                    let uid = object.metadata().uid.clone();
                    self.another |= self.mark.replace(uid.clone()).is_some_and(|before| before != uid);
                }
                Change::Delete(object) if object.name == MARK => self.another = true,
                _ => {}
            }
        }
    }

    /// Changes of a part that were seen to happen. Gives what may go on.
    pub fn observed(&mut self, part: &str, changes: Vec<Change>) -> Vec<Change> {
        self.look_for_mark(part, &changes);
        let passed = self.gates.get_mut(part).map(|gate| gate.observed(changes)).unwrap_or_default();
        self.through(passed)
    }

    /// What a list of a part showed to be different. Gives what may go on.
    pub fn listed(&mut self, now_ms: u64, part: &str, listing: Listing) -> Vec<Change> {
        self.asked.remove(part);
        let Listing { changes, objects, missing } = listing;
        self.look_for_mark(part, &changes);
        let since_ms = self.gates.get(part).and_then(Gate::empty_since);
        let known = since_ms.is_some_and(|since_ms| self.marked_ms > since_ms) && self.is_sure_of(part);
        let gate = self.gates.get_mut(part);
        let mut passed = gate.map(|gate| gate.listed(now_ms, changes, objects, missing, known)).unwrap_or_default();
        if part == MARKED {
            self.marked_ms = now_ms;
            // Those that were waiting for this.
            let shown = self.gates.iter().filter(|(_, gate)| gate.is_shown()).map(|(part, _)| *part);
            let sure: Vec<_> = shown.filter(|part| self.is_sure_of(part)).collect();
            for part in sure {
                passed.extend(self.gates.get_mut(part).map(Gate::confirm).unwrap_or_default());
            }
        }
        self.through(passed)
    }

    /// Somebody says that the world is meant as it is. Gives what was held.
    pub fn confirm(&mut self) -> Vec<Change> {
        self.another = false;
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

    fn namespace(name: &str, uid: &str) -> Change {
        let metadata = serde_json::json!({ "name": name, "uid": uid });
        let value = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        Change::Put(Arc::new(Object::from_value(value).unwrap()))
    }

    /// A cluster with so many Secrets, of which the last list shows none.
    fn without_secrets(secrets: usize) -> Gates {
        let mut gates = Gates::new(&["Secret", "ConfigMap", "Namespace"], |_| Before::default(), false);
        let all: Vec<_> = (0..secrets).map(|name| put("Secret", name)).collect();
        gates.listed(0, "ConfigMap", list((0..20).map(|name| put("ConfigMap", name)).collect(), 20));
        gates.listed(0, "Namespace", list(vec![namespace("kube-system", "u1"), namespace("shop", "u2")], 2));
        assert_eq!(gates.listed(0, "Secret", list(all.clone(), secrets)).len(), 22 + secrets);
        assert!(gates.listed(1_000, "Secret", list(all.iter().map(delete).collect(), 0)).is_empty());
        assert!(gates.held().unwrap().contains("no Secret any more"), "{:?}", gates.held());
        gates
    }

    #[test]
    fn a_kind_with_few_objects_may_be_empty_when_the_same_cluster_says_so_twice() {
        let mut gates = without_secrets(9);
        assert_eq!(gates.list_again_at(), Some(11_000));
        assert!(gates.listed(10_999, "Secret", list(Vec::new(), 0)).is_empty(), "not before the time");
        assert_eq!(gates.due(11_000), ["Secret", "Namespace"], "the cluster has to show that it is the same");
        assert!(gates.listed(11_010, "Namespace", list(Vec::new(), 2)).is_empty());
        assert_eq!(gates.listed(11_020, "Secret", list(Vec::new(), 0)).len(), 9);
        assert_eq!(gates.held(), None);
    }

    #[test]
    fn namespaces_may_come_after_the_equal_list() {
        let mut gates = without_secrets(1);
        gates.due(11_000);
        assert!(gates.listed(11_010, "Secret", list(Vec::new(), 0)).is_empty());
        assert_eq!(gates.list_again_at(), Some(21_010), "it is not asked again and again without a pause");
        assert_eq!(gates.listed(11_020, "Namespace", list(Vec::new(), 2)).len(), 1);
        assert_eq!(gates.held(), None);
    }

    #[test]
    fn an_empty_kind_of_another_cluster_waits_for_a_confirmation() {
        for first in [true, false] {
            let mut gates = without_secrets(9);
            // An API server over a store that was lost: it makes its own Namespaces anew.
            let anew = list(vec![namespace("kube-system", "v1"), delete(&namespace("shop", "u2"))], 1);
            if first {
                gates.listed(1_500, "Namespace", anew);
            } else {
                gates.due(11_000);
                gates.listed(11_005, "Namespace", anew);
            }
            for now_ms in [11_010, 21_020, 31_030, 1_000_000] {
                gates.due(now_ms);
                gates.listed(now_ms, "Namespace", list(Vec::new(), 1));
                assert!(gates.listed(now_ms + 5, "Secret", list(Vec::new(), 0)).is_empty());
            }
            assert_eq!(gates.confirm().len(), 9);
        }
    }

    #[test]
    fn an_empty_kind_waits_for_a_confirmation_when_it_had_many_or_is_not_served_or_others_are_in_doubt() {
        let later = |gates: &mut Gates, missing: bool| {
            gates.listed(12_000, "Namespace", list(Vec::new(), 2));
            gates.listed(12_010, "Secret", Listing { missing, ..list(Vec::new(), 0) })
        };
        let mut many = without_secrets(10);
        assert_eq!(many.list_again_at(), None);
        assert!(later(&mut many, false).is_empty());
        let mut missing = without_secrets(9);
        assert!(later(&mut missing, true).is_empty());
        assert_eq!(missing.list_again_at(), None);
        let mut doubted = without_secrets(9);
        let gone: Vec<_> = (0..15).map(|name| delete(&put("ConfigMap", name))).collect();
        doubted.listed(2_000, "ConfigMap", list(gone, 5));
        assert!(later(&mut doubted, false).is_empty());
        assert_eq!(doubted.listed(12_020, "ConfigMap", list(Vec::new(), 5)).len(), 15, "that is believed now");
        assert_eq!(doubted.listed(22_010, "Namespace", list(Vec::new(), 2)).len(), 9, "and so is this");
    }

    #[test]
    fn several_kinds_with_few_objects_may_be_empty_at_a_time() {
        let mut gates = Gates::new(&["Secret", "Gateway", "Namespace"], |_| Before::default(), false);
        let gateway = serde_json::json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": "a" },
            "spec": { "gatewayClassName": "x", "listeners": [] },
        });
        let gateway = Change::Put(Arc::new(Object::from_value(gateway).unwrap()));
        gates.listed(0, "Namespace", list(vec![namespace("kube-system", "u1")], 1));
        gates.listed(0, "Secret", list(vec![put("Secret", 0)], 1));
        gates.listed(0, "Gateway", list(vec![gateway.clone()], 1));
        gates.listed(1_000, "Secret", list(vec![delete(&put("Secret", 0))], 0));
        gates.listed(1_000, "Gateway", list(vec![delete(&gateway)], 0));
        gates.listed(11_000, "Namespace", list(Vec::new(), 1));
        assert_eq!(gates.listed(11_000, "Secret", list(Vec::new(), 0)).len(), 1);
        assert_eq!(gates.listed(11_000, "Gateway", list(Vec::new(), 0)).len(), 1);
    }
}
