//! Random changes of objects of every kind that a controller follows, for this server and the real one.
//!
//! Whoever has the randomness gives numbers; the same numbers give the same changes. Each edit changes the spec, where a kind
//! has one, so that the generation tells it.

use serde_json::{Value, json};

use crate::kinds::Kind;

/// The namespace of all objects that are in one.
pub const NAMESPACE: &str = "shop";
/// How many names there are of each kind.
const NAMES: u64 = 6;

/// What an object has in a number's place: everything but `apiVersion`, `kind` and `metadata`.
type Content = fn(u64) -> Value;

/// A kind whose objects change.
#[derive(Debug)]
pub struct Sample {
    /// Its name.
    pub kind: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    /// Whether its objects are in [`NAMESPACE`].
    pub namespaced: bool,
    content: Content,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// It is made or edited.
    Put(Value),
    /// It is removed.
    Remove,
    /// It is removed, and another of its name is made.
    Replace(Value),
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Of which kind.
    pub sample: &'static Sample,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub act: Act,
}

const NETWORKING: &str = "networking.k8s.io";
const GATEWAY: &str = "gateway.networking.k8s.io";
const SCALWS: &str = "scalws.io";

/// Every kind that a controller follows.
pub static SAMPLES: [Sample; 17] = [
    sample(NETWORKING, "v1", "Ingress", "ingresses", true, |number| {
        let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
        let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
        json!({ "spec": { "ingressClassName": "nginx", "rules": [{ "host": host(number), "http": { "paths": paths } }] } })
    }),
    sample(NETWORKING, "v1", "IngressClass", "ingressclasses", false, |number| {
        let parameters = json!({ "apiGroup": "scalws.io", "kind": "Fleet", "name": host(number), "scope": "Cluster" });
        json!({ "spec": { "controller": "scalws.io/ingress-controller", "parameters": parameters } })
    }),
    sample(
        "",
        "v1",
        "Service",
        "services",
        true,
        |number| json!({ "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": port(number) }] } }),
    ),
    sample("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true, |number| {
        let endpoints = json!([{ "addresses": ["10.1.0.1"], "conditions": { "ready": number % 2 == 0 } }]);
        json!({ "addressType": "IPv4", "ports": [{ "name": "http", "port": port(number) }], "endpoints": endpoints })
    }),
    // "AAAA" is three bytes in base64.
    sample(
        "",
        "v1",
        "Secret",
        "secrets",
        true,
        |number| json!({ "data": { "value": format!("{:04}", number % 10_000) } }),
    ),
    sample("", "v1", "ConfigMap", "configmaps", true, |number| json!({ "data": { "value": number.to_string() } })),
    sample("", "v1", "Namespace", "namespaces", false, |_| json!({})),
    sample(
        GATEWAY,
        "v1",
        "GatewayClass",
        "gatewayclasses",
        false,
        |number| json!({ "spec": { "controllerName": format!("scalws.io/{number}") } }),
    ),
    sample(GATEWAY, "v1", "Gateway", "gateways", true, |number| {
        let listener = json!({ "name": "web", "port": port(number), "protocol": "HTTP" });
        json!({ "spec": { "gatewayClassName": "scalws", "listeners": [listener] } })
    }),
    sample(
        SCALWS,
        "v1alpha1",
        "ProxyFleet",
        "proxyfleets",
        true,
        |number| json!({ "spec": { "workload": { "kind": "DaemonSet", "name": format!("edge-{number}") } } }),
    ),
    sample(GATEWAY, "v1", "HTTPRoute", "httproutes", true, route),
    sample(GATEWAY, "v1", "GRPCRoute", "grpcroutes", true, route),
    sample(GATEWAY, "v1alpha2", "TLSRoute", "tlsroutes", true, route),
    sample(GATEWAY, "v1alpha2", "TCPRoute", "tcproutes", true, route),
    sample(GATEWAY, "v1alpha2", "UDPRoute", "udproutes", true, route),
    sample(GATEWAY, "v1beta1", "ReferenceGrant", "referencegrants", true, |number| {
        let from = json!([{ "group": GATEWAY, "kind": "HTTPRoute", "namespace": format!("team-{number}") }]);
        json!({ "spec": { "from": from, "to": [{ "group": "", "kind": "Service" }] } })
    }),
    sample(GATEWAY, "v1", "BackendTLSPolicy", "backendtlspolicies", true, |number| {
        let target = json!({ "group": "", "kind": "Service", "name": "web" });
        json!({ "spec": { "targetRefs": [target], "validation": { "hostname": host(number), "wellKnownCACertificates": "System" } } })
    }),
];

