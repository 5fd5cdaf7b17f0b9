//! Ingress and IngressClass (`networking.k8s.io/v1`).

use serde::Deserialize;

use super::meta::{ObjectMeta, or_default};

/// An Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Ingress {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: IngressSpec,
}

/// `Ingress.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    /// The name of its IngressClass.
    #[serde(default)]
    pub ingress_class_name: Option<String>,
    /// For requests that no rule matches.
    #[serde(default)]
    pub default_backend: Option<Box<Backend>>,
    /// Certificates.
    #[serde(default, deserialize_with = "or_default")]
    pub tls: Vec<IngressTls>,
    /// The rules.
    #[serde(default, deserialize_with = "or_default")]
    pub rules: Vec<Rule>,
}

/// One entry of `spec.tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressTls {
    /// The hosts that it is for.
    #[serde(default, deserialize_with = "or_default")]
    pub hosts: Vec<String>,
    /// The Secret with certificate and key, in the namespace of the Ingress.
    #[serde(default)]
    pub secret_name: Option<String>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Rule {
    /// The host; none or empty means every host.
    #[serde(default)]
    pub host: Option<String>,
    /// The paths.
    #[serde(default)]
    pub http: Option<HttpRule>,
}

/// The paths of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HttpRule {
    /// At least one.
    #[serde(default, deserialize_with = "or_default")]
    pub paths: Vec<HttpPath>,
}

/// One path of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpPath {
    /// The path; none or empty means `/`.
    #[serde(default)]
    pub path: Option<String>,
    /// `Exact`, `Prefix` or `ImplementationSpecific`.
    #[serde(default, deserialize_with = "or_default")]
    pub path_type: String,
    /// Where requests go.
    pub backend: Backend,
}

/// Where requests go: a Service or a resource, exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Backend {
    /// A Service.
    #[serde(default)]
    pub service: Option<ServiceBackend>,
    /// Another object.
    #[serde(default)]
    pub resource: Option<ResourceBackend>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServiceBackend {
    /// The name of the Service.
    pub name: String,
    /// Its port.
    #[serde(default, deserialize_with = "or_default")]
    pub port: PortRef,
}

/// A port by name or number, exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub struct PortRef {
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its number; 0 when the name is given.
    #[serde(default, deserialize_with = "or_default")]
    pub number: u16,
}

impl std::fmt::Display for PortRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.is_empty() { write!(f, "{}", self.number) } else { f.write_str(&self.name) }
    }
}

/// An object that is no Service (`TypedLocalObjectReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ResourceBackend {
    /// Its kind.
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// An IngressClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct IngressClass {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: IngressClassSpec,
}

/// `IngressClass.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct IngressClassSpec {
    /// The controller that serves it.
    #[serde(default, deserialize_with = "or_default")]
    pub controller: String,
    /// The fleet that serves it; the default fleet when not given.
    #[serde(default)]
    pub parameters: Option<ClassParameters>,
}

/// `IngressClass.spec.parameters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassParameters {
    /// `scalws.io`.
    #[serde(default, deserialize_with = "or_default")]
    pub api_group: String,
    /// `ProxyFleet`.
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    /// The name of the fleet.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The namespace of the fleet.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// `Namespace`; `Cluster` when not given.
    #[serde(default, deserialize_with = "or_default")]
    pub scope: String,
}
