//! The program as a process: standing alone, as the parent of a worker that dies, checking, ending.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

const LIMIT: Duration = Duration::from_secs(20);

/// A process that is killed when the test is over, however it ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Process {
    fn start(arguments: &[&str]) -> Process {
        let mut command = scalwsd(arguments);
        Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn ended(&mut self) -> std::process::ExitStatus {
        until(|| self.0.try_wait().unwrap())
    }
}

fn scalwsd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalwsd"));
    // Writing a backtrace may take longer than a load in a test may.
    command.args(arguments).env("SCALWS_LOG", "info").env("RUST_BACKTRACE", "0");
    command
}

fn until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "it did not happen within {LIMIT:?}");
        // sleep: looks again until it holds, within the limit.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A free port outside of the range from which the system takes ports for outgoing connections.
fn free_port() -> u16 {
    until(|| {
        let port = 12_000 + rand::random_range(0..20_000);
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).ok().map(|_| port)
    })
}

/// The answer to a GET, or nothing if nobody answers.
fn get(port: u16, host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer).filter(|a| !a.is_empty())
}

fn status(port: u16, host: &str) -> Option<u16> {
    get(port, host, "/")?.get(9..12)?.parse().ok()
}

fn file(port: u16, respond: &str) -> String {
    format!(
        "listeners:\n  - port: {port}\nhosts:\n  - domain: a.example\n    routes:\n      - path: /\n        respond: {respond}\n"
    )
}

#[test]
fn a_hand_written_file_is_served_and_read_again_on_sighup_and_a_broken_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, port) = (dir.path().join("scalws.yaml"), free_port());
    std::fs::write(&path, file(port, "204")).unwrap();
    let admin = dir.path().join("admin.sock");
    let mut process = Process::start(&[
        "--config",
        path.to_str().unwrap(),
        "--admin",
        admin.to_str().unwrap(),
        "--access-log",
        "off",
    ]);
    until(|| status(port, "a.example").filter(|s| *s == 204));
    std::fs::write(&path, file(port, "205")).unwrap();
    process.signal(Signal::HUP);
    until(|| status(port, "a.example").filter(|s| *s == 205));
    std::fs::write(&path, file(port, "9999")).unwrap();
    let answer = reload(&admin);
    assert!(answer.starts_with("HTTP/1.1 422") && answer.contains("respond"), "{answer}");
    assert_eq!(status(port, "a.example"), Some(205));
    std::fs::write(&path, file(port, "206")).unwrap();
    assert!(reload(&admin).starts_with("HTTP/1.1 200"));
    assert_eq!(status(port, "a.example"), Some(206));
    process.signal(Signal::TERM);
    assert!(process.ended().success());
    assert_eq!(status(port, "a.example"), None);
}

/// `POST /v1/reload` with plain bytes.
fn reload(admin: &Path) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"POST /v1/reload HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_whole_file_with_pools_certificates_and_redirects_is_live() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    std::fs::write(dir.path().join("a.crt"), made.cert.pem()).unwrap();
    std::fs::write(dir.path().join("a.key"), made.signing_key.serialize_pem()).unwrap();
    let path = dir.path().join("scalws.yaml");
    let text = r#"
listeners:
  - port: 8080
  - { port: 8443, protocol: tls, unknownName: refuse, defaultCertificate: a }
certificates:
  - { name: a, chain: a.crt, key: a.key }
pools:
  - { name: web, members: ["127.0.0.1:3000", "[::1]:3000"] }
  - { name: grpc, members: ["127.0.0.1:3001"], protocol: h2 }
  - { name: far, dns: { host: far.example, port: 80 } }
hosts:
  - domain: a.example
    certificates: [a]
    routes:
      - path: { exact: /health }
        respond: 200
      - path: { regex: "/v([0-9]+)/(.*)" }
        forward: web
        rewrite: { template: "/$2" }
      - path: /api
        method: GET
        headers: [{ name: x-beta, value: { exact: "1" } }]
        forward: [{ pool: web, weight: 9 }, { pool: grpc, weight: 1 }]
        timeouts: { requestMs: 1000 }
        responseHeaders: { set: [[x-a, "1"]] }
      - path: /old
        redirect: { status: 301, path: { prefix: /new } }
      - forward: far
        toHttps: { status: 308, port: 8443 }
  - domain: "*.a.example"
    listeners: [8080]
