//! What a translation gives: configuration by fleet, findings, and the drafts of statuses; and the difference of two.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{MemberSetName, Resource, ResourceId, SecretDigest};

use crate::FleetName;
use crate::objects::{ObjectId, SecretBytes};

/// The members of a set: `address:port`, IPv6 in brackets; sorted, each once.
pub type Members = Arc<[Arc<str>]>;

/// Everything that follows from a world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// The configuration of every fleet.
    pub fleets: BTreeMap<FleetName, FleetConfig>,
    /// What is to be said about objects that are ours. Objects that are none of our business have none.
    pub drafts: BTreeMap<ObjectId, Arc<Draft>>,
    /// Every Service port that an Ingress of ours refers to, with the addresses that may get traffic now.
    pub backends: BTreeMap<BackendRef, Members>,
}

/// The configuration of one fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetConfig {
    /// Its resources.
    pub resources: BTreeMap<ResourceId, Resource>,
    /// Its member sets.
    pub members: BTreeMap<MemberSetName, Members>,
    /// Its secrets, by digest.
    pub secrets: BTreeMap<SecretDigest, SecretBytes>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendRef {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub service: String,
    /// The Service's port.
    pub port: u16,
}

impl std::fmt::Display for BackendRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)
    }
}

/// How loud a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something does not work as the object says: a Warning event.
    Warning,
    /// Worth knowing, everything works: a Normal event.
    Note,
}

/// Something to tell the owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How loud.
    pub severity: Severity,
    /// A stable word for programs. See [`reasons`].
    pub reason: &'static str,
    /// The path of the field, such as `spec.rules[0].host`.
    pub field: String,
    /// A sentence for people: what, why, and the way out.
    pub message: String,
}

impl Finding {
    pub(crate) fn warning(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, reason, field: field.into(), message: message.into() }
    }

    pub(crate) fn note(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Note, reason, field: field.into(), message: message.into() }
    }
}

/// The most findings of one object; an object with ten thousand faults is mended by its first ones.
pub(crate) const FINDINGS_MAX: usize = 100;

/// The reasons of findings.
pub mod reasons {
    /// There are more findings than are listed.
    pub const MORE: &str = "MoreFindings";
    /// No class names the fleet, so it serves nothing.
    pub const NO_CLASS: &str = "NoClass";
    /// The command line says which ports the proxies listen on, not the ProxyFleet.
    pub const LISTENERS_FIXED: &str = "ListenersFixed";
    /// Nothing of the object is served.
    pub const REJECTED: &str = "Rejected";
    /// A host belongs to another namespace.
    pub const HOST_CONFLICT: &str = "HostConflict";
    /// An older Ingress has the path.
    pub const PATH_CONFLICT: &str = "PathConflict";
    /// A host is no DNS name.
    pub const HOST_INVALID: &str = "HostInvalid";
    /// A path cannot be matched as it is written.
    pub const PATH_INVALID: &str = "PathInvalid";
    /// A host has more paths in one Ingress than travel in one resource.
    pub const TOO_LARGE: &str = "TooLarge";
    /// The Service does not exist.
    pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
    /// The Service has no such port.
    pub const PORT_NOT_FOUND: &str = "PortNotFound";
    /// The port was found by the port of the pods, not by that of the Service.
    pub const PORT_BY_TARGET: &str = "PortByTarget";
    /// The name of an ExternalName Service must not be reached.
    pub const EXTERNAL_NAME_REFUSED: &str = "ExternalNameRefused";
    /// A backend that is no Service.
    pub const RESOURCE_BACKEND: &str = "ResourceBackendUnsupported";
    /// Endpoints at addresses that must not be reached are left out.
    pub const ENDPOINT_REFUSED: &str = "EndpointRefused";
    /// Slices of the Service have no port of that name.
    pub const ENDPOINT_PORT_MISMATCH: &str = "EndpointPortMismatch";
    /// The Secret of a certificate does not exist.
    pub const SECRET_MISSING: &str = "SecretMissing";
    /// The Secret holds no usable certificate and key.
    pub const CERTIFICATE_INVALID: &str = "CertificateInvalid";
    /// The certificate does not cover the host.
    pub const CERTIFICATE_MISMATCH: &str = "CertificateMismatch";
    /// The host is served with the certificate of an older Ingress.
    pub const CERTIFICATE_CONFLICT: &str = "CertificateConflict";
    /// No Secret covers the host; it is served with the default certificate.
    pub const CERTIFICATE_DEFAULT: &str = "CertificateDefault";
    /// Plain http is redirected although the Ingress itself has no TLS.
    pub const REDIRECTED: &str = "RedirectedToHttps";
    /// An annotation that is known but not supported yet has no effect.
    pub const ANNOTATION_IGNORED: &str = "AnnotationIgnored";
    /// An annotation has a value that cannot be read.
    pub const ANNOTATION_INVALID: &str = "AnnotationInvalid";
}

