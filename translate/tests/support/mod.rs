//! What the tests share: random worlds, and certificates made once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use config::ObjectRef;
use proptest::prelude::*;
use serde_json::{Value, json};
use translate::{Change, FleetName, FleetSettings, Object, Settings};

/// Certificate chain and key in PEM, by a short word for the names that it covers.
pub(crate) fn certificate(names: &[&str]) -> (String, String) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn contents() -> &'static Vec<(String, String)> {
    static CONTENTS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    CONTENTS.get_or_init(|| {
        let (exact, wild, both) =
            (certificate(&["h1.x.io"]), certificate(&["*.x.io"]), certificate(&["h1.x.io", "h2.x.io", "*.x.io"]));
        let mixed = (exact.0.clone(), wild.1.clone());
        let broken = ("nothing".to_owned(), both.1.clone());
        vec![exact, wild, both, mixed, broken]
    })
}

/// Settings with two fleets without a ProxyFleet, or with one. With two their listeners are fixed.
pub(crate) fn settings(both: bool, allow_loopback: bool) -> Settings {
    let mut settings = Settings::local(80, 443);
    settings.allow_loopback_endpoints = allow_loopback;
    settings.fleets_are_fixed = both;
    if both {
        settings.fleets.insert(FleetName::new("edge", "second"), FleetSettings { http_port: 8080, https_port: 8443 });
    }
    settings
}

pub(crate) fn object(value: Value) -> Arc<Object> {
    Arc::new(Object::from_value(value).unwrap())
}

// Crowded on purpose: most objects meet on one host of one namespace, so that every stage has something to decide.
pub(crate) const NAMESPACES: [&str; 5] = ["a", "a", "a", "b", "c"];
const HOSTS: [Option<&str>; 8] = [
    Some("h1.x.io"),
    Some("h1.x.io"),
    Some("h1.x.io"),
    Some("h2.x.io"),
    Some("*.x.io"),
    Some("deep.h1.x.io"),
    Some("*.h1.x.io"),
    None,
];
const CLASSES: [Option<&str>; 9] = [
    Some("nginx"),
    Some("nginx"),
    Some("nginx"),
    Some("nginx"),
    Some("nginx"),
    Some("other"),
    Some("foreign"),
    Some("lost"),
    None,
];

fn backend() -> impl Strategy<Value = Value> {
    (0..5usize, 0..6usize).prop_map(|(service, port)| {
        if service == 4 {
            return json!({"resource": {"kind": "Bucket", "name": "x"}});
        }
        let port = match port {
            0 | 1 => json!({"number": 80}),
            2 => json!({"name": "http"}),
            3 => json!({"number": 8080}),
            4 => json!({"name": "web"}),
            _ => json!({"number": 99}),
        };
        json!({"service": {"name": format!("s{service}"), "port": port}})
    })
}

fn rule() -> impl Strategy<Value = Value> {
    let path = (
        prop::sample::select(vec!["/", "/p", "/p", "/p/"]),
        prop::sample::select(vec!["Exact", "Prefix", "Prefix", "ImplementationSpecific"]),
        backend(),
    )
        .prop_map(|(path, kind, backend)| json!({"path": path, "pathType": kind, "backend": backend}));
    (prop::sample::select(HOSTS.to_vec()), prop::collection::vec(path, 0..3)).prop_map(|(host, paths)| {
        let mut rule = json!({});
        if let Some(host) = host {
            rule["host"] = json!(host);
        }
        if !paths.is_empty() {
            rule["http"] = json!({"paths": paths});
        }
        rule
    })
}

fn tls() -> impl Strategy<Value = Value> {
    let hosts = prop::collection::vec(prop::sample::select(vec!["h1.x.io", "h2.x.io", "*.x.io", "only.x.io"]), 0..3);
    (hosts, prop::option::weighted(0.8, 0..3u8))
        .prop_map(|(hosts, secret)| json!({"hosts": hosts, "secretName": secret.map(|n| format!("t{n}"))}))
}

fn annotations() -> impl Strategy<Value = Value> {
    prop_oneof![
        12 => Just(json!({})),
        1 => Just(json!({"nginx.ingress.kubernetes.io/auth-url": "http://x"})),
        1 => Just(json!({"nginx.ingress.kubernetes.io/ssl-redirect": "false"})),
        1 => Just(json!({"nginx.ingress.kubernetes.io/force-ssl-redirect": "true"})),
        1 => Just(json!({"nginx.ingress.kubernetes.io/canary": "true"})),
        1 => Just(json!({"nginx.ingress.kubernetes.io/use-regex": "true"})),
        1 => Just(json!({"kubernetes.io/ingress.class": "nginx"})),
    ]
}

