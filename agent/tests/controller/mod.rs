//! A controller as an agent sees it: enrolment and push listener on loopback, in a runtime of its own.

// Only tests use it, each a part of it.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use push::join::JoinKey;
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

/// Takes the token `right`, and join tokens of its authority; counts.
struct Tokens(JoinKey, Arc<AtomicUsize>);

pub fn identity() -> AgentIdentity {
    AgentIdentity::new(FleetId::new("scalws", "default"), "replica-0", "uid-0").unwrap()
}

impl Redeemer for Tokens {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        self.1.fetch_add(1, Ordering::SeqCst);
        if *token == "right" { Some(identity()) } else { self.0.verify(&token, now).ok() }
    }
}

pub struct TestHub {
    pub fleet: SharedFleet,
    pub role: watch::Sender<Role>,
    heartbeat_ms: u64,
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

    fn heartbeat_ms(&self) -> u64 {
        self.heartbeat_ms
    }

    fn event(&self, _: &AgentIdentity, (): &(), _: u64, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

fn slots(authority: &Authority) -> [tls::TlsSlot; 2] {
    let (now, lifetime) = (SystemTime::now(), Duration::from_secs(600));
    let own = authority.server_identity(tls::CONTROLLER_NAME, now, lifetime).unwrap();
    [tls::slot(tls::push_server(&own, authority.bundle()).unwrap()), tls::slot(tls::enrolment_server(&own).unwrap())]
}

/// A controller as an agent sees it; dropped, it is gone.
pub struct Controller {
    pub hub: Arc<TestHub>,
    pub addresses: Addresses,
    /// How many times somebody enrolled.
    enrolled: Arc<AtomicUsize>,
    authority: Arc<ArcSwap<Authority>>,
    /// Of push and enrolment.
    slots: [tls::TlsSlot; 2],
    /// While it is there, the only thread of the runtime waits for it.
    silenced: Option<std::sync::mpsc::Sender<()>>,
    /// Of its own, so that its connections end with it.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Controller {
    pub fn start(authority: &Arc<ArcSwap<Authority>>, addresses: &SharedAddresses, epoch: u64) -> Controller {
        let controller = Controller::replica(authority, "127.0.0.1", epoch, Role::Leading, push::limits::HEARTBEAT_MS);
        *addresses.lock().unwrap() = Some(controller.addresses.clone());
        controller
    }

    /// One of several, on an address of its own.
    pub fn replica(
        authority: &Arc<ArcSwap<Authority>>,
        host: &str,
        epoch: u64,
        role: Role,
        heartbeat_ms: u64,
    ) -> Controller {
        let hub = Arc::new(TestHub {
            fleet: SharedFleet::new(Fleet::new(epoch)),
            role: watch::Sender::new(role),
            heartbeat_ms,
            events: Mutex::default(),
        });
        let slots = slots(&authority.load());
        let [push_tls, enrol_tls] = slots.clone();
        let enrolled = Arc::new(AtomicUsize::new(0));
        let (counted, held) = (enrolled.clone(), authority.clone());
        let bind = || {
            let listener = std::net::TcpListener::bind((host, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let (push, enroll) = (bind(), bind());
        let text = |address: std::io::Result<SocketAddr>| address.unwrap().to_string();
        let (enroll_at, push_at) = (text(enroll.local_addr()), text(push.local_addr()));
        let here = Addresses { host: host.to_owned(), enroll: enroll_at, push: push_at };
        let (served, authority) = (hub.clone(), authority.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let push = TcpListener::from_std(push).unwrap();
            server::serve(push, push_tls, Limits::default(), served, std::future::pending()).await.unwrap();
        });
        runtime.spawn(async move {
            let enroll = TcpListener::from_std(enroll).unwrap();
            let (limits, rate) = (Limits::default(), Rate::default());
            let tokens = Tokens(JoinKey::of(&authority.load()), counted);
            enrol::serve(enroll, enrol_tls, limits, rate, authority, tokens, std::future::pending()).await.unwrap();
        });
        Controller { hub, addresses: here, enrolled, authority: held, slots, silenced: None, runtime: Some(runtime) }
    }

    /// Another authority from now on, as a running controller takes one: connections that are there stay.
    pub fn swap(&self, authority: Authority) {
        for (slot, new) in self.slots.iter().zip(slots(&authority)) {
            slot.store(new.load_full());
        }
        self.authority.store(Arc::new(authority));
    }

    /// Until somebody has enrolled so many times more.
    pub async fn enrols(&self, what: &str, times: usize) {
        let enough = self.enrolled.load(Ordering::SeqCst) + times;
        until(what, || self.enrolled.load(Ordering::SeqCst) >= enough).await;
    }

    /// As if it was stopped: the kernel takes connections, and nobody answers.
    pub fn silence(&mut self) {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        self.silenced = Some(sender);
        // An error is the end of the sender, which is what is waited for.
        self.runtime.as_ref().unwrap().spawn(async move { receiver.recv().unwrap_or_default() });
    }

    pub fn heard(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.hub.events.lock().unwrap().iter().any(wanted)
    }

    pub fn applied(&self, root: Digest) -> bool {
        let events = self.hub.events.lock().unwrap();
        events.iter().any(|event| matches!(event, Event::Applied { root: applied, .. } if *applied == root))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.silenced = None;
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
