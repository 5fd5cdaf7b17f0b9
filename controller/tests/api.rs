//! From a folder to the local API: publication, waiting, statuses, the shrink guard. Agents are played by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use controller::admin::{self, Api};
use controller::hub::Hub;
use controller::pipeline::Worker;
use controller::report::{AgentNews, Refusal};
use controller::store::Memory;
use controller::watch::directory::Directory;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use journal::Digest;
use journal::admin::NotLive;
use push::Version;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use translate::{FleetName, Settings};

/// No condition here takes this long unless it never comes.
const LIMIT: Duration = Duration::from_secs(10);

struct Controller {
    outer: tempfile::TempDir,
    hub: Arc<Hub>,
    socket: PathBuf,
    sessions: std::sync::atomic::AtomicU64,
}

fn fleet() -> FleetName {
    FleetName::new("scalws", "default")
}

fn ingress(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\nspec:\n  ingressClassName: nginx\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - path: /\n        pathType: Prefix\n        backend: {{service: {{name: web, port: {{number: 80}}}}}}\n"
    )
}

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80, targetPort: 8080}]}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: '', port: 8080}]\nendpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]\n";

impl Controller {
    fn start(files: &[(&str, String)]) -> Controller {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("manifests")).unwrap();
        for (name, text) in files {
            fs::write(outer.path().join("manifests").join(name), text).unwrap();
        }
        Controller::over(outer, 1)
    }

    fn over(outer: tempfile::TempDir, epoch: u64) -> Controller {
        let settings = Settings::local(80, 443);
        let hub = Arc::new(Hub::new(settings.fleets.keys().cloned(), epoch));
        let directory = Directory::open(&outer.path().join("manifests")).unwrap();
        let memory = Memory::new(&outer.path().join("state"), outer.path());
        let (worker, handle) = Worker::new(directory, settings, memory, false, Arc::clone(&hub)).unwrap();
        std::thread::spawn(move || worker.run());
        let socket = outer.path().join(format!("c{epoch}.sock"));
        let api = Api { hub: Arc::clone(&hub), worker: handle, confirm_with: "scalwsctl confirm --state S".to_owned() };
        tokio::spawn(admin::serve(admin::bind(&socket).unwrap(), api));
        Controller { outer, hub, socket, sessions: 0.into() }
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request =
            Request::builder().method(method).uri(path).header("host", "local").body(Full::new(body)).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        drop(sender);
        connection.await.unwrap().unwrap();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    async fn wait(&self, agents: &[&str], timeout_ms: u64) -> (u16, Value) {
        let body = json!({ "replicas": agents.len(), "agents": agents, "timeout_ms": timeout_ms });
        self.call("POST", "/v1/wait", body).await
    }

    async fn status(&self) -> Value {
        self.call("GET", "/v1/status", Value::Null).await.1
    }

    async fn object(&self, reference: &str) -> Value {
        let status = self.status().await;
        let objects = status["objects"].as_array().unwrap();
        objects.iter().find(|o| o["ref"] == reference).cloned().unwrap_or(Value::Null)
    }

    fn place(&self, name: &str, text: &str) {
        let part = self.outer.path().join("part");
        fs::write(&part, text).unwrap();
        fs::rename(part, self.outer.path().join("manifests").join(name)).unwrap();
    }

    fn news(&self, agent: &str, news: AgentNews) {
        self.hub.news(&fleet(), agent, news);
    }

    fn connect(&self, agent: &str) -> u64 {
        let session = self.sessions.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let uid = format!("uid-of-{agent}");
        self.news(agent, AgentNews::Hello { session, uid, scalwsd_version: "1".to_owned() });
        self.news(agent, AgentNews::Welcomed { session });
        session
    }

    /// The agent has everything that is published now.
    fn apply(&self, agent: &str, not_live: Vec<NotLive>) -> Version {
        let published = self.hub.fleet(&fleet()).unwrap().with(|fleet| fleet.published());
        let (version, root) = (published.version, published.root);
        self.news(agent, AgentNews::Members { member_version: published.member_version });
        self.news(agent, AgentNews::Applied { version, root, not_live });
        version
    }

    fn generation(&self) -> u64 {
        self.hub.fleet(&fleet()).unwrap().with(|fleet| fleet.version().generation)
    }

    /// Until the hub says something for which the condition holds.
    async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let mut changed = self.hub.subscribe();
        let holds = async {
            loop {
                changed.mark_unchanged();
                if condition() {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        assert!(tokio::time::timeout(LIMIT, holds).await.is_ok(), "never: {what}");
    }
}

fn events(object: &Value) -> Vec<(String, String)> {
    let events = object["events"].as_array().unwrap();
    events.iter().map(|e| (e["type"].as_str().unwrap().to_owned(), e["reason"].as_str().unwrap().to_owned())).collect()
}

fn two() -> Vec<(&'static str, String)> {
    vec![("web.yaml", SERVICE.to_owned()), ("a.yaml", ingress("a", "a.example")), ("b.yaml", ingress("b", "b.example"))]
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_when_the_last_agent_named_has_everything() {
    let controller = Arc::new(Controller::start(&two()));
    let waiting = tokio::spawn({
        let controller = Arc::clone(&controller);
        async move { controller.wait(&["replica-0", "replica-1"], 10_000).await }
    });
    controller.until("the first publication", || controller.generation() == 1).await;
    controller.connect("replica-0");
    controller.connect("replica-1");
    controller.apply("replica-0", Vec::new());
    let (code, answer) = controller.wait(&["replica-0", "replica-1"], 500).await;
    assert_eq!(code, 408, "{answer}");
    assert_eq!(answer["lagging"][0]["agent"], "replica-1");
    assert!(!waiting.is_finished());
    controller.apply("replica-1", Vec::new());
    let (code, answer) = tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!((code, &answer["live"]), (200, &json!(true)), "{answer}");
    assert_eq!(answer["generations"]["scalws/default"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_sees_an_edit_that_was_made_just_before_it() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    controller.connect("replica-0");
    controller.apply("replica-0", Vec::new());
    assert_eq!(controller.wait(&["replica-0"], 10_000).await.0, 200);
    for round in 0..5 {
        controller.place("a.yaml", &ingress("a", &format!("host-{round}.example")));
        let (code, answer) = controller.wait(&["replica-0"], 500).await;
        assert_eq!(code, 408, "round {round}: {answer}");
        assert!(answer["lagging"][0]["why"].as_str().unwrap().contains("it runs"), "{answer}");
        controller.apply("replica-0", Vec::new());
        assert_eq!(controller.wait(&["replica-0"], 10_000).await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_agents_and_members_and_restarts_count_as_lagging() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    let (code, answer) = controller.wait(&["replica-0"], 500).await;
    assert_eq!((code, &answer["lagging"][0]["why"]), (408, &json!("it never connected")));
    let session = controller.connect("replica-0");
    let version = controller.apply("replica-0", Vec::new());
    let endpoints = SERVICE.replace("10.0.0.1", "10.0.0.2");
    controller.place("web.yaml", &endpoints);
    let (code, answer) = controller.wait(&["replica-0"], 500).await;
    assert_eq!(code, 408, "{answer}");
    assert!(answer["lagging"][0]["why"].as_str().unwrap().contains("member set"), "{answer}");
    assert_eq!(controller.apply("replica-0", Vec::new()), version, "an endpoint makes no generation");
    assert_eq!(controller.wait(&["replica-0"], 10_000).await.0, 200);
    let status = controller.status().await;
    assert_eq!(status["backends"][0], json!({ "service": "default/web:80", "endpoints": ["10.0.0.2:8080"] }));
    // A newer session is not ended by the end of an older one.
    let newer = controller.connect("replica-0");
    controller.news("replica-0", AgentNews::Gone { session, why: "superseded".to_owned(), silent: false });
    controller.apply("replica-0", Vec::new());
    assert_eq!(controller.wait(&["replica-0"], 10_000).await.0, 200);
    controller.news("replica-0", AgentNews::Gone { session: newer, why: "killed".to_owned(), silent: false });
    let (code, answer) = controller.wait(&["replica-0"], 500).await;
    assert_eq!((code, &answer["lagging"][0]["why"]), (408, &json!("it is not connected")));
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_become_events_of_the_object_and_refusals_of_the_agent() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    controller.connect("replica-0");
    let entry = |resource: &str, code: &str| NotLive {
        resource: resource.to_owned(),
        code: code.to_owned(),
        message: "cannot be built".to_owned(),
    };
    controller.apply(
        "replica-0",
        vec![entry("fragment/Ingress/default/a/a.example", "invalid"), entry("listener/tcp/443", "unsupported")],
    );
    assert_eq!(controller.wait(&["replica-0"], 10_000).await.0, 200, "refused for good is an answer");
    let a = controller.object("Ingress/default/a").await;
    assert!(events(&a).contains(&("Warning".to_owned(), "NotLive".to_owned())), "{a}");
    assert_eq!(a["liveness"], json!({ "live": 0, "of": 1, "lagging": ["replica-0"] }));
    let b = controller.object("Ingress/default/b").await;
    assert!(!events(&b).iter().any(|(_, reason)| reason == "Rejected"), "{b}");
    let status = controller.status().await;
    let agent = &status["fleets"][0]["agents"][0];
    assert_eq!((&agent["name"], &agent["applied"]), (&json!("replica-0"), &json!(1)));
    assert_eq!(agent["refused"][0]["code"], "invalid");
    controller.apply("replica-0", vec![entry("fragment/Ingress/default/a/a.example", "key_missing")]);
    let a = controller.object("Ingress/default/a").await;
    assert!(!events(&a).iter().any(|(_, reason)| reason == "NotLive"), "the environment blames no object: {a}");
    controller.apply("replica-0", Vec::new());
    let a = controller.object("Ingress/default/a").await;
    assert_eq!(a["liveness"], json!({ "live": 1, "of": 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_generation_ends_a_wait_only_when_it_is_for_good() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    controller.connect("replica-0");
    let published = controller.hub.fleet(&fleet()).unwrap().with(|fleet| fleet.published());
    controller.news("replica-0", AgentNews::Members { member_version: published.member_version });
    let refusal = |transient| {
        let (code, message) = ("volume".to_owned(), "the volume is full".to_owned());
        AgentNews::Refused(Refusal { version: published.version, code, message, transient })
    };
    controller.news("replica-0", refusal(true));
    assert_eq!(controller.wait(&["replica-0"], 500).await.0, 408);
    controller.news("replica-0", refusal(false));
    assert_eq!(controller.wait(&["replica-0"], 10_000).await.0, 200);
    let agent = controller.status().await["fleets"][0]["agents"][0].clone();
    assert!(agent["refused"][0]["message"].as_str().unwrap().contains("the volume is full"), "{agent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_edit_is_told_on_the_object_and_on_the_file() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    controller.place("a.yaml", &ingress("a", "a.example").replace("- host: a.example", "- host: [1]"));
    controller.place("new.yaml", &ingress("new", "n.example").replace("- host: n.example", "- host: [1]"));
    controller.wait(&[], 10_000).await;
    let a = controller.object("Ingress/default/a").await;
    assert!(events(&a).contains(&("Warning".to_owned(), "ManifestInvalid".to_owned())), "{a}");
    assert_eq!(controller.generation(), 1, "the last good version stays");
    let file = controller.object("File//a.yaml").await;
    assert_eq!(events(&file), [("Warning".to_owned(), "ManifestInvalid".to_owned())]);
    let new = controller.object("Ingress/default/new").await;
    assert_eq!(events(&new), [("Warning".to_owned(), "Rejected".to_owned())], "nothing of it is served");
    controller.place("a.yaml", &ingress("a", "a.example"));
    controller.wait(&[], 10_000).await;
    assert!(controller.object("File//a.yaml").await.is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ingress_and_route_is_in_the_status_served_or_not() {
    let other = ingress("other", "o.example").replace("ingressClassName: nginx", "ingressClassName: traefik");
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r}\nspec: {}\n".to_owned();
    let controller = Controller::start(&[("other.yaml", other), ("route.yaml", route)]);
    controller.until("the first publication", || controller.generation() == 1).await;
    let other = controller.object("Ingress/default/other").await;
    assert_eq!(other["served"], "not ours", "{other}");
    let route = controller.object("HTTPRoute/default/r").await;
    assert_eq!(events(&route), [("Warning".to_owned(), "Rejected".to_owned())], "{route}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_folder_is_held_and_a_wait_says_how_to_confirm() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    let (manifests, away) = (controller.outer.path().join("manifests"), controller.outer.path().join("away"));
    fs::rename(&manifests, &away).unwrap();
    let (code, answer) = controller.wait(&["replica-0"], 10_000).await;
    assert_eq!(code, 409, "{answer}");
    assert!(answer["held"]["message"].as_str().unwrap().contains("scalwsctl confirm --state S"), "{answer}");
    assert_eq!(controller.generation(), 1);
    assert!(controller.status().await["held"].is_string());
    fs::rename(&away, &manifests).unwrap();
    controller.until("not held any more", || controller.hub.read(|report| report.held().is_none())).await;
    assert_eq!(controller.generation(), 1, "restored before anything was lost");
    fs::rename(&manifests, &away).unwrap();
    controller.until("held again", || controller.hub.read(|report| report.held().is_some())).await;
    assert_eq!(controller.call("POST", "/v1/confirm", Value::Null).await.0, 200);
    assert_eq!(controller.generation(), 2);
    assert_eq!(controller.hub.objects_in_force(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_an_empty_folder_is_held_before_anything_is_published() {
    let mut controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    let outer = std::mem::replace(&mut controller.outer, tempfile::tempdir().unwrap());
    for entry in fs::read_dir(outer.path().join("manifests")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    controller.until("removals that are seen pass", || controller.hub.objects_in_force() == 0).await;
    let second = Controller::over(outer, 2);
    let (code, answer) = second.wait(&[], 10_000).await;
    assert_eq!(code, 409, "{answer}");
    assert_eq!(second.call("GET", "/readyz", Value::Null).await.0, 503);
    assert_eq!(second.generation(), 0);
    assert_eq!(second.call("POST", "/v1/confirm", Value::Null).await.0, 200);
    assert_eq!(second.call("GET", "/readyz", Value::Null).await.0, 200);
    assert_eq!(second.generation(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_killed_a_proxy_is_claims_only_until_its_object_changes() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    let key = journal::Key::new("fragment", "Ingress/default/a/a.example");
    let body = || controller.hub.fleet(&fleet()).unwrap().with(|fleet| fleet.body(&key).cloned().unwrap());
    let leaf: Digest = journal::digest::leaf(&key, &body());
    for agent in ["replica-0", "replica-1"] {
        controller.connect(agent);
        controller.apply(agent, Vec::new());
    }
    assert!(controller.hub.condemn(&fleet(), "replica-1", &[leaf]));
    assert_eq!(controller.generation(), 2);
    for agent in ["replica-0", "replica-1"] {
        controller.apply(agent, Vec::new());
    }
    assert!(String::from_utf8_lossy(&body()).contains("\"withheld\""));
    assert!(controller.hub.fleet(&fleet()).unwrap().with(|fleet| fleet.may_push()));
    let a = controller.object("Ingress/default/a").await;
    assert!(events(&a).contains(&("Warning".to_owned(), "Condemned".to_owned())), "{a}");
    // Both run what was sent, and requests get 503 from both: the status says what requests see.
    assert_eq!(a["served"], "refused", "{a}");
    assert_eq!(a["liveness"], json!({ "live": 0, "of": 2, "lagging": ["replica-0", "replica-1"] }));
    assert!(a.to_string().contains("stopped a proxy (replica-1) and all answer it with 503"), "{a}");
    let other = controller.object("Ingress/default/b").await;
    assert_eq!((&other["served"], &other["liveness"]["live"]), (&json!("full"), &json!(2)), "{other}");
    assert!(!controller.hub.condemn(&fleet(), "replica-1", &[leaf]), "said twice, done once");
    controller.place("a.yaml", &ingress("a", "other.example"));
    controller.until("another version", || controller.generation() == 3).await;
    let a = controller.object("Ingress/default/a").await;
    assert!(!events(&a).iter().any(|(_, reason)| reason == "Condemned"), "{a}");
    assert_eq!(a["served"], "full", "{a}");
    controller.place("a.yaml", &ingress("a", "a.example"));
    controller.until("the same bytes again", || controller.generation() == 4).await;
    assert!(String::from_utf8_lossy(&body()).contains("\"withheld\""), "they stay condemned");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_metrics_speak_and_hold_no_secret() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";
    let mut files = two();
    files.push(("s.yaml", secret.to_owned()));
    files.push(("odd.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n".to_owned()));
    let controller = Controller::start(&files);
    controller.until("the first publication", || controller.generation() == 1).await;
    controller.connect("replica-0");
    controller.apply("replica-0", Vec::new());
    assert_eq!(controller.call("GET", "/healthz", Value::Null).await.0, 200);
    let mut all = String::new();
    for path in ["/debug/world", "/debug/config", "/debug/agents", "/metrics", "/v1/status"] {
        let (code, answer) = controller.call("GET", path, Value::Null).await;
        assert_eq!(code, 200, "{path}");
        all.push_str(&answer.to_string());
    }
    assert!(!all.contains("hunter2"));
    for part in [
        "Secret/default/s",
        "Deployment",
        "fragment/Ingress/default/a/a.example",
        "scalws_controller_agents{fleet=\\\"scalws/default\\\",state=\\\"current\\\"} 1",
        "scalws_controller_objects{kind=\\\"Ingress\\\"} 2",
        "scalws_controller_push_lag_seconds_count 1",
        "scalws_controller_changes_total 5",
    ] {
        assert!(all.contains(part), "{part} is missing in {all}");
    }
    assert_eq!(controller.call("DELETE", "/v1/status", Value::Null).await.0, 405);
    assert_eq!(controller.call("GET", "/nothing", Value::Null).await.0, 404);
    assert_eq!(controller.call("POST", "/v1/wait", json!({ "timeout": 1 })).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_edits_at_once_lead_to_few_generations_and_none_is_lost() {
    let controller = Controller::start(&two());
    controller.until("the first publication", || controller.generation() == 1).await;
    let begun = Instant::now();
    for i in 0..200 {
        controller.place(&format!("i{i}.yaml"), &ingress(&format!("i{i}"), &format!("h{i}.example")));
    }
    controller.wait(&[], 10_000).await;
    assert_eq!(controller.hub.objects_in_force(), 204);
    let resources =
        controller.hub.fleet(&fleet()).unwrap().with(|f| f.resources().filter(|(k, _)| &*k.kind == "fragment").count());
    assert_eq!(resources, 202);
    assert!(controller.generation() <= 202, "{} generations in {:?}", controller.generation(), begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_many_objects_names_each_once_and_in_order() {
    // More of each than is looked at in one part, and objects that only a finding or a listing knows of.
    let mut text = String::new();
    for number in 0..200 {
        text += &format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s-{number}}}\nspec: {{ports: [{{port: 80}}]}}\n---\n"
        );
        text += &ingress(&format!("i-{number}"), &format!("h-{number}.example"))
            .replace("name: web", &format!("name: s-{number}"));
        text += "---\n";
    }
    for number in 0..100 {
        text += &ingress(&format!("other-{number}"), "other.example").replace("nginx", "another-controllers");
        text += "---\n";
    }
    let broken = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: broken}\nspec: 7\n".to_owned();
    let controller = Controller::start(&[("all.yaml", text), ("broken.yaml", broken)]);
    controller.until("the first publication", || controller.generation() == 1).await;
    let status = controller.status().await;
    let mut objects: Vec<String> = (0..200).map(|n| format!("Ingress/default/i-{n}")).collect();
    objects.extend((0..100).map(|n| format!("Ingress/default/other-{n}")));
    objects.push("Ingress/default/broken".to_owned());
    objects.sort();
    objects.push("File//broken.yaml".to_owned());
    let told = |key: &str, name: &str| -> Vec<String> {
        status[key].as_array().unwrap().iter().map(|one| one[name].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(told("objects", "ref"), objects);
    let mut services: Vec<String> = (0..200).map(|n| format!("s-{n}")).collect();
    services.sort();
    let backends: Vec<String> = services.iter().map(|name| format!("default/{name}:80")).collect();
    assert_eq!(told("backends", "service"), backends);
}
