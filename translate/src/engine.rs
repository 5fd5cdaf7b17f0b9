//! The engine: changes in, differences out, at the cost of the change.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::claims::{HostClaims, HostKey};
use crate::few::Set;
use crate::fleet::FleetState;
use crate::ledger::Ledger;
use crate::needs::Needs;
use crate::objects::{NamespacedName, Object, ObjectId};
use crate::outcome::{Delta, Translation};
use crate::output::Output;
use crate::parse::Parsed;
use crate::stages::{IngressStages, Registration, Stages};
use crate::table::Table;
use crate::tls::TlsChoices;
use crate::view::{Key, Unit, View};
use crate::world::{Change, FleetName, Settings, World};
use crate::{backend, certificate, emit, fleet, gateway, host, output, parse, tls};

/// Keeps a world and its translation, and tells what each change makes different.
///
/// After every step the translation equals [`crate::translate`] of the world. Units run in fixed stages; those run whose
/// declared reads changed, and a unit whose result stays the same wakes nobody.
#[derive(Debug)]
pub struct Engine {
    world: World,
    stages: Stages,
    ledger: Ledger,
    needs: Needs,
    dependents: Table<Key, Set<Unit>>,
    host_reads: Table<Unit, Box<[Key]>>,
    queue: BTreeSet<Unit>,
    started: bool,
    units_run: usize,
}

impl Engine {
    /// Over an empty world. Nothing is translated before the first [`Engine::apply`], whose delta holds everything.
    pub fn new(settings: Settings) -> Engine {
        Engine {
            world: World::new(settings),
            stages: Stages::default(),
            ledger: Ledger::default(),
            needs: Needs::default(),
            dependents: Table::default(),
            host_reads: Table::default(),
            queue: BTreeSet::new(),
            started: false,
            units_run: 0,
        }
    }

    /// Takes in changes, in their order, as one step.
    ///
    /// The cost of an object is that of what depends on it, however large the world is. An IngressClass costs what all
    /// its Ingresses cost, and so does a ProxyFleet; other settings cost what the whole world costs.
    pub fn apply(&mut self, changes: Vec<Change>) -> Delta {
        self.units_run = 0;
        let anew = !self.started
            || changes.iter().any(|change| matches!(change, Change::Settings(new) if new != self.world.settings()));
        if anew {
            changes.iter().for_each(|change| self.world.apply(change));
            return self.start_anew();
        }
        for change in &changes {
            self.take(change);
        }
        self.run();
        self.ledger.finish()
    }

