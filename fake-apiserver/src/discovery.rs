//! Paths without objects behind them: version, health, and which kinds there are.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds};
use crate::request::Response;

/// The answer to a `GET`, or what the real one says to a path that leads nowhere.
pub(crate) fn answer(path: &[String], kinds: &Kinds) -> Response {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let found = match path.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Response::text(200, "ok"),
        ["version"] => Some(json!({
            "major": "1", "minor": "37", "gitVersion": "v1.37.0-fake", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
        })),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let groups: Vec<Value> = groups(kinds).into_iter().map(|(name, versions)| group(name, &versions)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => groups(kinds).get(name).map(|versions| {
            let mut found = group(name, versions);
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            found
        }),
        ["api", version] => resources(kinds, "", version),
        ["apis", group, version] => resources(kinds, group, version),
        _ => None,
    };
    found.map_or_else(|| Response::text(404, "404 page not found\n"), |object| Response::json(200, &object))
}

/// The versions of each group but the core one, the preferred one first.
fn groups(kinds: &Kinds) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in kinds.all().filter(|kind| !kind.group.is_empty()) {
        let versions = groups.entry(&kind.group).or_default();
        for version in &kind.versions {
            if !versions.contains(&version.as_str()) {
                versions.push(version);
            }
        }
    }
    groups
}

fn group(name: &str, versions: &[&str]) -> Value {
    let of = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(of).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(of),
    })
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let served = |kind: &&Kind| kind.group == group && kind.versions.iter().any(|one| one == version);
    let mut list = Vec::new();
    for kind in kinds.all().filter(served) {
        let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let entry = |name: String, verbs: &[&str]| {
            json!({
                "name": name, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": verbs,
            })
        };
        list.push(entry(kind.plural.clone(), &verbs));
        if kind.status {
            list.push(entry(format!("{}/status", kind.plural), &["get", "patch", "update"]));
        }
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!list.is_empty())
        .then(|| json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list}))
}
