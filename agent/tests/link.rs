//! Enrolment, stream, volume and `scalwsd` together: a real push server on loopback, a real driver, a fake `scalwsd`.

// Helpers fail the test that calls them.
#![allow(clippy::unwrap_used)]

mod fake;
mod world;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use agent::bootstrap::{Addresses, Bootstrap, BootstrapError, Bootstrapped};
use agent::driver::{Driver, Options};
use agent::link;
use agent::status::Status;
use arc_swap::ArcSwap;
use bytes::Bytes;
use fake::Fake;
use journal::{Digest, Key};
use push::authority::Authority;
use push::fleet::{Fleet, FleetChange, Item};
use push::grpc::accept::Limits;
use push::grpc::enrol::{Rate, Redeemer};
use push::grpc::server::Hub;
use push::grpc::{SharedFleet, enrol, server, tls};
use push::identity::{AgentIdentity, FleetId};
use push::server_session::{Event, Role};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use zeroize::Zeroizing;

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = tokio::time::timeout(Duration::from_secs(10), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(limit.await.is_ok(), "within 10 s: {what}");
}

/// Takes the token `right`.
struct Tokens;

impl Redeemer for Tokens {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let fleet = FleetId::new("scalws", "default");
        (*token == "right").then(|| AgentIdentity::new(fleet, "replica-0", "uid-0").unwrap())
    }
}

struct TestHub {
    fleet: SharedFleet,
    role: watch::Sender<Role>,
    events: Mutex<Vec<Event>>,
}

impl Hub for TestHub {
    fn admit(&self, agent: &AgentIdentity) -> Option<(SharedFleet, String)> {
        (agent.uid == "uid-0").then(|| (self.fleet.clone(), "replica-0".to_owned()))
    }

    fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    fn event(&self, _: &AgentIdentity, _: u64, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

/// A controller as an agent sees it; dropped, it is gone.
struct Controller {
    hub: Arc<TestHub>,
    /// Of its own, so that its connections end with it.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Controller {
    fn start(authority: &Arc<ArcSwap<Authority>>, addresses: &SharedAddresses, epoch: u64) -> Controller {
        let hub = Arc::new(TestHub {
            fleet: SharedFleet::new(Fleet::new(epoch)),
            role: watch::Sender::new(Role::Leading),
            events: Mutex::default(),
        });
        let now = SystemTime::now();
        let own = authority.load().server_identity(tls::CONTROLLER_NAME, now, Duration::from_secs(600)).unwrap();
        let (push_tls, enrol_tls) = (
            tls::slot(tls::push_server(&own, authority.load().bundle()).unwrap()),
            tls::slot(tls::enrolment_server(&own).unwrap()),
        );
        let bind = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let (push, enroll) = (bind(), bind());
        let text = |address: std::io::Result<SocketAddr>| address.unwrap().to_string();
        let here = Addresses { enroll: text(enroll.local_addr()), push: text(push.local_addr()) };
        let (served, authority) = (hub.clone(), authority.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let push = TcpListener::from_std(push).unwrap();
            server::serve(push, push_tls, Limits::default(), served, std::future::pending()).await.unwrap();
        });
        runtime.spawn(async move {
            let enroll = TcpListener::from_std(enroll).unwrap();
            let (limits, rate) = (Limits::default(), Rate::default());
            enrol::serve(enroll, enrol_tls, limits, rate, authority, Tokens, std::future::pending()).await.unwrap();
        });
        *addresses.lock().unwrap() = Some(here);
        Controller { hub, runtime: Some(runtime) }
    }

    fn applied(&self, root: Digest) -> bool {
        let events = self.hub.events.lock().unwrap();
        events.iter().any(|event| matches!(event, Event::Applied { root: applied, .. } if *applied == root))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type SharedAddresses = Arc<Mutex<Option<Addresses>>>;

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

fn item(name: &str, body: &str, secrets: &[Digest]) -> Item {
    let body = Bytes::from(format!("{{\"body\":\"{body}\"}}"));
    Item { key: Key::new("fragment", name), body, secrets: secrets.to_vec() }
}

fn members(set: &str, list: &[&str]) -> FleetChange {
    let list: Arc<[Arc<str>]> = list.iter().map(|m| Arc::from(*m)).collect();
    FleetChange { members: vec![(set.into(), Some(list))], ..FleetChange::default() }
}

#[tokio::test]
async fn what_is_published_runs_and_a_restarted_controller_is_found() {
    let minted = Authority::mint("test", SystemTime::now(), Duration::from_secs(3_600)).unwrap();
    let authority = Authority::from_pem(&minted.certificate_pem, &minted.key_pem).unwrap();
    let authority = Arc::new(ArcSwap::from_pointee(authority));
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
