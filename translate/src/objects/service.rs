//! Service (`v1`) and EndpointSlice (`discovery.k8s.io/v1`).

use serde::Deserialize;

use super::meta::{NamespacedName, ObjectMeta, or_default};

/// The label that says which Service a slice belongs to.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it offers.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: ServiceSpec,
}

/// `Service.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP` when not given.
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// The name outside of the cluster, for `ExternalName`.
    #[serde(default, deserialize_with = "or_default")]
    pub external_name: String,
    /// Its ports.
    #[serde(default, deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// `None` for headless Services.
    #[serde(default, rename = "clusterIP", deserialize_with = "or_default")]
    pub cluster_ip: String,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name; empty when the Service has only one port.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its number.
    pub port: u16,
    /// The port of the pods; the same number when not given.
    #[serde(default)]
    pub target_port: Option<IntOrString>,
    /// `TCP` when not given.
    #[serde(default, deserialize_with = "or_default")]
    pub protocol: String,
    /// What is spoken on it.
    #[serde(default, deserialize_with = "or_default")]
    pub app_protocol: String,
}

impl ServicePort {
    /// Whether it carries TCP.
    pub fn is_tcp(&self) -> bool {
        self.protocol.is_empty() || self.protocol == "TCP"
    }
}

/// A number or a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A name.
    String(String),
}

/// What the addresses of a slice are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum AddressType {
    /// IPv4 addresses.
    #[default]
    IPv4,
    /// IPv6 addresses.
    IPv6,
    /// Names. Not used.
    FQDN,
}

/// A part of the endpoints of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What its addresses are.
    pub address_type: AddressType,
    /// The endpoints.
    #[serde(default, deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    /// The ports of every endpoint.
    #[serde(default, deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

impl EndpointSlice {
    /// The Service that it belongs to, if it says so.
    pub fn service(&self) -> Option<NamespacedName> {
        let name = self.metadata.labels.get(SERVICE_NAME_LABEL)?;
        Some(NamespacedName::new(self.metadata.namespace(), name))
    }
}

/// One endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Endpoint {
    /// Its addresses, each as good as the other.
    #[serde(default, deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    /// Its state.
    #[serde(default, deserialize_with = "or_default")]
    pub conditions: EndpointConditions,
    /// What runs there. It is only shown: nothing is routed by it.
    #[serde(default, rename = "targetRef")]
    pub target_ref: Option<TargetRef>,
}

/// The object behind an endpoint, usually a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TargetRef {
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// The state of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EndpointConditions {
    /// Not given means ready.
    #[serde(default)]
    pub ready: Option<bool>,
    /// Whether it answers, even while it ends; not given means as `ready`.
    #[serde(default)]
    pub serving: Option<bool>,
    /// Whether it is about to end; not given means no.
    #[serde(default)]
    pub terminating: Option<bool>,
}

/// A port of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EndpointPort {
    /// The name of the Service's port that it belongs to.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The number; not given means every port.
    #[serde(default)]
    pub port: Option<u16>,
    /// `TCP` when not given.
    #[serde(default, deserialize_with = "or_default")]
    pub protocol: String,
}

impl EndpointPort {
    /// Whether it carries TCP.
    pub fn is_tcp(&self) -> bool {
        self.protocol.is_empty() || self.protocol == "TCP"
    }
}
