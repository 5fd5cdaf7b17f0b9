//! The loaded resources and what is built from them. A change rebuilds what it touches and what refers to that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use config::{Body, CertificateName, Kind, Loaded, PoolName, ResourceId, TypedName};
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;

use crate::build::Builder;
use crate::not_live::{Fault, Faults};
use crate::pool::Pool;
use crate::snapshot::{Host, Router, Snapshot, Speaks};

/// A resource that changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which.
    pub id: ResourceId,
    /// Its new bytes; `None` when it is gone.
    pub bytes: Option<Bytes>,
}

/// What is loaded. One writer; readers get [`Snapshot`]s.
#[derive(Debug, Default)]
pub struct State {
    resources: BTreeMap<ResourceId, Held>,
    /// By what is named: those that name it.
    referrers: BTreeMap<ResourceId, BTreeSet<ResourceId>>,
    faults: Faults,
    pub(crate) pools: BTreeMap<PoolName, Arc<Pool>>,
    pub(crate) certificates: BTreeMap<CertificateName, Arc<CertifiedKey>>,
    snapshot: Snapshot,
}

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    names: Vec<ResourceId>,
}

/// Work of one change.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) router: Vec<router::Change<crate::route::Routes, Host>>,
    /// Hosts with the same certificates share a configuration.
    pub(crate) tls: BTreeMap<Vec<CertificateName>, Arc<ServerConfig>>,
}

