//! The fleets and what is known of them: where publications come in and verdicts come back.
//!
//! No lock is held across a wait. Whoever holds the report's lock may take a fleet's, never the other way.

mod fleets;
pub mod names;
pub mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use config::{ObjectRef, ResourceId};
use journal::mutants::{self, Mutant};
use journal::{Digest, Key};
use push::fleet::{Fleet, FleetChange, Published};
use push::grpc::SharedFleet;
use serde_json::{Value, json};
use tokio::sync::watch;
use translate::{Change, Delta, FleetName, ObjectId};

use fleets::Fleets;

use crate::identity::declared::Declared;
use crate::metrics::Metrics;
use crate::pipeline::{Target, condemned, convert};
use crate::report::{AgentNews, FleetReport, Report, StatusDocument};
use crate::watch::directory::FileFinding;

/// So many objects of the status are looked at while the report is locked.
const PART: usize = 64;

/// All fleets.
#[derive(Debug)]
pub struct Hub {
    fleets: Fleets,
    report: Mutex<Report>,
    /// Held by whoever is the next to have the report: who has just had it does not have it again before those who wait.
    turn: Mutex<()>,
    revision: watch::Sender<u64>,
    declared: watch::Sender<Arc<Declared>>,
    metrics: Metrics,
    began: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked left a whole state behind: every step ends before its lock does.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Fleets without anything, in this epoch. Others come and go with what is published.
    pub fn new(names: impl IntoIterator<Item = FleetName>, epoch: u64) -> Hub {
        let fleets = Fleets::new(names, epoch);
        let mut report = Report::default();
        for (name, _) in fleets.all() {
            report.begin_fleet(&name, push::Version::new(epoch, 0));
        }
        Hub {
            fleets,
            report: Mutex::new(report),
            turn: Mutex::new(()),
            revision: watch::Sender::new(0),
            declared: watch::Sender::default(),
            metrics: Metrics::default(),
            began: Instant::now(),
        }
    }

    /// Microseconds since the hub began: the clock of lags.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A fleet, if there is one of this name.
    pub fn fleet(&self, name: &FleetName) -> Option<SharedFleet> {
        self.fleets.get(name)
    }

    /// The fleet that an agent is served from. Before the first world is published nobody knows all of them: then it is one in
    /// which agents wait.
    pub(crate) fn fleet_to_serve(&self, name: &FleetName) -> Option<SharedFleet> {
        self.fleets.get(name).or_else(|| self.fleets.unknown())
    }

    /// The epoch of the desired state.
    pub fn epoch(&self) -> u64 {
        self.fleets.epoch()
    }

    /// Enters a higher epoch with every fleet.
    pub fn raise_epoch(&self, epoch: u64) {
        // Whoever makes or ends a fleet holds the report too, so none is left in an old epoch.
        self.tell(|report| {
            self.fleets.raise_epoch(epoch);
            for (name, fleet) in self.fleets.all() {
                let published = fleet.with(|fleet| fleet.published());
                report.published(&name, &published, self.now_us(), BTreeSet::new());
            }
        });
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Tells whenever something in the status changed.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Which fleets are declared, and every change of that. None are before the first world is published.
    pub fn declared(&self) -> watch::Receiver<Arc<Declared>> {
        self.declared.subscribe()
    }

    /// Notes which fleets are declared.
    pub(crate) fn declare(&self, new: Declared) {
        self.declared.send_if_modified(|old| {
            let changed = **old != new;
            if changed {
                *old = Arc::new(new);
            }
            changed
        });
    }

    /// Changes the report and tells who waits.
    fn tell<T>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        let mut report = self.report();
        let value = change(&mut report);
        let revision = report.revision();
        drop(report);
        self.revision.send_if_modified(|old| std::mem::replace(old, revision) != revision);
        value
    }

    /// Looks at the report.
    pub fn read<T>(&self, look: impl FnOnce(&Report) -> T) -> T {
        look(&self.report())
    }

