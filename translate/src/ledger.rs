//! The present translation, and what it was before the step under way: the source of deltas.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{MemberSetName, ObjectRef, Resource, ResourceId, SecretDigest};

use crate::objects::SecretBytes;
use crate::outcome::{BackendRef, Delta, Draft, FleetDelta, Members, Translation};
use crate::world::FleetName;

/// What stood in some place before the step; `None`: nothing.
type Before<K, V> = BTreeMap<K, Option<V>>;

/// A translation that is changed in place.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) translation: Translation,
    resources: Before<(FleetName, ResourceId), Resource>,
    secrets: Before<(FleetName, SecretDigest), SecretBytes>,
    members: Before<(FleetName, MemberSetName), Members>,
    drafts: Before<ObjectRef, Arc<Draft>>,
    backends: Before<BackendRef, Members>,
}

/// Writes a value (or none), and remembers the first one that it replaced.
fn write<P: Ord, K: Ord + Clone, V: Clone + PartialEq>(
    map: &mut BTreeMap<K, V>,
    before: &mut Before<P, V>,
    place: P,
    key: K,
    value: Option<V>,
) {
    if map.get(&key) == value.as_ref() {
        return;
    }
    let old = match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
    before.entry(place).or_insert(old);
}

impl Ledger {
    /// Puts or removes a resource. Fleets that the settings do not name have no resources.
    pub(crate) fn resource(&mut self, fleet: &FleetName, id: &ResourceId, value: Option<Resource>) {
        if let Some(config) = self.translation.fleets.get_mut(fleet) {
            write(&mut config.resources, &mut self.resources, (fleet.clone(), id.clone()), id.clone(), value);
        }
    }

    pub(crate) fn secret(&mut self, fleet: &FleetName, digest: &SecretDigest, value: Option<SecretBytes>) {
        if let Some(config) = self.translation.fleets.get_mut(fleet) {
            write(&mut config.secrets, &mut self.secrets, (fleet.clone(), digest.clone()), digest.clone(), value);
        }
    }

    pub(crate) fn members(&mut self, fleet: &FleetName, set: &MemberSetName, value: Option<Members>) {
        if let Some(config) = self.translation.fleets.get_mut(fleet) {
            write(&mut config.members, &mut self.members, (fleet.clone(), set.clone()), set.clone(), value);
        }
    }

    pub(crate) fn draft(&mut self, object: &ObjectRef, value: Option<Arc<Draft>>) {
        write(&mut self.translation.drafts, &mut self.drafts, object.clone(), object.clone(), value);
    }

    pub(crate) fn backend(&mut self, backend: &BackendRef, value: Option<Members>) {
        write(&mut self.translation.backends, &mut self.backends, backend.clone(), backend.clone(), value);
    }

    /// Ends the step: what is different now from what it was before. Costs what was written.
    pub(crate) fn finish(&mut self) -> Delta {
        let mut fleets: BTreeMap<FleetName, FleetDelta> = BTreeMap::new();
        let now = &self.translation;
        for ((fleet, id), old) in std::mem::take(&mut self.resources) {
            let new = now.fleets.get(&fleet).and_then(|config| config.resources.get(&id));
            match new {
                Some(new) if old.as_ref() != Some(new) => fleets.entry(fleet).or_default().puts.push(new.clone()),
                None if old.is_some() => fleets.entry(fleet).or_default().removes.push(id),
                _ => {}
            }
        }
        for ((fleet, digest), old) in std::mem::take(&mut self.secrets) {
            let new = now.fleets.get(&fleet).and_then(|config| config.secrets.get(&digest));
            match new {
                Some(new) if old.as_ref() != Some(new) => {
                    fleets.entry(fleet).or_default().secrets_added.insert(digest, new.clone());
                }
                None if old.is_some() => fleets.entry(fleet).or_default().secrets_removed.push(digest),
                _ => {}
            }
        }
        for ((fleet, set), old) in std::mem::take(&mut self.members) {
            let new = now.fleets.get(&fleet).and_then(|config| config.members.get(&set));
            if new != old.as_ref() {
                fleets.entry(fleet).or_default().sets.insert(set, new.cloned());
            }
        }
        Delta {
            fleets,
            drafts: changed(std::mem::take(&mut self.drafts), &now.drafts),
            backends: changed(std::mem::take(&mut self.backends), &now.backends),
        }
    }
}

fn changed<K: Ord, V: Clone + PartialEq>(before: Before<K, V>, now: &BTreeMap<K, V>) -> BTreeMap<K, Option<V>> {
    before
        .into_iter()
        .filter_map(|(key, old)| {
            let new = now.get(&key);
            (new != old.as_ref()).then(|| {
                let new = new.cloned();
                (key, new)
            })
        })
        .collect()
}