"#;
    std::fs::write(&path, text).unwrap();
    let Output { status, stdout, stderr } = scalwsd(&["check", path.to_str().unwrap()]).output().unwrap();
    let told = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    assert_eq!((status.code(), told.contains("everything is live")), (Some(0), true), "{told}");
}

#[test]
fn a_check_names_each_mistake_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scalws.yaml");
    for (text, code, wanted) in [
        ("listeners: []\nmore: 1\n", 2, "more"),
        ("listeners:\n  - port: 0\n", 2, "listeners[0]"),
        ("listeners:\n  - port: 80\n  - port: 80\n", 2, "listeners[1]"),
        ("listeners: []\npools:\n  - { name: a, members: [here] }\n", 2, "here"),
        ("listeners: []\npools:\n  - { name: a }\n", 2, "exactly one of members and dns"),
        ("listeners: []\ncertificates:\n  - { name: a, chain: none.crt, key: none.key }\n", 2, "certificates[0]"),
        ("listeners: []\nhosts:\n  - { domain: 'a b' }\n", 2, "hosts[0]"),
        (
            "listeners:\n  - port: 80\nhosts:\n  - { domain: a, routes: [{ respond: 200, forward: x }] }\n",
            2,
            "routes[0]",
        ),
        ("listeners:\n  - port: 80\nhosts:\n  - { domain: a, routes: [{ forward: x }] }\n", 2, "no pool"),
        ("listeners: {\n", 2, "scalws.yaml"),
    ] {
        std::fs::write(&path, text).unwrap();
        let output = scalwsd(&["check", path.to_str().unwrap()]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), told.contains(wanted)), (Some(code), true), "{text}: {told}");
    }
    let output = scalwsd(&["--config", path.to_str().unwrap()]).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("scalws.yaml"));
}

/// A volume with one accepted transaction: a listener, and hosts that answer by themselves.
fn volume(dir: &Path, port: u16, bodies: &[(&str, &str)]) {
    use journal::record::encode_transaction;
    use journal::{Key, Record, Tree, digest};
    let mut puts = vec![(Key::new("listener", &format!("tcp/{port}")), r#"{"body":{"protocol":"http"}}"#.to_owned())];
    for (domain, action) in bodies {
        let host = r#"{"body":{"owner":"t"}}"#.to_owned();
        puts.push((Key::new("host", &format!("tcp/{port}/{domain}")), host));
        let claims = format!(
            r#"{{"listeners":["tcp/{port}"],"host":"{domain}","matches":[{{"path":{{"prefix":"/"}},"key":{{"rank":[1],"created":0,"tie":["t","{domain}",0]}}}}]}}"#
        );
        let fragment = format!(r#"{{"claims":{claims},"body":{{"actions":[{action}]}}}}"#);
        puts.push((Key::new("fragment", &format!("Ingress/t/{domain}/{domain}")), fragment));
    }
    let mut tree = Tree::default();
    let mut lines = Vec::new();
    Record::Journal { id: "j".to_owned() }.encode_into(&mut lines);
    let records: Vec<Record> = puts
        .into_iter()
        .map(|(key, body)| {
            tree.insert(key.clone(), digest::leaf(&key, body.as_bytes()));
            Record::Put { key, secrets: Vec::new().into(), body: body.into() }
        })
        .collect();
    encode_transaction(records, 1, (1, 1), tree.root(), &mut lines);
    Record::Accepted { id: 1 }.encode_into(&mut lines);
    std::fs::write(dir.join("config.jsonl"), lines).unwrap();
}

const RESPOND: &str = r#"{"action":{"respond":204}}"#;

/// The process ids of the children of a process.
fn children(parent: u32) -> Vec<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().map(|p| Pid::from_raw(p.parse().unwrap()).unwrap()).collect()
}

/// Whether every thread of a process stands still (proc_pid_stat(5): the state follows the name in parentheses).
fn is_stopped(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    tasks.into_iter().all(|task| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    })
}

#[test]
fn a_connection_that_waits_while_the_worker_is_killed_is_served_by_the_next_one() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    volume(dir.path(), port, &[("a.example", RESPOND)]);
    let mut process = Process::start(&["run", "--volume", dir.path().to_str().unwrap(), "--access-log", "off"]);
    until(|| status(port, "a.example").filter(|s| *s == 204));
    let worker = until(|| children(process.0.id()).first().copied());
    // Stopped, it accepts nothing: the connection waits in the queue of the socket.
    rustix::process::kill_process(worker, Signal::STOP).unwrap();
    until(|| is_stopped(worker).then_some(()));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    rustix::process::kill_process(worker, Signal::KILL).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer:?}");
    assert_ne!(until(|| children(process.0.id()).first().copied()), worker);
    process.signal(Signal::TERM);
    assert!(process.ended().success());
}

