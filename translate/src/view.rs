//! What a unit of work may read. Every unit declares its keys beforehand; a test that reads another key panics.

use std::sync::Arc;

use config::Domain;

use crate::backend::Shape;
use crate::certificate::CertificateState;
use crate::claims::{HostClaims, HostKey, PathSlot};
use crate::class::{self, ClassChoice};
use crate::fleet::{self, FleetState};
use crate::host::HostState;
use crate::objects::{EndpointSlice, Ingress, IngressClass, NamespacedName, ProxyFleet, Secret, Service};
use crate::parse::Parsed;
use crate::stages::Stages;
use crate::tls::TlsChoices;
use crate::world::{FleetName, FleetSettings, Settings, World};

/// Something that a unit may read. Reading that it is absent counts as reading.
///
/// The settings have no key: whoever changes them translates everything anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The object.
    ProxyFleet(FleetName),
    /// Whether a class names a fleet.
    Consent(FleetName),
    /// What a fleet is like.
    Fleet(FleetName),
    /// The object.
    Ingress(NamespacedName),
    /// The object.
    Class(Box<str>),
    /// The IngressClass that is the default.
    DefaultClass,
    /// The object.
    Service(NamespacedName),
    /// All slices of a Service.
    Slices(NamespacedName),
    /// The object.
    Secret(NamespacedName),
    /// What a Service offers.
    Backend(NamespacedName),
    /// What a Secret holds.
    Certificate(NamespacedName),
    /// What an Ingress asks for.
    Parsed(NamespacedName),
    /// Which certificates an Ingress brings.
    Tls(NamespacedName),
    /// Who claims a host.
    Claims(HostKey),
    /// Who claims a path of a host.
    Path(PathSlot),
    /// Who owns a host.
    Host(HostKey),
}

/// A unit of work. Units run in the order of the variants; each reads only what earlier ones made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// One fleet to what it is like, and the draft of its ProxyFleet.
    Fleet(FleetName),
    /// One Ingress to what it asks for.
    Parse(NamespacedName),
    /// One Service with its slices to what it offers.
    Backend(NamespacedName),
    /// One Secret to what it holds.
    Certificate(NamespacedName),
    /// One Ingress to the certificates that it brings.
    Tls(NamespacedName),
    /// One host to its owner. Wildcards come before the hosts that they cover (`false` before `true`).
    Host(bool, HostKey),
    /// One Ingress to its fragments and its draft.
    Output(NamespacedName),
}

impl Key {
    /// The only unit that reads the key, where the key itself tells it.
    pub(crate) fn reader(&self) -> Option<Unit> {
        match self {
            Key::ProxyFleet(name) | Key::Consent(name) => Some(Unit::Fleet(name.clone())),
            Key::Ingress(key) => Some(Unit::Parse(key.clone())),
            Key::Service(key) | Key::Slices(key) => Some(Unit::Backend(key.clone())),
            Key::Secret(key) => Some(Unit::Certificate(key.clone())),
            Key::Tls(key) => Some(Unit::Output(key.clone())),
            Key::Claims(key) => Some(Unit::host(key.clone())),
            _ => None,
        }
    }

    /// Whether this reader of the key must be looked up. All others are known: from the key itself, because they are
    /// later units of one Ingress, because whoever reads the state of a host or path has a claim to it, or because whoever
    /// reads what a fleet is like reads a class that names it.
    pub(crate) fn is_indexed_for(&self, reader: &Unit) -> bool {
        match self {
            Key::Class(_) | Key::DefaultClass | Key::Backend(_) | Key::Certificate(_) => true,
            Key::Host(_) => matches!(reader, Unit::Host(..)),
            _ => false,
        }
    }

    /// The unit that makes what the key stands for, for units that exist only while somebody asks.
    pub(crate) fn source(&self) -> Option<Unit> {
        match self {
            Key::Backend(key) => Some(Unit::Backend(key.clone())),
            Key::Certificate(key) => Some(Unit::Certificate(key.clone())),
            _ => None,
        }
    }
}

impl Unit {
    /// What the unit makes, for units that exist only while somebody asks.
    pub(crate) fn product(&self) -> Option<Key> {
        match self {
            Unit::Backend(key) => Some(Key::Backend(key.clone())),
            Unit::Certificate(key) => Some(Key::Certificate(key.clone())),
            _ => None,
        }
    }

    /// The unit of a host.
    pub(crate) fn host(key: HostKey) -> Unit {
        Unit::Host(!key.domain.is_wildcard(), key)
    }

