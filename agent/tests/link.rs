//! Enrolment, stream, volume and `scalwsd` together: a real push server on loopback, a real driver, a fake `scalwsd`.

// Helpers fail the test that calls them.
#![allow(clippy::unwrap_used)]

mod controller;
mod fake;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::bootstrap::{Addresses, Bootstrap, BootstrapError, Bootstrapped};
use agent::driver::{Driver, Options};
use agent::link;
use agent::status::Status;
use arc_swap::ArcSwap;
use controller::{Controller, SharedAddresses, item, members, until};
use fake::Fake;
use journal::Key;
use push::authority::Authority;
use push::fleet::FleetChange;
use push::server_session::{Event, Role};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

struct TestBootstrap {
    addresses: SharedAddresses,
    authority: Arc<ArcSwap<Authority>>,
}

impl Bootstrap for TestBootstrap {
    async fn credentials(&mut self) -> Result<Bootstrapped, BootstrapError> {
        Ok(Bootstrapped {
            token: Zeroizing::new("right".to_owned()),
            trust_bundle: self.authority.load().bundle().to_vec(),
        })
    }

    async fn candidates(&mut self, _: bool) -> Result<Vec<Addresses>, BootstrapError> {
        Ok(self.addresses.lock().unwrap().iter().cloned().collect())
    }
}

/// These and no others.
struct Fixed {
    list: Vec<Addresses>,
    authority: Arc<ArcSwap<Authority>>,
}

impl Bootstrap for Fixed {
    async fn credentials(&mut self) -> Result<Bootstrapped, BootstrapError> {
        let trust_bundle = self.authority.load().bundle().to_vec();
        Ok(Bootstrapped { token: Zeroizing::new("right".to_owned()), trust_bundle })
    }

    async fn candidates(&mut self, _: bool) -> Result<Vec<Addresses>, BootstrapError> {
        Ok(self.list.clone())
    }
}

/// An agent among several controllers.
struct Agent {
    _dir: tempfile::TempDir,
    _fake: Fake,
    tasks: Vec<tokio::task::AbortHandle>,
}

