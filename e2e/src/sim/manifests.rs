//! Random objects of a small, crowded cluster with two fleets, and the ones that nobody ever touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ObjectRef;
use serde_json::{Value, json};
use translate::{FleetName, FleetSettings, Object, Settings};

use super::dice::Dice;

/// The objects of a cluster.
pub(crate) type Objects = BTreeMap<ObjectRef, Arc<Object>>;

/// Namespaces whose Ingresses use the class of the first fleet, and of the second. They never mix, so a name of the
/// other fleet's namespaces in an agent is a leak.
pub(crate) const NAMESPACES: [[&str; 2]; 2] = [["a-1", "a-2"], ["b-1", "b-2"]];
/// A Service whose routes kill the simulated proxy while it loads them.
pub(crate) const DEADLY: &str = "deadly";
/// A Service whose routes the simulated proxy cannot build.
pub(crate) const UNBUILT: &str = "unbuilt";
/// The Ingress of every namespace that nobody edits or deletes.
pub(crate) const KEPT: &str = "kept";

/// What stands before the mark in a path of a kept Ingress.
const MARK: &str = "mark-";

/// The fleets, in the order of [`NAMESPACES`].
pub(crate) fn fleets() -> [FleetName; 2] {
    [Settings::local(80, 443).default_fleet, FleetName::new("edge", "second")]
}

/// Settings with both fleets.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::local(80, 443);
    settings.fleets.insert(fleets()[1].clone(), FleetSettings { http_port: 8080, https_port: 8443 });
    settings
}

/// What is there at the start and stays.
pub(crate) fn first() -> Objects {
    let mut objects = Objects::new();
    put(&mut objects, class());
    for (fleet, namespaces) in NAMESPACES.iter().enumerate() {
        for namespace in namespaces {
            put(&mut objects, service(namespace, "kept"));
            put(&mut objects, slice(namespace, "kept", &[address(0)]));
            put(&mut objects, secret(namespace, "kept-tls", 0));
            put(&mut objects, kept(fleet, namespace, 0));
            for name in ["s0", DEADLY, UNBUILT] {
                put(&mut objects, service(namespace, name));
            }
        }
    }
    objects
}

/// One edit: a few objects come, change or go.
pub(crate) fn edit(dice: &mut Dice, objects: &mut Objects, poison: bool, mark: &mut u64) {
    for _ in 0..1 + dice.below(4) {
        let fleet = dice.index(2);
        let namespace = *dice.pick(&NAMESPACES[fleet]);
        let name = |prefix: &str, dice: &mut Dice| format!("{prefix}{}", dice.below(4));
        let value = match dice.below(12) {
            0..=3 => ingress(dice, fleet, namespace, poison),
            4..=6 => {
                let addresses: Vec<Value> =
                    (0..dice.below(5)).map(|_| json!(format!("10.0.0.{}", 1 + dice.below(20)))).collect();
                let service = name("s", dice);
                slice(namespace, &service, &addresses)
            }
            7 => service(namespace, &name("s", dice)),
            8 => {
                let name = name("t", dice);
                secret(namespace, &name, dice.index(3))
            }
            9 => {
                touch_kept(objects, fleet, namespace, mark);
                continue;
            }
            10 => {
                move_kept(objects, namespace, mark);
                continue;
            }
            _ => {
                let (kind, prefix) =
                    *dice.pick(&[("Ingress", "i"), ("Service", "s"), ("EndpointSlice", "s"), ("Secret", "t")]);
                let name = name(prefix, dice);
                objects.remove(&ObjectRef { kind: kind.to_owned(), namespace: namespace.to_owned(), name });
                continue;
            }
        };
        put(objects, value);
    }
}

/// An edit whose only effect is new members for a Service that is always referred to.
pub(crate) fn move_kept(objects: &mut Objects, namespace: &str, mark: &mut u64) {
    *mark += 1;
    put(objects, slice(namespace, "kept", &[address(*mark)]));
}

/// An edit of the Ingress that is always there.
pub(crate) fn touch_kept(objects: &mut Objects, fleet: usize, namespace: &str, mark: &mut u64) {
    *mark += 1;
    put(objects, kept(fleet, namespace, *mark));
}