fn time(n: u8) -> String {
    format!("2024-01-01T00:00:0{n}Z")
}

fn ingress() -> impl Strategy<Value = Value> {
    let meta = (prop::sample::select(NAMESPACES.to_vec()), 0..4u8, 0..4u8, prop::sample::select(CLASSES.to_vec()));
    let spec = (
        prop::collection::vec(rule(), 0..3),
        prop::collection::vec(tls(), 0..3),
        prop::option::weighted(0.3, backend()),
        annotations(),
    );
    (meta, spec).prop_map(|((namespace, name, created, class), (rules, tls, default, annotations))| {
        let default = if rules.is_empty() && default.is_none() {
            Some(json!({"service": {"name": "s0", "port": {"number": 80}}}))
        } else {
            default
        };
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"namespace": namespace, "name": format!("i{name}"), "creationTimestamp": time(created),
                "annotations": annotations},
            "spec": {"ingressClassName": class, "rules": rules, "tls": tls, "defaultBackend": default},
        })
    })
}

fn service() -> impl Strategy<Value = Value> {
    (prop::sample::select(NAMESPACES.to_vec()), 0..4u8, 0..4u8).prop_map(|(namespace, name, form)| {
        let spec = match form {
            0 => json!({"ports": [{"port": 80, "targetPort": 8080}]}),
            1 => json!({"ports": [{"name": "http", "port": 80, "targetPort": "web"}, {"name": "alt", "port": 8080}]}),
            2 => json!({"type": "ExternalName", "externalName": "ext.example.net", "ports": [{"name": "http", "port": 80, "targetPort": 443}]}),
            _ => json!({"type": "ExternalName", "externalName": "localhost"}),
        };
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": format!("s{name}")}, "spec": spec})
    })
}

fn slice() -> impl Strategy<Value = Value> {
    let endpoint = (0..5u8, 0..4u8).prop_map(|(address, state)| {
        let address = match address {
            4 => "127.0.0.1".to_owned(),
            n => format!("10.0.0.{}", n + 1),
        };
        let conditions = match state {
            0 => json!({}),
            1 => json!({"ready": true}),
            2 => json!({"ready": false}),
            _ => json!({"ready": false, "serving": true, "terminating": true}),
        };
        json!({"addresses": [address], "conditions": conditions})
    });
    let who = (prop::sample::select(NAMESPACES.to_vec()), 0..3u8, 0..4u8);
    (who, prop::collection::vec(endpoint, 0..4), 0..3u8).prop_map(|((namespace, name, service), endpoints, ports)| {
        let ports = match ports {
            0 => json!([{"port": 8080}]),
            1 => json!([{"name": "http", "port": 8080}, {"name": "alt", "port": 9090}]),
            _ => json!([]),
        };
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": format!("e{name}"),
                "labels": {"kubernetes.io/service-name": format!("s{service}")}},
            "endpoints": endpoints, "ports": ports,
        })
    })
}

fn secret() -> impl Strategy<Value = Value> {
    (prop::sample::select(NAMESPACES.to_vec()), 0..3u8, 0..5usize).prop_map(|(namespace, name, content)| {
        let (chain, key) = &contents()[content];
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"namespace": namespace, "name": format!("t{name}")},
            "data": {"tls.crt": encode(chain), "tls.key": encode(key)},
        })
    })
}

fn class() -> impl Strategy<Value = Value> {
    (prop::sample::select(vec!["nginx", "other", "foreign", "lost"]), 0..6u8, any::<bool>(), 0..3u8).prop_map(
        |(name, parameters, default, created)| {
            let controller = if name == "foreign" { "example.com/controller" } else { "scalws.io/ingress-controller" };
            let fleet = |ns: &str, name: &str| {
                json!({"apiGroup": "scalws.io", "kind": "ProxyFleet", "scope": "Namespace", "namespace": ns, "name": name})
            };
            let parameters = match parameters {
                0 => Value::Null,
                1 => fleet("edge", "second"),
                2 => fleet("no", "where"),
                3 => fleet("edge", "third"),
                4 => fleet("scalws", "default"),
                _ => json!({"kind": "ConfigMap", "name": "x"}),
            };
            let annotations = if default { json!({"ingressclass.kubernetes.io/is-default-class": "true"}) } else { json!({}) };
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                "metadata": {"name": name, "creationTimestamp": time(created), "annotations": annotations},
                "spec": {"controller": controller, "parameters": parameters},
            })
        },
    )
}

