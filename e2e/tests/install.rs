//! As a user installs it: the charts on a real cluster with containers, a request served, an upgrade and a restart of every part under
//! traffic, and an uninstall.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cluster::{ControlPlane, Settings};
use e2e::http_client::get;
use e2e::process::{program, until};
use e2e::replicas::relay::Relay;
use e2e::traffic::{Plan, Target, Traffic};
use scalwsctl::up::echo::endpoints::Endpoint;
use scalwsctl::up::echo::server::{self, Owner};

/// Where the release is.
const NAMESPACE: &[&str] = &["--namespace", "scalws-system"];
/// Within this a part is up, on a slow machine.
const SOON: Duration = Duration::from_secs(90);
/// The backend: an address of the node that pods reach.
const BACKEND: &str = "198.51.100.20:8080";
/// Where the test asks.
const PORT: u16 = 8099;
const HOST: &str = "demo.example.com";

const DEMO: &str = "
apiVersion: v1
kind: Service
metadata: {name: still, namespace: team}
spec: {ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: still-1, namespace: team, labels: {kubernetes.io/service-name: still}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [198.51.100.20], conditions: {ready: true}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: demo, namespace: team}
spec:
  ingressClassName: scalws
  rules:
  - host: demo.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: still, port: {name: http}}}}]}
";

fn charts(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts").join(name).display().to_string()
}

/// The trees of the images as the Containerfile makes them, of the programs that were built for the tests.
fn images(plane: &ControlPlane) -> Result<()> {
    for (image, programs) in
        [("scalws-controller", &["scalws-controller"][..]), ("scalws-proxy", &["scalws-agent", "scalwsd"])]
    {
        let root = tempfile::tempdir()?;
        let folder = root.path().join("usr/local/bin");
        fs::create_dir_all(&folder)?;
        for name in programs {
            let status = Command::new("strip").arg("-o").arg(folder.join(name)).arg(program(name)?).status()?;
            ensure!(status.success(), "strip {name}: {status}");
        }
        let entry = format!("/usr/local/bin/{}", programs[0]);
        plane.image(&format!("localhost/{image}:0.1.0"), root.path(), &entry)?;
    }
    Ok(())
}

/// Everything that says why something is not up.
fn said(plane: &ControlPlane) -> String {
    let look =
        |arguments: &[&str]| plane.kubectl(&[arguments, NAMESPACE].concat()).unwrap_or_else(|e| format!("{e:#}"));
    let logs = |part: &str| {
        let selector = format!("--selector=app.kubernetes.io/component={part}");
        look(&["logs", &selector, "--all-containers", "--prefix", "--tail=15"])
    };
    let pods = look(&["get", "pods,proxyfleets", "--output=wide"]);
    let events = look(&["get", "events", "--sort-by=.lastTimestamp"]);
    format!("{pods}\n{events}\n{}\n{}", logs("controller"), logs("proxy"))
}

fn is_rolled_out(plane: &ControlPlane) -> Result<()> {
    for workload in ["deployment/scalws-controller", "deployment/scalws-default"] {
        let rollout = ["rollout", "status", workload, "--timeout=120s"];
        plane.kubectl(&[&rollout[..], NAMESPACE].concat()).with_context(|| said(plane))?;
    }
    Ok(())
}