    /// The report, when it is our turn.
    fn report(&self) -> MutexGuard<'_, Report> {
        let _turn = lock(&self.turn);
        lock(&self.report)
    }

    /// Notes why the world is held, or that it is not.
    pub fn set_held(&self, held: Option<String>) {
        self.tell(|report| report.set_held(held));
    }

    /// Notes findings of files.
    pub fn files(&self, findings: Vec<(PathBuf, Vec<FileFinding>)>) {
        self.tell(|report| report.files(findings));
    }

    /// Notes what comes into force, and what could not.
    pub fn changed(&self, changes: &[Change], faults: &[ObjectId]) {
        self.metrics.changes(changes.len());
        self.tell(|report| report.changed(changes, faults));
    }

    /// Makes the outcome of a translation the desired state of every fleet, and wakes the sessions first of all.
    pub fn publish(&self, mut delta: Delta) {
        self.tell(|report| {
            // Verdicts wait for this lock, so that none comes before its publication is known.
            let mut steps = Vec::new();
            for (name, fleet_delta) in std::mem::take(&mut delta.fleets) {
                if fleet_delta.ended {
                    if self.fleets.end(&name) {
                        tracing::warn!(fleet = %name, "the fleet is none any more; its agents keep what they run");
                        report.end_fleet(&name);
                    }
                    continue;
                }
                let fleet = self.fleets.get(&name).unwrap_or_else(|| {
                    tracing::info!(fleet = %name, "a new fleet");
                    let fleet = self.fleets.begin(&name);
                    report.begin_fleet(&name, fleet.with(|fleet| fleet.version()));
                    fleet
                });
                let puts = fleet_delta.puts.iter().map(|resource| resource.id.clone());
                let ids: Vec<ResourceId> = puts.chain(fleet_delta.removes.iter().cloned()).collect();
                steps.push((name, ids, self.step(&fleet, convert::change(fleet_delta))));
            }
            report.translated(&delta);
            for (name, ids, step) in steps {
                let objects = report.objects_of(&name, &ids);
                note(report, &name, step, objects);
            }
            // A fleet without anything is published too, so that its agents are served.
            for (name, fleet) in self.fleets.all() {
                if !fleet.with(|fleet| fleet.is_published()) {
                    note(report, &name, self.step(&fleet, FleetChange::default()), BTreeSet::new());
                }
            }
            self.fleets.all_are_known();
        });
    }

    fn step(&self, fleet: &SharedFleet, mut change: FleetChange) -> Step {
        let touched = change.puts.iter().map(|item| &item.key).chain(&change.removes).cloned().collect();
        let (published, condemned) = fleet.with(|fleet| {
            condemned::withhold_in(&mut change, fleet);
            // As long as nothing ever stopped a proxy, the bodies need not be read for it.
            let condemned = if fleet.condemns() { condemned::origins(&change) } else { BTreeMap::new() };
            (fleet.publish(change), condemned)
        });
        fleet.wake();
        Step { at_us: self.now_us(), published, touched, condemned }
    }

    /// Takes resources that killed the proxy of this agent out of the desired state. Gives whether it changed.
    pub fn condemn(&self, name: &FleetName, agent: &str, leaves: &[Digest]) -> bool {
        let Some(fleet) = self.fleets.get(name) else { return false };
        if mutants::active(Mutant::PoisonIsNotSetAside) {
            return false;
        }
        self.tell(|report| {
            let change = fleet.with(|fleet| condemned::condemn(fleet, leaves));
            if fleet.with(|fleet| fleet.is_ended()) {
                return false;
            }
            if change.puts.is_empty() && change.removes.is_empty() {
                return false;
            }
            let keys: Vec<String> = change.puts.iter().map(|item| item.key.to_string()).collect();
            tracing::error!(
                fleet = %name, resources = keys.join(" "), "these stopped a proxy; they answer 503 until their objects change"
            );
            note(report, name, self.step(&fleet, change), BTreeSet::new());
            if let Some(fleet) = report.fleet_mut(name) {
                fleet.stopped.extend(keys.into_iter().map(|key| (key, agent.to_owned())));
            }
            true
        })
    }

    /// Takes in news of an agent.
    pub fn news(&self, name: &FleetName, agent: &str, news: AgentNews) {
        let now = self.now_us();
        if let Some(lag_us) = self.tell(|report| report.news(name, agent, now, news)) {
            self.metrics.lag(Duration::from_micros(lag_us));
        }
    }

    /// What an agent of each fleet must have for everything published so far to be live.
    pub fn targets(&self) -> Vec<Target> {
        let target = |(name, fleet): (FleetName, SharedFleet)| {
            let published = fleet.with(|fleet| fleet.published());
            Target { fleet: name, version: published.version, member_version: published.member_version }
        };
        self.fleets.all().into_iter().map(target).collect()
    }

    /// Whether the first world passed the gate.
    pub fn is_published(&self) -> bool {
        self.fleets.unknown().is_none()
    }

    /// How many objects of each kind are in force.
    pub fn objects_by_kind(&self) -> BTreeMap<String, usize> {
        self.read(|report| report.objects_by_kind().clone())
    }

    /// How many objects are in force.
    pub fn objects_in_force(&self) -> usize {
        self.read(|report| report.objects_by_kind().values().sum())
    }

    /// The generation that brought the present bytes of a resource.
    pub(crate) fn generation_of(&self, name: &FleetName, id: &ResourceId) -> Option<u64> {
        self.fleets.get(name)?.with(|fleet| fleet.generation_of(&convert::key(id)))
    }

    /// The status document. It is put together in parts, so that no publication waits for the whole of it: each object
    /// is told as it was when its part was looked at.
    pub fn status(&self) -> StatusDocument {
        let generation_of = |name: &FleetName, id: &ResourceId| self.generation_of(name, id);
        let mut document = self.read(Report::document);
        let mut after = None;
        loop {
            let part = self.read(|report| report.objects_after(after.as_ref(), PART, &generation_of));
            let Some((last, _)) = part.last() else { break };
            after = Some(last.clone());
            document.objects.extend(part.into_iter().map(|(_, object)| object));
        }
        document.objects.extend(self.read(Report::file_objects));
        let mut after = None;
        loop {
            let part = self.read(|report| report.backends_after(after.as_ref(), PART));
            let Some((last, _)) = part.last() else { break };
            after = Some(last.clone());
            document.backends.extend(part.into_iter().map(|(_, backend)| backend));
        }
        document
    }

    /// What the fleets have published: names, lengths and digests, no bodies.
    pub fn debug_config(&self) -> Value {
        let one = |name: &FleetName, fleet: &Fleet| {
            let resources: Vec<Value> = fleet
                .resources()
                .map(|(key, body)| {
                    json!({
                        "resource": key.to_string(),
                        "bytes": body.len(),
                        "leaf": fleet.tree().get(key).map(|leaf| leaf.to_string()),
                        "generation": fleet.generation_of(key),
                        "secrets": fleet.secrets_of(key).iter().map(Digest::to_string).collect::<Vec<_>>(),
                    })
                })
                .collect();
            let published = fleet.published();
            json!({
                "name": name.to_string(),
                "epoch": published.version.epoch,
                "generation": published.version.generation,
                "root": published.root.to_string(),
                "memberVersion": published.member_version,
                "memberRoot": published.member_root.to_string(),
                "resources": resources,
            })
        };
        let fleets = self.fleets.all();
        let fleets: Vec<Value> = fleets.iter().map(|(name, fleet)| fleet.with(|fleet| one(name, fleet))).collect();
        json!({ "fleets": fleets })
    }
}

