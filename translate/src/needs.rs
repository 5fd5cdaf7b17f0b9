//! What is kept because something names it: pools with their sets, certificates with their keys, backends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use config::{CertificateName, PoolName, SecretDigest};

use crate::certificate::CertificateState;
use crate::emit;
use crate::ledger::Ledger;
use crate::objects::NamespacedName;
use crate::outcome::BackendRef;
use crate::plain::members;
use crate::stages::Stages;
use crate::world::FleetName;

/// Counts who names what. Keys start with the object that the thing comes from, so that its things are found by range.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pools: BTreeMap<(PoolName, FleetName), usize>,
    certificates: BTreeMap<(CertificateName, FleetName), usize>,
    backends: BTreeMap<BackendRef, usize>,
    /// The key that a certificate was last emitted with.
    keys: BTreeMap<(CertificateName, FleetName), SecretDigest>,
    secrets: BTreeMap<(FleetName, SecretDigest), usize>,
    stale_pools: BTreeSet<(PoolName, FleetName)>,
    stale_certificates: BTreeSet<(CertificateName, FleetName)>,
    stale_backends: BTreeSet<BackendRef>,
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, stale: &mut BTreeSet<K>, key: K, more: bool) {
    let number = counts.entry(key.clone()).or_default();
    *number = if more { *number + 1 } else { number.saturating_sub(1) };
    let (first, last) = (more && *number == 1, *number == 0);
    if last {
        counts.remove(&key);
    }
    if first || last {
        stale.insert(key);
    }
}

impl Needs {
    pub(crate) fn pool(&mut self, fleet: &FleetName, pool: &PoolName, more: bool) {
        count(&mut self.pools, &mut self.stale_pools, (pool.clone(), fleet.clone()), more);
    }

    pub(crate) fn certificate(&mut self, fleet: &FleetName, certificate: &CertificateName, more: bool) {
        count(&mut self.certificates, &mut self.stale_certificates, (certificate.clone(), fleet.clone()), more);
    }

    pub(crate) fn backend(&mut self, backend: &BackendRef, more: bool) {
        count(&mut self.backends, &mut self.stale_backends, backend.clone(), more);
    }

    /// A Service or its endpoints are different now.
    pub(crate) fn service_changed(&mut self, service: &NamespacedName) {
        let (namespace, name) = (service.namespace.clone(), service.name.clone());
        let pool = PoolName { namespace: namespace.clone(), service: name.clone(), port: 0, variant: String::new() };
        let from = (Bound::Included((pool, FleetName::default())), Bound::Unbounded);
        let of_service = |pool: &PoolName| pool.namespace == service.namespace && pool.service == service.name;
        let pools = self.pools.range(from).map(|(key, _)| key).take_while(|(pool, _)| of_service(pool));
        self.stale_pools.extend(pools.cloned());
        let from = BackendRef { namespace, service: name, port: 0 };
        let backends = self.backends.range(from..).map(|(backend, _)| backend);
        let backends = backends.take_while(|b| b.namespace == service.namespace && b.service == service.name);
        self.stale_backends.extend(backends.cloned());
    }

    /// A Secret is different now.
    pub(crate) fn secret_changed(&mut self, secret: &NamespacedName) {
        let name = CertificateName { namespace: secret.namespace.clone(), name: secret.name.clone() };
        let from = (Bound::Included((name.clone(), FleetName::default())), Bound::Unbounded);
        let certificates = self.certificates.range(from).map(|(key, _)| key).take_while(|(other, _)| *other == name);
        self.stale_certificates.extend(certificates.cloned());
    }

    /// Brings everything stale up to date.
    pub(crate) fn settle(&mut self, stages: &Stages, ledger: &mut Ledger) {
        for key in std::mem::take(&mut self.stale_pools) {
            self.settle_pool(&key, stages, ledger);
        }
        for key in std::mem::take(&mut self.stale_certificates) {
            self.settle_certificate(&key, stages, ledger);
        }
        for backend in std::mem::take(&mut self.stale_backends) {
            let service = NamespacedName::new(&backend.namespace, &backend.service);
            let wanted = self.backends.contains_key(&backend);
            ledger.backend(&backend, wanted.then(|| members(stages, &service, backend.port)));
        }
    }

    fn settle_pool(&self, key: &(PoolName, FleetName), stages: &Stages, ledger: &mut Ledger) {
        let (pool, fleet) = key;
        let service = NamespacedName::new(&pool.namespace, &pool.service);
        let shape = stages.backends.get(&service).and_then(|state| state.shape.as_ref());
        let shape = shape.filter(|_| self.pools.contains_key(key));
        let id = config::ResourceId { kind: config::Kind::Pool, name: pool.to_name() };
        ledger.resource(fleet, &id, shape.map(|shape| emit::pool(pool, shape)));
        let set = shape.filter(|shape| shape.external.is_none());
        ledger.members(fleet, &emit::set_name(pool), set.map(|_| members(stages, &service, pool.port)));
    }

    fn settle_certificate(&mut self, key: &(CertificateName, FleetName), stages: &Stages, ledger: &mut Ledger) {
        let (certificate, fleet) = key;
        let secret = NamespacedName::new(&certificate.namespace, &certificate.name);
        let usable = match stages.certificates.get(&secret) {
            Some(CertificateState::Usable(usable)) if self.certificates.contains_key(key) => Some(usable),
            _ => None,
        };
        let id = config::ResourceId { kind: config::Kind::Certificate, name: certificate.to_name() };
        ledger.resource(fleet, &id, usable.map(|usable| emit::certificate(certificate, usable)));
        // Two certificates may share one key, so keys are counted too.
        let old = match usable {
            Some(usable) => {
                let digest = usable.digest.clone();
                *self.secrets.entry((fleet.clone(), digest.clone())).or_default() += 1;
                ledger.secret(fleet, &digest, Some(usable.key.clone()));
                self.keys.insert(key.clone(), digest)
            }
            None => self.keys.remove(key),
        };
        if let Some(digest) = old {
            let place = (fleet.clone(), digest.clone());
            let number = self.secrets.entry(place.clone()).or_default();
            *number = number.saturating_sub(1);
            if *number == 0 {
                self.secrets.remove(&place);
                ledger.secret(fleet, &digest, None);
            }
        }
    }
}
