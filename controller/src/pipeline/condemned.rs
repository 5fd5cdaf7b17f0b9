//! Resources that killed a proxy: their claims stay and answer 503, in the desired configuration of the whole fleet,
//! until their bytes change. Pure.

use std::collections::{BTreeMap, BTreeSet};

use config::{Envelope, Kind, Name, ObjectRef, Resource, ResourceId, Withheld};
use journal::{Digest, Key};
use push::fleet::{Fleet, FleetChange, Item};

/// The stable word on withheld resources.
pub const CODE: &str = "Condemned";

/// Replaces what is condemned among the puts of a change.
pub fn withhold_in(change: &mut FleetChange, fleet: &Fleet) {
    if !fleet.condemns() {
        return;
    }
    let mut removes = Vec::new();
    change.puts.retain_mut(|item| {
        if !fleet.is_condemned(&journal::digest::leaf(&item.key, &item.body)) {
            return true;
        }
        match withheld(&item.key, item.body.clone())
            .filter(|new| !fleet.is_condemned(&journal::digest::leaf(&new.key, &new.body)))
        {
            Some(new) => {
                *item = new;
                true
            }
            None => {
                removes.push(item.key.clone());
                false
            }
        }
    });
    change.removes.extend(removes);
}

/// The change that takes these resources out of harm's way. What cannot even stand as claims goes away whole.
pub fn condemn(fleet: &mut Fleet, leaves: &[Digest]) -> FleetChange {
    let mut change = FleetChange::default();
    for key in fleet.condemn(leaves) {
        let body = fleet.body(&key).cloned();
        match body.and_then(|body| withheld(&key, body)) {
            Some(item) => change.puts.push(item),
            None => change.removes.push(key),
        }
    }
    withhold_in(&mut change, fleet);
    change
}

/// The resources of a fleet that are withheld because they killed a proxy, with the objects they came from.
pub fn origins(change: &FleetChange) -> BTreeMap<String, BTreeSet<ObjectRef>> {
    let withheld = change.puts.iter().filter_map(|item| {
        let envelope = Envelope::decode(&id(&item.key)?, &item.body).ok()?;
        let condemned = envelope.withheld.as_ref().is_some_and(|withheld| withheld.code == CODE);
        condemned.then(|| (item.key.to_string(), envelope.origin.into_iter().collect()))
    });
    withheld.collect()
}

fn id(key: &Key) -> Option<ResourceId> {
    let kind: Kind = key.kind.parse().ok()?;
    Some(ResourceId { kind, name: Name::from_wire(&*key.name) })
}

/// The same resource as claims only; nothing when it is that already.
fn withheld(key: &Key, body: bytes::Bytes) -> Option<Item> {
    let resource = Resource { id: id(key)?, bytes: body, secrets: Vec::new() };
    let reason = Withheld {
        code: CODE.to_owned(),
        message: "it stopped a proxy; change the object it comes from to have it tried again".to_owned(),
    };
    let new = Envelope::withhold(&resource, reason).ok()?;
    (new.bytes != resource.bytes).then(|| super::convert::item(new))
}
