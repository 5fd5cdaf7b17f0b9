//! The loaded resources and what is built from them. A change rebuilds what it touches and what refers to that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use config::{Body, CertificateName, Kind, Loaded, PoolName, ResourceId, TypedName};
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;

use crate::build::Builder;
use crate::not_live::{Fault, Faults};
use crate::route::Pools;
use crate::snapshot::{Host, Router, Snapshot, Speaks};

/// A resource that changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which.
    pub id: ResourceId,
    /// Its new bytes; `None` when it is gone.
    pub bytes: Option<Bytes>,
}

/// Where the bytes of what is loaded are read again: they are not kept beside what is built from them.
pub trait Bodies {
    /// The bytes of a loaded resource.
    ///
    /// # Errors
    /// When they cannot be read.
    fn body(&self, id: &ResourceId) -> std::io::Result<Option<Bytes>>;
}

/// What is loaded. One writer; readers get [`Snapshot`]s.
#[derive(Debug, Default)]
pub struct State {
    /// With what each names.
    resources: HashMap<ResourceId, Names>,
    /// By what is named: those that name it.
    referrers: HashMap<ResourceId, Referrers>,
    faults: Faults,
    pub(crate) pools: Pools,
    pub(crate) certificates: BTreeMap<CertificateName, Arc<CertifiedKey>>,
    snapshot: Snapshot,
}

/// What a resource names, sorted, each once.
type Names = Box<[ResourceId]>;

/// Those that name a resource. Mostly it is one.
#[derive(Debug)]
enum Referrers {
    One(ResourceId),
    Many(BTreeSet<ResourceId>),
}

impl Referrers {
    fn add(&mut self, id: &ResourceId) {
        match self {
            Referrers::One(one) if one == id => {}
            Referrers::One(one) => *self = Referrers::Many([one.clone(), id.clone()].into()),
            Referrers::Many(many) => {
                many.insert(id.clone());
            }
        }
    }

    /// Says whether none is left.
    fn remove(&mut self, id: &ResourceId) -> bool {
        match self {
            Referrers::One(one) => one == id,
            Referrers::Many(many) => {
                many.remove(id);
                many.is_empty()
            }
        }
    }

    fn each(&self, visit: impl FnMut(&ResourceId)) {
        match self {
            Referrers::One(one) => std::slice::from_ref(one).iter().for_each(visit),
            Referrers::Many(many) => many.iter().for_each(visit),
        }
    }
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

