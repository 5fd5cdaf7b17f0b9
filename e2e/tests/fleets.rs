//! ProxyFleet at a real API server: its definition is taken, what is wrong is refused in our words, and a controller takes fleets up
//! and drops them as their objects come and go.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{ControlPlane, Pod, Settings};
use e2e::process::{program, until};
use serde_json::{Value, json};

/// The rights that are documented.
const RIGHTS: &str = include_str!("../../docs/reference/controller-rights.yaml");
/// The API server, in its own network.
const SERVER: &str = "127.0.0.1:6443";
/// Within this anything happens that needs no waiting, on a slow machine.
const SOON: Duration = Duration::from_secs(30);
/// A kind that is not served is looked for every 15 to 30 s.
const LOOKED_FOR: Duration = Duration::from_secs(50);
/// The fleet of the test.
const FLEET: &str = "proxies/edge";

const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: edge}
spec:
  controller: scalws.io/ingress-controller
  parameters: {apiGroup: scalws.io, kind: ProxyFleet, scope: Namespace, namespace: proxies, name: edge}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: other}
spec: {controller: scalws.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  ingressClassName: edge
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: elsewhere, namespace: shop}
spec:
  ingressClassName: other
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";

fn listener(name: &str, port: u32, protocol: &str) -> Value {
    json!({ "name": name, "port": port, "protocol": protocol })
}

fn fleet(name: &str, workload: Value, listeners: Option<Value>) -> Value {
    let mut spec = json!({ "workload": workload });
    if let Some(listeners) = listeners {
        spec["listeners"] = listeners;
    }
    json!({
        "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": { "name": name, "namespace": "proxies" }, "spec": spec,
    })
}

fn workload() -> Value {
    json!({ "kind": "DaemonSet", "name": "edge" })
}

fn apply(plane: &ControlPlane, object: &Value) -> Result<String> {
    plane.kubectl_reading(&object.to_string(), &["apply", "--server-side", "--filename", "-"])
}

/// What the definition refuses, each with a part of what the API server says.
fn wrong() -> Vec<(Value, &'static str)> {
    let (http, https) = (listener("http", 80, "HTTP"), listener("https", 443, "HTTPS"));
    let of = |listeners: Value| fleet("wrong", workload(), Some(listeners));
    let one_of_each = "there must be one listener with protocol HTTP and one with protocol HTTPS, and no other";
    let long = "a".repeat(64);
    vec![
        (of(json!([http])), one_of_each),
        (of(json!([])), one_of_each),
        (of(json!([http, listener("more", 81, "HTTP")])), one_of_each),
        (of(json!([http, https, listener("more", 444, "HTTPS")])), one_of_each),
        (of(json!([http, listener("https", 80, "HTTPS")])), "every listener must have a port of its own"),
        (of(json!([http, listener("http", 443, "HTTPS")])), "Duplicate value"),
        (of(json!([http, listener("https", 70_000, "HTTPS")])), "spec.listeners[1].port"),
        (of(json!([http, listener("https", 443, "TCP")])), "spec.listeners[1].protocol"),
        (fleet("wrong", json!({ "kind": "DaemonSet", "name": "Edge.1" }), None), "must be a DNS label"),
        (fleet("wrong", json!({ "kind": "DaemonSet", "name": long }), None), "must be a DNS label"),
        (fleet("wrong", json!({ "kind": "Pod", "name": "edge" }), None), "spec.workload.kind"),
        (fleet("wrong", json!({ "kind": "DaemonSet" }), None), "spec.workload.name"),
    ]
}

/// Gives the API server the definition that `scalwsctl crds` prints.
fn define(plane: &ControlPlane) -> Result<()> {
    let printed = Command::new(program("scalwsctl")?).arg("crds").output()?;
    ensure!(printed.status.success(), "scalwsctl crds: {printed:?}");
    let definition = String::from_utf8(printed.stdout)?;
    plane.kubectl_reading(&definition, &["apply", "--server-side", "--filename", "-"])?;
    let name = "customresourcedefinition/proxyfleets.scalws.io";
    plane.kubectl(&["wait", "--for=condition=Established", name, "--timeout=30s"])?;
    let faults = "jsonpath={.status.conditions[?(@.type==\"NonStructuralSchema\")].message}";
    let faults = plane.kubectl(&["get", name, "--output", faults])?;
    ensure!(faults.is_empty(), "the schema is not structural: {faults}");
    Ok(())
}

