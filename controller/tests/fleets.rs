//! Fleets that come and go with objects of a folder: what the hub serves, what is declared, and what is said of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use controller::hub::Hub;
use controller::identity::declared::{Declaration, Workload, WorkloadKind};
use controller::pipeline::{Worker, WorkerHandle};
use controller::report::AgentNews;
use controller::store::Memory;
use controller::watch::directory::Directory;
use push::Version;
use serde_json::{Value, json};
use tempfile::TempDir;
use translate::{FleetName, Settings};

/// No condition here takes this long unless it never comes.
const LIMIT: Duration = Duration::from_secs(10);

struct Controller {
    outer: TempDir,
    hub: Arc<Hub>,
    worker: WorkerHandle,
}

fn manifests(outer: &Path) -> std::path::PathBuf {
    outer.join("manifests")
}

fn class(fleet: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": fleet},
        "spec": {"controller": "scalws.io/ingress-controller", "parameters": {
            "apiGroup": "scalws.io", "kind": "ProxyFleet", "scope": "Namespace", "namespace": "proxies", "name": fleet,
        }},
    })
}

fn proxy_fleet(name: &str, http: u16) -> Value {
    json!({
        "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": {"namespace": "proxies", "name": name},
        "spec": {"workload": {"kind": "StatefulSet", "name": name}, "listeners": [
            {"name": "http", "port": http, "protocol": "HTTP"}, {"name": "https", "port": 8443, "protocol": "HTTPS"},
        ]},
    })
}

fn ingress(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "shop", "name": name},
        "spec": {"ingressClassName": class, "rules": [{"host": "shop.example", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}},
        ]}}]},
    })
}

impl Controller {
    fn start(files: &[(&str, Value)]) -> Controller {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(manifests(outer.path())).unwrap();
        for (name, object) in files {
            fs::write(manifests(outer.path()).join(name), object.to_string()).unwrap();
        }
        let settings = Settings::local(80, 443);
        let hub = Arc::new(Hub::new(settings.fleets.keys().cloned(), 3));
        let directory = Directory::open(&manifests(outer.path())).unwrap();
        let memory = Memory::new(&outer.path().join("state"), outer.path());
        let (worker, handle) = Worker::new(directory, settings, memory, false, Arc::clone(&hub)).unwrap();
        std::thread::spawn(move || worker.run());
        Controller { outer, hub, worker: handle }
    }

    /// Writes (or, with none, removes) a file, and returns when that is published.
    async fn place(&self, name: &str, object: Option<Value>) {
        let path = manifests(self.outer.path()).join(name);
        match object {
            Some(object) => {
                let part = self.outer.path().join("part");
                fs::write(&part, object.to_string()).unwrap();
                fs::rename(part, path).unwrap();
            }
            None => fs::remove_file(path).unwrap(),
        }
        self.catch_up().await;
    }

    async fn catch_up(&self) {
        tokio::time::timeout(LIMIT, self.worker.rescan()).await.expect("in time").unwrap();
    }

    fn fleets(&self) -> Vec<String> {
        self.hub.status().fleets.into_iter().map(|fleet| fleet.name).collect()
    }

    fn resources(&self, fleet: &FleetName) -> Vec<String> {
        self.hub.fleet(fleet).unwrap().with(|fleet| fleet.resources().map(|(key, _)| key.to_string()).collect())
    }

    fn version(&self, fleet: &FleetName) -> Version {
        self.hub.fleet(fleet).unwrap().with(|fleet| fleet.version())
    }

    fn events_of(&self, reference: &str) -> Vec<String> {
        let status = self.hub.status();
        let object = status.objects.into_iter().find(|object| object.reference == reference).unwrap();
        object.events.into_iter().map(|event| event.reason).collect()
    }

