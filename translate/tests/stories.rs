//! Stories: small worlds in YAML with what must come out, one file each, read by one runner.
//!
//! A story gives `services` (port 80 named `http`, target 8080, one slice with these addresses), `certificates` (a Secret
//! for these names), `ingresses` in short form, and any other `objects` as manifests. `expect` says the whole of each
//! part that it mentions; findings that it does not mention must not be there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use config::{Action, Body, HostTls, MemberSource, PathMatch, Share, State, TypedName};
use serde_json::{Map, Value, json};
use translate::{Change, Engine, Object, Severity, Translation, World, translate};

/// `name/space` to the two halves.
fn halves(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or_else(|| panic!("{text:?} is not namespace/name"))
}

fn entries(story: &Value, key: &str) -> Vec<(String, Value)> {
    let map = story.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    map.into_iter().collect()
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn services(story: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    for (name, addresses) in entries(story, "services") {
        let (namespace, service) = halves(&name);
        let endpoints: Vec<Value> =
            addresses.as_array().unwrap().iter().map(|address| json!({"addresses": [address]})).collect();
        out.push(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": service},
            "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }));
        out.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
            "endpoints": endpoints, "ports": [{"name": "http", "port": 8080}],
        }));
    }
    out
}

fn certificates(story: &Value) -> Vec<Value> {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let secrets = entries(story, "certificates").into_iter().map(|(name, names)| {
        let (namespace, secret) = halves(&name);
        let names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let (chain, key) = support::certificate(&names);
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"namespace": namespace, "name": secret}, "data": {"tls.crt": encode(&chain), "tls.key": encode(&key)},
        })
    });
    secrets.collect()
}

fn backend(text: &str) -> Value {
    let (service, port) = text.split_once(':').unwrap();
    let port = port.parse::<u16>().map_or_else(|_| json!({"name": port}), |number| json!({"number": number}));
    json!({"service": {"name": service, "port": port}})
}

/// `host path type service:port`, or a host alone; `*` for no host.
fn rule(text: &str) -> Value {
    let parts: Vec<&str> = text.split(' ').collect();
    let mut rule = Map::new();
    if parts[0] != "*" {
        rule.insert("host".to_owned(), json!(parts[0]));
    }
    if let [_, path, kind, to] = parts[..] {
        rule.insert("http".to_owned(), json!({"paths": [{"path": path, "pathType": kind, "backend": backend(to)}]}));
    }
    Value::Object(rule)
}

fn ingress(short: &Value) -> Value {
    let text = |key: &str| short.get(key).and_then(Value::as_str);
    let (namespace, name) = halves(text("name").unwrap());
    let class = short.get("class").cloned().unwrap_or_else(|| json!("nginx"));
    let created = short.get("created").and_then(Value::as_u64).map(|day| format!("2024-01-{day:02}T00:00:00Z"));
    let rules: Vec<Value> = list(short, "rules").iter().map(|text| rule(text.as_str().unwrap())).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created, "annotations": short.get("annotations")},
        "spec": {"ingressClassName": class, "rules": rules, "tls": list(short, "tls"), "defaultBackend": text("default").map(backend)},
    })
}

fn route(path: &PathMatch, action: Option<&config::RouteAction>) -> String {
    let path = match path {
        PathMatch::Exact(path) => format!("exact {path}"),
        PathMatch::Prefix(path) => format!("prefix {path}"),
        PathMatch::Regex(path) => format!("regex {path}"),
    };
    let Some(action) = action else { return format!("{path} -> withheld") };
    let target = match &action.action {
        Action::Respond(status) => status.to_string(),
        Action::Redirect(_) => "redirect".to_owned(),
        Action::Forward(forward) => match &forward.shares[..] {
            [Share::Pool { name, .. }] => format!("{}/{}:{}", name.namespace, name.service, name.port),
            other => format!("{other:?}"),
        },
    };
    let https = action.to_https.as_ref().map_or(String::new(), |to| format!(" ({} to https)", to.status));
    format!("{path} -> {target}{https}")
}

