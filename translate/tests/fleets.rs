//! Fleets that objects declare: they come, change and go, and nothing of another fleet does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod support;

use config::{Kind, ObjectRef};
use serde_json::{Value, json};
use support::object;
use translate::{Change, Delta, Engine, FleetDelta, FleetName, Served, Settings, Translation, translate};

fn put(value: Value) -> Change {
    Change::Put(object(value))
}

fn class(name: &str, fleet: Option<&str>) -> Change {
    let parameters = fleet.map(|fleet| {
        json!({"apiGroup": "scalws.io", "kind": "ProxyFleet", "scope": "Namespace", "namespace": "proxies", "name": fleet})
    });
    put(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": name},
        "spec": {"controller": "scalws.io/ingress-controller", "parameters": parameters},
    }))
}

fn ingress(name: &str, class: &str, host: &str) -> Change {
    put(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "shop", "name": name},
        "spec": {"ingressClassName": class, "rules": [{"host": host, "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}},
        ]}}]},
    }))
}

fn fleet(name: &str, ports: Option<(u16, u16)>) -> Change {
    let listeners = ports.map(|(http, https)| {
        json!([{"name": "http", "port": http, "protocol": "HTTP"}, {"name": "https", "port": https, "protocol": "HTTPS"}])
    });
    put(json!({
        "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": {"namespace": "proxies", "name": name},
        "spec": {"workload": {"kind": "DaemonSet", "name": name}, "listeners": listeners},
    }))
}

fn gone(name: &str) -> Change {
    let (kind, namespace, name) = ("ProxyFleet".to_owned(), "proxies".to_owned(), name.to_owned());
    Change::Delete(ObjectRef { kind, namespace, name })
}

fn named(name: &str) -> FleetName {
    FleetName::new("proxies", name)
}

fn settings() -> Settings {
    Settings { builtin_classes: false, fleets_are_fixed: false, ..Settings::local(80, 443) }
}

/// Two fleets, each with a class and so many Ingresses on the same hosts, beside the default one.
fn world(first: usize, second: usize) -> Engine {
    let mut engine = Engine::new(settings());
    let mut changes = vec![
        class("first", Some("first")),
        class("second", Some("second")),
        fleet("first", None),
        fleet("second", Some((8080, 8443))),
        put(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"ports": [{"port": 80}]},
        })),
    ];
    changes.extend((0..first).map(|n| ingress(&format!("first-{n}"), "first", &format!("h{n}.example"))));
    changes.extend((0..second).map(|n| ingress(&format!("second-{n}"), "second", &format!("h{n}.example"))));
    engine.apply(changes);
    engine
}

fn served(translation: &Translation, ingress: &str) -> Served {
    let id = ObjectRef { kind: "Ingress".to_owned(), namespace: "shop".to_owned(), name: ingress.to_owned() };
    translation.drafts[&(&id).into()].served
}

/// What is said of a ProxyFleet: how much is served, and the reasons.
fn said(translation: &Translation, name: &str) -> (Served, Vec<&'static str>) {
    let id = ObjectRef { kind: "ProxyFleet".to_owned(), namespace: "proxies".to_owned(), name: name.to_owned() };
    let draft = &translation.drafts[&(&id).into()];
    (draft.served, draft.findings.iter().map(|finding| finding.reason).collect())
}

/// The step, which touches no other fleet and leads where the definition does.
fn apply(engine: &mut Engine, touched: &str, changes: Vec<Change>) -> FleetDelta {
    let mut delta: Delta = engine.apply(changes);
    assert_eq!(engine.translation(), translate(engine.world()));
    let of_fleet = delta.fleets.remove(&named(touched)).unwrap_or_default();
    assert!(delta.fleets.is_empty(), "a change of {touched} says something about {:?}", delta.fleets.keys());
    of_fleet
}

#[test]
fn a_class_may_name_a_fleet_that_comes_later() {
    let mut engine = world(2, 2);
    engine.apply(vec![class("third", Some("third")), ingress("late", "third", "h0.example")]);
    assert_eq!(served(&engine.translation(), "late"), Served::Refused);
    let delta = apply(&mut engine, "third", vec![fleet("third", Some((81, 444)))]);
    let kinds: Vec<Kind> = delta.puts.iter().map(|resource| resource.id.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Host).count(), 2, "on both listeners: {kinds:?}");
    assert_eq!((kinds.len(), delta.ended), (2 + 2 + 1 + 1, false), "listeners, hosts, a fragment, a pool");
    assert_eq!(served(&engine.translation(), "late"), Served::Full);
    assert_eq!(said(&engine.translation(), "third"), (Served::Full, vec![]));
}

#[test]
fn the_end_of_a_fleet_is_one_word_and_no_removals() {
    let mut engine = world(3, 2);
    let delta = apply(&mut engine, "first", vec![gone("first")]);
    assert_eq!(delta, FleetDelta { ended: true, ..FleetDelta::default() });
    assert_eq!(served(&engine.translation(), "first-0"), Served::Refused);
    assert_eq!(served(&engine.translation(), "second-0"), Served::Full);
    assert!(!engine.world().fleets().contains_key(&named("first")));
    let again = apply(&mut engine, "first", vec![fleet("first", None)]);
    assert_eq!(again.puts.len(), 2 + 3 * 3 + 1, "all of it comes again");
}

