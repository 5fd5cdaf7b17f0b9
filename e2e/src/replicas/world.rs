//! Objects in an API server that change all the time, and what the last of each change was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The namespace of everything.
pub const NAMESPACE: &str = "team";
/// A host whose route and endpoint nobody changes.
pub const STILL: &str = "still.example.com";
/// How long a write may take, through faults of the API server.
const WRITE: Duration = Duration::from_secs(60);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(2);
/// How many routes are created at a time.
const AT_ONCE: usize = 16;
/// The pause after a write that failed.
const PAUSE: Duration = Duration::from_millis(20);

/// The last serial that was written of each route's endpoints and of each route's path.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// By the number of the route.
    pub endpoints: BTreeMap<u64, u64>,
    /// By the number of the route.
    pub paths: BTreeMap<u64, u64>,
}

/// The objects, and who writes them.
#[derive(Clone)]
pub struct World {
    client: Client,
    routes: u64,
    endpoints: u64,
    written: Arc<Mutex<Written>>,
}

/// The host of a route.
pub fn host(number: u64) -> String {
    format!("app-{number}.example.com")
}

/// The address by which a member says its serial.
fn serial_address(serial: u64) -> String {
    format!("11.{}.{}.{}", serial / 65_536 % 256, serial / 256 % 256, serial % 256)
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] },
    })
}

fn slice(name: &str, addresses: &[String]) -> Value {
    let endpoints: Vec<Value> =
        addresses.iter().map(|address| json!({ "addresses": [address], "conditions": { "ready": true } })).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{name}-1"), "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": name },
        },
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }], "endpoints": endpoints,
    })
}

fn ingress(name: &str, host: &str, paths: &[String]) -> Value {
    let backend = json!({ "service": { "name": name, "port": { "number": 80 } } });
    let paths: Vec<Value> =
        paths.iter().map(|path| json!({ "path": path, "pathType": "Prefix", "backend": backend })).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "ingressClassName": "nginx", "rules": [{ "host": host, "http": { "paths": paths } }] },
    })
}

impl World {
    /// Creates so many routes, each with a Service and a slice of so many endpoints, and one that stays as it is, whose endpoint
    /// is `still`.
    ///
    /// # Errors
    /// When the API server refuses something.
    pub async fn create(client: Client, routes: u64, endpoints: u64, still: &str) -> Result<World> {
        let world = World { client, routes, endpoints, written: Arc::default() };
        let class = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": "nginx" },
            "spec": { "controller": "scalws.io/ingress-controller" },
        });
        world.post("/apis/networking.k8s.io/v1/ingressclasses", &class).await?;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        world.post("/api/v1/namespaces", &namespace).await?;
        world.route("still", STILL, &["/".to_owned()], &[still.to_owned()]).await?;
        let all = stream::iter(0..routes).map(|number| {
            let world = &world;
            async move {
                let paths = ["/".to_owned(), "/v0".to_owned()];
                world.route(&format!("app-{number}"), &host(number), &paths, &world.addresses(number, 0)).await
            }
        });
        all.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(world)
    }

    /// Creates so many Secrets that nothing refers to, each of so many bytes, like those of Helm releases.
    ///
    /// # Errors
    /// When the API server refuses something.
    pub async fn add_secrets(&self, count: u64, bytes: usize) -> Result<()> {
        let all = stream::iter(0..count).map(|number| async move {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
                "metadata": { "name": format!("sh.helm.release.v1.app-{number}.v1"), "namespace": NAMESPACE },
                "stringData": { "release": "A".repeat(bytes) },
            });
            self.post(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &secret).await
        });
        all.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// The endpoints of a route: the last says the serial.
    fn addresses(&self, number: u64, serial: u64) -> Vec<String> {
        let plain = (1..self.endpoints).map(|at| format!("10.{at}.{}.{}", number / 250 % 250, number % 250 + 1));
        plain.chain([serial_address(serial)]).collect()
    }

    async fn route(&self, name: &str, host: &str, paths: &[String], addresses: &[String]) -> Result<()> {
        self.post(&format!("/api/v1/namespaces/{NAMESPACE}/services"), &service(name)).await?;
        self.post(&format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"), &slice(name, addresses))
            .await?;
        self.post(&format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"), &ingress(name, host, paths))
            .await
    }

    /// How many routes change.
    pub fn routes(&self) -> u64 {
        self.routes
    }

    /// The last of what was written.
    pub fn written(&self) -> Written {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the endpoints of a route this serial.
    ///
    /// # Errors
    /// When the API server does not take it for a minute.
    pub async fn move_endpoint(&self, number: u64, serial: u64) -> Result<()> {
        let name = format!("app-{number}");
        let endpoints = slice(&name, &self.addresses(number, serial))["endpoints"].clone();
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}-1");
        self.patch(&path, &json!({ "endpoints": endpoints })).await?;
        self.written.lock().unwrap_or_else(PoisonError::into_inner).endpoints.insert(number, serial);
        Ok(())
    }

    /// Gives a path of a route this serial.
    ///
    /// # Errors
    /// When the API server does not take it for a minute.
    pub async fn change_path(&self, number: u64, serial: u64) -> Result<()> {
        let name = format!("app-{number}");
        let spec = ingress(&name, &host(number), &["/".to_owned(), format!("/v{serial}")])["spec"].clone();
        let path = format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses/{name}");
        self.patch(&path, &json!({ "spec": spec })).await?;
        self.written.lock().unwrap_or_else(PoisonError::into_inner).paths.insert(number, serial);
        Ok(())
    }

    /// Changes something every so often until it is told to stop, on this runtime: endpoints, and each tenth time a path.
    pub fn churn(&self, runtime: &Handle, every: Duration, first: u64) -> Churn {
        let (world, stop) = (self.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let task = runtime.spawn(async move {
            let mut serial = first;
            let mut tick = tokio::time::interval(every);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return Ok(serial),
                    _ = tick.tick() => {}
                }
                serial += 1;
                let number = serial % world.routes;
                world.move_endpoint(number, serial).await?;
                if serial.is_multiple_of(10) {
                    world.change_path(number, serial).await?;
                }
            }
        });
        Churn { stop, task }
    }

    async fn post(&self, path: &str, object: &Value) -> Result<()> {
        self.send(Method::POST, path, "application/json", object).await
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Sends it until the API server says yes or no.
    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<()> {
        let end = Instant::now() + WRITE;
        loop {
            let request = Request::builder().method(&method).uri(path).header(http::header::CONTENT_TYPE, kind);
            let request = request.body(serde_json::to_vec(body)?)?;
            let why = match tokio::time::timeout(REQUEST, self.client.request::<Value>(request)).await {
                Ok(Ok(_)) => return Ok(()),
                // It is there: a request before was done, and its answer was lost.
                Ok(Err(kube::Error::Api(status))) if status.code == 409 && method == Method::POST => return Ok(()),
                Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                    bail!("{method} {path}: {status:?}")
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {REQUEST:?}"),
            };
            ensure!(Instant::now() < end, "{method} {path}: {why}, for {WRITE:?}");
            // sleep: a client that waits before it asks again.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Changes under way.
#[derive(Debug)]
pub struct Churn {
    stop: CancellationToken,
    task: JoinHandle<Result<u64>>,
}

impl Churn {
    /// Ends them; gives the last serial.
    ///
    /// # Errors
    /// When a write failed.
    pub async fn end(self) -> Result<u64> {
        self.stop.cancel();
        self.task.await.context("the writer panicked")?
    }
}
