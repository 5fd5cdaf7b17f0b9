//! The control plane: controllers that come, go and overlap. Each is the shipped gate, engine and hub.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use config::ObjectRef;
use controller::hub::Hub;
use controller::pipeline::{Translator, convert};
use controller::report::AgentNews;
use controller::store::{Before, Gate};
use journal::Key;
use journal::digest::leaf;
use push::fleet::Fleet;
use push::server_session::{Event, Role};
use translate::{Change, Delta, FleetName};

use super::dice::Dice;
use super::manifests::{self, Objects};

/// One controller.
pub(crate) struct Controller {
    /// Its fleets.
    pub(crate) hub: Hub,
    gate: Gate,
    translator: Translator,
    /// What its source has shown it.
    seen: Objects,
    /// What it is.
    pub(crate) role: Role,
    opened: bool,
    /// Whether the source listed anything yet, whatever the gate made of it.
    listed: bool,
    /// Its source takes long over the first list.
    pub(crate) late: bool,
    /// Its source shows nothing by itself.
    pub(crate) silent: bool,
}

/// What a list gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Everything that is there.
    Whole,
    /// A random part, less than half.
    Part,
    /// Nothing.
    Empty,
}

impl Controller {
    /// A controller that has seen nothing yet. `before` is what was in force when the last one ran.
    pub(crate) fn new(epoch: u64, before: usize, late: bool) -> Controller {
        Controller {
            hub: Hub::new(manifests::fleets(), epoch),
            gate: Gate::new(Before { objects: before }, false),
            translator: Translator::new(manifests::settings()),
            seen: Objects::new(),
            role: Role::Leading,
            opened: false,
            listed: false,
            late,
            silent: false,
        }
    }

    /// How many objects are in force.
    pub(crate) fn in_force(&self) -> usize {
        self.gate.objects()
    }

    /// Whether something is held back by the shrink guard.
    pub(crate) fn is_held(&self) -> bool {
        self.gate.held().is_some()
    }

    /// Whether the first world is published.
    pub(crate) fn is_open(&self) -> bool {
        self.gate.is_open()
    }

    /// Whether the source has yet to list what is there. A gate that opens before does not make it faster.
    pub(crate) fn awaits_list(&self) -> bool {
        !self.listed || !self.gate.is_open()
    }

    /// Whether the source has shown it everything.
    pub(crate) fn has_seen(&self, objects: &Objects) -> bool {
        self.seen == *objects
    }

    /// The source lists.
    pub(crate) fn list(&mut self, now: u64, dice: &mut Dice, objects: &Objects, list: List) {
        let listed: Objects = match list {
            List::Whole => objects.clone(),
            List::Empty => Objects::new(),
            List::Part => objects.iter().filter(|_| dice.one_in(4)).map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        };
        let changes = changes(&self.seen, &listed);
        let passed = self.gate.listed(now, changes, listed.len(), false, false);
        self.seen = listed;
        self.listed = true;
        self.take(passed);
    }

    /// The source shows a part of what changed, in no particular order: kinds are watched apart.
    pub(crate) fn watch(&mut self, dice: &mut Dice, objects: &Objects) {
        let mut changes = changes(&self.seen, objects);
        // Before the first list a source has little to show.
        let rare = if self.awaits_list() { 8 } else { 1 };
        changes.retain(|_| !dice.one_in(3) && dice.one_in(rare));
        for change in &changes {
            match change {
                Change::Put(object) => drop(self.seen.insert(object.reference(), Arc::clone(object))),
                Change::Delete(reference) => drop(self.seen.remove(reference)),
                Change::Settings(_) => {}
            }
        }
        if changes.is_empty() {
            return;
        }
        let passed = self.gate.observed(changes);
        self.take(passed);
    }

    fn take(&mut self, passed: Vec<Change>) {
        if !self.gate.is_open() && passed.is_empty() {
            return;
        }
        if passed.is_empty() && self.opened {
            return;
        }
        self.opened = true;
        let outcome = self.translator.apply(passed);
        assert!(outcome.faults.is_empty(), "the engine panicked on {:?}", outcome.faults);
        self.hub.changed(&outcome.applied, &outcome.faults);
        if outcome.deltas.is_empty() {
            self.hub.publish(Delta::default());
        }
        outcome.deltas.into_iter().for_each(|delta| self.hub.publish(delta));
    }

    /// Does with an event of a session what the shipped sessions do. Gives an epoch that an agent reported.
    pub(crate) fn event(&mut self, fleet: &FleetName, agent: &str, event: Event) -> Option<u64> {
        match event {
            Event::Hello(_) => {}
            Event::EpochReported(epoch) => return Some(epoch),
            Event::EpochAlarm(epoch) => panic!("{agent} reports epoch {epoch}"),
            Event::Condemned { leaves, .. } => {
                self.hub.condemn(fleet, agent, &leaves);
            }
            Event::Applied { version, root, not_live, .. } => {
                self.hub.news(fleet, agent, AgentNews::Applied { version, root, not_live });
            }
            Event::Refused { .. }
            | Event::Welcomed
            | Event::Overdue { .. }
            | Event::MembersCurrent { .. }
            | Event::MembersRefused { .. }
            | Event::Closed(_) => {}
        }
        None
    }

    /// One step with a fleet.
    pub(crate) fn with<T>(&self, fleet: &FleetName, step: impl FnOnce(&mut Fleet) -> T) -> T {
        self.hub.fleet(fleet).expect("both fleets are declared").with(step)
    }

    /// Why the desired state is not what a cold start on these objects gives; nothing when it is. What is condemned is
    /// left aside on both sides.
    pub(crate) fn differs_from_cold_start(&self, objects: &Objects) -> Option<String> {
        let mut world = translate::World::new(manifests::settings());
        objects.values().for_each(|object| world.apply(&Change::Put(Arc::clone(object))));
        let cold = translate::translate(&world);
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

/// The changes from one set of objects to another.
fn changes(from: &Objects, to: &Objects) -> Vec<Change> {
    let gone = |reference: &&ObjectRef| !to.contains_key(*reference);
    let removed = from.keys().filter(gone).map(|reference| Change::Delete(reference.clone()));
    let put = to.iter().filter(|(reference, object)| from.get(*reference) != Some(*object));
    removed.chain(put.map(|(_, object)| Change::Put(Arc::clone(object)))).collect()
}
