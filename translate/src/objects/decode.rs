//! From JSON to an object, refusing what an API server would have refused.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroize;

use super::check;
use super::gateway::Whole;
use super::{GatewayObjectSpec, NamespacedName, Object, ObjectMeta, Secret, SecretBytes};

/// Why a document is no object of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A kind that is not read. It is ignored.
    #[error("{api_version} {kind} is not read")]
    UnknownKind {
        /// Its API group and version.
        api_version: String,
        /// Its kind.
        kind: String,
    },
    /// An API server would have refused it.
    #[error("{object}: {field}: {value}: {why}")]
    Invalid {
        /// `Kind/namespace/name`, as far as known.
        object: String,
        /// The path of the field.
        field: String,
        /// The value, shortened; never a value of a Secret.
        value: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// A kind that is read: its group and the versions of it that are read, the best first, and whether it lives in namespaces.
type Known = (&'static str, &'static [&'static str], bool);

const KINDS: [Known; 17] = [
    ("Ingress", &["networking.k8s.io/v1"], true),
    ("IngressClass", &["networking.k8s.io/v1"], false),
    ("Service", &["v1"], true),
    ("EndpointSlice", &["discovery.k8s.io/v1"], true),
    ("Secret", &["v1"], true),
    ("ConfigMap", &["v1"], true),
    ("Namespace", &["v1"], false),
    ("ProxyFleet", &["scalws.io/v1alpha1"], true),
    ("GatewayClass", GATEWAY_VERSIONS, false),
    ("Gateway", GATEWAY_VERSIONS, true),
    ("HTTPRoute", GATEWAY_VERSIONS, true),
    ("GRPCRoute", GATEWAY_VERSIONS, true),
    ("TLSRoute", GATEWAY_VERSIONS, true),
    ("TCPRoute", GATEWAY_VERSIONS, true),
    ("UDPRoute", GATEWAY_VERSIONS, true),
    ("ReferenceGrant", GATEWAY_VERSIONS, true),
    ("BackendTLSPolicy", GATEWAY_VERSIONS, true),
];

/// The text of a kind. That of a kind that is read is there once.
pub(super) fn shared_kind(name: &str) -> Arc<str> {
    static TEXTS: LazyLock<[Arc<str>; KINDS.len()]> = LazyLock::new(|| KINDS.map(|(kind, _, _)| kind.into()));
    TEXTS.iter().find(|kind| ***kind == *name).map_or_else(|| name.into(), Arc::clone)
}

/// What is read of the Gateway API has the same form in all of them.
const GATEWAY_VERSIONS: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1beta1",
    "gateway.networking.k8s.io/v1alpha3",
    "gateway.networking.k8s.io/v1alpha2",
];

/// What a check found wrong: field, value, why.
pub(super) type Fault = (String, String, String);

/// The beginning of a text of somebody's, with control characters escaped: it goes to terminals and logs.
fn shown(text: &str, characters: usize) -> String {
    let mut out = String::new();
    for c in text.chars().take(characters) {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

pub(super) fn decode(mut value: Value) -> Result<Object, DecodeError> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text(&value, "kind"), text(&value, "apiVersion"));
    let fail = |object: &str, (field, value, why): Fault| DecodeError::Invalid {
        object: shown(object, 600),
        field: shown(&field, 600),
        value: shown(&value, 200),
        why,
    };
    if kind.is_empty() || api_version.is_empty() {
        let field = if kind.is_empty() { "kind" } else { "apiVersion" };
        let why = "every object must say its apiVersion and kind";
        return Err(fail("(unknown)", (field.to_owned(), "not given".to_owned(), why.to_owned())));
    }
    let Some((_, versions, namespaced)) = KINDS.iter().find(|(k, _, _)| *k == kind) else {
        return Err(DecodeError::UnknownKind { api_version, kind });
    };
    let group = |v: &str| v.rsplit_once('/').map_or(String::new(), |(g, _)| g.to_owned());
    let wanted = versions[0];
    if !versions.contains(&api_version.as_str()) {
        // An old version of a group that is read, such as networking.k8s.io/v1beta1, is a mistake worth telling.
        // The same kind in a foreign group is simply another kind.
        if group(&api_version) == group(wanted) || (kind == "Ingress" && group(&api_version) == "extensions") {
            let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("(unnamed)").to_owned();
            let why = format!("this version is not served any more; write {wanted}");
            return Err(fail(&format!("{kind}/{name}"), ("apiVersion".to_owned(), api_version, why)));
        }
        return Err(DecodeError::UnknownKind { api_version, kind });
    }
    let name = prepare_metadata(&mut value, *namespaced);
    let object = format!("{kind}/{}/{}", name.namespace, name.name);
    check::metadata(&kind, *namespaced, &name).map_err(|f| fail(&object, f))?;
    let decoded = match kind.as_str() {
        "Ingress" => typed(value).map(Object::Ingress),
        "IngressClass" => typed(value).map(Object::IngressClass),
        "Service" => typed(value).map(Object::Service),
        "EndpointSlice" => typed(value).map(Object::EndpointSlice),
        "Secret" => secret(value).map(Object::Secret),
        "ConfigMap" => typed(value).map(Object::ConfigMap),
        "Namespace" => typed(value).map(Object::Namespace),
        "ProxyFleet" => typed(value).map(Object::ProxyFleet),
        "GatewayClass" => gateway(value, GatewayObjectSpec::GatewayClass),
        "Gateway" => gateway(value, GatewayObjectSpec::Gateway),
        "HTTPRoute" => gateway(value, GatewayObjectSpec::HttpRoute),
        "GRPCRoute" => gateway(value, GatewayObjectSpec::GrpcRoute),
        "TLSRoute" => gateway(value, GatewayObjectSpec::TlsRoute),
        "TCPRoute" => gateway(value, GatewayObjectSpec::TcpRoute),
        "UDPRoute" => gateway(value, GatewayObjectSpec::UdpRoute),
        "ReferenceGrant" => gateway(value, GatewayObjectSpec::ReferenceGrant),
        _ => gateway(value, GatewayObjectSpec::BackendTlsPolicy),
    };
    let decoded = decoded.map_err(|f| fail(&object, f))?;
    match &decoded {
        Object::Ingress(o) => check::ingress(o),
        Object::IngressClass(o) => check::ingress_class(o),
        Object::Service(o) => check::service(o),
        Object::EndpointSlice(o) => check::endpoint_slice(o),
        Object::ProxyFleet(o) => check::proxy_fleet(o),
        Object::Secret(_) | Object::ConfigMap(_) | Object::Namespace(_) | Object::Gateway(_) => Ok(()),
    }
    .map_err(|f| fail(&object, f))?;
    Ok(decoded)
}

/// Fills in the namespace as `kubectl` would, and gives the name.
fn prepare_metadata(value: &mut Value, namespaced: bool) -> NamespacedName {
    let text = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text(value, "/metadata/name");
    let mut namespace = text(value, "/metadata/namespace");
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        if !namespaced {
            namespace.clear();
            metadata.remove("namespace");
        } else if namespace.is_empty() && metadata.get("namespace").is_none_or(|n| n.is_null() || n == "") {
            namespace = "default".to_owned();
            metadata.insert("namespace".to_owned(), Value::String(namespace.clone()));
        }
    }
    NamespacedName::new(namespace, name)
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(&value).map_err(|error| {
        let path = error.path().to_string();
        let at = path.replace('[', ".").replace(']', "");
        let seen = at.split('.').filter(|p| !p.is_empty()).try_fold(&value, |v, key| match v {
            Value::Array(list) => key.parse::<usize>().ok().and_then(|i| list.get(i)),
            other => other.get(key),
        });
        let shown = seen.map_or_else(|| "not given".to_owned(), Value::to_string);
        (path, shown, error.into_inner().to_string())
    })
}

fn gateway<S: DeserializeOwned>(value: Value, wrap: fn(S) -> GatewayObjectSpec) -> Result<Object, Fault> {
    typed::<Whole<S>>(value).map(|whole| Object::Gateway(whole.object(wrap)))
}

/// Secrets are read by hand: their values are wiped from the JSON and never shown.
fn secret(mut value: Value) -> Result<Secret, Fault> {
    let hidden = || "(not shown)".to_owned();
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut data = BTreeMap::new();
    // `stringData` is written over `data` by the API server.
    for (field, encoded) in [("data", true), ("stringData", false)] {
        let values = match value.get_mut(field).map(Value::take) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(values)) => values,
            Some(_) => return Err((field.to_owned(), hidden(), "must be a map of names to texts".to_owned())),
        };
        for (key, entry) in values {
            let mut text = match entry {
                Value::String(text) => text,
                Value::Null => String::new(),
                _ => return Err((format!("{field}.{key}"), hidden(), "must be a text".to_owned())),
            };
            let bytes = if encoded {
                // Line breaks inside of base64 are accepted by the API server.
                let mut joined: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
                let bytes = base64::engine::general_purpose::STANDARD.decode(&joined);
                joined.zeroize();
                text.zeroize();
                bytes.map_err(|_| (format!("{field}.{key}"), hidden(), "must be base64".to_owned()))?
            } else {
                text.into_bytes()
            };
            let bytes = SecretBytes::new(bytes);
            if Secret::VALUES.contains(&key.as_str()) {
                data.insert(key, bytes);
            }
        }
    }
    let metadata: Value = value.get_mut("metadata").map(Value::take).unwrap_or_default();
    let metadata: ObjectMeta = typed(metadata).map_err(|(f, v, w)| (format!("metadata.{f}"), v, w))?;
    Ok(Secret { metadata, kind, data })
}
