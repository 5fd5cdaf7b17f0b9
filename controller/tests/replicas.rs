//! Several controllers as processes, at one Lease of an API server in memory: one leads, another takes over, and a graceful end
//! hands over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use fake_apiserver::http::Running;
use fake_apiserver::{Server, Settings};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use push::authority_folder;
use serde_json::{Value, json};
use tokio::net::UnixStream;

/// No condition here takes this long unless it never comes.
const LIMIT: Duration = Duration::from_secs(30);
/// Short ones, so that a test does not wait long.
const TIMES: [&str; 6] = ["--lease-duration", "2s", "--renew-deadline", "1300ms", "--retry-period", "300ms"];
/// The Lease.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/scalws/leases/scalws-controller";

struct Scene {
    folder: tempfile::TempDir,
    api: Running,
    client: Client<HttpConnector, Full<Bytes>>,
}

struct Replica {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Scene {
    async fn start() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        let authority = folder.path().join("authority");
        authority_folder::make(&authority, "test", SystemTime::now(), Duration::from_secs(3600)).unwrap();
        let api = Running::start(Server::new(Settings::default())).await.unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{ "name": "u", "user": {} }],
            "clusters": [{ "name": "k", "cluster": { "server": api.url() } }],
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        });
        fs::write(folder.path().join("kubeconfig"), config.to_string()).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let scene = Scene { folder, api, client };
        scene.send("POST", "/api/v1/namespaces", &json!({ "metadata": { "name": "scalws" } })).await;
        // As the chart does: without a holder it is free at once.
        let lease = json!({ "metadata": { "name": "scalws-controller", "namespace": "scalws" } });
        scene.send("POST", "/apis/coordination.k8s.io/v1/namespaces/scalws/leases", &lease).await;
        scene
    }

    async fn send(&self, method: &str, path: &str, object: &Value) -> Value {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.api.url()));
        let request = request.header("content-type", "application/json").body(object.to_string().into()).unwrap();
        let body = self.client.request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap_or_default()
    }

    async fn lease(&self) -> Value {
        let request = Request::get(format!("{}{LEASE}", self.api.url())).body(Full::default()).unwrap();
        let body = self.client.request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    async fn epoch(&self) -> u64 {
        self.lease().await["metadata"]["annotations"]["scalws.io/epoch"].as_str().unwrap_or("0").parse().unwrap()
    }

    fn command(&self, name: &str) -> Command {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_scalws-controller"));
        command.arg("--manifests").arg(self.folder.path().join("manifests"));
        command.arg("--kubeconfig").arg(self.folder.path().join("kubeconfig"));
        command.arg("--authority").arg(self.folder.path().join("authority"));
        command.arg("--state").arg(folder.join("state")).arg("--socket").arg(folder.join("c.sock"));
        command.args(["--listen", "127.0.0.1", "--enroll-port", "0", "--push-port", "0", "--advertise", name]);
        command.args(["--http", "8080", "--https", "8443", "--log", "json"]).stdin(Stdio::null());
        command
    }

    fn replica(&self, name: &str) -> Replica {
        let log = self.folder.path().join(format!("{name}.log"));
        let child = self.command(name).args(TIMES).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        Replica { child, socket: self.folder.path().join(name).join("c.sock"), log }
    }
}