impl State {
    /// What requests see.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// What is not live, by `kind/name`.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How many resources are loaded.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Loads changes. Costs what changes and what refers to that.
    ///
    /// # Errors
    /// When an envelope does not decode: a controller's bug. Nothing changed.
    pub fn apply(&mut self, changes: Vec<Change>, builder: &Builder) -> Result<(), Vec<String>> {
        let mut decoded = BTreeMap::new();
        let mut errors = Vec::new();
        for Change { id, bytes } in changes {
            let loaded = bytes.map(|bytes| config::load(id.clone(), &bytes).map(|loaded| (bytes, loaded)));
            match loaded.transpose() {
                Ok(loaded) => {
                    decoded.insert(id, loaded);
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut touched: BTreeSet<ResourceId> = BTreeSet::new();
        let mut loaded = BTreeMap::new();
        for (id, new) in decoded {
            self.hold(&id, new.as_ref());
            touched.extend(self.referrers.get(&id).into_iter().flatten().cloned());
            touched.insert(id.clone());
            if let Some((_, new)) = new {
                loaded.insert(id, new);
            }
        }
        self.rebuild(&touched, loaded, builder);
        Ok(())
    }

    /// Builds once more what is not live because of its environment. Says whether anything came to life.
    pub fn retry(&mut self, builder: &Builder) -> bool {
        let environment = |fault: &Fault| journal::admin::codes::is_environment(fault.code);
        let before: Vec<String> =
            self.faults.iter().filter(|(_, fault)| environment(fault)).map(|(name, _)| name.clone()).collect();
        let failing = |id: &ResourceId| before.binary_search(&id.to_string()).is_ok();
        let failing: Vec<ResourceId> = self.resources.keys().filter(|id| failing(id)).cloned().collect();
        let mut touched: BTreeSet<ResourceId> = failing.iter().cloned().collect();
        for id in &failing {
            touched.extend(self.referrers.get(id).into_iter().flatten().cloned());
        }
        self.rebuild(&touched, BTreeMap::new(), builder);
        before.iter().any(|name| !self.faults.get(name).is_some_and(environment))
    }

    /// Says again what was said before something went wrong.
    pub(crate) fn put_faults_back(&mut self, faults: Faults) {
        self.faults = faults;
    }

    fn hold(&mut self, id: &ResourceId, new: Option<&(Bytes, Loaded)>) {
        let names = new.map(|(_, loaded)| names_in(loaded)).unwrap_or_default();
        for named in &names {
            self.referrers.entry(named.clone()).or_default().insert(id.clone());
        }
        let old = match new {
            Some((bytes, _)) => self.resources.insert(id.clone(), Held { bytes: bytes.clone(), names: names.clone() }),
            None => self.resources.remove(id),
        };
        for named in old.into_iter().flat_map(|held| held.names) {
            if !names.contains(&named)
                && let Some(referrers) = self.referrers.get_mut(&named)
            {
                referrers.remove(id);
                if referrers.is_empty() {
                    self.referrers.remove(&named);
                }
            }
        }
    }

    fn rebuild(&mut self, touched: &BTreeSet<ResourceId>, mut loaded: BTreeMap<ResourceId, Loaded>, builder: &Builder) {
        let mut batch = Batch::default();
        // What is named is built before what names it.
        for kind in Kind::ALL {
            for id in touched.iter().filter(|id| id.kind == kind) {
                self.faults.remove(&id.to_string());
                let Some(held) = self.resources.get(id) else {
                    self.unbuild(id, &mut batch);
                    continue;
                };
                // What was only touched is read again: it decoded before.
                let new = match loaded.remove(id) {
                    Some(new) => Ok(new),
                    None => config::load(id.clone(), &held.bytes),
                };
                let dangling = held.names.iter().find(|named| !self.resources.contains_key(named));
                let dangling = dangling.map(|named| Fault::missing(format!("it names {named}, which is not there")));
                let result = match new {
                    Ok(new) => builder.build(new, self, &mut batch),
                    Err(error) => Err(Fault::invalid(error.to_string())),
                };
                if let Some(fault) = result.err().or(dangling) {
                    self.faults.insert(id.to_string(), fault);
                }
            }
        }
        if !batch.router.is_empty() {
            self.snapshot.router = self.snapshot.router.update(batch.router);
        }
    }

    fn unbuild(&mut self, id: &ResourceId, batch: &mut Batch) {
        // A name that does not read was never held.
        let Ok(name) = TypedName::of(id) else { return };
        match name {
            TypedName::Listener(name) => {
                self.snapshot.listeners.remove(&name);
            }
            TypedName::Certificate(name) => {
                self.certificates.remove(&name);
            }
            TypedName::Pool(name) => {
                self.pools.remove(&name);
            }
            TypedName::Policy(_) => {}
            TypedName::Host(name) => batch.router.push(router::Change::NoHost(name)),
            TypedName::Fragment(name) => batch.router.push(router::Change::NoFragment(name)),
        }
    }

    pub(crate) fn set_listener(&mut self, name: config::ListenerName, speaks: Option<Speaks>) {
        match speaks {
            Some(speaks) => self.snapshot.listeners.insert(name, Arc::new(speaks)),
            None => self.snapshot.listeners.remove(&name),
        };
    }

    /// The router, for views.
    pub fn router(&self) -> &Router {
        &self.snapshot.router
    }
}

/// What a resource names, sorted, each once. Listeners are left out: nothing is rebuilt when one comes or goes.
fn names_in(loaded: &Loaded) -> Vec<ResourceId> {
    let config::State::Live(body) = &loaded.state else { return Vec::new() };
    let certificate = |name: &CertificateName| ResourceId { kind: Kind::Certificate, name: name.to_name() };
    let pool = |name: &PoolName| ResourceId { kind: Kind::Pool, name: name.to_name() };
    let mut names = BTreeSet::new();
    match body {
        Body::Listener(body) => {
            names.extend(body.default_certificate.as_ref().map(certificate));
            names.extend(body.pool.as_ref().map(pool));
        }
        Body::Host(body) => match &body.tls {
            Some(config::HostTls::Terminate { certificates, .. }) => names.extend(certificates.iter().map(certificate)),
            Some(config::HostTls::Stream { certificates, pool: to }) => {
                names.extend(certificates.iter().map(certificate));
                names.insert(pool(to));
            }
            Some(config::HostTls::Passthrough { pool: to }) => {
                names.insert(pool(to));
            }
            None => {}
        },
        Body::Fragment(body) => {
            for action in &body.actions {
                let policy = |name: &config::PolicyName| ResourceId { kind: Kind::Policy, name: name.to_name() };
                names.extend(action.policies.iter().map(policy));
                if let config::Action::Forward(forward) = &action.action {
                    names.extend(forward.shares.iter().filter_map(|share| match share {
                        config::Share::Pool { name, .. } => Some(pool(name)),
                        config::Share::Status { .. } => None,
                    }));
                }
            }
        }
        Body::Pool(_) | Body::Certificate(_) | Body::Policy(_) => {}
    }
    names.into_iter().collect()
}
