//! What only a clock brings about: bookmarks, ends, and watches that are too slow; and what a test does beside all requests.

// Outside of test functions clippy does not know that this is a test.
#![allow(clippy::unwrap_used)]

use fake_apiserver::{Generation, Kind, Method, Next, Reply, Request, Response, Server, Settings, WatchId};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings { bookmarks: 1000, watch_lasts: 10_000, watch_queue: 2, ..Settings::default() }
}

fn open(server: &mut Server, now: u64, query: &str) -> WatchId {
    match server.request(now, Request::new(Method::Get, &format!("/api/v1/secrets?watch=1&resourceVersion=100{query}")))
    {
        Reply::Watch(id) => id,
        other => panic!("no watch but {other:?}"),
    }
}

fn get(server: &mut Server, path: &str) -> Response {
    match server.request(0, Request::new(Method::Get, path)) {
        Reply::Answer(response) => response,
        other => panic!("no answer but {other:?}"),
    }
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

fn event(next: &Next) -> Value {
    match next {
        Next::Bytes(line) => serde_json::from_slice(line).unwrap(),
        other => panic!("no event but {other:?}"),
    }
}

#[test]
fn bookmarks_come_in_time_to_those_who_want_them_and_carry_the_version() {
    let mut server = Server::new(settings());
    let [with, without] = ["&allowWatchBookmarks=true", ""].map(|query| open(&mut server, 0, query));
    assert_eq!(server.next(999, with), Next::Wait(1000));
    server.pass_versions(50);
    let bookmark = event(&server.next(1000, with));
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "Secret");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], server.version().to_string());
    assert_eq!(server.next(1000, with), Next::Wait(2000));
    assert_eq!(server.next(1000, without), Next::Wait(10_000));
    server.send_bookmarks();
    assert_eq!(event(&server.next(1001, with))["type"], "BOOKMARK", "one was asked for");
}

#[test]
fn a_watch_ends_in_time_with_a_bookmark_at_the_end() {
    let mut server = Server::new(settings());
    let id = open(&mut server, 5000, "&allowWatchBookmarks=true&timeoutSeconds=3");
    assert_eq!(event(&server.next(8000, id))["type"], "BOOKMARK");
    assert_eq!(server.next(8000, id), Next::End);
    assert_eq!(server.open_watches(None), 0);
    let id = open(&mut server, 5000, "");
    assert_eq!(server.next(5000, id), Next::Wait(15_000), "without a time it lasts as long as the settings say");
    assert_eq!(server.next(15_000, id), Next::End);
}

#[test]
fn a_watch_that_is_too_slow_is_ended() {
    let mut server = Server::new(settings());
    let id = open(&mut server, 0, "");
    for name in ["a", "b", "c"] {
        server.apply(0, secret(name)).unwrap();
    }
    assert_eq!(server.next(0, id), Next::End, "three events waited where two may");
}

#[test]
fn events_after_the_end_of_a_watch_do_not_matter() {
    let mut server = Server::new(settings());
    let id = open(&mut server, 0, "");
    server.close(id);
    server.apply(0, secret("a")).unwrap();
    assert_eq!(server.next(0, id), Next::End);
}

#[test]
fn what_a_test_applies_keeps_its_birth_and_makes_its_namespace() {
    let mut server = Server::default();
    let mut ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        "metadata": {"name": "i", "namespace": "shop", "creationTimestamp": "2020-02-02T02:02:02Z", "uid": "u"}, "spec": {},
    });
    server.apply(0, ingress.clone()).unwrap();
    let kept = server.object("ingresses.networking.k8s.io", "shop", "i").unwrap().clone();
    assert_eq!(kept["metadata"]["creationTimestamp"], "2020-02-02T02:02:02Z");
    assert_eq!((&kept["metadata"]["uid"], &kept["metadata"]["generation"]), (&json!("u"), &json!(1)));
    assert_eq!(kept["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    assert_eq!(get(&mut server, "/api/v1/namespaces/shop").code, 200);
    let version = server.version();
    server.apply(5, ingress.clone()).unwrap();
    assert_eq!(server.version(), version, "nothing has changed");
    ingress["spec"]["ingressClassName"] = "nginx".into();
    server.apply(5, ingress).unwrap();
    assert_eq!(server.object("ingresses.networking.k8s.io", "shop", "i").unwrap()["metadata"]["generation"], 2);
    assert!(server.apply(0, json!({"apiVersion": "v9", "kind": "Nothing", "metadata": {"name": "x"}})).is_err());
    assert!(server.remove("ingresses.networking.k8s.io", "shop", "i"));
    assert!(!server.remove("ingresses.networking.k8s.io", "shop", "i"));
}

#[test]
fn a_kind_is_there_only_while_it_is_defined() {
    let mut server = Server::default();
    let path = "/apis/gateway.networking.k8s.io/v1/gateways";
    assert_eq!(get(&mut server, path).code, 404);
    assert_eq!(get(&mut server, "/apis/gateway.networking.k8s.io/v1").code, 404);
    let gateways = Kind::custom("gateway.networking.k8s.io", &["v1", "v1beta1"], "Gateway", "gateways", true);
    assert_eq!(gateways.generation, Generation::Custom);
    server.define(gateways);
    assert_eq!(get(&mut server, path).object()["kind"], "GatewayList");
    let found = get(&mut server, "/apis/gateway.networking.k8s.io/v1beta1").object();
    assert_eq!(found["resources"][0]["name"], "gateways");
    let Reply::Watch(id) = server.request(0, Request::new(Method::Get, &format!("{path}?watch=1"))) else {
        panic!("no watch")
    };
    let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "g"}});
    server.apply(0, object).unwrap();
    assert!(server.undefine("gateways.gateway.networking.k8s.io"));
    assert_eq!(event(&server.next(0, id))["type"], "ADDED");
    assert_eq!(event(&server.next(0, id))["type"], "DELETED");
    assert_eq!(server.next(0, id), Next::End);
    assert_eq!(get(&mut server, path).code, 404);
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    let mut server = Server::default();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}});
    server.apply(0, map).unwrap();
    let Reply::Answer(answer) = server.request(0, Request::new(Method::Delete, "/api/v1/namespaces/shop")) else {
        panic!("no answer")
    };
    assert_eq!(answer.object()["status"]["phase"], "Terminating");
    assert_eq!(server.objects("configmaps").count(), 0);
    assert_eq!(get(&mut server, "/api/v1/namespaces/shop").code, 404);
}

#[test]
fn discovery_names_every_kind_under_its_version() {
    let mut server = Server::default();
    assert_eq!(get(&mut server, "/version").object()["minor"], "37");
    assert_eq!(&get(&mut server, "/readyz").body[..], b"ok");
    let groups = get(&mut server, "/apis").object();
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "networking.k8s.io"), "{groups}");
    let core = get(&mut server, "/api/v1").object();
    let names: Vec<_> = core["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"pods/status") && names.contains(&"configmaps") && !names.contains(&"configmaps/status"));
}
