//! Which fleets there are now, as everybody may look at them without waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use push::fleet::{Admission, Fleet};
use push::grpc::SharedFleet;
use translate::FleetName;

/// All fleets of one moment.
#[derive(Clone, Debug)]
struct Present {
    epoch: u64,
    fleets: BTreeMap<FleetName, SharedFleet>,
    /// The last generation of fleets that ended in this epoch: one that comes again goes on from there.
    ended: BTreeMap<FleetName, u64>,
}

/// The fleets. Looking is free; changes are made by one at a time, who holds the report.
#[derive(Debug)]
pub(super) struct Fleets {
    present: ArcSwap<Present>,
    /// One for all: a crowd of many fleets is as much work at once as one of a single fleet.
    admission: Arc<Admission>,
    /// Where agents of fleets wait that nobody knows yet. Once the first world is published it ends, and they come again.
    unknown: SharedFleet,
}

impl Fleets {
    /// Fleets without anything, in this epoch.
    pub(super) fn new(names: impl IntoIterator<Item = FleetName>, epoch: u64) -> Fleets {
        let present = Present { epoch, fleets: BTreeMap::new(), ended: BTreeMap::new() };
        let admission = Arc::new(Admission::default());
        let unknown = SharedFleet::new(Fleet::new(epoch).with_admission(Arc::clone(&admission)));
        let fleets = Fleets { present: ArcSwap::from_pointee(present), admission, unknown };
        names.into_iter().for_each(|name| drop(fleets.begin(&name)));
        fleets
    }

    fn change(&self, change: impl FnOnce(&mut Present)) {
        let mut present = Present::clone(&self.present.load());
        change(&mut present);
        self.present.store(Arc::new(present));
    }

    /// A fleet, if there is one of this name.
    pub(super) fn get(&self, name: &FleetName) -> Option<SharedFleet> {
        self.present.load().fleets.get(name).cloned()
    }

    /// Every fleet.
    pub(super) fn all(&self) -> Vec<(FleetName, SharedFleet)> {
        self.present.load().fleets.iter().map(|(name, fleet)| (name.clone(), fleet.clone())).collect()
    }

    /// Where an agent waits whose fleet is not known, until the first world says whether there is one.
    pub(super) fn unknown(&self) -> Option<SharedFleet> {
        let waits = self.unknown.with(|fleet| !fleet.is_ended());
        waits.then(|| self.unknown.clone())
    }

    /// Sends those away who wait for the first world.
    pub(super) fn all_are_known(&self) {
        let ends = self.unknown.with(|fleet| {
            let ends = !fleet.is_ended();
            fleet.end();
            ends
        });
        if ends {
            self.unknown.wake();
        }
    }

    /// The epoch that every fleet is in, or enters next.
    pub(super) fn epoch(&self) -> u64 {
        self.present.load().epoch
    }

    /// Enters a higher epoch with every fleet. A lower or equal one changes nothing.
    pub(super) fn raise_epoch(&self, epoch: u64) {
        if epoch <= self.epoch() {
            return;
        }
        self.change(|present| {
            present.epoch = epoch;
            present.ended.clear();
        });
        for fleet in self.present.load().fleets.values() {
            fleet.raise_epoch(epoch);
        }
    }

    /// A fleet from now on, without anything, in the present epoch.
    pub(super) fn begin(&self, name: &FleetName) -> SharedFleet {
        let present = self.present.load();
        let generation = present.ended.get(name).copied().unwrap_or(0);
        let fleet = Fleet::new(present.epoch).after_generation(generation).with_admission(Arc::clone(&self.admission));
        let fleet = SharedFleet::new(fleet);
        self.change(|present| drop(present.fleets.insert(name.clone(), fleet.clone())));
        fleet
    }

    /// No fleet from now on: its agents are told, and keep what they run. Gives whether there was one.
    pub(super) fn end(&self, name: &FleetName) -> bool {
        let Some(fleet) = self.get(name) else { return false };
        let version = fleet.with(|fleet| {
            fleet.end();
            fleet.version()
        });
        self.change(|present| {
            present.fleets.remove(name);
            present.ended.insert(name.clone(), version.generation);
        });
        fleet.wake();
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use push::Version;
    use push::fleet::{FleetChange, Item};

    fn publish(fleet: &SharedFleet, body: &'static str) -> Version {
        let item = Item { key: journal::Key::new("listener", "tcp/80"), body: body.into(), secrets: Vec::new() };
        fleet.publish(FleetChange { puts: vec![item], ..FleetChange::default() }).version
    }

    #[test]
    fn a_fleet_that_comes_again_goes_on_from_its_last_generation() {
        let name = FleetName::new("edge", "one");
        let fleets = Fleets::new([name.clone()], 7);
        let first = fleets.get(&name).unwrap();
        publish(&first, "{}");
        assert_eq!(publish(&first, "{\"a\":1}"), Version::new(7, 2));
        assert!(fleets.end(&name) && !fleets.end(&name));
        assert!(fleets.get(&name).is_none() && first.with(|fleet| fleet.is_ended()));
        let second = fleets.begin(&name);
        assert_eq!(publish(&second, "{}"), Version::new(7, 3), "its agents take nothing older than they have");
        fleets.end(&name);
        fleets.raise_epoch(8);
        assert_eq!(publish(&fleets.begin(&name), "{}"), Version::new(8, 1), "an epoch counts anew");
    }

    #[test]
    fn a_new_fleet_enters_the_present_epoch() {
        let fleets = Fleets::new([FleetName::new("edge", "one")], 0);
        fleets.raise_epoch(3);
        fleets.raise_epoch(2);
        assert_eq!(fleets.epoch(), 3);
        assert_eq!(fleets.begin(&FleetName::new("edge", "two")).with(|fleet| fleet.epoch()), 3);
        assert!(fleets.all().iter().all(|(_, fleet)| fleet.with(|fleet| fleet.epoch()) == 3));
    }
}
