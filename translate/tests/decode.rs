//! What an API server would refuse is refused with its field, and what it would take is taken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use serde_json::{Value, json};
use translate::{DecodeError, Object};

fn ingress(spec: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "p", "namespace": "demo"}, "spec": spec})
}

fn path(path: Value) -> Value {
    ingress(json!({"rules": [{"host": "h.x.io", "http": {"paths": [path]}}]}))
}

fn web() -> Value {
    json!({"service": {"name": "web", "port": {"number": 80}}})
}

fn fault(value: Value) -> (String, String) {
    match Object::from_value(value.clone()) {
        Err(DecodeError::Invalid { field, why, .. }) => (field, why),
        other => panic!("{value}: {other:?}"),
    }
}

#[test]
fn faults_name_their_field() {
    let cases = [
        (json!({"kind": "Ingress"}), "apiVersion"),
        (json!({"apiVersion": "v1"}), "kind"),
        (json!({"apiVersion": "v1", "kind": "Service", "metadata": {}}), "metadata.name"),
        (json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "Web"}}), "metadata.name"),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a/b"}}),
            "metadata.namespace",
        ),
        (
            json!({"apiVersion": "networking.k8s.io/v1beta1", "kind": "Ingress", "metadata": {"name": "p"}}),
            "apiVersion",
        ),
        (ingress(json!({})), "spec"),
        (ingress(json!({"rules": [{"host": "10.0.0.1"}]})), "spec.rules[0].host"),
        (ingress(json!({"rules": [{"host": "Upper.x.io"}]})), "spec.rules[0].host"),
        (ingress(json!({"rules": [{"host": "a.*.x.io"}]})), "spec.rules[0].host"),
        (ingress(json!({"rules": [{"host": "*"}]})), "spec.rules[0].host"),
        (ingress(json!({"rules": [{"http": {"paths": []}}]})), "spec.rules[0].http.paths"),
        (ingress(json!({"rules": [{}], "tls": [{"hosts": ["x_y"]}]})), "spec.tls[0].hosts[0]"),
        (path(json!({"path": "/", "backend": web()})), "spec.rules[0].http.paths[0].pathType"),
        (path(json!({"path": "x", "pathType": "Prefix", "backend": web()})), "spec.rules[0].http.paths[0].path"),
        (path(json!({"path": "/a/../b", "pathType": "Exact", "backend": web()})), "spec.rules[0].http.paths[0].path"),
        (path(json!({"path": "/", "pathType": "Prefix"})), "spec.rules[0].http.paths[0]"),
        (path(json!({"path": "/", "pathType": "Prefix", "backend": {}})), "spec.rules[0].http.paths[0].backend"),
        (
            path(
                json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": "80"}}}}),
            ),
            "spec.rules[0].http.paths[0].backend.service.port.number",
        ),
        (
            path(
                json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 70000}}}}),
            ),
            "spec.rules[0].http.paths[0].backend.service.port.number",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"tls.key": "%%%"}}),
            "data.tls.key",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "labels": {"a": true}}}),
            "metadata.labels.a",
        ),
        (
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e"}, "addressType": "IPv4",
                "endpoints": [{"addresses": ["fd00::1"]}]}),
            "endpoints[0].addresses[0]",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "ExternalName"}}),
            "spec.externalName",
        ),
        (
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {"name": "p", "creationTimestamp": "yesterday"}, "spec": {"rules": [{}]}}),
            "metadata.creationTimestamp",
        ),
    ];
    for (value, field) in cases {
        let shown = value.to_string();
        assert_eq!(fault(value).0, field, "{shown}");
    }
}

#[test]
fn other_kinds_are_ignored() {
    for (version, kind) in
        [("apps/v1", "Deployment"), ("example.com/v1", "Ingress"), ("v1", "Pod"), ("serving.knative.dev/v1", "Service")]
    {
        let value = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        assert!(matches!(Object::from_value(value), Err(DecodeError::UnknownKind { .. })), "{version} {kind}");
    }
}

#[test]
fn nulls_count_as_absent_and_unknown_fields_are_dropped() {
    let value = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "p", "labels": null, "annotations": null, "creationTimestamp": null, "managedFields": []},
        "spec": {"ingressClassName": null, "tls": null, "rules": [{"host": null, "http": null}], "new": 1}, "status": {},
    });
    let object = Object::from_value(value).unwrap();
    assert_eq!(object.reference().to_string(), "Ingress/default/p");
}

#[test]
fn no_fault_shows_a_value_of_a_secret() {
    for data in [json!({"tls.key": "hunter2!"}), json!({"tls.key": 12345}), json!("hunter2!")] {
        let value = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data});
        let error = Object::from_value(value).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2") && !error.to_string().contains("12345"), "{error}");
    }
    let value =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    assert!(!format!("{:?}", Object::from_value(value).unwrap()).contains("hunter2"));
}

#[test]
fn only_the_values_that_are_read_are_kept_and_the_others_are_checked_all_the_same() {
    let object = |kind: &str, data: Value| {
        Object::from_value(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "s"}, "data": data}))
    };
    let release = "QUFB".repeat(100_000);
    let secret = json!({"tls.crt": "QQ==", "tls.key": "Qg==", "release": release});
    let Ok(Object::Secret(secret)) = object("Secret", secret) else { panic!("a Secret that cannot be read") };
    assert_eq!(secret.data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
    let Ok(Object::ConfigMap(map)) = object("ConfigMap", json!({"ca.crt": "A", "dashboard.json": release})) else {
        panic!("a ConfigMap that cannot be read")
    };
    assert_eq!(map.data.keys().collect::<Vec<_>>(), ["ca.crt"]);
    assert!(object("Secret", json!({"release": "%"})).is_err(), "no base64");
    assert!(object("ConfigMap", json!({"dashboard.json": 7})).is_err(), "no text");
}

#[test]
fn names_that_are_long_or_hold_control_characters_are_shown_short_and_escaped() {
    let name = format!("a\u{1b}[31m\n{}", "b".repeat(100_000));
    let labels = json!({ name.clone(): 7 });
    for value in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        json!({"apiVersion": "networking.k8s.io/v1beta1", "kind": "Ingress", "metadata": {"name": name}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": name}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}}),
    ] {
        let text = Object::from_value(value).unwrap_err().to_string();
        assert!(text.len() < 3_000 && !text.chars().any(char::is_control), "{} {text:.300}", text.len());
    }
}
