//! The kinds that are followed: where the API server serves them, and what switches them off.

/// What a kind is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Needed by every input.
    Core,
    /// Ingresses and their classes.
    Ingress,
    /// The Gateway API: its definitions may be missing, and come later.
    Gateway,
    /// Our own kinds: their definitions may be missing, and come later.
    Fleet,
}

/// A kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, as in objects.
    pub name: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The versions that are read, the best first.
    pub versions: &'static [&'static str],
    /// Its name in paths.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// What it is there for.
    pub family: Family,
}

impl Kind {
    /// `networking.k8s.io/v1`; `v1` in the core group.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// Whether a server may lack it.
    pub fn is_optional(&self) -> bool {
        matches!(self.family, Family::Gateway | Family::Fleet)
    }
}

const fn core(name: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { name, group: "", versions: &["v1"], plural, namespaced, family: Family::Core }
}

const fn ingress(name: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { name, group: "networking.k8s.io", versions: &["v1"], plural, namespaced, family: Family::Ingress }
}

const fn fleet(name: &'static str, plural: &'static str) -> Kind {
    Kind { name, group: "scalws.io", versions: &["v1alpha1"], plural, namespaced: true, family: Family::Fleet }
}

const fn gateway(name: &'static str, plural: &'static str, versions: &'static [&'static str]) -> Kind {
    Kind { name, group: "gateway.networking.k8s.io", versions, plural, namespaced: true, family: Family::Gateway }
}

/// All kinds that translation reads. The versions of the Gateway API are those that its releases have served.
pub static KINDS: [Kind; 17] = [
    ingress("Ingress", "ingresses", true),
    ingress("IngressClass", "ingressclasses", false),
    core("Service", "services", true),
    Kind { group: "discovery.k8s.io", ..core("EndpointSlice", "endpointslices", true) },
    core("Secret", "secrets", true),
    core("ConfigMap", "configmaps", true),
    core("Namespace", "namespaces", false),
    fleet("ProxyFleet", "proxyfleets"),
    Kind { namespaced: false, ..gateway("GatewayClass", "gatewayclasses", &["v1", "v1beta1"]) },
    gateway("Gateway", "gateways", &["v1", "v1beta1"]),
    gateway("HTTPRoute", "httproutes", &["v1", "v1beta1"]),
    gateway("GRPCRoute", "grpcroutes", &["v1", "v1alpha2"]),
    gateway("TLSRoute", "tlsroutes", &["v1", "v1alpha3", "v1alpha2"]),
    gateway("TCPRoute", "tcproutes", &["v1", "v1alpha2"]),
    gateway("UDPRoute", "udproutes", &["v1", "v1alpha2"]),
    gateway("ReferenceGrant", "referencegrants", &["v1", "v1beta1"]),
    gateway("BackendTLSPolicy", "backendtlspolicies", &["v1", "v1alpha3"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use translate::{DecodeError, Object};

    #[test]
    fn every_kind_and_version_that_is_followed_is_one_that_translation_reads() {
        for kind in &KINDS {
            for version in kind.versions {
                let value = json!({
                    "apiVersion": kind.api_version(version), "kind": kind.name, "metadata": { "name": "a", "namespace": "n" },
                });
                let read = Object::from_value(value);
                assert!(!matches!(read, Err(DecodeError::UnknownKind { .. })), "{} {version}: {read:?}", kind.name);
                if let Err(DecodeError::Invalid { field, .. }) = &read {
                    assert_ne!(field, "apiVersion", "{} {version}", kind.name);
                }
                if let Ok(object) = read {
                    assert_eq!(object.metadata().namespace().is_empty(), !kind.namespaced, "{}", kind.name);
                }
            }
        }
    }
}