    /// What the world comes to now. Costs what the world is large.
    pub fn translation(&self) -> Translation {
        self.ledger.translation()
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// How many units the last step ran: the measure of what it cost.
    pub fn units_run(&self) -> usize {
        self.units_run
    }

    fn start_anew(&mut self) -> Delta {
        let old = self.started.then(|| self.translation());
        let world = std::mem::replace(&mut self.world, World::new(Settings::local(80, 443)));
        *self = Engine { world, started: true, ..Engine::new(Settings::local(80, 443)) };
        for object in self.world.gateway_objects() {
            self.ledger.draft(&object.id(), gateway::draft(object));
        }
        self.queue.extend(self.world.fleet_names().into_iter().map(Unit::Fleet));
        self.queue.extend(self.world.ingress_keys().cloned().map(Unit::Parse));
        self.run();
        let whole = self.ledger.finish();
        // What was made anew is not what changed, unless there was nothing before.
        old.map_or(whole, |old| old.difference(&self.translation()))
    }

    /// Takes in one change and wakes the units that read what it changes.
    fn take(&mut self, change: &Change) {
        let (id, new): (ObjectId, _) = match change {
            Change::Settings(_) => return,
            Change::Put(object) => (object.id(), Some(object)),
            Change::Delete(reference) => (reference.into(), None),
        };
        let old = self.world.object(&id).cloned();
        if old.as_ref() == new {
            return;
        }
        self.world.apply(change);
        if old.as_ref().or(new).is_some_and(|object| matches!(object.as_ref(), Object::Gateway(_))) {
            self.ledger.draft(&id, new.and_then(|object| gateway::draft(object)));
        }
        for object in [old.as_ref(), new].into_iter().flatten() {
            let key = object.key().clone();
            if let Some(fleet) = fleet::named_by(self.world.settings(), object) {
                self.touch(&Key::Consent(fleet));
            }
            match object.as_ref() {
                Object::ProxyFleet(_) => self.touch(&Key::ProxyFleet(FleetName::of(&key))),
                Object::Ingress(_) => self.touch(&Key::Ingress(key)),
                Object::IngressClass(class) => {
                    self.touch(&Key::Class(class.metadata.name().into()));
                    self.touch(&Key::DefaultClass);
                    // A class of the name of the one that exists by itself takes its place.
                    self.touch(&Key::Consent(self.world.settings().default_fleet.clone()));
                }
                Object::Service(_) => self.touch(&Key::Service(key)),
                Object::EndpointSlice(slice) => {
                    if let Some(service) = slice.service() {
                        self.touch(&Key::Slices(service));
                    }
                }
                Object::Secret(_) => self.touch(&Key::Secret(key)),
                Object::ConfigMap(_) | Object::Namespace(_) | Object::Gateway(_) => {}
            }
        }
    }

    /// Wakes every unit that reads a key.
    fn touch(&mut self, key: &Key) {
        if let Some(unit) = key.reader() {
            // Services and Secrets that nobody asks for have no unit.
            if unit.product().is_none_or(|product| self.dependents.contains_key(&product)) {
                self.queue.insert(unit);
            }
            return;
        }
        match key {
            Key::Fleet(fleet) => {
                let readers = self.readers_of_fleet(fleet);
                self.queue.extend(readers);
            }
            Key::Host(host) => {
                let claimants = self.stages.claims.host(host).into_iter().flat_map(HostClaims::all);
                self.queue.extend(claimants.map(|claimant| Unit::Output(claimant.ingress.clone())));
            }
            Key::Path(slot) => {
                let contenders = self.stages.claims.contenders(slot);
                self.queue.extend(contenders.map(|contender| Unit::Output(contender.claimant.ingress.clone())));
            }
            _ => {}
        }
        if let Some(units) = self.dependents.get(key) {
            self.queue.extend(units.keys().cloned());
        }
    }

    /// Who reads what a fleet is like: Ingresses whose class names it, with their hosts. A class that named it before and does
    /// not now has woken its Ingresses itself.
    fn readers_of_fleet(&self, name: &FleetName) -> Vec<Unit> {
        let mut readers = Vec::new();
        let classes = fleet::class_keys(&self.world, name);
        for unit in classes.iter().filter_map(|class| self.dependents.get(class)).flat_map(Set::keys) {
            let Unit::Parse(key) = unit else { continue };
            readers.push(unit.clone());
            if let Some(parsed) = self.stages.parsed(key).filter(|parsed| parsed.fleet.as_ref() == Some(name)) {
                readers.push(Unit::Output(key.clone()));
                readers.extend(parsed.hosts().map(Unit::host));
            }
        }
        readers
    }

    /// Where the indexed reads of a unit are kept.
    fn reads(&mut self, unit: &Unit) -> &mut Box<[Key]> {
        let (key, number) = match unit {
            Unit::Parse(key) => (key, 0),
            Unit::Tls(key) => (key, 1),
            Unit::Output(key) => (key, 2),
            Unit::Fleet(_) | Unit::Host(..) | Unit::Backend(_) | Unit::Certificate(_) => {
                return self.host_reads.or_default(unit);
            }
        };
        let ingress = self.stages.ingresses.or_default(key);
        &mut ingress.reads[number]
    }

    /// Replaces what a unit declares to read. Services and Secrets are read only while somebody asks for them.
    fn declare(&mut self, unit: &Unit, mut keys: Vec<Key>) {
        keys.retain(|key| key.is_indexed_for(unit));
        let reads = self.reads(unit);
        if **reads == *keys {
            return;
        }
        let old = std::mem::replace(reads, keys.as_slice().into());
        for key in old.iter().filter(|key| keys.binary_search(key).is_err()) {
            if let Some(units) = self.dependents.get_mut(key) {
                units.remove(unit);
                if units.is_empty() {
                    self.dependents.remove(key);
                    self.queue.extend(key.source());
                }
            }
        }
        for key in keys.iter().filter(|key| old.binary_search(key).is_err()) {
            let units = self.dependents.or_default(key);
            if units.is_empty() {
                self.queue.extend(key.source());
            }
            units.insert(unit.clone(), ());
        }
    }

    /// Forgets an Ingress of which nothing is left.
    fn prune(&mut self, key: &NamespacedName) {
        if self.stages.ingresses.get(key).is_some_and(|ingress| *ingress == IngressStages::default()) {
            self.stages.ingresses.remove(key);
        }
    }

    fn run(&mut self) {
        // Units wake only later units, so each runs once.
        while let Some(unit) = self.queue.pop_first() {
            self.units_run += 1;
            match &unit {
                Unit::Fleet(name) => self.fleet(&unit, name),
                Unit::Parse(key) => self.parse(&unit, key),
                Unit::Backend(key) => self.backend(&unit, key),
                Unit::Certificate(key) => self.certificate(&unit, key),
                Unit::Tls(key) => self.tls(&unit, key),
                Unit::Host(_, key) => self.host(&unit, key),
                Unit::Output(key) => self.output(&unit, key),
            }
            debug_assert!(self.queue.first().is_none_or(|next| *next > unit), "{unit:?} woke an earlier unit");
        }
        self.needs.settle(&self.stages, &mut self.ledger);
    }

    fn fleet(&mut self, unit: &Unit, name: &FleetName) {
        let view = View::new(&self.world, &self.stages, unit);
        let draft = fleet::draft(&view, name);
        let new = fleet::state(self.world.settings(), name, view.proxy_fleet(name));
        self.ledger.draft(&ObjectId::new("ProxyFleet", name.key().clone()), draft);
        let old = match &new {
            Some(new) => self.stages.fleets.insert(name.clone(), new.clone()),
            None => self.stages.fleets.remove(name),
        };
        if old == new {
            return;
        }
        let listeners = |state: &Option<FleetState>| state.as_ref().and_then(FleetState::settings).map(emit::listeners);
        match listeners(&new) {
            None => self.ledger.end_fleet(name),
            Some(new) => {
                self.ledger.fleet(name);
                for listener in listeners(&old).into_iter().flatten() {
                    self.ledger.resource(name, &listener.id, None);
                }
                for listener in new {
                    let id = listener.id.clone();
                    self.ledger.resource(name, &id, Some(listener));
                }
            }
        }
        self.touch(&Key::Fleet(name.clone()));
    }

    fn parse(&mut self, unit: &Unit, key: &NamespacedName) {
        let exists = self.world.ingress(key).is_some();
        let refs = if exists { unit.refs(&self.world, &self.stages) } else { Vec::new() };
        self.declare(unit, refs);
        let new = parse::parse(&View::new(&self.world, &self.stages, unit), key);
        let ours = new.is_some();
        let ingress = self.stages.ingresses.or_default(key);
        if ingress.parsed.as_deref() == new.as_ref() {
            self.prune(key);
            return;
        }
        ingress.parsed = new.map(Arc::new);
        for later in [Unit::Tls(key.clone()), Unit::Output(key.clone())] {
            let refs = if ours { later.refs(&self.world, &self.stages) } else { Vec::new() };
            self.declare(&later, refs);
            self.queue.insert(later);
        }
    }

    fn backend(&mut self, unit: &Unit, key: &NamespacedName) {
        if !self.dependents.contains_key(&Key::Backend(key.clone())) {
            if self.stages.backends.remove(key).is_some() {
                self.needs.service_changed(key);
            }
            return;
        }
        let new = backend::read(&View::new(&self.world, &self.stages, unit), key);
        let old = self.stages.backends.insert(key.clone(), new.clone());
        if old.as_ref() != Some(&new) {
            self.needs.service_changed(key);
        }
        // Ingresses look at the shape alone: endpoints that come and go wake none of them.
        if old.is_none_or(|old| old.shape != new.shape) {
            self.touch(&Key::Backend(key.clone()));
        }
    }

    fn certificate(&mut self, unit: &Unit, key: &NamespacedName) {
        if !self.dependents.contains_key(&Key::Certificate(key.clone())) {
            if self.stages.certificates.remove(key).is_some() {
                self.needs.secret_changed(key);
            }
            return;
        }
        let new = certificate::read(View::new(&self.world, &self.stages, unit).secret(key));
        let old = self.stages.certificates.insert(key.clone(), new.clone());
        if old.as_ref() != Some(&new) {
            self.needs.secret_changed(key);
            self.touch(&Key::Certificate(key.clone()));
        }
    }

    fn tls(&mut self, unit: &Unit, key: &NamespacedName) {
        let new = tls::choose(&View::new(&self.world, &self.stages, unit), key);
        let ingress = self.stages.ingresses.or_default(key);
        if ingress.tls.as_deref() != new.as_ref() {
            ingress.tls = new.map(Arc::new);
            self.touch(&Key::Tls(key.clone()));
        }
        self.register(key);
    }

    /// Brings the indexes of claims up to date with one Ingress.
    fn register(&mut self, key: &NamespacedName) {
        let Some(ingress) = self.stages.ingresses.get_mut(key) else { return };
        let new = ingress.parsed.clone().map(|parsed| (parsed, ingress.tls.clone()));
        if ingress.registered == new {
            return;
        }
        let registration = |of: &Option<(Arc<Parsed>, Option<Arc<TlsChoices>>)>| {
            let made = of.as_ref().map(|(parsed, tls)| Registration::new(parsed, tls.as_deref()));
            made.unwrap_or_default()
        };
        let (old, new) = (registration(&std::mem::replace(&mut ingress.registered, new.clone())), registration(&new));
        let mut hosts = BTreeSet::new();
        for (host, claim) in &old.hosts {
            if new.hosts.get(host) != Some(claim) {
                self.stages.claims.remove_host(host, &claim.0);
                hosts.insert(host.clone());
            }
        }
        for (host, claim) in &new.hosts {
            if old.hosts.get(host) != Some(claim) {
                self.stages.claims.add_host(host.clone(), claim.0.clone(), &claim.1);
                hosts.insert(host.clone());
            }
        }
        for host in hosts {
            self.touch(&Key::Claims(host));
        }
        for (slot, contender) in old.slots.iter().filter(|slot| new.slots.binary_search(slot).is_err()) {
            if self.stages.claims.remove_path(slot, contender) {
                self.touch(&Key::Path(slot.clone()));
            }
        }
        for (slot, contender) in new.slots.iter().filter(|slot| old.slots.binary_search(slot).is_err()) {
            if self.stages.claims.add_path(slot.clone(), contender.clone()) {
                self.touch(&Key::Path(slot.clone()));
            }
        }
    }

    fn host(&mut self, unit: &Unit, key: &HostKey) {
        let claimed = self.stages.claims.host(key).is_some();
        let refs = if claimed { unit.refs(&self.world, &self.stages) } else { Vec::new() };
        self.declare(unit, refs);
        if !claimed {
            self.host_reads.remove(unit);
        }
        let new = if claimed { host::decide(&View::new(&self.world, &self.stages, unit), key) } else { None };
        let old = self.stages.hosts.get(key).cloned();
        if old.as_deref() == new.as_ref() {
            return;
        }
        for id in old.iter().flat_map(|state| emit::host_ids(key, &state.listeners)) {
            self.ledger.resource(&key.fleet, &id, None);
        }
        for resource in new.iter().flat_map(|state| emit::host(key, state)) {
            let id = resource.id.clone();
            self.ledger.resource(&key.fleet, &id, Some(resource));
        }
        let served = |state: Option<&host::HostState>| {
            let state = state.filter(|state| state.first.is_some());
            state.and_then(|state| state.tls.as_ref()).map(|tls| tls.certificates.clone()).unwrap_or_default()
        };
        for certificate in served(new.as_ref()) {
            self.needs.certificate(&key.fleet, &certificate, true);
        }
        for certificate in served(old.as_deref()) {
            self.needs.certificate(&key.fleet, &certificate, false);
        }
        match new {
            Some(new) => drop(self.stages.hosts.insert(key.clone(), Arc::new(new))),
            None => drop(self.stages.hosts.remove(key)),
        }
        self.touch(&Key::Host(key.clone()));
    }

    fn output(&mut self, unit: &Unit, key: &NamespacedName) {
        let new = output::output(&View::new(&self.world, &self.stages, unit), key);
        let ingress = self.stages.ingresses.or_default(key);
        if ingress.output.as_deref() == new.as_ref() {
            self.prune(key);
            return;
        }
        let new = new.map(Arc::new);
        let old = std::mem::replace(&mut ingress.output, new.clone());
        self.count(new.as_deref(), true);
        self.count(old.as_deref(), false);
        if let Some(old) = &old
            && let Some(fleet) = &old.fleet
        {
            let stays = |id| new.as_ref().is_some_and(|new| new.fleet == old.fleet && new.fragment(id).is_some());
            for id in old.fragments.iter().map(|resource| &resource.id).filter(|id| !stays(id)) {
                self.ledger.resource(fleet, id, None);
            }
        }
        let draft = new.as_ref().map(|new| Arc::clone(&new.draft));
        self.ledger.draft(&ObjectId::new("Ingress", key.clone()), draft);
        if let Some(new) = &new
            && let Some(fleet) = &new.fleet
        {
            for resource in &new.fragments {
                self.ledger.resource(fleet, &resource.id, Some(resource.clone()));
            }
        }
        self.prune(key);
    }

    fn count(&mut self, output: Option<&Output>, more: bool) {
        let Some(output) = output else { return };
        if let Some(fleet) = &output.fleet {
            output.pools.iter().for_each(|pool| self.needs.pool(fleet, pool, more));
        }
        output.backends.iter().for_each(|backend| self.needs.backend(backend, more));
    }
}
