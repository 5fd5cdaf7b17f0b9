//! The real `scalws-agent`, killed before each of its effects: whatever was published is applied in the end.

// Helpers fail the test that calls them.
#![allow(clippy::unwrap_used)]

mod controller;
mod fake;
mod world;

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use controller::{Controller, SharedAddresses, item, members, until};
use fake::Fake;
use journal::{Key, Replay};
use push::fleet::FleetChange;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

/// Answers one agent process until it ends; then it is gone, and whether it was killed by its fault is known.
struct Supervised {
    ended: tokio::task::JoinHandle<bool>,
}

fn spawn(
    fake: &Fake,
    folder: &std::path::Path,
    kill_at: Option<u64>,
    addresses: SharedAddresses,
    ca: String,
) -> Supervised {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalws-agent"));
    command.args(["--supervised", "--name", "replica-0", "--scalwsd", "/nonexistent/scalwsd", "--volume"]).arg(folder);
    command.arg("--admin").arg(fake.socket()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(n) = kill_at {
        command.env("SCALWS_FAULT", format!("kill@{n}"));
    }
    let mut child: Child = command.kill_on_drop(true).spawn().unwrap();
    let ended = tokio::spawn(async move {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stdin = child.stdin.take().unwrap();
        while let Ok(Some(line)) = lines.next_line().await {
            let here = addresses.lock().unwrap().clone();
            let here = here.map(|a| serde_json::json!({"enroll": a.enroll, "push": a.push}));
            let answer = if line.contains("credentials") {
                let mut answer = serde_json::json!({"token": "right", "trust_bundle_pem": ca});
                if let Some(here) = here {
                    answer["enroll"] = here["enroll"].clone();
                    answer["push"] = here["push"].clone();
                }
                serde_json::json!({"credentials": answer})
            } else {
                serde_json::json!({"addresses": here})
            };
            if stdin.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                break;
            }
        }
        use std::os::unix::process::ExitStatusExt;
        child.wait().await.unwrap().signal().is_some()
    });
    Supervised { ended }
}

#[tokio::test]
async fn an_agent_killed_before_any_effect_loses_nothing() {
    let (ca, authority) = controller::authority();
    let mut kill_at = 0;
    loop {
        kill_at += 1;
        let addresses: SharedAddresses = Arc::new(Mutex::default());
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut fake = Fake::new(dir.path());
        fake.start();
        let controller = Controller::start(&authority, &addresses, 1);
        let fleet = &controller.hub.fleet;
        let mut agent = spawn(&fake, dir.path(), Some(kill_at), addresses.clone(), ca.clone());
        let secret = push::Secret::new(b"a private key".to_vec());
        let steps = [
            FleetChange {
                puts: vec![item("a", "1", &[]), item("b", "1", &[secret.digest()])],
                secrets: vec![(secret.digest(), secret.clone())],
                ..members("ns/svc:80/tcp", &["10.0.0.1:80"])
            },
            FleetChange {
                puts: vec![item("b", "2", &[])],
                removes: vec![Key::new("fragment", "a")],
                ..members("ns/svc:80/tcp", &["10.0.0.2:80"])
            },
        ];
        let mut killed = false;
        for (step, (keys, member)) in steps.into_iter().zip([(1, "10.0.0.1:80"), (0, "10.0.0.2:80")]) {
            let published = fleet.publish(step);
            let done = || {
                controller.applied(published.root)
                    && fake.scalwsd.lock().unwrap().root() == published.root
                    && Replay::of(&fake.volume().config).head.is_some_and(|head| head.root == published.root)
                    && fake.volume().keys.len() == keys
                    && fake.scalwsd.lock().unwrap().sets.values().any(|set| set.members.contains(&member.into()))
            };
            let what = format!("a death before effect {kill_at} loses nothing");
            loop {
                tokio::select! {
                    () = until(&what, done) => break,
                    died = &mut agent.ended, if !killed => {
                        assert!(died.unwrap(), "the fault ended it");
                        killed = true;
                        agent = spawn(&fake, dir.path(), None, addresses.clone(), ca.clone());
                    }
                }
            }
        }
        agent.ended.abort();
        // Past the last effect of the script nothing is killed any more.
        if !killed {
            break;
        }
    }
    assert!(kill_at > 15, "the script has more than {kill_at} effects");
}
