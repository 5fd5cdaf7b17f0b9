//! An agent while its controller's authority is replaced: with an overlap, without one, and with a trust file that nobody renews.

// Helpers fail the test that calls them.
#![allow(clippy::unwrap_used)]

mod controller;
mod fake;
mod world;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use agent::bootstrap::{Addresses, Bootstrap, BootstrapError, Bootstrapped};
use agent::driver::{Driver, Options};
use agent::link;
use agent::status::Status;
use arc_swap::ArcSwap;
use controller::{Controller, SharedAddresses, item, until};
use fake::Fake;
use push::authority::{Authority, Minted, bundle_from_pem};
use push::fleet::FleetChange;
use push::server_session::{Close, Event};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

/// Of agents' certificates. They renew at half of it.
const LIFETIME: Duration = Duration::from_secs(2);

fn mint() -> Minted {
    Authority::mint("test", SystemTime::now(), Duration::from_secs(3_600)).unwrap()
}

/// The first signs, all are trusted.
fn authority(signer: &Minted, also: &[&Minted]) -> Authority {
    let certificates: String =
        std::iter::once(&signer).chain(also).map(|minted| minted.certificate_pem.as_str()).collect();
    Authority::from_pem(&certificates, &signer.key_pem).unwrap().with_lifetime(LIFETIME)
}

/// Reads its trust file at each enrolment.
struct Files {
    addresses: SharedAddresses,
    trust: Arc<Mutex<String>>,
}

impl Bootstrap for Files {
    async fn credentials(&mut self) -> Result<Bootstrapped, BootstrapError> {
        let trust_bundle = bundle_from_pem(&self.trust.lock().unwrap()).unwrap();
        Ok(Bootstrapped { token: Zeroizing::new("right".to_owned()), trust_bundle })
    }

    async fn candidates(&mut self, _: bool) -> Result<Vec<Addresses>, BootstrapError> {
        Ok(self.addresses.lock().unwrap().iter().cloned().collect())
    }
}

/// One agent for the whole of a test: nothing of it is started again.
struct Agent {
    _dir: tempfile::TempDir,
    _fake: Fake,
    status: Arc<Status>,
    addresses: SharedAddresses,
    trust: Arc<Mutex<String>>,
    tasks: Vec<tokio::task::AbortHandle>,
}

impl Agent {
    fn start(trusted: &Minted) -> Agent {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::new(dir.path());
        fake.start();
        let options =
            Options { volume: dir.path().to_owned(), admin: fake.socket(), scalwsd: "/nonexistent/scalwsd".into() };
        let (hand_over, opened) = mpsc::channel(1);
        let status = Arc::new(Status::default());
        let (addresses, trust) = (SharedAddresses::default(), Arc::new(Mutex::new(trusted.certificate_pem.clone())));
        let driver = Driver::start(&options, Arc::clone(&status)).unwrap();
        let files = Files { addresses: Arc::clone(&addresses), trust: Arc::clone(&trust) };
        let tasks = vec![
            tokio::spawn(driver.run(opened)).abort_handle(),
            tokio::spawn(link::keep(files, hand_over, Arc::clone(&status))).abort_handle(),
        ];
        Agent { _dir: dir, _fake: fake, status, addresses, trust, tasks }
    }

    fn controller(&self, authority: Authority, epoch: u64) -> Controller {
        Controller::start(&Arc::new(ArcSwap::from_pointee(authority)), &self.addresses, epoch)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

async fn applies(controller: &Controller, what: &str) {
    let change = FleetChange { puts: vec![item("a", what, &[])], ..FleetChange::default() };
    let published = controller.hub.fleet.publish(change);
    until(what, || controller.applied(published.root)).await;
}

/// Streams end with the certificate that they were opened with, and for no other reason.
fn lost_none(controller: &Controller) {
    let events = controller.hub.events.lock().unwrap();
    let closes = events.iter().filter(|event| matches!(event, Event::Closed(_)));
    let other: Vec<_> = closes.filter(|event| !matches!(event, Event::Closed(Close::Expired))).collect();
    assert!(other.is_empty(), "{other:?}");
}

#[tokio::test]
async fn an_authority_is_replaced_under_a_stream_and_a_file_that_knows_only_the_first_one_is_no_obstacle_later() {
    let (old, new) = (mint(), mint());
    let agent = Agent::start(&old);
    let controller = agent.controller(authority(&old, &[]), 1);
    applies(&controller, "under the old one").await;
    let first_ends = agent.status.certificate_ends.get();
    for (what, next) in [
        ("announced", authority(&old, &[&new])),
        ("promoted", authority(&new, &[&old])),
        ("dropped", authority(&new, &[])),
    ] {
        controller.swap(next);
        // One may have begun before.
        controller.enrols(what, 2).await;
        applies(&controller, what).await;
    }
    lost_none(&controller);
    let ends = agent.status.certificate_ends.get();
    assert!(0 < first_ends && first_ends < ends, "the metrics follow the certificate: {first_ends}, then {ends}");

    // The stream is lost and cannot be opened, often enough to let go of the certificate. What was learnt stays.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = nobody.local_addr().unwrap().to_string();
    let nowhere = Addresses { host: "127.0.0.1".to_owned(), enroll: at.clone(), push: at };
    nobody.set_nonblocking(true).unwrap();
    *agent.addresses.lock().unwrap() = Some(nowhere);
    drop(controller);
    let mut dialled = 0;
    // Twice in the first attempt, which has to renew, and once in each later one: the fourth begins without a certificate.
    until("attempts that fail", || {
        dialled += usize::from(nobody.accept().is_ok());
        dialled >= 5
    })
    .await;
    let controller = agent.controller(authority(&new, &[]), 2);
    applies(&controller, "under the new one alone, after a loss").await;
    assert_eq!(*agent.trust.lock().unwrap(), old.certificate_pem);
}

#[tokio::test]
async fn an_authority_that_nobody_announced_is_taken_from_the_trust_file_with_a_stream_or_without_one() {
    let (first, second, third) = (mint(), mint(), mint());
    let agent = Agent::start(&first);
    let controller = agent.controller(authority(&first, &[]), 1);
    applies(&controller, "under the first").await;
    agent.trust.lock().unwrap().clone_from(&second.certificate_pem);
    controller.swap(authority(&second, &[]));
    controller.enrols("renewed under the second, beside the stream", 2).await;
    applies(&controller, "under the second").await;
    lost_none(&controller);

    drop(controller);
    until("the stream is lost", || agent.status.connected.get() == 0).await;
    agent.trust.lock().unwrap().clone_from(&third.certificate_pem);
    let controller = agent.controller(authority(&third, &[]), 2);
    applies(&controller, "under the third").await;
}
