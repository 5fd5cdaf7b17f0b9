//! The definition: a whole world to a whole translation, every unit once, stage by stage.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{CertificateName, PoolName};

use crate::certificate::CertificateState;
use crate::objects::{NamespacedName, ObjectId};
use crate::outcome::{Draft, Members, Translation};
use crate::stages::{Registration, Stages};
use crate::view::{Unit, View};
use crate::world::{FleetName, World};
use crate::{backend, certificate, emit, fleet, gateway, host, output, parse, tls};

/// Translates a world. This is what every configuration means; [`crate::Engine`] comes to the same, change by change.
pub fn translate(world: &World) -> Translation {
    let mut stages = Stages::default();
    let mut translation = Translation::default();
    fleets(world, &mut stages, &mut translation);
    parse_all(world, &mut stages);
    claim_all(world, &mut stages);
    let mut certificates: BTreeSet<(FleetName, CertificateName)> = BTreeSet::new();
    let mut pools: BTreeSet<(FleetName, PoolName)> = BTreeSet::new();
    for (key, state) in stages.hosts.sorted() {
        let Some(fleet) = translation.fleets.get_mut(&key.fleet) else { continue };
        let resources = emit::host(key, state);
        if !resources.is_empty() {
            let used = state.tls.iter().flat_map(|tls| &tls.certificates);
            certificates.extend(used.map(|name| (key.fleet.clone(), name.clone())));
        }
        fleet.resources.extend(resources.into_iter().map(|r| (r.id.clone(), r)));
    }
    for (key, _) in stages.ours() {
        let unit = Unit::Output(key.clone());
        let Some(output) = output::output(&View::new(world, &stages, &unit), key) else { continue };
        if let Some(name) = &output.fleet
            && let Some(fleet) = translation.fleets.get_mut(name)
        {
            fleet.resources.extend(output.fragments.into_iter().map(|resource| (resource.id.clone(), resource)));
            pools.extend(output.pools.into_iter().map(|pool| (name.clone(), pool)));
        }
        for backend in output.backends {
            let service = NamespacedName::new(&backend.namespace, &backend.service);
            translation.backends.insert(backend.clone(), members(&stages, &service, backend.port));
        }
        let draft: Arc<Draft> = output.draft;
        translation.drafts.insert(ObjectId::new("Ingress", key.clone()), draft);
    }
    for object in world.gateway_objects() {
        translation.drafts.extend(gateway::draft(object).map(|draft| (object.id(), draft)));
    }
    for (name, pool) in pools {
        let service = NamespacedName::new(&pool.namespace, &pool.service);
        let Some(fleet) = translation.fleets.get_mut(&name) else { continue };
        let Some(shape) = stages.backends.get(&service).and_then(|state| state.shape.as_ref()) else { continue };
        let resource = emit::pool(&pool, shape);
        fleet.resources.insert(resource.id.clone(), resource);
        if shape.external.is_none() {
            fleet.members.insert(emit::set_name(&pool), members(&stages, &service, pool.port));
        }
    }
    for (name, certificate) in certificates {
        let secret = NamespacedName::new(&certificate.namespace, &certificate.name);
        let Some(fleet) = translation.fleets.get_mut(&name) else { continue };
        let Some(CertificateState::Usable(usable)) = stages.certificates.get(&secret) else { continue };
        let resource = emit::certificate(&certificate, usable);
        fleet.resources.insert(resource.id.clone(), resource);
        fleet.secrets.insert(usable.digest.clone(), usable.key.clone());
    }
    translation
}

/// The members behind a port; none while the Service has no such port.
pub(crate) fn members(stages: &Stages, service: &NamespacedName, port: u16) -> Members {
    let known = stages.backends.get(service).and_then(|state| state.members.get(&port));
    known.cloned().unwrap_or_else(|| Members::from([]))
}

fn fleets(world: &World, stages: &mut Stages, translation: &mut Translation) {
    for name in world.fleet_names() {
        let unit = Unit::Fleet(name.clone());
        let view = View::new(world, stages, &unit);
        let draft = fleet::draft(&view, &name);
        translation.drafts.extend(draft.map(|draft| (ObjectId::new("ProxyFleet", name.key().clone()), draft)));
        let Some(state) = fleet::state(world.settings(), &name, view.proxy_fleet(&name)) else { continue };
        if let Some(settings) = state.settings() {
            let fleet = translation.fleets.entry(name.clone()).or_default();
            fleet.resources.extend(emit::listeners(settings).into_iter().map(|r| (r.id.clone(), r)));
        }
        stages.fleets.insert(name, state);
    }
}

fn parse_all(world: &World, stages: &mut Stages) {
    for key in world.ingress_keys() {
        let unit = Unit::Parse(key.clone());
        if let Some(parsed) = parse::parse(&View::new(world, stages, &unit), key) {
            stages.ingresses.or_default(key).parsed = Some(Arc::new(parsed));
        }
    }
    let services: BTreeSet<_> = stages.ours().flat_map(|(_, parsed)| parsed.services()).collect();
    for key in services {
        let state = backend::read(&View::new(world, stages, &Unit::Backend(key.clone())), &key);
        stages.backends.insert(key, state);
    }
    let secrets: BTreeSet<_> = stages.ours().flat_map(|(_, parsed)| parsed.secrets()).collect();
    for key in secrets {
        let view = View::new(world, stages, &Unit::Certificate(key.clone()));
        let state = certificate::read(view.secret(&key));
        stages.certificates.insert(key, state);
    }
    let keys: Vec<NamespacedName> = stages.ours().map(|(key, _)| key.clone()).collect();
    for key in keys {
        let unit = Unit::Tls(key.clone());
        let choices = tls::choose(&View::new(world, stages, &unit), &key);
        stages.ingresses.or_default(&key).tls = choices.map(Arc::new);
    }
}

fn claim_all(world: &World, stages: &mut Stages) {
    for (_, ingress) in stages.ingresses.sorted() {
        let Some(parsed) = &ingress.parsed else { continue };
        let claims = Registration::new(parsed, ingress.tls.as_deref());
        for (host, (claimant, certificates)) in claims.hosts {
            stages.claims.add_host(host, claimant, &certificates);
        }
        for (slot, contender) in claims.slots {
            stages.claims.add_path(slot, contender);
        }
    }
    let units: BTreeSet<Unit> = stages.claims.host_keys().cloned().map(Unit::host).collect();
    for unit in units {
        let Unit::Host(_, key) = &unit else { continue };
        if let Some(state) = host::decide(&View::new(world, stages, &unit), key) {
            stages.hosts.insert(key.clone(), Arc::new(state));
        }
    }
}