    /// Every key that the unit may read, worked out from its object and from what it asks for alone. Sorted, each once.
    pub(crate) fn refs(&self, world: &World, stages: &Stages) -> Vec<Key> {
        let mut keys = Vec::new();
        match self {
            Unit::Fleet(name) => {
                keys.push(Key::ProxyFleet(name.clone()));
                keys.push(Key::Consent(name.clone()));
            }
            Unit::Parse(key) => {
                keys.push(Key::Ingress(key.clone()));
                if let Some(ingress) = world.ingress(key) {
                    keys.extend(class::fleet_meant(world, ingress).map(Key::Fleet));
                    keys.push(match class::choice(ingress) {
                        ClassChoice::Named(name) => Key::Class(name.into()),
                        ClassChoice::Default => Key::DefaultClass,
                    });
                }
            }
            Unit::Backend(key) => {
                keys.push(Key::Service(key.clone()));
                keys.push(Key::Slices(key.clone()));
            }
            Unit::Certificate(key) => keys.push(Key::Secret(key.clone())),
            Unit::Tls(key) => {
                keys.push(Key::Parsed(key.clone()));
                if let Some(parsed) = stages.parsed(key) {
                    keys.extend(parsed.secrets().map(Key::Certificate));
                }
            }
            Unit::Host(_, key) => {
                keys.push(Key::Fleet(key.fleet.clone()));
                keys.push(Key::Claims(key.clone()));
                keys.extend(key.parent().map(Key::Host));
            }
            Unit::Output(key) => {
                keys.push(Key::Parsed(key.clone()));
                keys.push(Key::Tls(key.clone()));
                if let Some(parsed) = stages.parsed(key) {
                    keys.extend(parsed.fleet.clone().map(Key::Fleet));
                    keys.extend(parsed.hosts().map(Key::Host));
                    keys.extend(parsed.slots().map(|(slot, _)| Key::Path(slot)));
                    keys.extend(parsed.services().map(Key::Backend));
                }
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Reads for one unit.
pub(crate) struct View<'a> {
    world: &'a World,
    stages: &'a Stages,
    declared: Option<(Unit, Vec<Key>)>,
}

impl<'a> View<'a> {
    /// For this unit. Declarations are checked in builds with debug assertions.
    pub(crate) fn new(world: &'a World, stages: &'a Stages, unit: &Unit) -> View<'a> {
        let declared = cfg!(debug_assertions).then(|| (unit.clone(), unit.refs(world, stages)));
        View { world, stages, declared }
    }

    fn reads(&self, key: impl FnOnce() -> Key) {
        if let Some((unit, declared)) = &self.declared {
            let key = key();
            assert!(declared.contains(&key), "{unit:?} read {key:?}, which it does not declare");
        }
    }

    pub(crate) fn settings(&self) -> &'a Settings {
        self.world.settings()
    }

    pub(crate) fn proxy_fleet(&self, name: &FleetName) -> Option<&'a ProxyFleet> {
        self.reads(|| Key::ProxyFleet(name.clone()));
        self.world.proxy_fleet(name)
    }

    pub(crate) fn is_named_by_a_class(&self, name: &FleetName) -> bool {
        self.reads(|| Key::Consent(name.clone()));
        fleet::named_by_classes(self.world).contains(name)
    }

    pub(crate) fn fleet_state(&self, name: &FleetName) -> Option<&'a FleetState> {
        self.reads(|| Key::Fleet(name.clone()));
        self.stages.fleets.get(name)
    }

    /// What a fleet is like; none if it is no fleet.
    pub(crate) fn fleet(&self, name: &FleetName) -> Option<&'a FleetSettings> {
        self.fleet_state(name)?.settings()
    }

    pub(crate) fn ingress(&self, key: &NamespacedName) -> Option<&'a Ingress> {
        self.reads(|| Key::Ingress(key.clone()));
        self.world.ingress(key)
    }

    pub(crate) fn class(&self, name: &str) -> Option<&'a IngressClass> {
        self.reads(|| Key::Class(name.into()));
        self.world.class(name)
    }

    pub(crate) fn default_class(&self) -> Option<&'a IngressClass> {
        self.reads(|| Key::DefaultClass);
        self.world.default_class()
    }

    pub(crate) fn service(&self, key: &NamespacedName) -> Option<&'a Service> {
        self.reads(|| Key::Service(key.clone()));
        self.world.service(key)
    }

    pub(crate) fn slices(&self, service: &NamespacedName) -> impl Iterator<Item = &'a EndpointSlice> {
        self.reads(|| Key::Slices(service.clone()));
        self.world.slices_of(service)
    }

    pub(crate) fn secret(&self, key: &NamespacedName) -> Option<&'a Secret> {
        self.reads(|| Key::Secret(key.clone()));
        self.world.secret(key)
    }

    /// The shape of a Service; none if it does not exist. Its members are not for units to read.
    pub(crate) fn backend(&self, key: &NamespacedName) -> Option<&'a Shape> {
        self.reads(|| Key::Backend(key.clone()));
        self.stages.backends.get(key)?.shape.as_deref()
    }

    pub(crate) fn certificate(&self, key: &NamespacedName) -> &'a CertificateState {
        self.reads(|| Key::Certificate(key.clone()));
        self.stages.certificates.get(key).unwrap_or(&CertificateState::Missing)
    }

    pub(crate) fn parsed(&self, key: &NamespacedName) -> Option<&'a Parsed> {
        self.reads(|| Key::Parsed(key.clone()));
        self.stages.parsed(key).map(Arc::as_ref)
    }

    pub(crate) fn tls(&self, key: &NamespacedName) -> Option<&'a TlsChoices> {
        self.reads(|| Key::Tls(key.clone()));
        self.stages.tls(key).map(Arc::as_ref)
    }

    pub(crate) fn claims(&self, key: &HostKey) -> Option<&'a HostClaims> {
        self.reads(|| Key::Claims(key.clone()));
        self.stages.claims.host(key)
    }

    /// The Ingress of this namespace that has a path of a host.
    pub(crate) fn path_winner(&self, slot: &PathSlot, namespace: &str) -> Option<&'a crate::claims::Contender> {
        self.reads(|| Key::Path(slot.clone()));
        self.stages.claims.winner(slot, namespace)
    }

    pub(crate) fn host(&self, key: &HostKey) -> Option<&'a HostState> {
        self.reads(|| Key::Host(key.clone()));
        self.stages.hosts.get(key).map(Arc::as_ref)
    }
}

impl HostKey {
    /// The wildcard that covers this host, if it is no wildcard itself.
    pub(crate) fn parent(&self) -> Option<HostKey> {
        if self.domain.is_wildcard() {
            return None;
        }
        let (_, rest) = self.domain.as_str().split_once('.')?;
        let domain: Domain = format!("*.{rest}").parse().ok()?;
        Some(HostKey { fleet: self.fleet.clone(), domain })
    }
}