#[test]
fn helm_install_gives_proxies_that_serve_and_an_upgrade_loses_no_request() -> Result<()> {
    let what = "the charts on a real cluster: install, serve, upgrade and restart under traffic, uninstall";
    let Some(plane) = ControlPlane::start(what, &Settings { nodes: 1, ..Settings::default() })? else { return Ok(()) };
    plane.enter()?;
    // After the move, so that its threads are there too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let echo = Owner::new(Endpoint { service: "team/still".to_owned(), pod: "still".to_owned() });
    let _echo = runtime.block_on(server::open(BACKEND.parse()?, echo))?;
    images(&plane)?;

    let began = Instant::now();
    plane.kubectl(&["create", "namespace", "team"])?;
    plane.kubectl(&["create", "namespace", "scalws-system"])?;
    // Nothing of ours needs more than this lets through.
    plane.kubectl(&["label", "namespace", "scalws-system", "pod-security.kubernetes.io/enforce=restricted"])?;
    plane.helm(&[&["install", "scalws-crds", &charts("scalws-crds")], NAMESPACE].concat())?;
    let chart = charts("scalws");
    let values = ["--set", "fleet.service.type=ClusterIP", "--set", "fleet.drain.delaySeconds=3"];
    let notes = plane.helm(&[&["install", "scalws", &chart], &values[..], NAMESPACE].concat())?;
    ensure!(notes.contains("get proxyfleets"), "the notes say what to do next: {notes}");
    plane.kubectl_reading(DEMO, &["apply", "--filename", "-"])?;
    is_rolled_out(&plane)?;
    let address = plane
        .kubectl(&[&["get", "service", "scalws-default", "--output=jsonpath={.spec.clusterIP}"], NAMESPACE].concat())?;
    let proxies: SocketAddr = format!("{}:80", address.trim()).parse()?;
    let _relay = Relay::start(runtime.handle(), format!("127.0.0.1:{PORT}").parse()?, proxies)?;
    until(SOON, "a request is served", || {
        Ok(runtime.block_on(get(PORT, HOST, "/")).is_ok_and(|reply| reply.status == 200))
    })
    .with_context(|| said(&plane))?;
    eprintln!("installed and serving after {:.1} s", began.elapsed().as_secs_f64());
    let columns = "--output=jsonpath={.items[0].status.agents} {.items[0].status.current} {.items[0].status.notLive}";
    until(SOON, "the fleet's status says so", || {
        Ok(plane.kubectl(&[&["get", "proxyfleets", columns], NAMESPACE].concat())? == "2 2 0")
    })
    .with_context(|| said(&plane))?;

    let traffic = Traffic::start(Plan { per_second: 50, ..Plan::of(vec![Target::http(PORT, HOST, &["team/still"])]) })?;
    let began = Instant::now();
    traffic.doing("upgrade: one more proxy, another drain, another lease");
    let changed = [
        "--set",
        "fleet.replicas=3",
        "--set",
        "fleet.drain.timeoutSeconds=20",
        "--set",
        "controller.lease.retryPeriod=1s",
    ];
    plane.helm(&[&["upgrade", "scalws", &chart], &values[..], &changed, NAMESPACE].concat())?;
    is_rolled_out(&plane)?;
    traffic.doing("every proxy is replaced");
    plane.kubectl(&[&["rollout", "restart", "deployment/scalws-default"], NAMESPACE].concat())?;
    is_rolled_out(&plane)?;
    traffic.doing("every controller is replaced");
    plane.kubectl(&[&["rollout", "restart", "deployment/scalws-controller"], NAMESPACE].concat())?;
    is_rolled_out(&plane)?;
    traffic.doing("rollback");
    plane.helm(&[&["rollback", "scalws", "1"], NAMESPACE].concat())?;
    is_rolled_out(&plane)?;
    let report = traffic.stop()?;
    eprintln!(
        "upgrade, restarts and rollback in {:.0} s: {} requests answered, {} failed",
        began.elapsed().as_secs_f64(),
        report.answered(),
        report.failed.len()
    );
    ensure!(report.failed.is_empty(), "{:#?}\n{}", report.failed, said(&plane));

    plane.helm(&[&["uninstall", "scalws", "--wait"], NAMESPACE].concat())?;
    until(SOON, "nothing runs any more", || {
        Ok(plane.kubectl(&[&["get", "pods,leases,ingressclasses", "--output=name"], NAMESPACE].concat())?.is_empty())
    })
    .with_context(|| said(&plane))?;
    let left = plane.kubectl(&[&["get", "secrets,configmaps", "--output=name"], NAMESPACE].concat())?;
    ensure!(left.contains("secret/scalws-authority"), "the authority is kept for the next install: {left}");
    Ok(())
}
