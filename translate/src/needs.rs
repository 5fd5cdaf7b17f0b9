//! What is kept because something names it: pools with their sets, certificates with their keys, backends.

use std::collections::BTreeSet;

use config::{CertificateName, PoolName, SecretDigest};

use crate::certificate::CertificateState;
use crate::emit;
use crate::few::Map;
use crate::ledger::Ledger;
use crate::objects::NamespacedName;
use crate::outcome::BackendRef;
use crate::plain::members;
use crate::stages::Stages;
use crate::table::Table;
use crate::world::FleetName;

/// How often each thing is named, by the object that it comes from.
type Counts<K> = Table<NamespacedName, Map<K, usize>>;

/// Counts who names what.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// By Service.
    pools: Counts<(PoolName, FleetName)>,
    /// By Secret.
    certificates: Counts<(CertificateName, FleetName)>,
    /// By Service.
    backends: Counts<BackendRef>,
    /// The key that a certificate was last emitted with.
    keys: Table<(CertificateName, FleetName), SecretDigest>,
    secrets: Table<(FleetName, SecretDigest), usize>,
    stale_pools: BTreeSet<(PoolName, FleetName)>,
    stale_certificates: BTreeSet<(CertificateName, FleetName)>,
    stale_backends: BTreeSet<BackendRef>,
}

fn count<K: Ord + Clone>(counts: &mut Counts<K>, stale: &mut BTreeSet<K>, of: &NamespacedName, key: K, more: bool) {
    let named = counts.or_default(of);
    let number = named.or_default(key.clone());
    *number = if more { *number + 1 } else { number.saturating_sub(1) };
    let (first, last) = (more && *number == 1, *number == 0);
    if last {
        named.remove(&key);
        if named.is_empty() {
            counts.remove(of);
        }
    }
    if first || last {
        stale.insert(key);
    }
}

fn all<'a, K: Ord>(counts: &'a Counts<K>, of: &NamespacedName) -> impl Iterator<Item = &'a K> {
    counts.get(of).into_iter().flat_map(Map::keys)
}

fn is_named<K: Ord>(counts: &Counts<K>, of: &NamespacedName, key: &K) -> bool {
    counts.get(of).is_some_and(|named| named.contains(key))
}

impl Needs {
    pub(crate) fn pool(&mut self, fleet: &FleetName, pool: &PoolName, more: bool) {
        let service = NamespacedName::new(&pool.namespace, &pool.service);
        count(&mut self.pools, &mut self.stale_pools, &service, (pool.clone(), fleet.clone()), more);
    }

    pub(crate) fn certificate(&mut self, fleet: &FleetName, certificate: &CertificateName, more: bool) {
        let secret = NamespacedName::new(&certificate.namespace, &certificate.name);
        let key = (certificate.clone(), fleet.clone());
        count(&mut self.certificates, &mut self.stale_certificates, &secret, key, more);
    }

    pub(crate) fn backend(&mut self, backend: &BackendRef, more: bool) {
        let service = NamespacedName::new(&backend.namespace, &backend.service);
        count(&mut self.backends, &mut self.stale_backends, &service, backend.clone(), more);
    }

    /// A Service or its endpoints are different now.
    pub(crate) fn service_changed(&mut self, service: &NamespacedName) {
        self.stale_pools.extend(all(&self.pools, service).cloned());
        self.stale_backends.extend(all(&self.backends, service).cloned());
    }

    /// A Secret is different now.
    pub(crate) fn secret_changed(&mut self, secret: &NamespacedName) {
        self.stale_certificates.extend(all(&self.certificates, secret).cloned());
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
            let wanted = is_named(&self.backends, &service, &backend);
            ledger.backend(&backend, wanted.then(|| members(stages, &service, backend.port)));
        }
    }

    fn settle_pool(&self, key: &(PoolName, FleetName), stages: &Stages, ledger: &mut Ledger) {
        let (pool, fleet) = key;
        let service = NamespacedName::new(&pool.namespace, &pool.service);
        let shape = stages.backends.get(&service).and_then(|state| state.shape.as_ref());
        let shape = shape.filter(|_| is_named(&self.pools, &service, key));
        let id = config::ResourceId { kind: config::Kind::Pool, name: pool.to_name() };
        ledger.resource(fleet, &id, shape.map(|shape| emit::pool(pool, shape)));
        let set = shape.filter(|shape| shape.external.is_none());
        ledger.members(fleet, &emit::set_name(pool), set.map(|_| members(stages, &service, pool.port)));
    }

    fn settle_certificate(&mut self, key: &(CertificateName, FleetName), stages: &Stages, ledger: &mut Ledger) {
        let (certificate, fleet) = key;
        let secret = NamespacedName::new(&certificate.namespace, &certificate.name);
        let usable = match stages.certificates.get(&secret) {
            Some(CertificateState::Usable(usable)) if is_named(&self.certificates, &secret, key) => Some(usable),
            _ => None,
        };
        let id = config::ResourceId { kind: config::Kind::Certificate, name: certificate.to_name() };
        ledger.resource(fleet, &id, usable.map(|usable| emit::certificate(certificate, usable)));
        // Two certificates may share one key, so keys are counted too.
        let old = match usable {
            Some(usable) => {
                let digest = usable.digest.clone();
                *self.secrets.or_default(&(fleet.clone(), digest.clone())) += 1;
                ledger.secret(fleet, &digest, Some(usable.key.clone()));
                self.keys.insert(key.clone(), digest)
            }
            None => self.keys.remove(key),
        };
        if let Some(digest) = old {
            let place = (fleet.clone(), digest.clone());
            let number = self.secrets.or_default(&place);
            *number = number.saturating_sub(1);
            if *number == 0 {
                self.secrets.remove(&place);
                ledger.secret(fleet, &digest, None);
            }
        }
    }
}
