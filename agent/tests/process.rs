//! The `scalws-agent` executable.

// Its helpers fail the test that calls them.
#![allow(clippy::unwrap_used)]

mod controller;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use push::fleet::FleetChange;
use push::join::{Claims, JoinKey};
use push::server_session::{Event, Role};

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalws-agent"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A folder in memory, removed at the end.
fn volume() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("/dev/shm is a tmpfs on every machine that runs these tests")
}

fn end(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(10), "it ends within 10 s");
        // sleep: a process gives no event to wait for with a limit; looks again.
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn it_asks_its_supervisor_seals_itself_and_ends_when_stdin_does() {
    let dir = volume();
    let mut child = agent()
        .args(["--supervised", "--name", "replica-0", "--volume"])
        .arg(dir.path())
        .arg("--admin")
        .arg(dir.path().join("admin.sock"))
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..2 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"need\":\"addresses\"}\n");
        stdin.write_all(b"not a line that it knows\n{\"addresses\":null}\n").unwrap();
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().nth(4), Some("0"), "{cores}");
    drop(stdin);
    let output = end(child);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_refuses_a_volume_that_is_not_in_memory_and_a_start_without_a_supervisor() {
    // /proc is neither tmpfs nor ramfs.
    let output = agent().args(["--supervised", "--volume", "/proc", "--admin", "/proc/a.sock"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("not memory-backed"), "{said}");
    let dir = volume();
    let output = agent().arg("--volume").arg(dir.path()).args(["--admin", "a.sock"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--supervised"));
    // Nothing that is said is passed over.
    let output =
        agent().args(["--supervised", "--push-port", "1", "--volume", "/", "--admin", "a.sock"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--controller"), "{said}");
}

/// With a join token of this authority at a controller that serves, and one that is dead.
#[test]
fn with_a_join_token_it_finds_the_controller_by_itself_and_ends_when_it_is_asked_to() {
    let (certificate, authority) = controller::authority();
    let accepting = controller::Controller::replica(&authority, "127.0.0.1", 1, Role::Leading, 5_000);
    accepting.hub.fleet.publish(FleetChange::default());
    let dir = volume();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let claims = Claims { agent: controller::identity(), not_after: now + 60 };
    let token = JoinKey::of(&authority.load()).issue(&claims).unwrap();
    let (token_file, trust_file) = (dir.path().join("token"), dir.path().join("ca.crt"));
    std::fs::write(&trust_file, certificate).unwrap();
    let start = || {
        let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
        let mut command = agent();
        command.args(["--controller", "127.0.0.7", "--controller", "localhost", "--enroll-port"]);
        command.arg(port(&accepting.addresses.enroll)).arg("--push-port").arg(port(&accepting.addresses.push));
        command.arg("--trust").arg(&trust_file).arg("--token").arg(&token_file);
        command.arg("--volume").arg(dir.path()).arg("--admin").arg(dir.path().join("admin.sock")).arg("--scalwsd");
        command.arg("/nonexistent/scalwsd").spawn().unwrap()
    };
    // A path that is wrong is told at once.
    let output = end(start());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("token"), "{said}");

    std::fs::write(&token_file, format!("{}\n", *token)).unwrap();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        accepting.hub.events.lock().unwrap().clear();
        let mut child = start();
        // Nobody is at the other end of its input, and it goes on.
        drop(child.stdin.take());
        let began = Instant::now();
        while !accepting.heard(|event| matches!(event, Event::Welcomed)) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            assert!(began.elapsed() < Duration::from_secs(10), "it is served within 10 s");
            // sleep: looks again until it holds, within the limit.
            std::thread::sleep(Duration::from_millis(5));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let output = end(child);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains(&**token), "the token is in the log");
    }
}

#[test]
fn its_help_shows_examples() {
    let output = agent().arg("--help").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for word in ["--volume", "--admin", "--status-socket", "--controller", "--token", "Examples:", "curl --unix-socket"]
    {
        assert!(said.contains(word), "{word} in {said}");
    }
}
