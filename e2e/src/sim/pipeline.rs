//! From what the watches tell to the fleets, as the shipped worker does: gates, translation, hub.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use controller::hub::Hub;
use controller::pipeline::{Translator, convert};
use controller::store::{Before, Gates};
use controller::watch::Listing;
use controller::watch::cluster::Out;
use journal::Key;
use journal::digest::leaf;
use push::fleet::Fleet;
use translate::{Change, FleetName, Translation};

use super::{api, manifests};

/// How many objects of each kind were in force: what a controller remembers of its last life.
pub(crate) type Memory = BTreeMap<String, usize>;

/// One controller's pipeline.
pub(crate) struct Pipeline {
    /// Its fleets.
    pub(crate) hub: Hub,
    gates: Gates,
    translator: Translator,
    published: bool,
}

impl Pipeline {
    /// A pipeline that has seen nothing yet, in no epoch.
    pub(crate) fn new(memory: &Memory) -> Pipeline {
        let before = |kind: &str| Before { objects: memory.get(kind).copied().unwrap_or(0) };
        Pipeline {
            hub: Hub::new(manifests::fleets(), 0),
            gates: Gates::new(&api::KINDS, before, false),
            translator: Translator::new(manifests::settings()),
            published: false,
        }
    }

    /// Whether something is held back by the shrink guard.
    pub(crate) fn is_held(&self) -> bool {
        self.gates.held().is_some()
    }

    /// Takes in what the watches tell, as one step. Gives what is to be remembered from now on.
    pub(crate) fn take(&mut self, own_ms: u64, outs: Vec<(&'static str, Out)>) -> Option<Memory> {
        let mut passed = Vec::new();
        for (part, out) in outs {
            match out {
                Out::Observed(changes) => passed.extend(self.gates.observed(part, changes)),
                Out::Listed { changes, objects, missing } => {
                    passed.extend(self.gates.listed(own_ms, part, Listing { changes, objects, missing }));
                }
                Out::Findings(findings) => panic!("every object of the simulation can be read: {findings:?}"),
                Out::Agreed(_) => {}
            }
        }
        self.publish(passed)
    }

    fn publish(&mut self, passed: Vec<Change>) -> Option<Memory> {
        if !self.gates.is_open() || (passed.is_empty() && self.published) {
            return None;
        }
        let memory = (!std::mem::replace(&mut self.published, true)).then(|| self.gates.objects());
        let outcome = self.translator.apply(passed);
        assert!(outcome.faults.is_empty(), "the engine panicked on {:?}", outcome.faults);
        self.hub.changed(&outcome.applied, &outcome.faults);
        outcome.deltas.into_iter().for_each(|delta| self.hub.publish(delta));
        memory
    }

    /// The kinds that have to be listed again now.
    pub(crate) fn due(&mut self, own_ms: u64) -> Vec<&'static str> {
        self.gates.due(own_ms)
    }

    /// When [`Pipeline::due`] has something to say, by its own clock.
    pub(crate) fn next_own_ms(&self) -> Option<u64> {
        self.gates.list_again_at()
    }

    /// One step with a fleet.
    pub(crate) fn with<T>(&self, fleet: &FleetName, step: impl FnOnce(&mut Fleet) -> T) -> T {
        self.hub.fleet(fleet).expect("both fleets are declared").with(step)
    }

    /// Why the desired state is not what a cold start gives; nothing when it is. What is condemned is left aside on both
    /// sides.
    pub(crate) fn differs_from(&self, cold: &Translation) -> Option<String> {
        for (name, wanted) in &cold.fleets {
            let difference = self.with(name, |fleet| {
                // What killed a proxy stands as claims only; a cold start learns of it from the agents.
                let wants = wanted.resources.values().map(|r| (convert::key(&r.id), r.bytes.clone()));
                let wants: BTreeMap<Key, Bytes> = wants.collect();
                let condemned: BTreeSet<Key> =
                    wants.iter().filter(|(k, b)| fleet.is_condemned(&leaf(k, b))).map(|(k, _)| k.clone()).collect();
                let has = fleet.resources().filter(|(key, _)| !condemned.contains(key));
                let has: BTreeMap<Key, Bytes> = has.map(|(key, body)| (key.clone(), body.clone())).collect();
                let wants: BTreeMap<Key, Bytes> =
                    wants.into_iter().filter(|(key, _)| !condemned.contains(key)).collect();
                let differs = |key: &&Key| has.get(*key) != wants.get(*key);
                let first = has.keys().chain(wants.keys()).find(differs);
                first.map(|key| format!("fleet {name}: {key} is not what a cold start gives"))
            });
            if difference.is_some() {
                return difference;
            }
        }
        None
    }
}
