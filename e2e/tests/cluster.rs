//! A real Kubernetes API for tests: it comes up, keeps what it is given through faults, and ends with the test.

use anyhow::{Result, ensure};
use e2e::cluster::{Component, ControlPlane, Settings};

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";

/// The names of all Ingresses, and their hosts.
fn ingresses(plane: &ControlPlane) -> Result<String> {
    let wanted = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.spec.rules[0].host}{end}";
    plane.kubectl(&["get", "ingresses", "--all-namespaces", "--output", wanted])
}

#[test]
fn a_control_plane_keeps_what_it_was_given_through_faults_and_ends_with_the_test() -> Result<()> {
    let what = "a real API server whose processes are killed and hang";
    let Some(plane) = ControlPlane::start(what, &Settings::default())? else { return Ok(()) };
    plane.kubectl(&["create", "namespace", "shop"])?;
    plane.kubectl_reading(INGRESS, &["apply", "--filename", "-"])?;
    ensure!(ingresses(&plane)? == "shop/web web.example.com", "what was made is listed: {}", ingresses(&plane)?);

    // Down until it is started, and nothing answers meanwhile.
    plane.stop(Component::ApiServer)?;
    ensure!(!plane.is_ready()?, "an API server that was stopped answers");
    plane.start_again(Component::ApiServer)?;
    plane.wait_ready()?;
    ensure!(ingresses(&plane)? == "shop/web web.example.com", "it is there after a restart: {}", ingresses(&plane)?);

    plane.hang(Component::ApiServer)?;
    let hung = plane.kubectl(&["get", "ingresses", "--all-namespaces", "--request-timeout=1s"]);
    ensure!(hung.is_err(), "an API server that hangs answers {hung:?}");
    plane.resume(Component::ApiServer)?;
    plane.kill(Component::Etcd)?;
    plane.wait_ready()?;
    ensure!(ingresses(&plane)? == "shop/web web.example.com", "etcd lost it: {}", ingresses(&plane)?);

    let state = plane.keys();
    plane.end()?;
    ensure!(!state.exists(), "{} is left behind", state.display());
    Ok(())
}