fn words(line: Option<&str>) -> Vec<String> {
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// What is wrong is refused in our words; what is right is shown with its columns.
fn the_definition_holds(plane: &ControlPlane) -> Result<()> {
    for (object, why) in wrong() {
        match plane.kubectl_reading(&object.to_string(), &["create", "--filename", "-"]) {
            Ok(_) => anyhow::bail!("{object} was taken"),
            Err(error) => {
                ensure!(format!("{error:#}").contains(why), "{object} was refused without {why:?}: {error:#}")
            }
        }
    }
    let listeners = json!([listener("http", 8080, "HTTP"), listener("https", 8443, "HTTPS")]);
    apply(plane, &fleet("edge", workload(), Some(listeners)))?;
    let shown = plane.kubectl(&["get", "scalws", "--namespace", "proxies"])?;
    let mut lines = shown.lines();
    ensure!(words(lines.next()) == ["NAME", "AGENTS", "CURRENT", "GENERATION", "LAG", "NOTLIVE", "AGE"], "{shown}");
    let explained = plane.kubectl(&["explain", "proxyfleet.spec.listeners"])?;
    ensure!(explained.contains("The ports that the proxies listen on"), "{explained}");
    Ok(())
}

/// The resources of the fleet that the controller publishes; none if there is no such fleet.
fn resources(pod: &Pod) -> Result<Option<Vec<String>>> {
    let config = pod.view("/debug/config")?;
    let fleets = config["fleets"].as_array().context("no fleets")?;
    let Some(fleet) = fleets.iter().find(|fleet| fleet["name"] == FLEET) else { return Ok(None) };
    let resources = fleet["resources"].as_array().context("no resources")?;
    Ok(Some(resources.iter().filter_map(|resource| resource["resource"].as_str().map(str::to_owned)).collect()))
}

fn served(pod: &Pod, object: &str) -> Result<Value> {
    let status = pod.view("/v1/status")?;
    let objects = status["objects"].as_array().context("no objects")?;
    Ok(objects.iter().find(|known| known["ref"] == object).map_or(Value::Null, |known| known["served"].clone()))
}

#[test]
fn a_proxy_fleet_is_checked_by_the_api_server_and_taken_up_and_dropped_by_the_controller() -> Result<()> {
    let what = "ProxyFleet at a real API server";
    let Some(plane) = ControlPlane::start(what, &Settings::default())? else { return Ok(()) };
    plane.enter()?;
    // After the move, so that its threads are there too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    plane.kubectl_reading(RIGHTS, &["apply", "--filename", "-"])?;
    for namespace in ["proxies", "shop"] {
        plane.kubectl(&["create", "namespace", namespace])?;
    }
    plane.kubectl_reading(SHOP, &["apply", "--filename", "-"])?;
    let token = plane.kubectl(&["create", "token", "scalws-controller", "--namespace", "scalws"])?;
    let mut pod = Pod::start(runtime.handle(), &plane, SERVER.parse()?, token.trim(), &[])?;
    let wait = |limit, what: &str, holds: &mut dyn FnMut() -> Result<bool>| {
        until(limit, what, holds).with_context(|| format!("{:?}\n{}", pod.readyz(), pod.log()))
    };
    wait(SOON, "the controller is ready without the definition", &mut || Ok(pod.is_well()))?;
    ensure!(served(&pod, "Ingress/shop/web")? == "refused" && resources(&pod)?.is_none(), "its fleet is not there yet");
    ensure!(served(&pod, "Ingress/shop/elsewhere")? == "full", "the fleet of the command line is");

    define(&plane)?;
    the_definition_holds(&plane)?;
    wait(LOOKED_FOR, "the fleet is taken up", &mut || Ok(resources(&pod)?.is_some()))?;
    wait(SOON, "the Ingress is served", &mut || Ok(served(&pod, "Ingress/shop/web")? == "full"))?;
    ensure!(served(&pod, "ProxyFleet/proxies/edge")? == "full", "{:?}", pod.view("/v1/status"));
    let mut has = resources(&pod)?.context("the fleet went")?;
    has.retain(|resource| resource.starts_with("listener/") || resource.starts_with("fragment/"));
    let expected = ["fragment/Ingress/shop/web/web.example.com", "listener/tcp/8080", "listener/tcp/8443"];
    ensure!(has == expected, "its own routes, and no others: {has:?}");

    let shown = || {
        let status = "jsonpath={.status.agents} {.status.generation} {.status.conditions[*].type} {.status.conditions[*].status}";
        plane.kubectl(&["get", "pf", "edge", "--namespace", "proxies", "--output", status])
    };
    // Everything above may have come in one step or in several.
    let well = |text: &str| {
        text.starts_with("0 ") && !text.starts_with("0 0") && text.ends_with(" Accepted Consented True True")
    };
    wait(SOON, "the leader writes the status", &mut || Ok(well(&shown()?)))?;
    plane.kubectl(&["delete", "ingressclass", "edge"])?;
    wait(
        SOON,
        "the class goes, and that is written",
        &mut || Ok(shown()?.ends_with(" Accepted Consented True False")),
    )?;
    let columns = plane.kubectl(&["get", "proxyfleets", "edge", "--namespace", "proxies", "--no-headers"])?;
    ensure!(words(columns.lines().next())[..3] == ["edge", "0", "0"], "{columns}");
    plane.kubectl_reading(SHOP, &["apply", "--filename", "-"])?;

    apply(&plane, &fleet("edge", workload(), None))?;
    wait(SOON, "the ports change", &mut || {
        Ok(resources(&pod)?.is_some_and(|all| all.contains(&"listener/tcp/443".to_owned())))
    })?;
    plane.kubectl(&["delete", "proxyfleet", "edge", "--namespace", "proxies"])?;
    wait(SOON, "the fleet is dropped", &mut || Ok(resources(&pod)?.is_none()))?;
    wait(SOON, "and that is said", &mut || Ok(served(&pod, "Ingress/shop/web")? == "refused"))?;
    ensure!(served(&pod, "Ingress/shop/elsewhere")? == "full", "another fleet goes on");
    pod.is_unharmed()
}