/// The address that says which edit it came with. Marks grow.
fn address(mark: u64) -> Value {
    json!(format!("10.1.{}.{}", mark / 250, 1 + mark % 250))
}

/// The mark of an address and port; none if it has none.
pub(crate) fn mark_of_member(member: &str) -> Option<u64> {
    let (address, _) = member.strip_prefix("10.1.")?.split_once(':')?;
    let (high, low) = address.split_once('.')?;
    Some(high.parse::<u64>().ok()? * 250 + low.parse::<u64>().ok()? - 1)
}

/// The mark in the path of a kept Ingress, in the body of its fragment.
pub(crate) fn mark_of_body(body: &[u8]) -> Option<u64> {
    let at = body.windows(MARK.len()).position(|window| window == MARK.as_bytes())? + MARK.len();
    let digits: Vec<u8> = body[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

fn put(objects: &mut Objects, value: Value) {
    let object = Object::from_value(value).expect("the simulation makes objects that an API server would admit");
    objects.insert(object.reference(), Arc::new(object));
}

fn class() -> Value {
    let fleet = &fleets()[1];
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "second"},
        "spec": {"controller": translate::INGRESS_CONTROLLER, "parameters": {"apiGroup": "scalws.io",
            "kind": "ProxyFleet", "scope": "Namespace", "namespace": fleet.namespace, "name": fleet.name}}})
}

fn class_of(fleet: usize) -> &'static str {
    ["nginx", "second"][fleet]
}

fn kept(fleet: usize, namespace: &str, mark: u64) -> Value {
    let host = format!("kept.{namespace}.example");
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": KEPT, "namespace": namespace, "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"ingressClassName": class_of(fleet), "tls": [{"hosts": [host], "secretName": "kept-tls"}],
            "rules": [{"host": host, "http": {"paths": [path("/", "kept"), path(&format!("/{MARK}{mark}"), "kept")]}}]}})
}

fn path(path: &str, service: &str) -> Value {
    json!({"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}})
}

fn ingress(dice: &mut Dice, fleet: usize, namespace: &str, poison: bool) -> Value {
    let service = |dice: &mut Dice| match dice.below(if poison { 8 } else { 4 }) {
        6 => UNBUILT.to_owned(),
        7 => DEADLY.to_owned(),
        n => format!("s{}", n % 4),
    };
    let hosts = ["h1.example", "h2.example", "*.example"];
    let host = format!("{}.{}", dice.pick(&hosts), ["a", "b"][fleet]);
    let paths: Vec<Value> = (0..1 + dice.below(3))
        .map(|_| {
            let at = format!("/p{}", dice.below(6));
            path(&at, &service(dice))
        })
        .collect();
    let tls = if dice.one_in(2) {
        json!([{"hosts": [host], "secretName": format!("t{}", dice.below(4))}])
    } else {
        json!([])
    };
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": format!("i{}", dice.below(4)), "namespace": namespace,
            "creationTimestamp": format!("2024-01-01T00:00:0{}Z", dice.below(4))},
        "spec": {"ingressClassName": class_of(fleet), "tls": tls,
            "rules": [{"host": host, "http": {"paths": paths}}]}})
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"port": 80, "targetPort": 8080}]}})
}

fn slice(namespace: &str, service: &str, addresses: &[Value]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": service, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": endpoints, "ports": [{"port": 8080, "protocol": "TCP"}]})
}

/// A TLS Secret with one of three pairs, which all cover every host of the simulation.
fn secret(namespace: &str, name: &str, content: usize) -> Value {
    let (chain, key) = PAIRS[content];
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace}, "stringData": {"tls.crt": chain, "tls.key": key}})
}

/// Three self-signed certificates with their keys, made once for the simulation (`openssl req -x509`) and used nowhere
/// else. Files, because a key made at run time would differ from run to run, and so would everything that follows.
const PAIRS: [(&str, &str); 3] = [
    (include_str!("pairs/0.crt"), include_str!("pairs/0.key")),
    (include_str!("pairs/1.crt"), include_str!("pairs/1.key")),
    (include_str!("pairs/2.crt"), include_str!("pairs/2.key")),
];
