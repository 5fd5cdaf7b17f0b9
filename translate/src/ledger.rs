//! The present translation, and what it was before the step under way: the source of deltas.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use config::{MemberSetName, Resource, ResourceId, SecretDigest};

use crate::objects::{ObjectId, SecretBytes};
use crate::outcome::{BackendRef, Delta, Draft, FleetConfig, FleetDelta, Members, Translation};
use crate::table::Table;
use crate::world::FleetName;

/// What stood in some place before the step; `None`: nothing.
type Before<K, V> = BTreeMap<K, Option<V>>;

/// A translation that is changed in place.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    fleets: BTreeMap<FleetName, FleetLedger>,
    /// Fleets that were there before the step under way, and are none any more.
    ended: BTreeSet<FleetName>,
    drafts: Table<ObjectId, Arc<Draft>>,
    backends: Table<BackendRef, Members>,
    drafts_before: Before<ObjectId, Arc<Draft>>,
    backends_before: Before<BackendRef, Members>,
}

/// The part of one fleet.
#[derive(Debug, Default)]
struct FleetLedger {
    resources: Table<ResourceId, Resource>,
    secrets: Table<SecretDigest, SecretBytes>,
    members: Table<MemberSetName, Members>,
    resources_before: Before<ResourceId, Resource>,
    secrets_before: Before<SecretDigest, SecretBytes>,
    members_before: Before<MemberSetName, Members>,
}

/// Writes a value (or none), and remembers the first one that it replaced.
fn write<K: Ord + Hash + Clone, V: PartialEq>(
    now: &mut Table<K, V>,
    before: &mut Before<K, V>,
    key: &K,
    value: Option<V>,
) {
    if now.get(key) == value.as_ref() {
        return;
    }
    let old = match value {
        Some(value) => now.insert(key.clone(), value),
        None => now.remove(key),
    };
    before.entry(key.clone()).or_insert(old);
}

/// What is another now than before the step: the new value of each key, none for what is gone.
fn changed<K: Ord + Hash, V: Clone + PartialEq>(before: &mut Before<K, V>, now: &Table<K, V>) -> Vec<(K, Option<V>)> {
    let before = std::mem::take(before).into_iter();
    before
        .filter_map(|(key, old)| {
            let new = now.get(&key);
            (new != old.as_ref()).then(|| {
                let new = new.cloned();
                (key, new)
            })
        })
        .collect()
}

fn copy<K: Ord + Hash + Clone, V: Clone>(table: &Table<K, V>) -> BTreeMap<K, V> {
    table.sorted().into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Ledger {
    /// Makes room for a fleet. Fleets without room have no resources.
    pub(crate) fn fleet(&mut self, fleet: &FleetName) {
        self.fleets.entry(fleet.clone()).or_default();
    }

    /// Takes the room of a fleet away, with everything in it.
    pub(crate) fn end_fleet(&mut self, fleet: &FleetName) {
        if self.fleets.remove(fleet).is_some() {
            self.ended.insert(fleet.clone());
        }
    }

    /// Puts or removes a resource.
    pub(crate) fn resource(&mut self, fleet: &FleetName, id: &ResourceId, value: Option<Resource>) {
        if let Some(fleet) = self.fleets.get_mut(fleet) {
            write(&mut fleet.resources, &mut fleet.resources_before, id, value);
        }
    }

    pub(crate) fn secret(&mut self, fleet: &FleetName, digest: &SecretDigest, value: Option<SecretBytes>) {
        if let Some(fleet) = self.fleets.get_mut(fleet) {
            write(&mut fleet.secrets, &mut fleet.secrets_before, digest, value);
        }
    }

    pub(crate) fn members(&mut self, fleet: &FleetName, set: &MemberSetName, value: Option<Members>) {
        if let Some(fleet) = self.fleets.get_mut(fleet) {
            write(&mut fleet.members, &mut fleet.members_before, set, value);
        }
    }

    pub(crate) fn draft(&mut self, object: &ObjectId, value: Option<Arc<Draft>>) {
        write(&mut self.drafts, &mut self.drafts_before, object, value);
    }

    pub(crate) fn backend(&mut self, backend: &BackendRef, value: Option<Members>) {
        write(&mut self.backends, &mut self.backends_before, backend, value);
    }

    /// The whole translation, in a copy.
    pub(crate) fn translation(&self) -> Translation {
        let fleets = self.fleets.iter().map(|(name, fleet)| {
            let config = FleetConfig {
                resources: copy(&fleet.resources),
                members: copy(&fleet.members),
                secrets: copy(&fleet.secrets),
            };
            (name.clone(), config)
        });
        Translation { fleets: fleets.collect(), drafts: copy(&self.drafts), backends: copy(&self.backends) }
    }

    /// Ends the step: what is different now from what it was before. Costs what was written.
    pub(crate) fn finish(&mut self) -> Delta {
        let ended = std::mem::take(&mut self.ended).into_iter().map(|name| (name, FleetDelta::ended()));
        let fleets = self.fleets.iter_mut().map(|(name, fleet)| (name.clone(), fleet.finish()));
        Delta {
            fleets: fleets.filter(|(_, delta)| !delta.is_empty()).chain(ended).collect(),
            drafts: changed(&mut self.drafts_before, &self.drafts).into_iter().collect(),
            backends: changed(&mut self.backends_before, &self.backends).into_iter().collect(),
        }
    }
}

impl FleetLedger {
    fn finish(&mut self) -> FleetDelta {
        let sets = changed(&mut self.members_before, &self.members).into_iter().collect();
        let mut delta = FleetDelta { sets, ..FleetDelta::default() };
        for (id, resource) in changed(&mut self.resources_before, &self.resources) {
            match resource {
                Some(resource) => delta.puts.push(resource),
                None => delta.removes.push(id),
            }
        }
        for (digest, bytes) in changed(&mut self.secrets_before, &self.secrets) {
            match bytes {
                Some(bytes) => drop(delta.secrets_added.insert(digest, bytes)),
                None => delta.secrets_removed.push(digest),
            }
        }
        delta
    }
}
