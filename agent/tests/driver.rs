//! The driver on real files and a real unix socket.

// Its helpers fail the test that calls them.
#![allow(clippy::unwrap_used)]

mod fake;
mod world;

use std::sync::Arc;
use std::time::Duration;

use agent::driver::{Driver, End, Options};
use agent::link::Opened;
use agent::status::Status;
use agent::volume;
use fake::Fake;
use journal::admin::{PatchMembers, ReloadRequest};
use journal::client::AdminError;
use journal::members::MemberSet;
use journal::record::encode_transaction;
use journal::{AdminClient, Digest, Record, Replay, Tree, digest};
use tokio::sync::mpsc;
use world::{Wanted, resource, root_of};

/// Waits until something holds; at most 10 s.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = tokio::time::timeout(Duration::from_secs(10), async {
        while !holds() {
            // sleep: looks again until it holds, within the limit.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(limit.await.is_ok(), "within 10 s: {what}");
}

struct Running {
    status: Arc<Status>,
    streams: mpsc::Sender<Opened>,
    driver: tokio::task::JoinHandle<End>,
}

fn start(fake: &Fake, folder: &std::path::Path) -> Running {
    let status = Arc::new(Status::default());
    let options = Options { volume: folder.to_owned(), admin: fake.socket(), scalwsd: "/nonexistent/scalwsd".into() };
    let driver = Driver::start(&options, status.clone()).unwrap();
    let (streams, opened) = mpsc::channel(1);
    Running { status, streams, driver: tokio::spawn(driver.run(opened)) }
}

fn line(record: Record) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode_into(&mut out);
    out
}

/// A journal with one accepted transaction and an open one.
fn journal_with_an_open_commit(tries: &[&str]) -> (Vec<u8>, Wanted) {
    let mut text = line(Record::Journal { id: "j".to_owned() });
    let mut wanted = Wanted::new();
    let mut tree = Tree::default();
    for id in 1..=2u64 {
        resource(&mut wanted, &format!("r{id}"), "body", &[]);
        let (key, (body, _)) = wanted.last_key_value().unwrap();
        tree.insert(key.clone(), digest::leaf(key, body));
        let put = Record::Put { key: key.clone(), secrets: Vec::new().into(), body: body.clone() };
        encode_transaction([put], id, (1, id), tree.root(), &mut text);
        if id == 1 {
            text.extend(line(Record::Accepted { id }));
        }
    }
    for start in tries {
        text.extend(line(Record::Try { commit: 2, start: (*start).to_owned() }));
    }
    (text, wanted)
}

#[tokio::test]
async fn an_open_commit_is_loaded_and_accepted_at_start() {
    for tries in [&[][..], &["start-1"], &["an earlier start"]] {
        let dir = tempfile::tempdir().unwrap();
        let (text, wanted) = journal_with_an_open_commit(tries);
        std::fs::write(dir.path().join("config.jsonl"), text).unwrap();
        let mut fake = Fake::new(dir.path());
        fake.start();
        let running = start(&fake, dir.path());
        until("the commit is accepted", || Replay::of(&fake.volume().config).head.is_some_and(|head| head.commit == 2))
            .await;
        assert_eq!(fake.scalwsd.lock().unwrap().root(), root_of(&wanted));
        until("it is ready", || running.status.is_ready()).await;
        drop(running.streams);
        assert_eq!(running.driver.await.unwrap(), End::Restart("the link ended".to_owned()));
    }
}

#[tokio::test]
async fn a_restarted_scalwsd_is_found_and_its_members_are_put_right() {
    let dir = tempfile::tempdir().unwrap();
    let mut members = line(Record::Journal { id: "m".to_owned() });
    let set = MemberSet::new("ns/svc:80/tcp", vec!["10.0.0.1:80".into()]);
    members.extend(line(set.record(&"ns/svc:80/tcp".into())));
    std::fs::write(dir.path().join("members.jsonl"), members).unwrap();
    let (text, wanted) = journal_with_an_open_commit(&[]);
    std::fs::write(dir.path().join("config.jsonl"), text).unwrap();
    let mut fake = Fake::new(dir.path());
    fake.start();
    let running = start(&fake, dir.path());
    until("it is ready", || running.status.is_ready()).await;
    fake.kill();
    until("it is not ready while scalwsd is down", || !running.status.is_ready()).await;
    {
        let mut scalwsd = fake.scalwsd.lock().unwrap();
        scalwsd.starts += 1;
        scalwsd.state.clear();
        scalwsd.sets.clear();
    }
    fake.start_as_it_is();
    until("the accepted state runs again", || fake.scalwsd.lock().unwrap().root() == root_of(&wanted)).await;
    until("the member set is there again", || fake.scalwsd.lock().unwrap().sets.contains_key("ns/svc:80/tcp")).await;
    until("it is ready again", || running.status.is_ready()).await;
}