#[test]
fn a_worker_ends_with_its_parent() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    volume(dir.path(), port, &[("a.example", RESPOND)]);
    let mut process = Process::start(&["run", "--volume", dir.path().to_str().unwrap(), "--access-log", "off"]);
    until(|| status(port, "a.example"));
    process.signal(Signal::KILL);
    process.ended();
    until(|| status(port, "a.example").is_none().then_some(()));
}

#[test]
fn a_supervised_process_ends_when_its_input_does() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    volume(dir.path(), port, &[("a.example", RESPOND)]);
    let mut process = Process::start(&["run", "--supervised", "--volume", dir.path().to_str().unwrap()]);
    until(|| status(port, "a.example"));
    drop(process.0.stdin.take());
    assert!(process.ended().success());
}

#[test]
fn a_check_of_a_volume_says_each_resource_before_it_loads_it() {
    let dir = tempfile::tempdir().unwrap();
    volume(dir.path(), 80, &[("a.example", RESPOND), ("b.example", r#"{"action":{"nothing":1}}"#)]);
    let arguments = ["check", "--volume", dir.path().to_str().unwrap(), "--skip", "host/tcp/80/b.example"];
    let output = scalwsd(&arguments).output().unwrap();
    let lines: Vec<serde_json::Value> =
        output.stdout.lines().map(|l| serde_json::from_str(&l.unwrap()).unwrap()).collect();
    let names: Vec<_> = lines.iter().filter_map(|l| l["put"]["name"].as_str()).collect();
    let fragments = ["Ingress/t/a.example/a.example", "Ingress/t/b.example/b.example"];
    assert_eq!(names, ["tcp/80", "tcp/80/a.example", fragments[0], fragments[1]]);
    assert_eq!(lines.last().unwrap()["done"]["loaded"], 4);
    assert_eq!(output.status.code(), Some(1));
}

#[cfg(all(feature = "poison", debug_assertions))]
#[test]
fn a_check_ends_on_the_resource_that_kills_panics_or_hangs_and_lives_without_it() {
    for (word, signal, code) in [("abort", Some(6), None), ("panic", None, Some(101)), ("hang", Some(6), None)] {
        let dir = tempfile::tempdir().unwrap();
        let deadly = format!(
            r#"{{"action":{{"respond":200}},"responseHeaders":{{"set":[["x-scalws-test-poison","{word}"]]}}}}"#
        );
        volume(dir.path(), 80, &[("a.example", RESPOND), ("b.example", &deadly), ("c.example", RESPOND)]);
        let path = dir.path().to_str().unwrap();
        let mut command = scalwsd(&["check", "--volume", path]);
        let output = command.env("SCALWS_TEST_LOAD_LIMIT_MS", "500").output().unwrap();
        assert_eq!((output.status.signal(), output.status.code()), (signal, code), "{word}");
        let last = output.stdout.lines().last().unwrap().unwrap();
        assert!(last.contains("Ingress/t/b.example/b.example"), "{word}: {last}");
        let skip = ["--skip", "fragment/Ingress/t/b.example/b.example"];
        let output = scalwsd(&["check", "--volume", path, skip[0], skip[1]]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{word}");
    }
}

/// A request to the admin API: the status and the body.
#[cfg(all(feature = "poison", debug_assertions))]
fn ask(admin: &Path, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = std::os::unix::net::UnixStream::connect(admin).ok()?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.get(9..12)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

/// The start id that the process behind a socket says.
#[cfg(all(feature = "poison", debug_assertions))]
fn start_id(admin: &Path) -> Option<String> {
    let (_, body) = ask(admin, "GET", "/v1/config", "")?;
    Some(serde_json::from_str::<serde_json::Value>(&body).ok()?["start"].as_str()?.to_owned())
}

/// Appends a commit with one fragment more, which nobody accepted yet.
#[cfg(all(feature = "poison", debug_assertions))]
fn append_poison(dir: &Path, port: u16, word: &str) {
    use journal::record::encode_transaction;
    let path = dir.join("config.jsonl");
    let mut text = std::fs::read(&path).unwrap();
    let mut tree = journal::Replay::of(&text).tree;
    let claims = format!(
        r#"{{"listeners":["tcp/{port}"],"host":"a.example","matches":[{{"path":{{"prefix":"/p"}},"key":{{"rank":[1],"created":0,"tie":["t","p",0]}}}}]}}"#
    );
    let action =
        format!(r#"{{"action":{{"respond":200}},"responseHeaders":{{"set":[["x-scalws-test-poison","{word}"]]}}}}"#);
    let body = bytes::Bytes::from(format!(r#"{{"claims":{claims},"body":{{"actions":[{action}]}}}}"#));
    let key = journal::Key::new("fragment", "Ingress/t/poison/a.example");
    tree.insert(key.clone(), journal::digest::leaf(&key, &body));
    let put = journal::Record::Put { key, secrets: Vec::new().into(), body };
    encode_transaction([put], 2, (1, 2), tree.root(), &mut text);
    std::fs::write(path, text).unwrap();
}

/// With one thread for all, a load that stops would stop everything else, if everything else shared it.
#[cfg(all(feature = "poison", debug_assertions))]
#[test]
fn a_load_that_kills_panics_or_hangs_ends_the_process_and_keeps_nobody_waiting_meanwhile() {
    for word in ["abort", "panic", "hang"] {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        volume(dir.path(), port, &[("a.example", RESPOND)]);
        let admin = dir.path().join("admin.sock");
        let arguments = ["run", "--volume", dir.path().to_str().unwrap(), "--access-log", "off"];
        let mut command = scalwsd(&arguments);
        command.env("SCALWS_TEST_LOAD_LIMIT_MS", "3000").env("TOKIO_WORKER_THREADS", "1");
        let _process =
            Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until(|| status(port, "a.example").filter(|s| *s == 204));
        let before = start_id(&admin).unwrap();
        append_poison(dir.path(), port, word);
        let reloading = std::thread::spawn({
            let admin = admin.clone();
            move || ask(&admin, "POST", "/v1/reload", r#"{"journal":"j","commit":2}"#)
        });
        if word == "hang" {
            // Nobody can see from outside that it hangs already; whenever these come, they are answered.
            while !reloading.is_finished() && start_id(&admin) == Some(before.clone()) {
                let began = Instant::now();
                let put = ask(&admin, "PUT", "/v1/upstreams/t%2Fs:80%2Ftcp", r#"{"members":["127.0.0.1:9"]}"#);
                // The process may end before it answers.
                assert!(put.is_none_or(|(status, _)| status == 200));
                let served = status(port, "a.example");
                assert!(served.is_none_or(|status| status == 204));
                assert!(began.elapsed() < Duration::from_secs(2), "{word}: others waited {:?}", began.elapsed());
            }
        }
        assert_eq!(reloading.join().unwrap(), None, "{word}: the process ends without an answer");
        let after = until(|| start_id(&admin).filter(|id| *id != before));
        assert_ne!(before, after, "{word}: another process has its place");
        until(|| status(port, "a.example").filter(|s| *s == 204));
    }
}

#[test]
fn a_process_leaves_no_core_and_cannot_be_traced() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    volume(dir.path(), port, &[("a.example", RESPOND)]);
    let process = Process::start(&["run", "--volume", dir.path().to_str().unwrap(), "--access-log", "off"]);
    until(|| status(port, "a.example"));
    let worker = until(|| children(process.0.id()).first().copied());
    for pid in [process.0.id().to_string(), worker.as_raw_nonzero().to_string()] {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|l| l.starts_with("Max core file size")).unwrap();
        assert!(core.split_whitespace().filter(|w| *w == "0").count() == 2, "{core}");
    }
}

#[test]
fn help_shows_examples() {
    let output = scalwsd(&["--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("scalwsd check"), "{help}");
    assert!(!help.lines().any(|line| line.trim_start().starts_with("worker")), "{help}");
    assert!(output.status.signal().is_none());
}