/// A publication that the report does not know of yet.
struct Step {
    at_us: u64,
    published: Published,
    touched: Vec<Key>,
    condemned: BTreeMap<String, BTreeSet<ObjectRef>>,
}

fn note(report: &mut Report, name: &FleetName, step: Step, objects: BTreeSet<ObjectId>) {
    let Step { at_us, published, touched, condemned } = step;
    if !published.missing_secrets.is_empty() {
        tracing::error!(fleet = %name, secrets = ?published.missing_secrets, "resources name secrets that nobody gave");
    }
    // A fleet ends under this lock, so it is there.
    let Some(fleet) = report.fleet_mut(name) else { return };
    if !fleet.condemned.is_empty() {
        touched.iter().for_each(|resource| drop(fleet.condemned.remove(&resource.to_string())));
    }
    fleet.condemned.extend(condemned);
    let FleetReport { condemned, stopped, .. } = fleet;
    stopped.retain(|resource, _| condemned.contains_key(resource));
    report.published(name, &published, at_us, objects);
    tracing::debug!(fleet = %name, version = %published.version, root = %published.root.short(), "published");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn all_fleets_share_the_places_for_agents_that_are_brought_up() {
        let names = ["a", "b"].map(|name| FleetName::new("scalws", name));
        let hub = Hub::new(names.clone(), 1);
        let [a, b] = names.map(|name| hub.fleet(&name).unwrap().with(|fleet| Arc::clone(fleet.admission())));
        let taken: Vec<_> = std::iter::from_fn(|| a.admit(true)).collect();
        assert!(!taken.is_empty());
        assert!(b.admit(true).is_none(), "a fleet has places of its own beside {} that are taken", taken.len());
    }
}