/// The ProxyFleets: of the name of a fleet of the settings, and others.
const FLEETS: [(&str, &str); 4] = [("edge", "second"), ("edge", "third"), ("no", "where"), ("scalws", "default")];

fn proxy_fleet() -> impl Strategy<Value = Value> {
    (prop::sample::select(FLEETS.to_vec()), 0..7u8, prop::sample::select(vec!["Deployment", "DaemonSet"])).prop_map(
        |((namespace, name), listeners, workload)| {
            let listener = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
            let listeners = match listeners {
                0 | 1 => Value::Null,
                2 => json!([listener("plain", 8080, "HTTP"), listener("tls", 8443, "HTTPS")]),
                3 => json!([listener("tls", 80, "HTTPS"), listener("plain", 81, "HTTP")]),
                4 => json!([listener("plain", 80, "HTTP")]),
                5 => json!([listener("plain", 80, "HTTP"), listener("tls", 80, "HTTPS")]),
                _ => json!([listener("plain", 80, "HTTP"), listener("tls", 443, "HTTPS"), listener("more", 444, "HTTPS")]),
            };
            json!({
                "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": {"namespace": namespace, "name": name},
                "spec": {"workload": {"kind": workload, "name": "edge"}, "listeners": listeners},
            })
        },
    )
}

fn gateway_class() -> impl Strategy<Value = Value> {
    (0..3u8).prop_map(|parameters| {
        let parameters = match parameters {
            0 => Value::Null,
            1 => json!({"group": "scalws.io", "kind": "ProxyFleet", "namespace": "edge", "name": "third"}),
            _ => json!({"group": "example.com", "kind": "Thing", "name": "x"}),
        };
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "g0"},
            "spec": {"controllerName": "scalws.io/gateway-controller", "parametersRef": parameters},
        })
    })
}

fn route() -> impl Strategy<Value = Value> {
    (prop::sample::select(NAMESPACES.to_vec()), 0..2u8).prop_map(|(namespace, parent)| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"namespace": namespace, "name": "r0"},
            "spec": {"parentRefs": [{"name": format!("g{parent}")}], "rules": []},
        })
    })
}

fn delete() -> impl Strategy<Value = ObjectRef> {
    let kinds = vec![
        ("Ingress", "i", 4u8),
        ("Service", "s", 4),
        ("EndpointSlice", "e", 3),
        ("Secret", "t", 3),
        ("HTTPRoute", "r", 1),
    ];
    let namespaced = (prop::sample::select(kinds), prop::sample::select(NAMESPACES.to_vec()), 0..4u8).prop_map(
        |((kind, prefix, count), namespace, n)| ObjectRef {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: format!("{prefix}{}", n % count),
        },
    );
    let class = prop::sample::select(vec!["nginx", "other", "foreign", "lost"]).prop_map(|name| ObjectRef {
        kind: "IngressClass".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    });
    let gateway_class =
        Just(ObjectRef { kind: "GatewayClass".to_owned(), namespace: String::new(), name: "g0".to_owned() });
    let fleet = prop::sample::select(FLEETS.to_vec()).prop_map(|(namespace, name)| ObjectRef {
        kind: "ProxyFleet".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    });
    prop_oneof![12 => namespaced, 2 => class, 3 => fleet, 1 => gateway_class]
}

/// Any change of a small, crowded world.
pub(crate) fn change() -> impl Strategy<Value = Change> {
    let put = prop_oneof![
        8 => ingress(),
        3 => service(),
        3 => slice(),
        2 => secret(),
        2 => class(),
        2 => proxy_fleet(),
        1 => gateway_class(),
        1 => route(),
    ];
    prop_oneof![
        40 => put.prop_map(|value| Change::Put(object(value))),
        10 => delete().prop_map(Change::Delete),
        1 => any::<(bool, bool)>().prop_map(|(both, loopback)| Change::Settings(settings(both, loopback))),
    ]
}
