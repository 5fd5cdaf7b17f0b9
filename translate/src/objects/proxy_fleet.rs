//! ProxyFleet (`scalws.io/v1alpha1`): the types that its schema is generated from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meta::ObjectMeta;

/// The API group of our own kinds.
pub const GROUP: &str = "scalws.io";

/// The version of ProxyFleet.
pub const VERSION: &str = "v1alpha1";

/// A ProxyFleet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProxyFleet {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it declares.
    pub spec: ProxyFleetSpec,
}

/// What the fleet is: the pods that may be its proxies, and the ports that they listen on. Which classes it serves is not said
/// here but by the IngressClass or GatewayClass, whose parameters name the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyFleetSpec {
    /// The workload, in the namespace of the ProxyFleet, that a pod must belong to in order to get the configuration of this
    /// fleet.
    pub workload: Workload,
    /// The ports that the proxies listen on: one with protocol HTTP and one with protocol HTTPS. When left out, 80 and 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Vec<FleetListener>",
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-validations" = [
            {
                "rule": "self.size() == 2 && self.exists_one(l, l.protocol == 'HTTP') && self.exists_one(l, l.protocol == 'HTTPS')",
                "message": "there must be one listener with protocol HTTP and one with protocol HTTPS, and no other",
            },
            {
                "rule": "self.all(l, self.exists_one(m, m.port == l.port))",
                "message": "every listener must have a port of its own",
            },
        ]),
    )]
    pub listeners: Option<Vec<FleetListener>>,
}

/// A workload of apps/v1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = [{
            "rule": "self.size() <= 63 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "message": "must be a DNS label: at most 63 of a-z, 0-9 and '-', which neither begins nor ends it",
        }]),
    )]
    pub name: String,
}

/// The kinds of apps/v1 whose pods may be proxies of a fleet.
// The variants have no comments: a schema with one sub-schema for each is none that an API server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "their names are those of the kinds")]
pub enum WorkloadKind {
    Deployment,
    DaemonSet,
    StatefulSet,
}

impl WorkloadKind {
    /// The kind as in manifests and owner references.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkloadKind::Deployment => "Deployment",
            WorkloadKind::DaemonSet => "DaemonSet",
            WorkloadKind::StatefulSet => "StatefulSet",
        }
    }
}

impl std::fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port that the proxies listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetListener {
    /// Its name, unique in the fleet.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The port, in the pod.
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub port: u16,
    /// What is spoken on it.
    pub protocol: FleetProtocol,
}

/// What is spoken on a listener of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "their names are those of the protocols")]
pub enum FleetProtocol {
    Http,
    Https,
}

/// How the fleet is: written by the controller that leads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyFleetStatus {
    /// How many agents are connected.
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub agents: i64,
    /// How many of them have applied the generation.
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub current: i64,
    /// The generation of the configuration of the fleet.
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub generation: i64,
    /// How long the slowest of them took from the publication of its last generation to its verdict, in seconds.
    #[schemars(range(min = 0))]
    pub lag_seconds: f64,
    /// How many resources are not live on some agent.
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub not_live: i64,
    /// The generation of the ProxyFleet that this status speaks of.
    #[schemars(extend("format" = "int64"))]
    pub observed_generation: i64,
    /// Whether the ProxyFleet is accepted, and whether a class names it.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<FleetCondition>,
}

/// A condition (metav1.Condition).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetCondition {
    /// Its type, such as Accepted.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// A stable word for programs.
    pub reason: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// The generation of the ProxyFleet that it speaks of.
    #[serde(default)]
    #[schemars(extend("format" = "int64"))]
    pub observed_generation: i64,
    /// When the status became this one.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}
