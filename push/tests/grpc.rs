//! The binding over loopback with real TLS: agents are served, and nobody else gets anything.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use journal::Key;
use model::Volume;
use prost::Message as _;
use proto::v1::agent_message::Message as ToController;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{AgentMessage, ControllerMessage, EnrollRequest, EnrollResponse};
use push::agent_session::{AgentSession, Effect, Input};
use push::authority::Authority;
use push::fleet::{Fleet, FleetChange, Item};
use push::grpc::accept::Limits;
use push::grpc::client::{self, Credentials, Link};
use push::grpc::server::{self, Hub, Welcome};
use push::grpc::tls::{self, CONTROLLER_NAME, TlsSlot};
use push::grpc::{SharedFleet, enrol};
use push::identity::{AgentIdentity, FleetId};
use push::server_session::{Event, Role};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// Nothing here takes more than a moment; this only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

struct TestHub {
    fleet: SharedFleet,
    role: watch::Sender<Role>,
    /// Its lead is over by the clock, which nobody was told yet.
    lapsed: AtomicBool,
    events: Mutex<Vec<(String, u64, Event)>>,
}

impl Hub for TestHub {
    type Place = ();

    fn admit(&self, agent: &AgentIdentity) -> Option<Welcome<()>> {
        let welcome = || Welcome { fleet: self.fleet.clone(), name: agent.uid.clone(), place: () };
        (agent.fleet == FleetId::new("scalws", "default")).then(welcome)
    }

    fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    fn still_leads(&self) -> bool {
        !self.lapsed.load(Ordering::SeqCst)
    }

    fn event(&self, agent: &AgentIdentity, (): &(), session: u64, event: Event) {
        self.events.lock().unwrap().push((agent.uid.clone(), session, event));
    }
}

/// Takes each of these tokens once.
struct Tokens(Mutex<Vec<String>>);

impl enrol::Redeemer for Tokens {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let mut tokens = self.0.lock().unwrap();
        let at = tokens.iter().position(|known| *known == *token)?;
        tokens.remove(at);
        Some(agent("uid-1"))
    }
}

fn agent(uid: &str) -> AgentIdentity {
    AgentIdentity::new(FleetId::new("scalws", "default"), "replica-0", uid).unwrap()
}

fn mint() -> (Authority, String, Zeroizing<String>) {
    let minted = Authority::mint("test", SystemTime::now(), Duration::from_secs(3600)).unwrap();
    let authority = Authority::from_pem(&minted.certificate_pem, &minted.key_pem).unwrap();
    (authority, minted.certificate_pem, minted.key_pem)
}

struct Controller {
    hub: Arc<TestHub>,
    authority: Arc<ArcSwap<Authority>>,
    push: SocketAddr,
    enrol: SocketAddr,
    push_tls: TlsSlot,
}

impl Controller {
    async fn start(tokens: &[&str]) -> Controller {
        Controller::start_with(tokens, Limits::default(), enrol::Rate::default()).await
    }

    async fn start_with(tokens: &[&str], limits: Limits, rate: enrol::Rate) -> Controller {
        let (authority, ..) = mint();
        let own = authority.server_identity(CONTROLLER_NAME, SystemTime::now(), Duration::from_secs(3600)).unwrap();
        let push_tls = tls::slot(tls::push_server(&own, authority.bundle()).unwrap());
        let enrol_tls = tls::slot(tls::enrolment_server(&own).unwrap());
        let authority = Arc::new(ArcSwap::from_pointee(authority));
        let fleet = SharedFleet::new(Fleet::new(1));
        let hub = Arc::new(TestHub {
            fleet,
            role: watch::Sender::new(Role::Leading),
            lapsed: AtomicBool::new(false),
            events: Mutex::default(),
        });
        let (push, enrol) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (push_at, enrol_at) = (push.local_addr().unwrap(), enrol.local_addr().unwrap());
        tokio::spawn(server::serve(
            push,
            Arc::clone(&push_tls),
            limits.clone(),
            Arc::clone(&hub),
            std::future::pending(),
        ));
        let tokens = Tokens(Mutex::new(tokens.iter().map(|token| (*token).to_owned()).collect()));
        tokio::spawn(enrol::serve(
            enrol,
            enrol_tls,
            limits,
            rate,
            Arc::clone(&authority),
            tokens,
            std::future::pending(),
        ));
        Controller { hub, authority, push: push_at, enrol: enrol_at, push_tls }
    }