/// How much of an object is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// All of it.
    Full,
    /// Not all of it, maybe nothing: an older object has its host or path, or something that it names is missing. It is
    /// served without a change of the object itself once that is mended. The findings say what is missing.
    Partly,
    /// Nothing of it, because of the object itself. A finding says [`reasons::REJECTED`], or a condition is not accepted.
    Refused,
}

/// A condition as in `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Accepted`.
    pub kind: &'static str,
    /// True or false.
    pub status: bool,
    /// A stable word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// For routes: the parent it is about, `namespace/gateway#section`.
    pub parent: Option<String>,
}

/// What is to be said about an object, before any proxy has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its findings, in the order of its fields.
    pub findings: Vec<Finding>,
    /// Its conditions. Ingresses have none.
    pub conditions: Vec<Condition>,
    /// How much of it is served.
    pub served: Served,
    /// The fleets that it is for, sorted.
    pub fleets: Vec<FleetName>,
    /// The resources that must be live for the object to be live, sorted.
    pub resources: Vec<(FleetName, ResourceId)>,
}

/// What changed between two translations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// By fleet; only fleets of which something changed.
    pub fleets: BTreeMap<FleetName, FleetDelta>,
    /// New drafts; none for objects that are gone or no longer ours.
    pub drafts: BTreeMap<ObjectId, Option<Arc<Draft>>>,
    /// New addresses of backends; none for those that nothing refers to any more.
    pub backends: BTreeMap<BackendRef, Option<Members>>,
}

/// What changed in one fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetDelta {
    /// The fleet is none any more, and nothing else is said of it: whoever has its configuration is told no removals.
    pub ended: bool,
    /// New or changed resources, sorted by id.
    pub puts: Vec<Resource>,
    /// Resources that are gone, sorted.
    pub removes: Vec<ResourceId>,
    /// New secrets.
    pub secrets_added: BTreeMap<SecretDigest, SecretBytes>,
    /// Secrets that nothing names any more, sorted.
    pub secrets_removed: Vec<SecretDigest>,
    /// Member sets that changed; none for those that are gone.
    pub sets: BTreeMap<MemberSetName, Option<Members>>,
}

impl FleetDelta {
    /// That a fleet is none any more.
    pub(crate) fn ended() -> FleetDelta {
        FleetDelta { ended: true, ..FleetDelta::default() }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == FleetDelta::default()
    }
}

impl Delta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.fleets.is_empty() && self.drafts.is_empty() && self.backends.is_empty()
    }
}

impl Translation {
    /// Takes in a delta.
    pub fn apply(&mut self, delta: &Delta) {
        for (name, change) in &delta.fleets {
            if change.ended {
                self.fleets.remove(name);
                continue;
            }
            let fleet = self.fleets.entry(name.clone()).or_default();
            for resource in &change.puts {
                fleet.resources.insert(resource.id.clone(), resource.clone());
            }
            for id in &change.removes {
                fleet.resources.remove(id);
            }
            for (digest, bytes) in &change.secrets_added {
                fleet.secrets.insert(digest.clone(), bytes.clone());
            }
            for digest in &change.secrets_removed {
                fleet.secrets.remove(digest);
            }
            apply_map(&mut fleet.members, &change.sets);
        }
        apply_map(&mut self.drafts, &delta.drafts);
        apply_map(&mut self.backends, &delta.backends);
    }

    /// What turns this translation into the other. Costs what both are large; the engine does it in the size of the change.
    pub fn difference(&self, other: &Translation) -> Delta {
        let empty = FleetConfig::default();
        let ended = self.fleets.keys().filter(|name| !other.fleets.contains_key(*name));
        let mut fleets: BTreeMap<_, _> = ended.map(|name| (name.clone(), FleetDelta::ended())).collect();
        for (name, new) in &other.fleets {
            let old = self.fleets.get(name).unwrap_or(&empty);
            let mut delta = FleetDelta { sets: difference(&old.members, &new.members), ..FleetDelta::default() };
            for (id, resource) in difference(&old.resources, &new.resources) {
                match resource {
                    Some(resource) => delta.puts.push(resource),
                    None => delta.removes.push(id),
                }
            }
            for (digest, bytes) in difference(&old.secrets, &new.secrets) {
                match bytes {
                    Some(bytes) => drop(delta.secrets_added.insert(digest, bytes)),
                    None => delta.secrets_removed.push(digest),
                }
            }
            if !delta.is_empty() {
                fleets.insert(name.clone(), delta);
            }
        }
        Delta {
            fleets,
            drafts: difference(&self.drafts, &other.drafts),
            backends: difference(&self.backends, &other.backends),
        }
    }
}

fn apply_map<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, changes: &BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

fn difference<K: Ord + Clone, V: Clone + PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), None));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
    gone.chain(changed.map(|(key, value)| (key.clone(), Some(value.clone())))).collect()
}
