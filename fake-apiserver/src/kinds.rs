//! Which kinds there are and how each behaves: a table of those that are built in, and those that came with a definition.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What makes `metadata.generation` grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    None,
    /// A change of `spec`.
    Spec,
    /// A change of anything but `metadata`, or of the labels, as EndpointSlices do.
    Content,
    /// A change of anything but `metadata` and, where it is a subresource, `status`, as custom resources do.
    Custom,
}

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The versions that are served, the preferred one first.
    pub versions: Vec<String>,
    /// `Ingress`.
    pub kind: String,
    /// `ingresses`, as in paths.
    pub plural: String,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Whether there is a `status` subresource.
    pub status: bool,
    /// What makes the generation grow.
    pub generation: Generation,
    /// Whether it is a custom resource: those are stored and listed as they were written.
    pub custom: bool,
    /// Whether `PUT` of an object that is not there creates it.
    pub create_on_update: bool,
    /// Whether `PUT` without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// Whether a deletion answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// Fields beside name and namespace that field selectors may name.
    pub fields: &'static [&'static str],
}

impl Kind {
    /// A custom resource with a status subresource; see the fields for what else can be set.
    pub fn custom(group: &str, versions: &[&str], kind: &str, plural: &str, namespaced: bool) -> Kind {
        Kind {
            group: group.to_owned(),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
            status: true,
            generation: Generation::Custom,
            custom: true,
            create_on_update: false,
            unconditional_update: false,
            returns_deleted: false,
            fields: &[],
        }
    }

    /// `ingresses.networking.k8s.io`; `secrets` in the core group. Requests, faults and counts go by this name.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `networking.k8s.io/v1`, or `v1` in the core group.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The key of an object in the store: ordered as the real one lists.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// What a built-in kind has in `status` before anyone writes it.
    pub(crate) fn blank_status(&self) -> Option<Value> {
        match self.resource().as_str() {
            "ingresses.networking.k8s.io" | "services" => Some(json!({"loadBalancer": {}})),
            "namespaces" => Some(json!({"phase": "Active"})),
            "pods" => Some(json!({"phase": "Pending", "qosClass": "BestEffort"})),
            "nodes" | "deployments.apps" => Some(json!({})),
            _ => None,
        }
    }
}

/// Fields of pods that selectors may name.
const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
];

/// All kinds, by [`Kind::resource`].
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    kinds: BTreeMap<String, Kind>,
}

impl Kinds {
    /// The kinds that a cluster has from the start and that we care about.
    pub(crate) fn built_in() -> Kinds {
        let core = |kind: &str, plural: &str, namespaced: bool| Kind {
            custom: false,
            status: false,
            generation: Generation::None,
            unconditional_update: true,
            ..Kind::custom("", &["v1"], kind, plural, namespaced)
        };
        let grouped = |group: &str, kind: &str, plural: &str, namespaced: bool| Kind {
            group: group.to_owned(),
            generation: Generation::Spec,
            ..core(kind, plural, namespaced)
        };
        let all = [
            core("ConfigMap", "configmaps", true),
            core("Secret", "secrets", true).with_fields(&["type"]),
            Kind { status: true, returns_deleted: true, ..core("Namespace", "namespaces", false) }
                .with_fields(&["status.phase"]),
            Kind { status: true, ..core("Node", "nodes", false) },
            Kind { status: true, returns_deleted: true, generation: Generation::Spec, ..core("Pod", "pods", true) }
                .with_fields(POD_FIELDS),
            Kind { status: true, create_on_update: true, returns_deleted: true, ..core("Service", "services", true) }
                .with_fields(&["spec.clusterIP", "spec.type"]),
            Kind { returns_deleted: true, ..core("ServiceAccount", "serviceaccounts", true) },
            Kind { create_on_update: true, ..core("Event", "events", true) }.with_fields(&[
                "involvedObject.kind",
                "involvedObject.name",
                "involvedObject.namespace",
                "involvedObject.uid",
                "reason",
                "type",
            ]),
            Kind {
                create_on_update: true,
                generation: Generation::None,
                ..grouped("events.k8s.io", "Event", "events", true)
            },
            Kind {
                create_on_update: true,
                unconditional_update: false,
                generation: Generation::None,
                ..grouped("coordination.k8s.io", "Lease", "leases", true)
            },
            Kind {
                generation: Generation::Content,
                ..grouped("discovery.k8s.io", "EndpointSlice", "endpointslices", true)
            },
            Kind { status: true, ..grouped("networking.k8s.io", "Ingress", "ingresses", true) },
            grouped("networking.k8s.io", "IngressClass", "ingressclasses", false),
            Kind { status: true, ..grouped("apps", "Deployment", "deployments", true) },
            Kind {
                status: true,
                unconditional_update: false,
                returns_deleted: true,
                ..grouped("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false)
            },
        ];
        Kinds { kinds: all.into_iter().map(|kind| (kind.resource(), kind)).collect() }
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        self.kinds.insert(kind.resource(), kind);
    }

    pub(crate) fn remove(&mut self, resource: &str) -> Option<Kind> {
        self.kinds.remove(resource)
    }

    /// By the path: the kind that a group and version serve under a name.
    pub(crate) fn served(&self, group: &str, version: &str, plural: &str) -> Option<&Kind> {
        let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        self.kinds.get(&resource).filter(|kind| kind.versions.iter().any(|served| served == version))
    }

    /// By what an object says of itself.
    pub(crate) fn of_object(&self, api_version: &str, name: &str) -> Option<&Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kinds
            .values()
            .find(|kind| kind.group == group && kind.kind == name && kind.versions.iter().any(|v| v == version))
    }

    pub(crate) fn by_resource(&self, resource: &str) -> Option<&Kind> {
        self.kinds.get(resource)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.values()
    }
}

impl Kind {
    fn with_fields(mut self, fields: &'static [&'static str]) -> Kind {
        self.fields = fields;
        self
    }
}