    /// Loads changes. Costs what changes and what refers to that. `bodies` has what is loaded already.
    ///
    /// # Errors
    /// When an envelope does not decode: a controller's bug. Nothing changed.
    pub fn apply(&mut self, changes: Vec<Change>, builder: &Builder, bodies: &dyn Bodies) -> Result<(), Vec<String>> {
        let mut decoded = BTreeMap::new();
        let mut errors = Vec::new();
        for Change { id, bytes } in changes {
            match bytes.map(|bytes| config::load(id.clone(), &bytes)).transpose() {
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
            self.touch_referrers(&id, &mut touched);
            touched.insert(id.clone());
            if let Some(new) = new {
                loaded.insert(id, new);
            }
        }
        let mut errors = Vec::new();
        self.rebuild(&touched, loaded, builder, bodies, &mut errors);
        Ok(())
    }

    /// Loads these resources into an empty state, one after the other: what is read of one is gone before the next.
    ///
    /// # Errors
    /// As in [`State::apply`]. The state is empty then.
    pub fn fill(
        &mut self,
        ids: impl IntoIterator<Item = ResourceId>,
        builder: &Builder,
        bodies: &dyn Bodies,
    ) -> Result<(), Vec<String>> {
        let ids: BTreeSet<ResourceId> = ids.into_iter().collect();
        // What is named is there for those that name it.
        self.resources = ids.iter().map(|id| (id.clone(), Names::default())).collect();
        let mut errors = Vec::new();
        self.rebuild(&ids, BTreeMap::new(), builder, bodies, &mut errors);
        if errors.is_empty() {
            return Ok(());
        }
        *self = State::default();
        Err(errors)
    }

    /// Builds once more what is not live because of its environment. Says whether anything came to life.
    pub fn retry(&mut self, builder: &Builder, bodies: &dyn Bodies) -> bool {
        let environment = |fault: &Fault| journal::admin::codes::is_environment(fault.code);
        let before: Vec<String> =
            self.faults.iter().filter(|(_, fault)| environment(fault)).map(|(name, _)| name.clone()).collect();
        let failing = |id: &ResourceId| before.binary_search(&id.to_string()).is_ok();
        let failing: Vec<ResourceId> = self.resources.keys().filter(|id| failing(id)).cloned().collect();
        let mut touched: BTreeSet<ResourceId> = failing.iter().cloned().collect();
        for id in &failing {
            self.touch_referrers(id, &mut touched);
        }
        self.rebuild(&touched, BTreeMap::new(), builder, bodies, &mut Vec::new());
        before.iter().any(|name| !self.faults.get(name).is_some_and(environment))
    }

    fn touch_referrers(&self, id: &ResourceId, touched: &mut BTreeSet<ResourceId>) {
        if let Some(referrers) = self.referrers.get(id) {
            referrers.each(|id| {
                touched.insert(id.clone());
            });
        }
    }

    /// Says again what was said before something went wrong.
    pub(crate) fn put_faults_back(&mut self, faults: Faults) {
        self.faults = faults;
    }

    fn hold(&mut self, id: &ResourceId, new: Option<&Loaded>) {
        let mut names = new.map(names_in).unwrap_or_default();
        for named in &mut names {
            // One copy of a name, whoever says it.
            if let Some((known, _)) = self.resources.get_key_value(named) {
                *named = known.clone();
            }
            match self.referrers.get_mut(named) {
                Some(referrers) => referrers.add(id),
                None => drop(self.referrers.insert(named.clone(), Referrers::One(id.clone()))),
            }
        }
        let old = match new {
            Some(_) => match self.resources.get_mut(id) {
                Some(old) => Some(std::mem::replace(old, names.clone())),
                None => self.resources.insert(id.clone(), names.clone()),
            },
            None => self.resources.remove(id),
        };
        for named in old.iter().flat_map(|names| names.iter()) {
            if !names.contains(named) && self.referrers.get_mut(named).is_some_and(|referrers| referrers.remove(id)) {
                self.referrers.remove(named);
            }
        }
    }

    /// What is not `loaded` is read again. Only what was never loaded can fail to decode: `errors` says so.
    fn rebuild(
        &mut self,
        touched: &BTreeSet<ResourceId>,
        mut loaded: BTreeMap<ResourceId, Loaded>,
        builder: &Builder,
        bodies: &dyn Bodies,
        errors: &mut Vec<String>,
    ) {
        let mut batch = Batch::default();
        // What is named is built before what names it.
        for kind in Kind::ALL {
            for id in touched.iter().filter(|id| id.kind == kind) {
                self.faults.remove(&id.to_string());
                if !self.resources.contains_key(id) {
                    self.unbuild(id, &mut batch);
                    continue;
                }
                let new = match loaded.remove(id) {
                    Some(new) => Ok(new),
                    None => self.read_again(id, bodies, errors),
                };
                let dangling =
                    self.resources.get(id).and_then(|names| names.iter().find(|n| !self.resources.contains_key(n)));
                let dangling = dangling.map(|named| Fault::missing(format!("it names {named}, which is not there")));
                let result = new.and_then(|new| builder.build(new, self, &mut batch));
                if let Some(fault) = result.err().or(dangling) {
                    self.faults.insert(id.to_string(), fault);
                }
            }
        }
        if !batch.router.is_empty() {
            self.snapshot.router = self.snapshot.router.update(batch.router);
        }
    }

    fn read_again(&mut self, id: &ResourceId, bodies: &dyn Bodies, errors: &mut Vec<String>) -> Result<Loaded, Fault> {
        let unread = |why: String| Fault { code: journal::admin::codes::VOLUME, message: why };
        let bytes = bodies.body(id).map_err(|e| unread(format!("its bytes cannot be read again: {e}")))?;
        let bytes = bytes.ok_or_else(|| unread("its bytes are not there any more".to_owned()))?;
        let loaded = config::load(id.clone(), &bytes).map_err(|error| {
            errors.push(error.to_string());
            Fault::invalid(error.to_string())
        })?;
        self.hold(id, Some(&loaded));
        Ok(loaded)
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
            TypedName::Pool(_) => {
                self.pools.remove(&id.name);
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
fn names_in(loaded: &Loaded) -> Names {
    let config::State::Live(body) = &loaded.state else { return Names::default() };
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
