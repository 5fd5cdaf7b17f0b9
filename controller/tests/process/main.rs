//! The executable as a process, with a supervisor and agents played by the test: everything real but the proxies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod fake_agent;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fake_agent::{FakeAgent, Volume};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use push::authority::{Authority, Minted, bundle_from_pem};
use push::grpc::client::{self, ClientError, Credentials};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

/// No condition here takes this long unless it never comes.
const LIMIT: Duration = Duration::from_secs(20);

/// The test as a supervisor.
struct Supervisor {
    outer: tempfile::TempDir,
    authority: Minted,
    tokens: Arc<Mutex<BTreeMap<String, String>>>,
}

/// A controller that runs.
struct Running {
    child: Child,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    enroll: String,
    push: String,
    stderr: std::thread::JoinHandle<String>,
}

impl Supervisor {
    fn new(files: &[(&str, String)]) -> Supervisor {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("manifests")).unwrap();
        fs::create_dir(outer.path().join("run")).unwrap();
        let supervisor = Supervisor {
            outer,
            authority: Authority::mint("test", SystemTime::now(), Duration::from_secs(3600)).unwrap(),
            tokens: Arc::default(),
        };
        files.iter().for_each(|(name, text)| supervisor.place(name, text));
        supervisor
    }

    fn path(&self, part: &str) -> std::path::PathBuf {
        self.outer.path().join(part)
    }

    fn place(&self, name: &str, text: &str) {
        fs::write(self.path("part"), text).unwrap();
        fs::rename(self.path("part"), self.path("manifests").join(name)).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scalws-controller"));
        command.arg("--supervised");
        command.arg("--manifests").arg(self.path("manifests"));
        command.arg("--state").arg(self.path("state"));
        command.arg("--socket").arg(self.path("run/controller.sock"));
        command.args(["--http", "8080", "--https", "8443"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a controller that is expected to give up.
    fn fails(&self, mut command: Command) -> (ExitStatus, String) {
        let mut child = command.spawn().unwrap();
        // It may be gone before it reads.
        let _ = child.stdin.as_mut().unwrap().write_all(self.first_line().as_bytes());
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (child.wait().unwrap(), text)
    }

    fn first_line(&self) -> String {
        let authority = json!({
            "ca_certificate_pem": self.authority.certificate_pem, "ca_key_pem": self.authority.key_pem.as_str(),
        });
        format!("{}\n", json!({ "authority": authority }))
    }

    fn start(&self) -> Running {
        let mut child = self.command().spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(self.first_line().as_bytes()).unwrap();
        let stdin = Arc::new(Mutex::new(Some(stdin)));
        let (listening, addresses) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (answers, tokens) = (Arc::clone(&stdin), Arc::clone(&self.tokens));
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                if let Some(at) = message.get("listening") {
                    listening
                        .send((at["enroll"].as_str().unwrap().to_owned(), at["push"].as_str().unwrap().to_owned()))
                        .unwrap();
                } else {
                    let pod = tokens.lock().unwrap().remove(message["redeem"]["token"].as_str().unwrap());
                    let agent = pod.map(|pod| {
                        let fleet = json!({ "namespace": "scalws", "name": "default" });
                        json!({ "fleet": fleet, "pod": pod, "uid": format!("uid-{pod}") })
                    });
                    let answer = json!({ "redeemed": { "id": message["redeem"]["id"], "agent": agent } });
                    let mut stdin = answers.lock().unwrap();
                    if let Some(stdin) = stdin.as_mut() {
                        writeln!(stdin, "{answer}").unwrap();
                    }
                }
            }
        });
        let mut errors = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            errors.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (enroll, push) = addresses.recv_timeout(LIMIT).unwrap();
        Running { child, stdin, enroll, push, stderr }
    }

    async fn enroll(&self, running: &Running, pod: &str) -> Result<Credentials, ClientError> {
        let token = format!("token-of-{pod}");
        self.tokens.lock().unwrap().insert(token.clone(), pod.to_owned());
        self.enroll_with(running, &token).await
    }

    async fn enroll_with(&self, running: &Running, token: &str) -> Result<Credentials, ClientError> {
        let trust = bundle_from_pem(&self.authority.certificate_pem).unwrap();
        client::enroll(&running.enroll, &trust, Zeroizing::new(token.to_owned())).await
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let stream = UnixStream::connect(self.path("run/controller.sock")).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let body = Full::new(Bytes::from(if body.is_null() { String::new() } else { body.to_string() }));
        let request = Request::builder().method(method).uri(path).header("host", "local").body(body).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn live(&self, agents: &[&str]) {
        let body = json!({ "replicas": agents.len(), "agents": agents, "timeout_ms": 15_000 });
        let (code, answer) = self.call("POST", "/v1/wait", body).await;
        assert_eq!(code, 200, "{answer}");
    }
}