/// Whatever makes a process break off a load that it survives: it must not be asked without a pause, nor fill the volume.
#[tokio::test]
async fn a_load_that_breaks_off_is_asked_for_again_ever_more_slowly_and_the_journal_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let (text, wanted) = journal_with_an_open_commit(&[]);
    std::fs::write(dir.path().join("config.jsonl"), text).unwrap();
    let mut fake = Fake::new(dir.path());
    fake.start();
    let (body, _) = &wanted[&journal::Key::new("fragment", "r2")];
    fake.scalwsd.lock().unwrap().deadly.insert(body.clone());
    let began = std::time::Instant::now();
    let running = start(&fake, dir.path());
    until("it was asked three times", || fake.scalwsd.lock().unwrap().broken_off >= 3).await;
    assert!(began.elapsed() >= Duration::from_millis(750), "three times within {:?}", began.elapsed());
    let tries = |fake: &Fake| String::from_utf8_lossy(&fake.volume().config).matches("\"try\"").count();
    assert_eq!(tries(&fake), 1, "{}", String::from_utf8_lossy(&fake.volume().config));
    fake.scalwsd.lock().unwrap().deadly.clear();
    until("the commit is accepted", || Replay::of(&fake.volume().config).head.is_some_and(|head| head.commit == 2))
        .await;
    until("it is ready", || running.status.is_ready()).await;
}

#[tokio::test]
async fn the_admin_client_tells_answers_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut fake = Fake::new(dir.path());
    let gone = AdminClient::connect(&fake.socket()).await;
    assert!(matches!(gone, Err(AdminError::Gone { .. })));
    fake.start();
    let mut client = AdminClient::connect(&fake.socket()).await.unwrap();
    let name = "ns/a b:80/tcp";
    let digest = client.put_members(name, vec!["10.0.0.1:80".to_owned()]).await.unwrap();
    assert_eq!(digest, MemberSet::new(name, vec!["10.0.0.1:80".into()]).digest);
    let mut patch = PatchMembers { base: digest, add: vec!["10.0.0.2:80".to_owned()], remove: Vec::new() };
    let next = client.patch_members(name, &patch).await.unwrap();
    patch.base = Digest([7; 32]);
    match client.patch_members(name, &patch).await {
        Err(AdminError::Conflict { digest }) => assert_eq!(digest, next),
        other => panic!("{other:?}"),
    }
    let listed = client.upstreams().await.unwrap();
    assert_eq!(listed.sets, vec![(name.to_owned(), next)]);
    assert!(listed.root.is_some());
    client.delete_members(name).await.unwrap();
    client.delete_members(name).await.unwrap();
    let refused = client.reload(&ReloadRequest { journal: Some("j".to_owned()), commit: Some(1) }).await;
    assert!(matches!(refused, Err(AdminError::Refused { status: 422, .. })), "{refused:?}");
    let mut closed = client.closed();
    fake.kill();
    tokio::time::timeout(Duration::from_secs(10), closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
    assert!(client.is_closed());
    assert!(matches!(client.config().await, Err(AdminError::Gone { .. })));
}

#[test]
fn a_volume_keeps_only_right_secret_files() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    std::fs::create_dir(&keys).unwrap();
    let right = Digest::of(b"right");
    std::fs::write(keys.join(right.to_string()), b"right").unwrap();
    std::fs::write(keys.join(Digest::of(b"wrong").to_string()), b"something else").unwrap();
    std::fs::write(keys.join(format!("{right}.new")), b"half").unwrap();
    std::fs::write(keys.join("README"), b"x").unwrap();
    let (_, image) = volume::Volume::open(dir.path()).unwrap();
    assert_eq!(image.keys.into_iter().collect::<Vec<_>>(), vec![right]);
    assert_eq!(std::fs::read_dir(&keys).unwrap().count(), 1);
}

#[test]
fn a_secret_is_written_for_its_owner_only_and_only_under_its_digest() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (mut volume, _) = volume::Volume::open(dir.path()).unwrap();
    let secret = push::Secret::new(b"a key".to_vec());
    let digest = secret.digest();
    let write = |digest, bytes| agent::core::Effect::WriteKey { digest, bytes };
    volume.perform(&write(digest, secret.clone())).unwrap().unwrap();
    let path = dir.path().join("keys").join(digest.to_string());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(dir.path().join("keys")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(dir.path().join("config.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(volume.perform(&write(Digest([1; 32]), secret)).unwrap().is_err());
    assert_eq!(std::fs::read_dir(dir.path().join("keys")).unwrap().count(), 1);
    volume.perform(&agent::core::Effect::UnlinkKeys(vec![digest, Digest([1; 32])])).unwrap().unwrap();
    assert!(!path.exists());
}
