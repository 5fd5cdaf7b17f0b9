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
use push::server_session::Event;
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
            addresses: self.addresses.lock().unwrap().clone(),
        })
    }

    async fn addresses(&mut self) -> Result<Option<Addresses>, BootstrapError> {
        Ok(self.addresses.lock().unwrap().clone())
    }
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
    let link = tokio::spawn(link::keep(bootstrap, hand_over));

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
