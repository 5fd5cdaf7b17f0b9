//! A controller over an API server in memory: what is published, what is told, and how long the test waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use controller::hub::Hub;
use controller::pipeline::{Debug, Scan, Worker, WorkerHandle};
use controller::store::Memory;
use controller::watch::cluster::{Cluster, KindWatchSettings, Pace, WatchState};
use fake_apiserver::http::Running;
use fake_apiserver::{Kind, Server};
use serde_json::{Value, json};
use translate::Settings;

/// No condition here takes this long unless it never comes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Times that let a test see in moments what takes minutes otherwise. Nothing is compared by itself.
pub(crate) fn pace() -> Pace {
    Pace {
        first_wait_ms: 20,
        longest_wait_ms: 200,
        absent_ms: 100,
        compare_ms: 3_600_000,
        differ_ms: 200,
        ..Pace::default()
    }
}

pub(crate) fn settings() -> KindWatchSettings {
    KindWatchSettings { pace: pace(), ..KindWatchSettings::default() }
}

/// The time for an API server, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The kinds of the Gateway API that a server has when its definitions are there.
pub(crate) fn gateway_kinds() -> Vec<Kind> {
    let kind = |version: &str, kind: &str, plural: &str, namespaced| {
        Kind::custom("gateway.networking.k8s.io", &[version], kind, plural, namespaced)
    };
    vec![
        kind("v1", "GatewayClass", "gatewayclasses", false),
        kind("v1", "Gateway", "gateways", true),
        kind("v1", "HTTPRoute", "httproutes", true),
        kind("v1", "GRPCRoute", "grpcroutes", true),
        kind("v1alpha2", "TLSRoute", "tlsroutes", true),
        kind("v1beta1", "ReferenceGrant", "referencegrants", true),
    ]
}

pub(crate) struct Controller {
    outer: tempfile::TempDir,
    pub(crate) api: Running,
    pub(crate) hub: Arc<Hub>,
    pub(crate) worker: WorkerHandle,
}

impl Controller {
    pub(crate) async fn start(server: Server, settings: &KindWatchSettings) -> Controller {
        let api = Running::start(server).await.unwrap();
        Controller::over(api, tempfile::tempdir().unwrap(), settings)
    }

    /// A controller over a state directory that may have been used.
    pub(crate) fn over(api: Running, outer: tempfile::TempDir, settings: &KindWatchSettings) -> Controller {
        let mut config = kube::Config::new(api.url().parse().unwrap());
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        let world = Settings::local(80, 443);
        let hub = Arc::new(Hub::new(world.fleets.keys().cloned(), 1));
        let cluster = Cluster::start(&client, settings, hub.metrics().watch_states()).unwrap();
        let memory = Memory::new(outer.path(), outer.path());
        let (worker, handle) = Worker::new(cluster, world, memory, false, Arc::clone(&hub)).unwrap();
        std::thread::spawn(move || worker.run());
        Controller { outer, api, hub, worker: handle }
    }

    /// The same state directory and API server with another controller; the first one ends.
    pub(crate) fn again(self, settings: &KindWatchSettings) -> Controller {
        let Controller { outer, api, .. } = self;
        Controller::over(api, outer, settings)
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Controller) -> bool) {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !holds(self).await {
            if tokio::time::Instant::now() >= deadline {
                panic!(
                    "never: {what}; world {:?}, watches {:?}",
                    self.world().await,
                    self.hub.metrics().watch_states().all()
                );
            }
            // sleep: the world is asked for, and tells nobody when it changes.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The names of all objects that are in force.
    pub(crate) async fn world(&self) -> BTreeSet<String> {
        let world = self.worker.debug(Debug::World).await.unwrap();
        world["objects"].as_array().unwrap().iter().map(|object| object["ref"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn has(&self, name: &str) -> bool {
        self.world().await.contains(name)
    }

    /// Waits until an object is in force.
    pub(crate) async fn until_has(&self, name: &str) {
        self.until(&format!("{name} is in force"), async |controller| controller.has(name).await).await;
    }

    /// Waits until the first world is published.
    pub(crate) async fn ready(&self) {
        self.until("the first world is published", async |controller| controller.hub.is_published()).await;
    }

    /// Waits until everything that the API server has is published.
    pub(crate) async fn caught_up(&self) {
        let caught_up = tokio::time::timeout(LIMIT, self.worker.catch_up()).await;
        let states = || self.hub.metrics().watch_states().all();
        caught_up.unwrap_or_else(|_| panic!("never caught up: {:?}", states())).unwrap();
    }

    /// Looks at everything that the API server has and gives why something is held.
    pub(crate) async fn held(&self) -> Option<String> {
        match tokio::time::timeout(LIMIT, self.worker.rescan()).await.unwrap().unwrap() {
            Scan::Published(_) => None,
            Scan::Held(why) => Some(why),
        }
    }

    /// How it stands with a kind.
    pub(crate) fn watch(&self, kind: &'static str) -> WatchState {
        self.hub.metrics().watch_states().all().remove(&(kind, String::new())).unwrap()
    }

    pub(crate) fn restarts(&self, kind: &'static str, reason: &str) -> u64 {
        self.watch(kind).counts.restarts.get(reason).copied().unwrap_or(0)
    }

    pub(crate) fn apply(&self, object: Value) {
        self.api.with(|server| server.apply(now(), object)).unwrap();
    }

    pub(crate) fn remove(&self, resource: &str, name: &str) {
        assert!(self.api.with(|server| server.remove(resource, "shop", name)), "{name} is there to be removed");
    }
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "shop" }, "data": { "value": value },
    })
}

pub(crate) fn ingress(name: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "ingressClassName": "nginx", "rules": [{ "host": format!("{name}.example"), "http": { "paths": [{
            "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "number": 80 } } },
        }] } }] },
    })
}

pub(crate) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] },
    })
}

pub(crate) fn route(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "parentRefs": [{ "name": "gate" }], "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] },
    })
}

pub(crate) fn gateway(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "gatewayClassName": "scalws", "listeners": [{ "name": "web", "port": 80, "protocol": "HTTP" }] },
    })
}

/// A server with some objects of several kinds.
pub(crate) fn shop() -> Server {
    let mut server = Server::default();
    for kind in gateway_kinds() {
        server.define(kind);
    }
    for number in 0..3 {
        for object in
            [ingress(&format!("i{number}")), service(&format!("s{number}")), config_map(&format!("m{number}"), "1")]
        {
            server.apply(now(), object).unwrap();
        }
    }
    server.apply(now(), gateway("gate")).unwrap();
    server.apply(now(), route("r0")).unwrap();
    server
}
