//! GatewayClass and Gateway.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::or_default;

/// `GatewayClass.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// The controller that serves it.
    pub controller_name: String,
    /// The fleet that serves it.
    #[serde(default)]
    pub parameters_ref: Option<ParametersReference>,
}

/// `GatewayClass.spec.parametersRef`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ParametersReference {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace, if the kind has namespaces.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// `Gateway.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The name of its GatewayClass.
    pub gateway_class_name: String,
    /// Its listeners.
    #[serde(default, deserialize_with = "or_default")]
    pub listeners: Vec<Listener>,
}

/// One listener of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Its name, unique in the Gateway.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP` or `UDP`.
    pub protocol: String,
    /// The host that it is for; none means every host.
    #[serde(default)]
    pub hostname: Option<String>,
    /// How TLS is handled.
    #[serde(default)]
    pub tls: Option<ListenerTls>,
    /// Which routes may attach.
    #[serde(default, deserialize_with = "or_default")]
    pub allowed_routes: AllowedRoutes,
}

/// `Gateway.spec.listeners[].tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTls {
    /// `Terminate` (also when not given) or `Passthrough`.
    #[serde(default, deserialize_with = "or_default")]
    pub mode: String,
    /// The Secrets with certificates.
    #[serde(default, deserialize_with = "or_default")]
    pub certificate_refs: Vec<SecretReference>,
}

/// A reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SecretReference {
    /// The API group; empty when not given.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind; `Secret` when not given.
    #[serde(default)]
    pub kind: Option<String>,
    /// The namespace; that of the Gateway when not given.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// `Gateway.spec.listeners[].allowedRoutes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AllowedRoutes {
    /// From which namespaces.
    #[serde(default, deserialize_with = "or_default")]
    pub namespaces: RouteNamespaces,
}

/// `allowedRoutes.namespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RouteNamespaces {
    /// `Same` (also when not given), `All`, `Selector` or `None`.
    #[serde(default, deserialize_with = "or_default")]
    pub from: String,
    /// `matchLabels` of the selector.
    #[serde(default, rename = "selector", deserialize_with = "match_labels")]
    pub match_labels: BTreeMap<String, String>,
}

fn match_labels<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Selector {
        #[serde(default, deserialize_with = "or_default")]
        match_labels: BTreeMap<String, String>,
    }
    Ok(Option::<Selector>::deserialize(deserializer)?.unwrap_or_default().match_labels)
}
