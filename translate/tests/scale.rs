//! What a change costs does not grow with the world, and what is very large hurts only itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod support;

use config::State;
use serde_json::{Value, json};
use support::object;
use translate::{Change, Delta, Engine, Settings, Translation};

fn ingress(name: &str, host: &str, path: &str, service: &str, tls: bool) -> Value {
    let tls = if tls { json!([{"hosts": [host]}]) } else { json!([]) };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "demo", "name": name},
        "spec": {"ingressClassName": "nginx", "tls": tls, "rules": [{"host": host, "http": {"paths": [
            {"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}},
        ]}}]},
    })
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "demo", "name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn slice(service: &str, address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "demo", "name": service, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [address]}], "ports": [{"port": 8080}],
    })
}

fn put(value: Value) -> Change {
    Change::Put(object(value))
}

/// Engines over `n` Ingresses, each with a host of its own, or all on one host.
fn engine(n: usize, one_host: bool) -> Engine {
    let mut engine = Engine::new(Settings::local(80, 443));
    let mut changes = Vec::new();
    for i in 0..n {
        let host = if one_host { "all.x.io".to_owned() } else { format!("h{i}.x.io") };
        changes.push(put(ingress(&format!("i{i:05}"), &host, &format!("/{i}"), &format!("s{i}"), true)));
        changes.push(put(service(&format!("s{i}"))));
        changes.push(put(slice(&format!("s{i}"), "10.0.0.1")));
    }
    engine.apply(changes);
    engine
}

fn resources(delta: &Delta) -> usize {
    delta.fleets.values().map(|fleet| fleet.puts.len() + fleet.removes.len() + fleet.sets.len()).sum()
}

/// Units run and resources sent for each kind of point change, in the middle of the world.
fn costs(n: usize, one_host: bool) -> Vec<(usize, usize)> {
    let mut engine = engine(n, one_host);
    let host = if one_host { "all.x.io".to_owned() } else { format!("h{}.x.io", n / 2) };
    let (name, at) = (format!("i{:05}", n / 2), format!("/{}", n / 2));
    let changes = [
        put(slice(&format!("s{}", n / 2), "10.0.0.2")),
        put(ingress(&name, &host, &at, "s0", true)),
        put(ingress(&name, &host, &format!("{at}/below"), "s0", true)),
        put(ingress("new", "new.x.io", "/", "s0", false)),
        Change::Delete(object(ingress(&name, &host, &at, "s0", true)).reference()),
    ];
    changes
        .map(|change| {
            let delta = engine.apply(vec![change]);
            (engine.units_run(), resources(&delta))
        })
        .into()
}

#[test]
fn a_point_change_costs_the_same_in_a_large_world() {
    assert_eq!(costs(20, false), costs(3_000, false));
}

#[test]
fn a_point_change_costs_the_same_on_a_crowded_host() {
    let (few, many) = (costs(20, true), costs(1_000, true));
    assert_eq!(few, many);
    // A changed path of one of a thousand Ingresses sends one fragment.
    assert_eq!(many[2].1, 1);
}

#[test]
fn an_endpoint_change_sends_one_set_and_no_configuration() {
    let mut engine = engine(50, true);
    let delta = engine.apply(vec![put(slice("s7", "10.0.0.9"))]);
    let fleet = delta.fleets.values().next().unwrap();
    assert_eq!((fleet.puts.len(), fleet.removes.len(), fleet.sets.len(), delta.drafts.len()), (0, 0, 1, 0));
}

#[test]
fn the_same_object_again_is_no_change() {
    let mut engine = engine(5, false);
    assert!(engine.apply(vec![put(service("s1")), put(slice("s1", "10.0.0.1"))]).is_empty());
    assert_eq!(engine.units_run(), 0);
}

fn with_paths(paths: &[String]) -> Value {
    let backend = json!({"service": {"name": "s0", "port": {"number": 80}}});
    let paths: Vec<Value> =
        paths.iter().map(|p| json!({"path": p, "pathType": "Prefix", "backend": backend})).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "demo", "name": "big"},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "big.x.io", "http": {"paths": paths}}]},
    })
}