    fn trust(&self) -> Vec<CertificateDer<'static>> {
        self.authority.load().bundle().to_vec()
    }

    /// Credentials of an agent, signed by this authority now or back then.
    fn credentials(&self, authority: &Authority, agent: &AgentIdentity, now: SystemTime) -> Credentials {
        let (key, request) = push::authority::key_and_request().unwrap();
        let signed = authority.sign(&request, agent, now).unwrap();
        Credentials {
            chain: signed.chain,
            key: Arc::new(key),
            trust_bundle: self.trust(),
            renew_after: signed.renew_after,
        }
    }

    fn good(&self, uid: &str) -> Credentials {
        self.credentials(&self.authority.load(), &agent(uid), SystemTime::now())
    }

    fn publish(&self, name: &str, body: &str) -> push::fleet::Published {
        let item = Item { key: Key::new("fragment", name), body: Bytes::from(body.to_owned()), secrets: Vec::new() };
        self.hub.fleet.publish(FleetChange { puts: vec![item], ..FleetChange::default() })
    }

    async fn event(&self, what: &str, mut wanted: impl FnMut(&Event) -> bool) {
        within(what, async {
            while !self.hub.events.lock().unwrap().iter().any(|(_, _, event)| wanted(event)) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A real session over a real stream, with the model's volume.
struct TestAgent {
    link: Link,
    session: AgentSession,
    volume: Volume,
    start: std::time::Instant,
}

impl TestAgent {
    async fn connect(controller: &Controller, credentials: &Credentials) -> TestAgent {
        TestAgent::connect_with(controller, credentials, 1 << 20).await
    }

    async fn connect_with(controller: &Controller, credentials: &Credentials, staging: u64) -> TestAgent {
        let link = within("connect", client::connect(&controller.push.to_string(), credentials)).await.unwrap();
        let mut agent = TestAgent {
            link,
            session: AgentSession::new(staging),
            volume: Volume::default(),
            start: std::time::Instant::now(),
        };
        let facts = agent.volume.facts(1);
        agent.step(Input::Connected(facts)).await;
        agent
    }

    async fn step(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = self.start.elapsed().as_millis() as u64;
            for effect in self.session.step(now, input, &self.volume) {
                match effect {
                    Effect::Send(message) => self.link.send.send(message).await.unwrap(),
                    Effect::Apply(transfer) => {
                        self.volume.apply(&transfer);
                        let (version, root) = (transfer.version, transfer.root);
                        inputs.push(Input::Applied {
                            version,
                            root,
                            timings: Default::default(),
                            not_live: Vec::new(),
                        });
                    }
                    Effect::Adopt { version, root } => {
                        self.volume.applied = Some(version);
                        inputs.push(Input::Applied {
                            version,
                            root,
                            timings: Default::default(),
                            not_live: Vec::new(),
                        });
                    }
                    Effect::RecordEpoch(epoch) => self.volume.epoch = epoch,
                    Effect::Members { seq, set, change, digest } => {
                        self.volume.change_members(&set, &change, digest).unwrap();
                        inputs.push(Input::MembersApplied { seq, root: self.volume.member_tree.root() });
                    }
                    Effect::Welcomed { .. } | Effect::LookElsewhere | Effect::Close(_) => {}
                }
            }
        }
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Volume) -> bool) {
        within(what, async {
            while !done(&self.volume) {
                let message = self.link.receive.message().await.unwrap().expect("the stream is open");
                self.step(Input::Received(message)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_enrols_connects_and_follows_every_publication() {
    let controller = Controller::start(&["token-1"]).await;
    let first = controller.publish("a", "{\"n\":1}");
    let token = Zeroizing::new("token-1".to_owned());
    let enrolled =
        within("enrol", client::enroll(&controller.enrol.to_string(), &controller.trust(), token)).await.unwrap();
    assert_eq!(enrolled.trust_bundle, controller.trust());
    assert_eq!(AgentIdentity::from_certificate(&enrolled.chain[0]).unwrap().uid, "uid-1");
    assert_eq!(enrolled.renew_after, Duration::from_secs(12 * 3600));
    let mut agent = TestAgent::connect(&controller, &enrolled).await;
    agent.until("first state", |volume| volume.applied == Some(first.version)).await;
    for n in 2..30 {
        let published = controller.publish("a", &format!("{{\"n\":{n}}}"));
        agent.until("next state", |volume| volume.applied == Some(published.version)).await;
        let body = agent.volume.bodies.get(&Key::new("fragment", "a")).unwrap();
        assert_eq!(body, format!("{{\"n\":{n}}}").as_bytes());
    }
    let set: Arc<str> = "ns/svc:80/tcp".into();
    let members: Arc<[Arc<str>]> = vec![Arc::from("10.0.0.1:80")].into();
    let change = FleetChange { members: vec![(set.clone(), Some(members))], ..FleetChange::default() };
    let version = controller.hub.fleet.publish(change).member_version;
    agent.until("members", |volume| volume.sets.contains_key(&set)).await;
    controller.event("members current", |event| *event == Event::MembersCurrent { member_version: version }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_transfer_does_not_hold_up_the_member_lane() {
    let controller = Controller::start(&[]).await;
    let filler = "x".repeat(100_000);
    let puts = (0..40)
        .map(|n| Item {
            key: Key::new("fragment", &n.to_string()),
            body: Bytes::from(format!("\"{filler}\"")),
            secrets: Vec::new(),
        })
        .collect();
    controller.hub.fleet.publish(FleetChange { puts, ..FleetChange::default() });
    let mut agent = TestAgent::connect_with(&controller, &controller.good("uid-1"), 64 << 20).await;
    let (mut chunks, mut bytes, mut members_after) = (0, 0, None);
    within("commit", async {
        loop {
            let message = agent.link.receive.message().await.unwrap().expect("the stream is open");
            match &message.message {
                Some(ToAgent::Chunk(chunk)) => {
                    chunks += 1;
                    bytes += chunk.data.len();
                    if chunks == 2 {
                        let set: Arc<str> = "ns/late:80/tcp".into();
                        let members = vec![(set, Some(vec![Arc::from("10.0.0.1:80")].into()))];
                        controller.hub.fleet.publish(FleetChange { members, ..FleetChange::default() });
                    }
                }
                Some(ToAgent::Members(_)) => members_after = members_after.or(Some(bytes)),
                Some(ToAgent::Commit(_)) => break,
                _ => {}
            }
            agent.step(Input::Received(message)).await;
        }
    })
    .await;
    assert!(chunks >= 15 && bytes > 40 * filler.len(), "{chunks} chunks, {bytes} bytes");
    let at = members_after.expect("a member message came before the end of the transfer");
    // What the connection had taken before: its window, and what the sockets hold.
    assert!(at <= 1024 * 1024, "it came after {at} of {bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_session_of_one_identity_supersedes_the_older() {
    let controller = Controller::start(&[]).await;
    let published = controller.publish("a", "1");
    let credentials = controller.good("uid-1");
    let mut older = TestAgent::connect(&controller, &credentials).await;
    older.until("first state", |volume| volume.applied == Some(published.version)).await;
    let mut newer = TestAgent::connect(&controller, &credentials).await;
    newer.until("first state", |volume| volume.applied == Some(published.version)).await;
    within("superseded", async {
        loop {
            let message = older.link.receive.message().await.unwrap().expect("a farewell before the end");
            if matches!(message.message, Some(ToAgent::Superseded(_))) {
                break;
            }
        }
    })
    .await;
    within("end", async { while let Ok(Some(_)) = older.link.receive.message().await {} }).await;
    let next = controller.publish("a", "2");
    newer.until("next state", |volume| volume.applied == Some(next.version)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connections_see_a_new_certificate_while_old_streams_go_on() {
    let controller = Controller::start(&[]).await;
    let published = controller.publish("a", "1");
    let mut old = TestAgent::connect(&controller, &controller.good("uid-1")).await;
    old.until("first state", |volume| volume.applied == Some(published.version)).await;
    // The next authority signs; both are trusted.
    let (_, next_pem, next_key) = mint();
    let (next_authority, _) = {
        let old_pem = {
            let der = controller.trust();
            pem(&der[0])
        };
        (Authority::from_pem(&format!("{next_pem}{old_pem}"), &next_key).unwrap(), ())
    };
    let own = next_authority.server_identity(CONTROLLER_NAME, SystemTime::now(), Duration::from_secs(3600)).unwrap();
    controller.push_tls.store(Arc::new(tls::push_server(&own, next_authority.bundle()).unwrap()));
    let old_credentials = controller.good("uid-2");
    let untrusting = client::connect(&controller.push.to_string(), &old_credentials).await;
    assert!(untrusting.is_err(), "whoever does not trust the new authority does not connect");
    let mut credentials = old_credentials;
    credentials.trust_bundle = next_authority.bundle().to_vec();
    let mut both = TestAgent::connect(&controller, &credentials).await;
    both.until("first state", |volume| volume.applied == Some(published.version)).await;
    let next = controller.publish("a", "2");
    old.until("next state", |volume| volume.applied == Some(next.version)).await;
    both.until("next state", |volume| volume.applied == Some(next.version)).await;
}

fn pem(der: &CertificateDer<'_>) -> String {
    use std::fmt::Write;
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in der.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        writeln!(lines, "{}", std::str::from_utf8(line).unwrap()).unwrap();
    }
    lines + "-----END CERTIFICATE-----\n"
}

/// Every method of every service that the protocol has, and some that it does not have.
fn methods() -> Vec<String> {
    let descriptors = prost_types::FileDescriptorSet::decode(proto::DESCRIPTORS).unwrap();
    let mut methods = Vec::new();
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                methods.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    assert_eq!(methods.len(), 2, "{methods:?}");
    methods.push("/scalws.push.v1.Push/Other".to_owned());
    methods.push("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned());
    methods.push("/grpc.health.v1.Health/Check".to_owned());
    methods.push("/".to_owned());
    methods
}

/// Calls a method with an empty message; the fixed string of the refusal, or what came.
async fn call(channel: tonic::transport::Channel, method: &str) -> Result<EnrollResponse, tonic::Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
    let codec = tonic_prost::ProstCodec::<EnrollRequest, EnrollResponse>::default();
    let path = method.parse().unwrap();
    client.unary(tonic::Request::new(EnrollRequest::default()), path, codec).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_method_answers_without_live_credentials_of_a_declared_fleet() {
    let controller = Controller::start(&[]).await;
    controller.publish("a", "1");
    let authority = controller.authority.load_full();
    let (foreign, ..) = mint();
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    let other_fleet = AgentIdentity::new(FleetId::new("other", "fleet"), "", "uid-9").unwrap();
    let server = authority.server_identity(CONTROLLER_NAME, now, day).unwrap();
    let as_client = Credentials {
        chain: server.chain.clone(),
        key: Arc::new(server.key.clone()),
        trust_bundle: controller.trust(),
        renew_after: day,
    };
    let attacks: Vec<(&str, Option<Credentials>)> = vec![
        ("no certificate", None),
        ("another authority's certificate", Some(controller.credentials(&foreign, &agent("uid-1"), now))),
        ("an ended certificate", Some(controller.credentials(&authority, &agent("uid-1"), now - 2 * day))),
        // Certificates begin a day before they are made.
        ("a certificate of the future", Some(controller.credentials(&authority, &agent("uid-1"), now + 2 * day))),
        ("the controller's own certificate", Some(as_client)),
        ("another fleet's certificate", Some(controller.credentials(&authority, &other_fleet, now))),
    ];
    for (what, credentials) in &attacks {
        let own = credentials.as_ref().map(|own| (&*own.chain, &*own.key));
        for method in methods() {
            let config = tls::client(&controller.trust(), own).unwrap();
            // In TLS 1.3 the client is done before the server has looked at its certificate, so that a refused handshake
            // may show only here: then the status was made on this side and has a source.
            let Ok(channel) = client::channel(&controller.push.to_string(), config).await else { continue };
            let status = within(what, call(channel, &method)).await.unwrap_err();
            let handshake = std::error::Error::source(&status).is_some();
            let fixed = ["no credentials", "not permitted"].contains(&status.message());
            assert!(handshake || fixed, "{what}, {method}: {status:?}");
        }
    }
    assert!(controller.hub.events.lock().unwrap().is_empty(), "no session began");
    // Good credentials open exactly one method of this listener.
    for method in methods().iter().filter(|method| !method.ends_with("/Sync")) {
        let good = controller.good("uid-1");
        let config = tls::client(&controller.trust(), Some((&good.chain, &good.key))).unwrap();
        let channel = client::channel(&controller.push.to_string(), config).await.unwrap();
        let status = within(method, call(channel, method)).await.unwrap_err();
        assert_eq!(status.message(), "not permitted", "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_enrolment_listener_answers_one_method_and_a_token_works_once() {
    let controller = Controller::start(&["once"]).await;
    for method in methods().iter().filter(|method| !method.ends_with("/Enroll")) {
        let config = tls::client(&controller.trust(), None).unwrap();
        let channel = client::channel(&controller.enrol.to_string(), config).await.unwrap();
        let status = within(method, call(channel, method)).await.unwrap_err();
        assert_eq!(status.message(), "not permitted", "{method}");
    }
    let (address, trust) = (controller.enrol.to_string(), controller.trust());
    let attempt = |token: &str| {
        let (address, trust, token) = (address.clone(), trust.clone(), Zeroizing::new(token.to_owned()));
        async move { within("enrol", client::enroll(&address, &trust, token)).await.map_err(|error| error.to_string()) }
    };
    let refused = "the controller refused: enrolment refused";
    assert_eq!(attempt("wrong").await.unwrap_err(), refused);
    assert_eq!(attempt("").await.unwrap_err(), refused);
    assert!(attempt("once").await.is_ok());
    assert_eq!(attempt("once").await.unwrap_err(), refused, "a replayed token");
    // Nonsense in place of a signing request does not spend a token.
    let config = tls::client(&trust, None).unwrap();
    let channel = client::channel(&address, config).await.unwrap();
    let mut raw = proto::v1::enrolment_client::EnrolmentClient::new(channel);
    let request = EnrollRequest { csr: Bytes::from_static(b"nonsense"), token: "x".to_owned() };
    assert_eq!(raw.enroll(request).await.unwrap_err().message(), "the signing request cannot be used");
    // Whoever is not the controller learns no token.
    let (foreign, ..) = mint();
    let wrong = client::enroll(&address, foreign.bundle(), Zeroizing::new("x".to_owned())).await;
    assert!(matches!(wrong, Err(client::ClientError::Untrusted { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn enrolment_is_limited_by_source() {
    let rate = enrol::Rate { burst: 3, per_second: 0 };
    let controller = Controller::start_with(&[], Limits::default(), rate).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        let token = Zeroizing::new("x".to_owned());
        let attempt = client::enroll(&controller.enrol.to_string(), &controller.trust(), token).await;
        answers.push(attempt.unwrap_err().to_string());
    }
    let (refused, limited) = ("the controller refused: enrolment refused", "the controller refused: too many attempts");
    assert_eq!(answers, [refused, refused, refused, limited, limited]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_finish_its_handshake_is_cut_off() {
    let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
    let controller = Controller::start_with(&[], limits, enrol::Rate::default()).await;
    let mut silent = tokio::net::TcpStream::connect(controller.push).await.unwrap();
    let mut byte = [0];
    let read = within("cut", tokio::io::AsyncReadExt::read(&mut silent, &mut byte)).await;
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_source_are_bounded() {
    let limits = Limits { per_source: 2, ..Limits::default() };
    let controller = Controller::start_with(&[], limits, enrol::Rate::default()).await;
    controller.publish("a", "1");
    let _first = TestAgent::connect(&controller, &controller.good("uid-1")).await;
    let second = TestAgent::connect(&controller, &controller.good("uid-2")).await;
    let third = client::connect(&controller.push.to_string(), &controller.good("uid-3")).await;
    assert!(third.is_err());
    // A place is free again when a connection has gone.
    drop(second);
    within("a free place", async {
        while client::connect(&controller.push.to_string(), &controller.good("uid-3")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_breaks_the_protocol_loses_its_connection_and_nobody_else_does() {
    let controller = Controller::start(&[]).await;
    let published = controller.publish("a", "1");
    let mut good = TestAgent::connect(&controller, &controller.good("uid-good")).await;
    good.until("first state", |volume| volume.applied == Some(published.version)).await;
    let ack = |seq| proto::v1::MembersAck { seq };
    let broken = [
        AgentMessage { message: None },
        AgentMessage { message: Some(ToController::MembersAck(ack(7))) },
        AgentMessage { message: Some(ToController::Hello(proto::v1::Hello::default())) },
    ];
    for message in broken {
        let mut link = client::connect(&controller.push.to_string(), &controller.good("uid-bad")).await.unwrap();
        link.send.send(message).await.unwrap();
        within("cut", async { while let Ok(Some(_)) = link.receive.message().await {} }).await;
    }
    // A message above the limit.
    let mut link = client::connect(&controller.push.to_string(), &controller.good("uid-bad")).await.unwrap();
    let boot_id = "x".repeat(push::limits::MESSAGE + 1);
    let hello = proto::v1::Hello { boot_id, ..proto::v1::Hello::default() };
    let _ = link.send.send(AgentMessage { message: Some(ToController::Hello(hello)) }).await;
    within("cut", async { while let Ok(Some(_)) = link.receive.message().await {} }).await;
    let next = controller.publish("a", "2");
    good.until("next state", |volume| volume.applied == Some(next.version)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_stream_is_served_the_moment_the_controller_leads() {
    let controller = Controller::start(&[]).await;
    let published = controller.publish("a", "1");
    controller.hub.role.send_replace(Role::Standby);
    let mut agent = TestAgent::connect(&controller, &controller.good("uid-1")).await;
    let message = within("standby", agent.link.receive.message()).await.unwrap().unwrap();
    assert!(matches!(message.message, Some(ToAgent::Standby(_))));
    agent.step(Input::Received(message)).await;
    controller.hub.role.send_replace(Role::Leading);
    agent.until("first state", |volume| volume.applied == Some(published.version)).await;
}

/// The messages until the controller says that it is unsure.
async fn until_unsure(agent: &mut TestAgent) -> Vec<ToAgent> {
    let mut before = Vec::new();
    loop {
        let message = within("unsure", agent.link.receive.message()).await.unwrap().unwrap().message.unwrap();
        if matches!(message, ToAgent::Unsure(_)) {
            return before;
        }
        before.push(message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lead_that_is_over_by_the_clock_pushes_nothing_before_anybody_said_so() {
    let controller = Controller::start(&[]).await;
    let first = controller.publish("a", "1");
    let mut agent = TestAgent::connect(&controller, &controller.good("uid-1")).await;
    agent.until("first state", |volume| volume.applied == Some(first.version)).await;
    // As after SIGCONT: the role is the old one, the change is there, and the clock has gone on.
    controller.hub.lapsed.store(true, Ordering::SeqCst);
    let second = controller.publish("a", "2");
    let pushed = until_unsure(&mut agent).await;
    let quiet = pushed.iter().all(|message| matches!(message, ToAgent::Heartbeat(_)));
    assert!(quiet, "pushed in a lead that is over: {pushed:?}");
    // It is renewed after all.
    controller.hub.role.send_replace(Role::Unsure);
    controller.hub.lapsed.store(false, Ordering::SeqCst);
    controller.hub.role.send_replace(Role::Leading);
    agent.until("second state", |volume| volume.applied == Some(second.version)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_higher_epoch_goes_out_before_the_role_is_back() {
    let controller = Controller::start(&[]).await;
    let first = controller.publish("a", "1");
    let mut agent = TestAgent::connect(&controller, &controller.good("uid-1")).await;
    agent.until("first state", |volume| volume.applied == Some(first.version)).await;
    for epoch in 2..40 {
        // The order of a controller whose agents have seen an epoch that is not its own.
        controller.hub.role.send_replace(Role::Standby);
        controller.hub.fleet.raise_epoch(epoch);
        let published = controller.publish("a", &epoch.to_string());
        let parked = loop {
            let message = within("standby", agent.link.receive.message()).await.unwrap().unwrap();
            match message.message {
                Some(ToAgent::Heartbeat(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(parked, Some(ToAgent::Standby(_))), "pushed a view that nobody has proven: {parked:?}");
        agent.step(Input::Received(ControllerMessage { message: parked })).await;
        controller.hub.role.send_replace(Role::Leading);
        agent.until("the new epoch", |volume| volume.applied == Some(published.version)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_read_holds_up_nobody() {
    let controller = Controller::start(&[]).await;
    let filler = "x".repeat(200_000);
    let puts = (0..60)
        .map(|n| Item {
            key: Key::new("fragment", &n.to_string()),
            body: Bytes::from(format!("\"{filler}\"")),
            secrets: Vec::new(),
        })
        .collect();
    let first = controller.hub.fleet.publish(FleetChange { puts, ..FleetChange::default() });
    // Its windows fill up and stay full.
    let _stalled = TestAgent::connect(&controller, &controller.good("uid-stalled")).await;
    let mut good = TestAgent::connect_with(&controller, &controller.good("uid-good"), 64 << 20).await;
    good.until("first state", |volume| volume.applied == Some(first.version)).await;
    for n in 0..20 {
        let next = controller.publish("a", &n.to_string());
        good.until("next state", |volume| volume.applied == Some(next.version)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_timer_stands_between_a_publication_and_the_wire() {
    let controller = Controller::start(&[]).await;
    let first = controller.publish("a", "0");
    let mut agent = TestAgent::connect(&controller, &controller.good("uid-1")).await;
    agent.until("first state", |volume| volume.applied == Some(first.version)).await;
    let start = std::time::Instant::now();
    for n in 1..=200 {
        let next = controller.publish("a", &n.to_string());
        agent.until("next state", |volume| volume.applied == Some(next.version)).await;
    }
    let each = start.elapsed() / 200;
    // Alone on a machine it is about a quarter of a millisecond; the shortest timer of a session has 50.
    assert!(each < Duration::from_millis(25), "{each:?} for each publication");
    eprintln!("{each:?} from a publication to the agent's application");
}