/// What a translation says, as far as people compare it.
fn summary(translation: &Translation) -> Map<String, Value> {
    let mut hosts: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut routes = BTreeMap::new();
    let (mut members, mut pools) = (Map::new(), Map::new());
    for (fleet_name, fleet) in &translation.fleets {
        let place = |domain: &config::Domain| {
            if &*fleet_name.namespace == "scalws" { domain.to_string() } else { format!("{fleet_name} {domain}") }
        };
        for resource in fleet.resources.values() {
            let loaded = config::load(resource.id.clone(), &resource.bytes).unwrap();
            match (&loaded.name, &loaded.state) {
                (TypedName::Host(name), State::Live(Body::Host(body))) => {
                    let host = hosts.entry(place(&name.domain)).or_default();
                    host.insert("owner".to_owned(), json!(body.owner));
                    if let Some(HostTls::Terminate { certificates, .. }) = &body.tls {
                        let names: Vec<String> = certificates.iter().map(ToString::to_string).collect();
                        host.insert("certificates".to_owned(), json!(names));
                    }
                }
                (TypedName::Fragment(_), state) => {
                    let claims = loaded.claims.as_ref().unwrap();
                    for (i, one) in claims.matches.iter().enumerate() {
                        let action = match state {
                            State::Live(Body::Fragment(body)) => Some(&body.actions[i]),
                            _ => None,
                        };
                        let at = (place(&claims.host), one.key.clone());
                        assert!(routes.insert(at, route(&one.path, action)).is_none(), "two matches with one key");
                    }
                }
                (TypedName::Pool(name), State::Live(Body::Pool(body))) => {
                    if let MemberSource::Dns { host, port } = &body.members {
                        pools.insert(
                            format!("{}/{}:{}", name.namespace, name.service, name.port),
                            json!(format!("{host}:{port}")),
                        );
                    }
                }
                _ => {}
            }
        }
        for (set, addresses) in &fleet.members {
            let list: Vec<&str> = addresses.iter().map(AsRef::as_ref).collect();
            members.insert(format!("{}/{}:{}", set.namespace, set.service, set.port), json!(list));
        }
    }
    for ((host, _), route) in routes {
        let list = hosts.entry(host).or_default().entry("routes").or_insert_with(|| json!([]));
        list.as_array_mut().unwrap().push(json!(route));
    }
    let mut out = Map::new();
    out.insert("hosts".to_owned(), json!(hosts));
    out.insert("members".to_owned(), Value::Object(members));
    out.insert("external".to_owned(), Value::Object(pools));
    let served =
        translation.drafts.iter().map(|(object, draft)| (object.to_string(), json!(format!("{:?}", draft.served))));
    out.insert("served".to_owned(), Value::Object(served.collect()));
    let backends = translation.backends.iter().map(|(backend, members)| {
        (backend.to_string(), json!(members.iter().map(AsRef::as_ref).collect::<Vec<&str>>()))
    });
    let conditions = translation.drafts.iter().flat_map(|(object, draft)| {
        draft.conditions.iter().map(move |c| {
            let parent = c.parent.as_ref().map_or(String::new(), |parent| format!(" {parent}"));
            json!(format!("{object}{parent} {}={} {}", c.kind, c.status, c.reason))
        })
    });
    out.insert("conditions".to_owned(), Value::Array(conditions.collect()));
    out.insert("backends".to_owned(), Value::Object(backends.collect()));
    out
}

fn findings(translation: &Translation) -> Vec<String> {
    let all = translation.drafts.iter().flat_map(|(object, draft)| {
        draft.findings.iter().map(move |finding| {
            let severity = if finding.severity == Severity::Warning { "Warning" } else { "Note" };
            format!("{object} {severity} {}: {}: {}", finding.reason, finding.field, finding.message)
        })
    });
    all.collect()
}

fn check(file: &Path) -> Vec<String> {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(file).unwrap();
    let story: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut settings = support::settings(true, false);
    settings.allow_loopback_endpoints = story.get("loopback").is_some_and(|v| v == true);
    let mut objects = services(&story);
    objects.extend(certificates(&story));
    objects.extend(list(&story, "objects"));
    objects.extend(list(&story, "ingresses").iter().map(ingress));
    let (mut world, mut engine) = (World::new(settings.clone()), Engine::new(settings));
    for value in objects {
        let object = Object::from_value(value).unwrap_or_else(|error| panic!("{name}: {error}"));
        let change = Change::Put(object.into());
        world.apply(&change);
        engine.apply(vec![change]);
    }
    let translation = translate(&world);
    assert_eq!(&translation, &engine.translation(), "{name}: the engine differs");
    let (seen, said) = (summary(&translation), findings(&translation));
    let mut wrong = Vec::new();
    for (part, wanted) in entries(&story, "expect") {
        if part != "findings" {
            let got = seen.get(&part).unwrap_or_else(|| panic!("{name}: there is no part {part}"));
            if *got != wanted {
                wrong.push(format!("{name}: {part}\n  wanted {wanted}\n  got    {got}"));
            }
        }
    }
    // A wanted finding is `start ... part of the message`.
    let wanted: Vec<String> = story["expect"].get("findings").map_or_else(Vec::new, |list| {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    });
    let fits = |wanted: &str, got: &str| {
        let (start, part) = wanted.split_once(" ... ").unwrap_or((wanted, ""));
        got.starts_with(start) && got.contains(part)
    };
    if wanted.len() != said.len() || !wanted.iter().all(|w| said.iter().any(|got| fits(w, got))) {
        wrong.push(format!("{name}: findings\n  wanted {wanted:#?}\n  got    {said:#?}"));
    }
    wrong
}

#[test]
fn every_story_comes_true() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 25, "only {} stories were found", files.len());
    let wrong: Vec<String> = files.iter().flat_map(|file| check(file)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