impl Running {
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn end(mut self) -> (ExitStatus, String) {
        let (ended, end) = mpsc::channel();
        let pid = rustix::process::Pid::from_child(&self.child);
        std::thread::spawn(move || {
            if end.recv_timeout(LIMIT).is_err() {
                // The test fails by the exit code then.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        let status = self.child.wait().unwrap();
        ended.send(()).unwrap();
        (status, self.stderr.join().unwrap())
    }
}

const WEB: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80, targetPort: 8080}]}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: '', port: 8080}]\nendpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]\n";

fn ingress(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\nspec:\n  ingressClassName: nginx\n  tls: [{{hosts: [{host}], secretName: cert}}]\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - path: /\n        pathType: Prefix\n        backend: {{service: {{name: web, port: {{number: 80}}}}}}\n"
    )
}

/// A Secret with a certificate, and the lines of its key.
fn secret(host: &str) -> (String, Vec<String>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap().self_signed(&key).unwrap();
    let indent = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let pem = key.serialize_pem();
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: cert}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indent(&certificate.pem()),
        indent(&pem)
    );
    (text, pem.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned).collect())
}

fn files() -> Vec<(&'static str, String)> {
    vec![("web.yaml", WEB.to_owned()), ("a.yaml", ingress("a", "a.example")), ("cert.yaml", secret("a.example").0)]
}