const fn sample(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    content: Content,
) -> Sample {
    Sample { kind, group, version, plural, namespaced, content }
}

fn host(number: u64) -> String {
    format!("h{number}.example")
}

fn port(number: u64) -> u64 {
    1000 + number % 60_000
}

/// Any route: those that have no hosts are not told of them.
fn route(number: u64) -> Value {
    let rules = json!([{ "backendRefs": [{ "name": "web", "port": port(number) }] }]);
    json!({ "spec": { "parentRefs": [{ "name": "gate" }], "hostnames": [host(number)], "rules": rules } })
}

impl Sample {
    /// An object of this name; another number is another state of it.
    pub fn object(&self, name: &str, number: u64) -> Value {
        let mut object = (self.content)(number);
        object["apiVersion"] = self.api_version().into();
        object["kind"] = self.kind.into();
        object["metadata"] = json!({ "name": name, "labels": { "number": number.to_string() } });
        if self.namespaced {
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
        object
    }

    /// `networking.k8s.io/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `ingresses.networking.k8s.io`; `secrets` in the core group.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The namespace of its objects; empty without.
    pub fn namespace(&self) -> &'static str {
        if self.namespaced { NAMESPACE } else { "" }
    }

    /// The path of its objects in [`NAMESPACE`], or of all.
    pub fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let namespace = if self.namespaced { format!("/namespaces/{NAMESPACE}") } else { String::new() };
        format!("{root}/{}{namespace}/{}", self.api_version(), self.plural)
    }

    /// Whether a server has it only with a definition.
    pub fn is_custom(&self) -> bool {
        self.group == GATEWAY || self.group == SCALWS
    }

    /// The kind as this server has it with a definition.
    pub fn custom_kind(&self) -> Kind {
        Kind::custom(self.group, &[self.version], self.kind, self.plural, self.namespaced)
    }

    /// A definition that takes everything: the least that a real server needs to serve the kind.
    pub fn definition(&self) -> Value {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({
            "name": self.version, "served": true, "storage": true, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema },
        });
        let singular = self.kind.to_lowercase();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            // Groups of Kubernetes itself ask for this.
            "metadata": { "name": self.resource(), "annotations": { "api-approved.kubernetes.io": "unapproved, for tests" } },
            "spec": {
                "group": self.group, "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "plural": self.plural, "singular": singular, "kind": self.kind, "listKind": format!("{}List", self.kind),
                },
                "versions": [version],
            },
        })
    }
}

/// The change that a random number stands for. `number` is what an edit writes: no two changes should have the same.
pub fn change(random: u64, number: u64) -> Change {
    // The parts of the number that decide are independent of each other.
    let samples = SAMPLES.len() as u64;
    let sample = SAMPLES.get(usize::try_from(random % samples).unwrap_or_default()).unwrap_or(&SAMPLES[0]);
    let name = format!("o{}", random / samples % NAMES);
    let object = sample.object(&name, number);
    let act = match random / samples / NAMES % 4 {
        0 => Act::Remove,
        1 => Act::Replace(object),
        _ => Act::Put(object),
    };
    Change { sample, name, act }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::server::Server;

    #[test]
    fn all_kinds_names_and_acts_come_up_and_this_server_takes_every_object() {
        let mut server = Server::default();
        SAMPLES.iter().filter(|sample| sample.is_custom()).for_each(|sample| server.define(sample.custom_kind()));
        let mut seen = BTreeSet::new();
        for random in 0..SAMPLES.len() as u64 * NAMES * 4 {
            let change = change(random, random);
            let act = match change.act {
                Act::Remove => "remove",
                Act::Put(object) => {
                    server.apply(0, object).unwrap();
                    "put"
                }
                Act::Replace(object) => {
                    server.apply(0, object).unwrap();
                    "replace"
                }
            };
            seen.insert((change.sample.kind, change.name, act));
        }
        assert_eq!(seen.len(), SAMPLES.len() * 6 * 3);
    }
}