    fn metrics(&self) -> String {
        self.hub.read(|report| self.hub.metrics().text(report))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_comes_with_its_object_is_served_and_goes_with_it() {
    let controller = Controller::start(&[("class.yaml", class("edge")), ("ingress.yaml", ingress("web", "edge"))]);
    controller.catch_up().await;
    let (default, edge) = (FleetName::new("scalws", "default"), FleetName::new("proxies", "edge"));
    let mut declared = controller.hub.declared();
    assert_eq!(controller.fleets(), ["scalws/default"]);
    assert!(controller.events_of("Ingress/shop/web").contains(&"Rejected".to_owned()), "its fleet is not there yet");
    assert_eq!(declared.borrow_and_update().fleets.keys().collect::<Vec<_>>(), [&default]);
    let before = controller.version(&default);

    controller.place("fleet.yaml", Some(proxy_fleet("edge", 8080))).await;
    assert_eq!(controller.fleets(), ["proxies/edge", "scalws/default"]);
    let resources = controller.resources(&edge);
    assert!(resources.contains(&"listener/tcp/8080".to_owned()), "{resources:?}");
    assert!(resources.iter().any(|resource| resource.starts_with("fragment/Ingress/shop/web/")), "{resources:?}");
    assert_eq!(controller.version(&edge), Version::new(3, 1), "in the present epoch");
    assert!(declared.has_changed().unwrap());
    let declaration = declared.borrow_and_update().get(&edge).cloned();
    let workload = Workload { kind: WorkloadKind::StatefulSet, name: "edge".to_owned() };
    assert_eq!(declaration, Some(Declaration { workload: Some(workload), consented: true }));
    assert!(controller.metrics().contains("fleet=\"proxies/edge\""));

    let hello = AgentNews::Hello { session: 1, uid: "u".to_owned(), scalwsd_version: "1".to_owned() };
    controller.hub.news(&edge, "edge-0", hello);
    controller.hub.news(&edge, "edge-0", AgentNews::Welcomed { session: 1 });
    let held = controller.hub.fleet(&edge).unwrap();
    controller.place("fleet.yaml", None).await;
    assert_eq!(controller.fleets(), ["scalws/default"]);
    assert!(held.with(|fleet| fleet.is_ended()), "whoever is served from it is told");
    assert!(held.with(|fleet| fleet.resources().next().is_some()), "and that is no removal");
    assert!(!declared.borrow_and_update().fleets.contains_key(&edge));
    let gone = AgentNews::Gone { session: 1, why: "told".to_owned(), silent: false };
    controller.hub.news(&edge, "edge-0", gone);
    assert_eq!(controller.fleets(), ["scalws/default"], "what is said of a fleet that ended makes none");
    assert!(!controller.hub.condemn(&edge, "edge-0", &[]));
    assert!(!controller.metrics().contains("proxies/edge"), "{}", controller.metrics());
    assert_eq!(controller.version(&default), before, "nothing of another fleet changed");

    controller.place("fleet.yaml", Some(proxy_fleet("edge", 8081))).await;
    assert_eq!(controller.version(&edge), Version::new(3, 2), "its agents have 3.1, and take nothing older");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_fleets_with_one_host_have_their_own_routes_only() {
    let controller = Controller::start(&[
        ("class-a.yaml", class("a")),
        ("class-b.yaml", class("b")),
        ("fleet-a.yaml", proxy_fleet("a", 8080)),
        ("fleet-b.yaml", proxy_fleet("b", 8080)),
        ("ingress-a.yaml", ingress("one", "a")),
        ("ingress-b.yaml", ingress("two", "b")),
    ]);
    controller.catch_up().await;
    let fragments = |name: &str| {
        let all = controller.resources(&FleetName::new("proxies", name));
        all.into_iter().filter(|resource| resource.starts_with("fragment/")).collect::<Vec<_>>()
    };
    assert_eq!(fragments("a"), ["fragment/Ingress/shop/one/shop.example"]);
    assert_eq!(fragments("b"), ["fragment/Ingress/shop/two/shop.example"]);
    let b = controller.version(&FleetName::new("proxies", "b"));
    controller.place("ingress-a.yaml", None).await;
    assert_eq!(fragments("a"), [] as [String; 0]);
    assert_eq!(controller.version(&FleetName::new("proxies", "b")), b);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_fleet_is_said_and_it_is_none() {
    let mut wrong = proxy_fleet("edge", 8443);
    let controller = Controller::start(&[("fleet.yaml", wrong.clone())]);
    controller.catch_up().await;
    assert_eq!(controller.fleets(), ["scalws/default"]);
    assert!(
        controller.events_of("ProxyFleet/proxies/edge").contains(&"Rejected".to_owned()),
        "two listeners, one port"
    );
    wrong["spec"]["listeners"][0]["port"] = json!(8080);
    controller.place("fleet.yaml", Some(wrong)).await;
    assert_eq!(controller.fleets(), ["proxies/edge", "scalws/default"]);
    assert!(controller.events_of("ProxyFleet/proxies/edge").contains(&"NoClass".to_owned()));
    let declared = controller.hub.declared();
    assert!(!declared.borrow().get(&FleetName::new("proxies", "edge")).unwrap().consented);
}
