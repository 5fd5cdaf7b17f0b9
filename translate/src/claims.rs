//! Who claims which host and which path, oldest first: indexes by host and by path.

use config::{CertificateName, Domain};

use crate::FleetName;
use crate::few::{Map, Set};
use crate::objects::NamespacedName;
use crate::table::Table;

/// A host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HostKey {
    pub(crate) fleet: FleetName,
    pub(crate) domain: Domain,
}

/// An Ingress as a claimant. The smallest has the best claim: explicit ones first, then the oldest, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claimant {
    /// The claim follows from a default backend beside rules; it yields to every explicit one.
    pub(crate) weak: bool,
    /// Creation time in seconds since 1970.
    pub(crate) created: i64,
    pub(crate) ingress: NamespacedName,
}

/// What a claimant brings to a host. `None`: no TLS; empty: TLS, but no usable certificate.
pub(crate) type Certificates = Option<Vec<CertificateName>>;

/// Everything claimed for one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostClaims {
    all: Set<Claimant>,
    by_namespace: Map<Box<str>, NamespaceClaims>,
}

#[derive(Clone, Debug, Default)]
struct NamespaceClaims {
    all: Set<Claimant>,
    tls: Set<Claimant>,
    certified: Map<Claimant, Vec<CertificateName>>,
}

impl HostClaims {
    /// The best claim of all.
    pub(crate) fn first(&self) -> Option<&Claimant> {
        self.all.first().map(|(claimant, ())| claimant)
    }

    /// All claims, the best first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Claimant> {
        self.all.keys()
    }

    /// The best claim of a namespace.
    pub(crate) fn first_of(&self, namespace: &str) -> Option<&Claimant> {
        self.by_namespace.get(namespace)?.all.first().map(|(claimant, ())| claimant)
    }

    /// The best claim of a namespace that brings a certificate.
    pub(crate) fn certified(&self, namespace: &str) -> Option<(&Claimant, &Vec<CertificateName>)> {
        self.by_namespace.get(namespace)?.certified.first()
    }

    /// Whether a claim of a namespace asks for TLS.
    pub(crate) fn has_tls(&self, namespace: &str) -> bool {
        self.by_namespace.get(namespace).is_some_and(|claims| !claims.tls.is_empty())
    }
}

/// A path of a host: two matches with one slot can never both win.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PathSlot {
    pub(crate) host: HostKey,
    pub(crate) kind: PathKind,
    pub(crate) path: String,
}

/// How a path is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PathKind {
    Exact,
    Prefix,
    /// What a default backend fills in.
    Default,
}

/// A match that wants a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contender {
    pub(crate) claimant: Claimant,
    /// The number of the match within its Ingress.
    pub(crate) number: u32,
}

/// Both indexes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    hosts: Table<HostKey, HostClaims>,
    paths: Table<PathSlot, Map<Box<str>, Set<Contender>>>,
}

impl Claims {
    pub(crate) fn host(&self, key: &HostKey) -> Option<&HostClaims> {
        self.hosts.get(key)
    }

    /// Every host that somebody claims, sorted.
    pub(crate) fn host_keys(&self) -> impl Iterator<Item = &HostKey> {
        self.hosts.sorted().into_iter().map(|(key, _)| key)
    }

    pub(crate) fn winner(&self, slot: &PathSlot, namespace: &str) -> Option<&Contender> {
        self.paths.get(slot)?.get(namespace)?.first().map(|(contender, ())| contender)
    }

    /// Everybody who wants a path.
    pub(crate) fn contenders(&self, slot: &PathSlot) -> impl Iterator<Item = &Contender> {
        self.paths.get(slot).into_iter().flat_map(Map::values).flat_map(Set::keys)
    }

    pub(crate) fn add_host(&mut self, key: HostKey, claimant: Claimant, certificates: &Certificates) {
        let host = self.hosts.or_default(&key);
        let namespace = host.by_namespace.or_default(claimant.ingress.namespace.clone());
        if let Some(certificates) = certificates {
            namespace.tls.insert(claimant.clone(), ());
            if !certificates.is_empty() {
                namespace.certified.insert(claimant.clone(), certificates.clone());
            }
        }
        namespace.all.insert(claimant.clone(), ());
        host.all.insert(claimant, ());
    }

    pub(crate) fn remove_host(&mut self, key: &HostKey, claimant: &Claimant) {
        let Some(host) = self.hosts.get_mut(key) else { return };
        host.all.remove(claimant);
        if let Some(namespace) = host.by_namespace.get_mut(&claimant.ingress.namespace) {
            namespace.all.remove(claimant);
            namespace.tls.remove(claimant);
            namespace.certified.remove(claimant);
            if namespace.all.is_empty() {
                host.by_namespace.remove(&claimant.ingress.namespace);
            }
        }
        if host.all.is_empty() {
            self.hosts.remove(key);
        }
    }

    /// Tells whether the winner of the slot within the namespace is another now.
    pub(crate) fn add_path(&mut self, slot: PathSlot, contender: Contender) -> bool {
        let namespaces = self.paths.or_default(&slot);
        let set = namespaces.or_default(contender.claimant.ingress.namespace.clone());
        let wins = set.first().is_none_or(|(first, ())| contender < *first);
        set.insert(contender, ());
        wins
    }

    /// Tells whether the winner of the slot within the namespace is another now.
    pub(crate) fn remove_path(&mut self, slot: &PathSlot, contender: &Contender) -> bool {
        let Some(namespaces) = self.paths.get_mut(slot) else { return false };
        let namespace = &contender.claimant.ingress.namespace;
        let Some(set) = namespaces.get_mut(namespace) else { return false };
        let won = set.first().is_some_and(|(first, ())| first == contender);
        set.remove(contender);
        if set.is_empty() {
            namespaces.remove(namespace);
        }
        if namespaces.is_empty() {
            self.paths.remove(slot);
        }
        won
    }
}