impl Replica {
    async fn leads(&self) -> bool {
        let Ok(stream) = UnixStream::connect(&self.socket).await else { return false };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://c/metrics").header("host", "c").body(Full::<Bytes>::default()).unwrap();
        let Ok(answer) = sender.send_request(request).await else { return false };
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&body).lines().any(|line| line == "scalws_controller_leader 1")
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

async fn until<F: Future<Output = bool>>(what: &str, replicas: &[&Replica], mut holds: impl FnMut() -> F) {
    let end = Instant::now() + LIMIT;
    while !holds().await {
        let said = || replicas.iter().map(|replica| replica.said()).collect::<Vec<_>>().join("\n");
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}\n{}", said());
        // sleep: a condition that is looked at again.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_another_takes_over_in_a_higher_epoch_and_sigterm_gives_the_lease_back() {
    let scene = Scene::start().await;
    let first = scene.replica("first");
    until("the first leads", &[&first], || first.leads()).await;
    let mut second = scene.replica("second");
    until("the second follows", &[&second], || async { second.said().contains("\"leader\":\"first\"") }).await;
    assert!(!second.leads().await, "two lead");
    let epoch = scene.epoch().await;

    drop(first);
    until("the second leads after the first was killed", &[&second], || second.leads()).await;
    assert!(scene.epoch().await > epoch, "the epoch did not grow: {}", scene.lease().await);

    let third = scene.replica("third");
    until("the third follows", &[&third], || async { third.said().contains("\"leader\":\"second\"") }).await;
    let epoch = scene.epoch().await;
    second.signal(rustix::process::Signal::TERM);
    let status = second.child.wait().unwrap();
    assert!(status.success(), "{status}\n{}", second.said());
    until("the third leads after the second ended", &[&third], || third.leads()).await;
    assert!(scene.epoch().await > epoch, "{}", scene.lease().await);

    // A Lease that was given back has no holder, and keeps its epoch.
    let epoch = scene.epoch().await;
    third.signal(rustix::process::Signal::TERM);
    until("the Lease is free", &[&third], || async { scene.lease().await["spec"]["holderIdentity"].is_null() }).await;
    assert_eq!(scene.epoch().await, epoch);
}

/// The answer of the listener for probes: status and body.
async fn probe(scene: &Scene, address: &str, method: &str, path: &str) -> (u16, String) {
    let request =
        Request::builder().method(method).uri(format!("http://{address}{path}")).body(Full::default()).unwrap();
    let answer = scene.client.request(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tcp_there_are_health_and_metrics_and_nothing_else() {
    let scene = Scene::start().await;
    let log = scene.folder.path().join("only.log");
    let mut command = scene.command("only");
    command.args(TIMES).args(["--metrics-listen", "127.0.0.1:0"]).stderr(fs::File::create(&log).unwrap());
    let only = Replica { child: command.spawn().unwrap(), socket: scene.folder.path().join("only/c.sock"), log };
    until("it leads", &[&only], || only.leads()).await;
    let said = only.said();
    let serving = said.lines().find(|line| line.contains("serving health and metrics")).expect(&said);
    let serving: Value = serde_json::from_str(serving).unwrap();
    let address = serving["fields"]["address"].as_str().unwrap();

    assert_eq!(probe(&scene, address, "GET", "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(probe(&scene, address, "GET", "/readyz").await.0, 200);
    let (status, metrics) = probe(&scene, address, "GET", "/metrics").await;
    assert!(status == 200 && metrics.contains("scalws_controller_leader 1"), "{status} {metrics}");
    for path in ["/v1/status", "/debug/world", "/debug/config", "/debug/agents", "/", "/metrics/"] {
        assert_eq!(probe(&scene, address, "GET", path).await.0, 404, "{path} is open to everybody");
    }
    for (method, path) in [("POST", "/v1/confirm"), ("POST", "/v1/wait"), ("POST", "/metrics")] {
        assert_eq!(probe(&scene, address, method, path).await.0, 404, "{method} {path} is open to everybody");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_the_api_server_stops_by_itself_and_goes_on_when_it_is_back() {
    let mut scene = Scene::start().await;
    let only = scene.replica("only");
    until("it leads", &[&only], || only.leads()).await;
    let epoch = scene.epoch().await;
    scene.api.stop().await;
    until("it leads no more", &[&only], || async { !only.leads().await }).await;
    assert!(only.said().contains("the Lease could not be renewed in time"), "{}", only.said());
    scene.api.start_again().await.unwrap();
    until("it leads again", &[&only], || only.leads()).await;
    assert_eq!(scene.epoch().await, epoch, "nobody else led, so the epoch is the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_end_the_process_with_the_reason() {
    let scene = Scene::start().await;
    let says = |more: &[&str]| {
        let output = scene.command("wrong").args(more).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = says(&["--renew-deadline", "15s"]);
    assert!(text.contains("--renew-deadline has to be shorter"), "{text}");
    let text = says(&["--lease", "no-namespace"]);
    assert!(text.contains("--lease") && text.contains("namespace"), "{text}");
    let mut command = scene.command("unreachable");
    command.args(["--supervised"]);
    let text = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(text.contains("--supervised") && text.contains("--authority"), "{text}");
}