impl Agent {
    fn start(list: Vec<Addresses>, authority: &Arc<ArcSwap<Authority>>) -> Agent {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::new(dir.path());
        fake.start();
        let options =
            Options { volume: dir.path().to_owned(), admin: fake.socket(), scalwsd: "/nonexistent/scalwsd".into() };
        let (hand_over, opened) = mpsc::channel(1);
        let driver = Driver::start(&options, Arc::default()).unwrap();
        let driver = tokio::spawn(driver.run(opened)).abort_handle();
        let link = tokio::spawn(link::keep(Fixed { list, authority: authority.clone() }, hand_over, Arc::default()))
            .abort_handle();
        Agent { _dir: dir, _fake: fake, tasks: vec![driver, link] }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

fn change(body: &str) -> FleetChange {
    FleetChange { puts: vec![item("a", body, &[])], ..FleetChange::default() }
}

fn follower_of(leader: &Controller) -> Role {
    Role::NotLeader { leader_address: Some(leader.addresses.push.clone()), retry_ms: 500 }
}

/// Nobody listens there.
fn dead(host: &str) -> Addresses {
    let port = std::net::TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().to_string();
    Addresses { host: host.to_owned(), enroll: port.clone(), push: port }
}

#[tokio::test]
async fn among_dead_and_following_replicas_the_leader_is_found_and_followed_when_another_one_wins() {
    let (_, authority) = controller::authority();
    let first = Controller::replica(&authority, "127.0.0.3", 1, Role::Leading, 300);
    let second = Controller::replica(&authority, "127.0.0.2", 2, follower_of(&first), 300);
    let list = vec![dead("127.0.0.4"), second.addresses.clone(), first.addresses.clone()];
    let published = first.hub.fleet.publish(change("1"));
    let _agent = Agent::start(list, &authority);
    until("the leader's configuration is applied", || first.applied(published.root)).await;
    assert!(!second.heard(|event| matches!(event, Event::Welcomed)), "a follower served");
    // The other one wins, and the first says so.
    let published = second.hub.fleet.publish(change("2"));
    second.hub.role.send_replace(Role::Leading);
    first.hub.role.send_replace(follower_of(&second));
    until("the new leader's configuration is applied", || second.applied(published.root)).await;
}

#[tokio::test]
async fn a_leader_that_dies_or_falls_silent_is_left_for_another_replica() {
    for silent in [false, true] {
        let (_, authority) = controller::authority();
        let mut leader = Controller::replica(&authority, "127.0.0.3", 1, Role::Leading, 200);
        let next = Controller::replica(&authority, "127.0.0.2", 2, Role::Standby, 200);
        let stopped = Controller::replica(&authority, "127.0.0.5", 1, Role::Leading, 200);
        let list = vec![leader.addresses.clone(), next.addresses.clone(), stopped.addresses.clone()];
        let mut stopped = stopped;
        stopped.silence();
        let published = leader.hub.fleet.publish(change("1"));
        next.hub.fleet.publish(change("2"));
        // The follower does not know the leader yet: it would park whoever comes.
        next.hub.role.send_replace(follower_of(&leader));
        let _agent = Agent::start(list, &authority);
        until("the leader's configuration is applied", || leader.applied(published.root)).await;
        let published = next.hub.fleet.publish(change("3"));
        next.hub.role.send_replace(Role::Leading);
        if silent {
            leader.silence();
        } else {
            drop(leader);
        }
        until("the other replica's configuration is applied", || next.applied(published.root)).await;
    }
}

#[tokio::test]
async fn a_leader_that_is_not_sure_keeps_its_agent_until_another_one_can_be_reached() {
    let (_, authority) = controller::authority();
    let leader = Controller::replica(&authority, "127.0.0.3", 1, Role::Leading, 200);
    // It takes connections, and says nothing.
    let hole = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    hole.set_nonblocking(true).unwrap();
    let at = hole.local_addr().unwrap().to_string();
    let other = Addresses { host: "127.0.0.2".to_owned(), enroll: at.clone(), push: at };
    let published = leader.hub.fleet.publish(change("1"));
    let agent = Agent::start(vec![leader.addresses.clone(), other.clone()], &authority);
    until("the leader's configuration is applied", || leader.applied(published.root)).await;
    while hole.accept().is_ok() {}
    leader.hub.role.send_replace(Role::Unsure);
    until("another replica is looked for", || hole.accept().is_ok()).await;
    let published = leader.hub.fleet.publish(change("2"));
    leader.hub.role.send_replace(Role::Leading);
    until("a leader that is sure again goes on", || leader.applied(published.root)).await;
    assert!(!leader.heard(|event| matches!(event, Event::Closed(_))), "the stream was given up for nothing");
    drop(agent);

    let second = Controller::replica(&authority, "127.0.0.2", 2, Role::Standby, 200);
    let _agent = Agent::start(vec![leader.addresses.clone(), second.addresses.clone()], &authority);
    second.hub.role.send_replace(follower_of(&leader));
    until("the leader serves again", || {
        leader.hub.events.lock().unwrap().iter().filter(|event| matches!(event, Event::Welcomed)).count() >= 3
    })
    .await;
    leader.hub.role.send_replace(Role::Unsure);
    let published = second.hub.fleet.publish(change("3"));
    second.hub.role.send_replace(Role::Leading);
    until("the one that is sure is followed", || second.applied(published.root)).await;
}

#[tokio::test]
async fn what_is_published_runs_and_a_restarted_controller_is_found() {
    let (_, authority) = controller::authority();
    let addresses: SharedAddresses = Arc::default();
    let dir = tempfile::tempdir().unwrap();
    let mut fake = Fake::new(dir.path());
    fake.start();
    let status = Arc::new(Status::default());
    let options =
        Options { volume: dir.path().to_owned(), admin: fake.socket(), scalwsd: "/nonexistent/scalwsd".into() };
    let (hand_over, opened) = mpsc::channel(1);
    let driver = tokio::spawn(Driver::start(&options, status.clone()).unwrap().run(opened));
    let bootstrap = TestBootstrap { addresses: addresses.clone(), authority: authority.clone() };
    let link = tokio::spawn(link::keep(bootstrap, hand_over, status.clone()));

    let controller = Controller::start(&authority, &addresses, 1);
    let fleet = &controller.hub.fleet;
    let secret = push::Secret::new(b"a private key".to_vec());
    let published = fleet.publish(FleetChange {
        puts: vec![item("a", "1", &[]), item("b", "1", &[secret.digest()])],
        secrets: vec![(secret.digest(), secret.clone())],
        ..members("ns/svc:80/tcp", &["10.0.0.1:80"])
    });
    until("the first configuration is applied", || controller.applied(published.root)).await;
    assert_eq!(fake.scalwsd.lock().unwrap().root(), published.root);
    assert!(fake.volume().keys.contains_key(&secret.digest()));
    until("it is ready", || status.is_ready()).await;
    until("its members are there", || fake.scalwsd.lock().unwrap().sets.contains_key("ns/svc:80/tcp")).await;

    // A change and a removal; the key goes with the last body that names it.
    let published = fleet.publish(FleetChange {
        puts: vec![item("b", "2", &[])],
        removes: vec![Key::new("fragment", "a")],
        ..FleetChange::default()
    });
    until("the change is applied", || controller.applied(published.root)).await;
    until("the key is gone", || fake.volume().keys.is_empty()).await;
    // Members only.
    fleet.publish(members("ns/svc:80/tcp", &["10.0.0.1:80", "10.0.0.2:80"]));
    until("the members changed", || {
        fake.scalwsd.lock().unwrap().sets.get("ns/svc:80/tcp").is_some_and(|set| set.members.len() == 2)
    })
    .await;

    // The controller dies; another one with a higher epoch and other bytes comes.
    *addresses.lock().unwrap() = None;
    drop(controller);
    until("the stream is lost", || status.connected.get() == 0).await;
    assert!(status.is_ready(), "without a controller it stays ready");
    let controller = Controller::start(&authority, &addresses, 2);
    let began = Instant::now();
    let published =
        controller.hub.fleet.publish(FleetChange { puts: vec![item("c", "1", &[])], ..FleetChange::default() });
    until("the new controller's configuration is applied", || controller.applied(published.root)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "it was found after {:?}", began.elapsed());
    assert_eq!(fake.scalwsd.lock().unwrap().root(), published.root);

    // scalwsd restarts: nothing is pushed anew, and it runs what was accepted.
    fake.kill();
    until("its end is noticed", || status.scalwsd_up.get() == 0).await;
    fake.start();
    until("it is found again", || status.scalwsd_up.get() == 1 && status.is_ready()).await;
    let published =
        controller.hub.fleet.publish(FleetChange { puts: vec![item("d", "1", &[])], ..FleetChange::default() });
    until("changes go on", || controller.applied(published.root)).await;

    // A resource that scalwsd cannot use at all: refused, and the next one is applied.
    let bad = item("bad", "refuse me", &[]);
    fake.scalwsd.lock().unwrap().refused.insert(bad.body.clone());
    controller.hub.fleet.publish(FleetChange { puts: vec![bad.clone()], ..FleetChange::default() });
    until("it is refused", || {
        controller.hub.events.lock().unwrap().iter().any(|event| matches!(event, Event::Refused { .. }))
    })
    .await;
    let published = controller.hub.fleet.publish(FleetChange {
        removes: vec![bad.key],
        puts: vec![item("e", "1", &[])],
        ..FleetChange::default()
    });
    until("the mended configuration is applied", || controller.applied(published.root)).await;
    assert_eq!(fake.scalwsd.lock().unwrap().root(), published.root);
    driver.abort();
    link.abort();
}