fn big(paths: &[String]) -> (Translation, config::Loaded) {
    let mut engine = engine(1, false);
    engine.apply(vec![put(with_paths(paths))]);
    let translation = engine.translation();
    let fleet = translation.fleets.values().next().unwrap();
    let id = fleet.resources.keys().find(|id| id.to_string() == "fragment/Ingress/demo/big/big.x.io").unwrap();
    let loaded = config::load(id.clone(), &fleet.resources[id].bytes).unwrap();
    (translation, loaded)
}

#[test]
fn a_path_too_long_to_travel_is_claimed_from_above_and_answers_503() {
    let long = format!("/a/{}/{}", "b".repeat(3_000), "c".repeat(9_000));
    let (translation, loaded) = big(&["/ok".to_owned(), long]);
    let claims = loaded.claims.unwrap();
    assert_eq!(claims.matches[1].path, config::PathMatch::Prefix(format!("/a/{}", "b".repeat(3_000))));
    let State::Live(config::Body::Fragment(body)) = loaded.state else { panic!("{:?}", loaded.state) };
    assert_eq!(body.actions[1].action, config::Action::Respond(503));
    assert!(matches!(body.actions[0].action, config::Action::Forward(_)));
    let draft = translation.drafts.iter().find(|(object, _)| &*object.key().name == "big").unwrap().1;
    assert_eq!(draft.findings[0].reason, "PathInvalid");
    assert!(draft.findings[0].message.len() < 600);
}

#[test]
fn an_ingress_with_too_many_paths_is_withheld_and_claims_its_host() {
    let paths: Vec<String> = (0..10_001).map(|i| format!("/{i}")).collect();
    let (_, loaded) = big(&paths[..10_000]);
    assert!(matches!(loaded.state, State::Live(_)), "as many as travel are served");
    let (translation, loaded) = big(&paths);
    let State::Withheld(reason) = &loaded.state else { panic!("one too many is live") };
    assert_eq!(reason.code, "TooLarge");
    assert_eq!(loaded.claims.unwrap().matches[0].path, config::PathMatch::Prefix("/".to_owned()));
    let draft = translation.drafts.iter().find(|(object, _)| &*object.key().name == "big").unwrap().1;
    assert!(draft.findings.iter().any(|finding| finding.reason == "TooLarge"));
}

#[test]
fn an_ingress_full_of_faults_costs_what_it_is_long() {
    let host = |i: usize| format!("h{i}.x.io");
    let rules: Vec<Value> = (0..4_000)
        .map(|i| {
            let backend = json!({"service": {"name": "gone", "port": {"number": 80}}});
            json!({"host": host(i), "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}})
        })
        .collect();
    let tls: Vec<Value> = (0..4_000).map(|i| json!({"hosts": [host(i)], "secretName": format!("gone{i}")})).collect();
    let mut engine = engine(1, false);
    engine.apply(vec![put(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "demo", "name": "bad"},
        "spec": {"ingressClassName": "nginx", "rules": rules, "tls": tls},
    }))]);
    let translation = engine.translation();
    let draft = translation.drafts.iter().find(|(object, _)| &*object.key().name == "bad").unwrap().1;
    assert!(draft.findings.len() < 250, "{}", draft.findings.len());
    assert!(draft.findings.iter().any(|finding| finding.reason == "MoreFindings"));
    assert!(draft.findings.iter().any(|finding| finding.reason == "SecretMissing"));
}

#[test]
fn rules_without_host_do_not_multiply_without_bound() {
    let backend = json!({"service": {"name": "s0", "port": {"number": 80}}});
    let paths: Vec<Value> =
        (0..2_000).map(|i| json!({"path": format!("/{i}"), "pathType": "Prefix", "backend": backend})).collect();
    let hosts: Vec<String> = (0..2_000).map(|i| format!("only{i}.x.io")).collect();
    let mut engine = engine(1, false);
    engine.apply(vec![put(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "demo", "name": "bad"},
        "spec": {"ingressClassName": "nginx", "rules": [{"http": {"paths": paths}}], "tls": [{"hosts": hosts}]},
    }))]);
    let translation = engine.translation();
    let draft = translation.drafts.iter().find(|(object, _)| &*object.key().name == "bad").unwrap().1;
    assert_eq!(draft.findings[0].reason, "TooLarge");
    assert_eq!(draft.findings[0].field, "spec.tls[0].hosts[10]");
}