#[test]
fn other_ports_cost_what_the_fleet_costs() {
    let cost = |others: usize| {
        let mut engine = world(3, others);
        let delta = apply(&mut engine, "first", vec![fleet("first", Some((81, 444)))]);
        assert!(delta.removes.iter().all(|id| matches!(id.kind, Kind::Listener | Kind::Host)), "{:?}", delta.removes);
        assert_eq!((delta.removes.len(), delta.puts.len()), (2 + 2 * 3, 2 + 2 * 3 + 3));
        engine.units_run()
    };
    assert_eq!(cost(1), cost(200));
}

#[test]
fn another_workload_changes_no_configuration_and_runs_nothing_else() {
    let mut engine = world(5, 5);
    let mut other = json!({
        "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": {"namespace": "proxies", "name": "first"},
        "spec": {"workload": {"kind": "Deployment", "name": "edge"}},
    });
    let delta = engine.apply(vec![put(other.clone())]);
    assert!(delta.is_empty() && engine.units_run() == 1);
    let workload = engine.world().fleets()[&named("first")].clone().unwrap();
    assert_eq!((workload.kind.as_str(), workload.name.as_str()), ("Deployment", "edge"));
    other["spec"]["workload"]["name"] = json!("Edge");
    assert!(translate::Object::from_value(other).unwrap_err().to_string().contains("spec.workload.name"));
}

#[test]
fn listeners_that_cannot_be_are_said_and_the_fleet_is_none() {
    let listener = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
    let (http, https) = (listener("a", 80, "HTTP"), listener("b", 443, "HTTPS"));
    let wrong = [
        json!([]),
        json!([http]),
        json!([http, http]),
        json!([http, https, listener("c", 444, "HTTPS")]),
        json!([http, listener("b", 80, "HTTPS")]),
        json!([listener("a", 0, "HTTP"), https]),
    ];
    for listeners in wrong {
        let mut engine = world(1, 1);
        let delta = apply(
            &mut engine,
            "first",
            vec![put(json!({
                "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": {"namespace": "proxies", "name": "first"},
                "spec": {"workload": {"kind": "DaemonSet", "name": "first"}, "listeners": listeners},
            }))],
        );
        assert!(delta.ended, "{listeners}");
        assert_eq!(said(&engine.translation(), "first"), (Served::Refused, vec!["Rejected"]), "{listeners}");
        assert_eq!(served(&engine.translation(), "first-0"), Served::Refused);
        assert!(!engine.world().fleets().contains_key(&named("first")), "its pods are nobody");
        let delta = apply(&mut engine, "first", vec![fleet("first", None)]);
        assert!(!delta.puts.is_empty(), "mended");
    }
}

#[test]
fn a_fleet_without_a_class_has_its_listeners_and_nothing_else() {
    let mut engine = world(2, 2);
    let delta = apply(&mut engine, "first", vec![class("first", Some("nobody"))]);
    assert!(delta.puts.is_empty() && delta.removes.iter().all(|id| id.kind != Kind::Listener));
    assert_eq!(said(&engine.translation(), "first"), (Served::Full, vec!["NoClass"]));
    assert!(!engine.world().fleets_named_by_classes().contains(&named("first")));
}

#[test]
fn a_fleet_of_the_command_line_takes_the_ports_of_its_object_unless_they_are_fixed() {
    let object = || {
        put(json!({
            "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": {"namespace": "scalws", "name": "default"},
            "spec": {"workload": {"kind": "DaemonSet", "name": "edge"}, "listeners": [
                {"name": "a", "port": 8080, "protocol": "HTTP"}, {"name": "b", "port": 8443, "protocol": "HTTPS"},
            ]},
        }))
    };
    for (fixed, expected) in [(true, ["tcp/443", "tcp/80"]), (false, ["tcp/8080", "tcp/8443"])] {
        let mut engine = Engine::new(Settings { fleets_are_fixed: fixed, ..Settings::local(80, 443) });
        engine.apply(vec![object()]);
        let translation = engine.translation();
        let fleet = &translation.fleets[&FleetName::new("scalws", "default")];
        let names: Vec<String> = fleet.resources.keys().map(|id| id.name.to_string()).collect();
        assert_eq!(names, expected);
        let id =
            ObjectRef { kind: "ProxyFleet".to_owned(), namespace: "scalws".to_owned(), name: "default".to_owned() };
        let notes: Vec<_> = translation.drafts[&(&id).into()].findings.iter().map(|finding| finding.reason).collect();
        assert_eq!(notes, if fixed { vec!["ListenersFixed"] } else { vec![] }, "the builtin class names it");
        assert!(
            engine.world().fleets()[&FleetName::new("scalws", "default")].is_some(),
            "its workload counts either way"
        );
    }
}
