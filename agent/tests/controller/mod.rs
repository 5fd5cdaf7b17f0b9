//! A controller as an agent sees it: enrolment and push listener on loopback, in a runtime of its own.

// Only tests use it, each a part of it.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use agent::bootstrap::Addresses;
use arc_swap::ArcSwap;
use bytes::Bytes;
use journal::{Digest, Key};
use push::authority::Authority;
use push::fleet::{Fleet, FleetChange, Item};
use push::grpc::accept::Limits;
use push::grpc::enrol::{Rate, Redeemer};
use push::grpc::server::{Hub, Welcome};
use push::grpc::{SharedFleet, enrol, server, tls};
use push::identity::{AgentIdentity, FleetId};
use push::server_session::{Event, Role};
use tokio::net::TcpListener;
use tokio::sync::watch;
use zeroize::Zeroizing;

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = tokio::time::timeout(Duration::from_secs(10), async {
        while !holds() {
            // sleep: looks again until it holds, within the limit.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(limit.await.is_ok(), "within 10 s: {what}");
}

pub fn authority() -> (String, Arc<ArcSwap<Authority>>) {
    let minted = Authority::mint("test", SystemTime::now(), Duration::from_secs(3_600)).unwrap();
    let authority = Authority::from_pem(&minted.certificate_pem, &minted.key_pem).unwrap();
    (minted.certificate_pem, Arc::new(ArcSwap::from_pointee(authority)))
}

pub type SharedAddresses = Arc<Mutex<Option<Addresses>>>;

/// Takes the token `right`.
struct Tokens;

impl Redeemer for Tokens {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let fleet = FleetId::new("scalws", "default");
        (*token == "right").then(|| AgentIdentity::new(fleet, "replica-0", "uid-0").unwrap())
    }
}

pub struct TestHub {
    pub fleet: SharedFleet,
    role: watch::Sender<Role>,
    pub events: Mutex<Vec<Event>>,
}

impl Hub for TestHub {
    type Place = ();

    fn admit(&self, agent: &AgentIdentity) -> Option<Welcome<()>> {
        let welcome = || Welcome { fleet: self.fleet.clone(), name: "replica-0".to_owned(), place: () };
        (agent.uid == "uid-0").then(welcome)
    }

    fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    fn event(&self, _: &AgentIdentity, (): &(), _: u64, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

/// A controller as an agent sees it; dropped, it is gone.
pub struct Controller {
    pub hub: Arc<TestHub>,
    /// Of its own, so that its connections end with it.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Controller {
    pub fn start(authority: &Arc<ArcSwap<Authority>>, addresses: &SharedAddresses, epoch: u64) -> Controller {
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

    pub fn applied(&self, root: Digest) -> bool {
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

pub fn item(name: &str, body: &str, secrets: &[Digest]) -> Item {
    let body = Bytes::from(format!("{{\"body\":\"{body}\"}}"));
    Item { key: Key::new("fragment", name), body, secrets: secrets.to_vec() }
}

pub fn members(set: &str, list: &[&str]) -> FleetChange {
    let list: Arc<[Arc<str>]> = list.iter().map(|m| Arc::from(*m)).collect();
    FleetChange { members: vec![(set.into(), Some(list))], ..FleetChange::default() }
}