fn has(volume: &Mutex<Volume>, part: &str) -> bool {
    volume.lock().unwrap().bodies.keys().any(|key| key.to_string().contains(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_folder_is_at_every_agent_when_a_wait_ends() {
    let supervisor = Supervisor::new(&files());
    let running = supervisor.start();
    let mut agents = Vec::new();
    for pod in ["replica-0", "replica-1"] {
        let credentials = supervisor.enroll(&running, pod).await.unwrap();
        agents.push(FakeAgent::connect(&running.push, &credentials, Arc::default()).await);
    }
    supervisor.live(&["replica-0", "replica-1"]).await;
    for agent in &agents {
        assert!(has(&agent.volume, "fragment/Ingress/default/a/a.example"));
        let volume = agent.volume.lock().unwrap();
        assert_eq!(volume.secrets.len(), 1);
        assert_eq!(volume.sets["default/web:80/tcp"].members[..], ["10.0.0.1:8080".into()]);
    }
    supervisor.place("b.yaml", &ingress("b", "b.example"));
    supervisor.place("web.yaml", &WEB.replace("10.0.0.1", "10.0.0.7"));
    supervisor.live(&["replica-0", "replica-1"]).await;
    for agent in &agents {
        assert!(has(&agent.volume, "fragment/Ingress/default/b/b.example"));
        assert_eq!(agent.volume.lock().unwrap().sets["default/web:80/tcp"].members[..], ["10.0.0.7:8080".into()]);
    }
    fs::remove_file(supervisor.path("manifests/a.yaml")).unwrap();
    supervisor.live(&["replica-0", "replica-1"]).await;
    assert!(agents.iter().all(|agent| !has(&agent.volume, "Ingress/default/a")));
    let (_, status) = supervisor.call("GET", "/v1/status", Value::Null).await;
    let generation = status["fleets"][0]["generation"].clone();
    let applied: Vec<&Value> =
        status["fleets"][0]["agents"].as_array().unwrap().iter().map(|a| &a["applied"]).collect();
    assert_eq!(applied, [&generation, &generation]);
    running.signal(rustix::process::Signal::TERM);
    let (status, _) = running.end();
    assert_eq!(status.code(), Some(0));
    assert!(!supervisor.path("run/controller.sock").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_was_killed_comes_back_with_a_higher_epoch_and_sends_nothing_twice() {
    let supervisor = Supervisor::new(&files());
    let running = supervisor.start();
    let credentials = supervisor.enroll(&running, "replica-0").await.unwrap();
    let agent = FakeAgent::connect(&running.push, &credentials, Arc::default()).await;
    supervisor.live(&["replica-0"]).await;
    let volume = Arc::clone(&agent.volume);
    assert_eq!(volume.lock().unwrap().applied.unwrap().epoch, 1);
    running.signal(rustix::process::Signal::KILL);
    running.end();
    tokio::time::timeout(LIMIT, agent.ended()).await.unwrap();
    // Somebody has seen a later epoch than the counter knows.
    volume.lock().unwrap().highest_epoch = 40;
    let running = supervisor.start();
    let agent = FakeAgent::connect(&running.push, &credentials, Arc::clone(&volume)).await;
    supervisor.live(&["replica-0"]).await;
    {
        let volume = volume.lock().unwrap();
        assert_eq!((volume.applied.unwrap().epoch, volume.highest_epoch), (41, 41));
        assert_eq!(volume.transfers, 1, "the same root is not sent again");
    }
    assert_eq!(fs::read_to_string(supervisor.path("state/epoch")).unwrap(), "41\n");
    drop(agent);
    running.stdin.lock().unwrap().take();
    let (status, stderr) = running.end();
    assert_eq!(status.code(), Some(0), "the end of its input is the end of the controller: {stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_count_once_and_strangers_get_nothing() {
    let supervisor = Supervisor::new(&files());
    let running = supervisor.start();
    supervisor.enroll(&running, "replica-0").await.unwrap();
    for token in ["token-of-replica-0", "made-up", ""] {
        let error = supervisor.enroll_with(&running, token).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused(_)), "{token:?}: {error}");
    }
    // Another authority, made by somebody else.
    let stranger = Supervisor::new(&[]);
    let other = stranger.start();
    let credentials = stranger.enroll(&other, "replica-0").await.unwrap();
    let trust = bundle_from_pem(&supervisor.authority.certificate_pem).unwrap();
    let credentials = Credentials { trust_bundle: trust, ..credentials };
    assert!(client::connect(&running.push, &credentials).await.is_err());
    for running in [running, other] {
        running.signal(rustix::process::Signal::TERM);
        running.end();
    }
}

#[test]
fn what_cannot_work_is_said_at_the_start() {
    let supervisor = Supervisor::new(&[]);
    let refuses = |command: Command, part: &str| {
        let (status, stderr) = supervisor.fails(command);
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(part), "{part:?} is missing in {stderr}");
    };
    fs::create_dir_all(supervisor.path("state")).unwrap();
    fs::write(supervisor.path("state/epoch"), "not a number").unwrap();
    refuses(supervisor.command(), "does not hold a number");
    fs::remove_file(supervisor.path("state/epoch")).unwrap();
    fs::remove_dir(supervisor.path("manifests")).unwrap();
    refuses(supervisor.command(), "the folder of manifests");
    let mut alone = Command::new(env!("CARGO_BIN_EXE_scalws-controller"));
    alone.args(["--manifests", "m", "--state", "s", "--socket", "c.sock"]);
    alone.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    refuses(alone, "scalwsctl up");
}

/// Every file below a folder, as text.
fn everything_in(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text.push_str(&everything_in(&path));
        } else {
            text.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_on_no_disk_in_no_log_and_in_no_answer() {
    let (secret, key) = secret("a.example");
    let broken = secret.replace("name: cert", "name: broken").replace("stringData:", "data:");
    let supervisor = Supervisor::new(&[
        ("web.yaml", WEB.to_owned()),
        ("a.yaml", ingress("a", "a.example")),
        ("cert.yaml", secret),
        ("broken.yaml", broken),
    ]);
    let running = supervisor.start();
    let credentials = supervisor.enroll(&running, "replica-0").await.unwrap();
    let agent = FakeAgent::connect(&running.push, &credentials, Arc::default()).await;
    supervisor.live(&["replica-0"]).await;
    let sent: Vec<Vec<u8>> = agent.volume.lock().unwrap().secrets.values().cloned().collect();
    assert!(key.iter().all(|line| String::from_utf8_lossy(&sent[0]).contains(line)), "the agent has the key");
    let mut seen = String::new();
    for path in ["/v1/status", "/debug/world", "/debug/config", "/debug/agents", "/metrics"] {
        seen.push_str(&supervisor.call("GET", path, Value::Null).await.1.to_string());
    }
    running.signal(rustix::process::Signal::TERM);
    let (_, stderr) = running.end();
    seen.push_str(&stderr);
    seen.push_str(&everything_in(&supervisor.path("state")));
    let authority = supervisor.authority.key_pem.lines().filter(|line| !line.starts_with("-----"));
    for line in key.iter().map(String::as_str).chain(authority).chain(["token-of-replica-0"]) {
        assert!(!seen.contains(line), "{line} leaked");
    }
    assert!(seen.contains("Ingress/default/a"));
}
