//! Attacks on both listeners of a controller, over loopback with real TLS: nobody gets a byte that is not their fleet's.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail, ensure};
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use journal::{Key, MemberTree};
use proto::v1::agent_message::Message as ToController;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::enrolment_client::EnrolmentClient;
use proto::v1::push_client::PushClient;
use proto::v1::{AgentMessage, EnrollRequest, Hello};
use push::authority::{Authority, key_and_request};
use push::fleet::{Fleet, FleetChange, Item};
use push::grpc::accept::Limits;
use push::grpc::client;
use push::grpc::server::{self, Hub, Welcome};
use push::grpc::tls::{self, CONTROLLER_NAME};
use push::grpc::{SharedFleet, enrol};
use push::identity::{AgentIdentity, FleetId};
use push::server_session::{Event, Role};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::client::GrpcService;
use tonic::transport::Channel;
use zeroize::Zeroizing;

/// Ends an attack that gets no answer at all.
const LIMIT: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The fleets, each with one resource whose bytes hold its name.
const FLEETS: [&str; 2] = ["default", "second"];
/// What a refusal may say.
const FIXED: [&str; 3] = ["no credentials", "not permitted", "the certificate has ended"];
/// Methods of the two services, and some that other servers have.
const METHODS: [&str; 7] = [
    "/scalws.push.v1.Push/Sync",
    "/scalws.push.v1.Enrolment/Enroll",
    "/scalws.push.v1.Push/Fetch",
    "/envoy.service.discovery.v3.SecretDiscoveryService/FetchSecrets",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.health.v1.Health/Check",
    "/",
];

/// A certificate chain and its key.
type Own = (Vec<CertificateDer<'static>>, Zeroizing<Vec<u8>>);

struct Fleets {
    fleets: Vec<(FleetId, SharedFleet)>,
    role: watch::Sender<Role>,
}

impl Hub for Fleets {
    type Place = ();

    fn admit(&self, agent: &AgentIdentity) -> Option<Welcome<()>> {
        let (_, fleet) = self.fleets.iter().find(|(id, _)| *id == agent.fleet)?;
        Some(Welcome { fleet: fleet.clone(), name: agent.uid.clone(), place: () })
    }

    fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    fn event(&self, _: &AgentIdentity, (): &(), _: u64, _: Event) {}
}

/// Knows one token, of an agent of the second fleet.
struct OneToken;

impl enrol::Redeemer for OneToken {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        if *token == "token" { identity(FLEETS[1]).ok() } else { None }
    }
}

fn identity(fleet: &str) -> Result<AgentIdentity> {
    Ok(AgentIdentity::new(FleetId::new("scalws", fleet), "pod", "uid-1")?)
}

fn mint() -> Result<Authority> {
    let minted = Authority::mint("test", SystemTime::now(), DAY)?;
    Ok(Authority::from_pem(&minted.certificate_pem, &minted.key_pem)?)
}

fn signed(authority: &Authority, agent: &AgentIdentity, now: SystemTime) -> Result<Own> {
    let (key, request) = key_and_request()?;
    Ok((authority.sign(&request, agent, now)?.chain, key))
}

/// A controller with two fleets and both listeners.
struct Controller {
    authority: Arc<ArcSwap<Authority>>,
    push: SocketAddr,
    enrol: SocketAddr,
}

impl Controller {
    async fn start() -> Result<Controller> {
        let authority = mint()?;
        let own = authority.server_identity(CONTROLLER_NAME, SystemTime::now(), DAY)?;
        let push_tls = tls::slot(tls::push_server(&own, authority.bundle())?);
        let enrol_tls = tls::slot(tls::enrolment_server(&own)?);
        let authority = Arc::new(ArcSwap::from_pointee(authority));
        let fleets = FLEETS.map(|name| {
            let fleet = SharedFleet::new(Fleet::new(1));
            let body = Bytes::from(format!("\"bytes of fleet {name}\""));
            let item = Item { key: Key::new("fragment", "a"), body, secrets: Vec::new() };
            fleet.publish(FleetChange { puts: vec![item], ..FleetChange::default() });
            (FleetId::new("scalws", name), fleet)
        });
        let hub = Arc::new(Fleets { fleets: fleets.into(), role: watch::Sender::new(Role::Leading) });
        let (push, enrol) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let (push_at, enrol_at) = (push.local_addr()?, enrol.local_addr()?);
        tokio::spawn(server::serve(push, push_tls, Limits::default(), hub, std::future::pending()));
        let (limits, rate) = (Limits::default(), enrol::Rate::default());
        let signs = Arc::clone(&authority);
        tokio::spawn(enrol::serve(enrol, enrol_tls, limits, rate, signs, OneToken, std::future::pending()));
        Ok(Controller { authority, push: push_at, enrol: enrol_at })
    }

    fn trust(&self) -> Vec<CertificateDer<'static>> {
        self.authority.load().bundle().to_vec()
    }

    async fn channel(&self, at: SocketAddr, own: Option<&Own>) -> Result<Channel> {
        let own = own.map(|(chain, key)| (&**chain, key));
        Ok(client::channel(&at.to_string(), tls::client(&self.trust(), own)?).await?)
    }

    /// Says Hello as an agent would, and gives all bytes of configuration that come; nothing when it is refused.
    async fn listen(&self, own: Option<&Own>) -> Result<Option<String>> {
        // In TLS 1.3 a client may be done before the server has looked at its certificate.
        let Ok(channel) = self.channel(self.push, own).await else { return Ok(None) };
        let member_root = Bytes::copy_from_slice(&MemberTree::default().root().0);
        let hello = Hello { protocol_min: 1, protocol_max: 1, schema_version: 1, member_root, ..Hello::default() };
        let hello = AgentMessage { message: Some(ToController::Hello(hello)) };
        let outbound = stream::once(std::future::ready(hello)).chain(stream::pending());
        let mut inbound = match PushClient::new(channel).sync(outbound).await {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&status).map(|()| None),
        };
        let mut heard = Vec::new();
        loop {
            match inbound.message().await.map(|message| message.and_then(|message| message.message)) {
                Ok(Some(ToAgent::Begin(begin))) => {
                    heard.extend_from_slice(begin.whole.as_deref().unwrap_or_default());
                    if begin.whole.is_some() {
                        break;
                    }
                }
                Ok(Some(ToAgent::Chunk(chunk))) => heard.extend_from_slice(&chunk.data),
                Ok(Some(ToAgent::Commit(_)) | None) => break,
                Ok(Some(_)) => {}
                Err(status) => return refused(&status).map(|()| None),
            }
        }
        let heard = String::from_utf8_lossy(&heard);
        Ok(Some(heard.chars().filter(|c| c.is_ascii_alphanumeric() || *c == ' ').collect()))
    }

    /// Calls a method without a message; what the refusal says, or that it is none.
    async fn call(&self, at: SocketAddr, own: Option<&Own>, method: &str) -> Result<String> {
        let Ok(mut channel) = self.channel(at, own).await else { return Ok(FIXED[0].to_owned()) };
        let request = http::Request::post(format!("https://{CONTROLLER_NAME}{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::empty())?;
        if std::future::poll_fn(|context| channel.poll_ready(context)).await.is_err() {
            return Ok(FIXED[0].to_owned());
        }
        let Ok(response) = channel.call(request).await else { return Ok(FIXED[0].to_owned()) };
        let status = tonic::Status::from_header_map(response.headers());
        let status = status.map(|status| (status.code(), status.message().to_owned()));
        Ok(match status {
            Some((tonic::Code::PermissionDenied | tonic::Code::Unauthenticated, message)) => message,
            other => format!("answered: {other:?}"),
        })
    }
}

/// A refused handshake has a source on this side; every other refusal is a fixed text.
fn refused(status: &tonic::Status) -> Result<()> {
    let handshake = std::error::Error::source(status).is_some();
    ensure!(handshake || FIXED.contains(&status.message()), "a refusal says {status:?}");
    Ok(())
}

/// Runs on this thread alone, so that a planted bug is on for all of it.
fn alone<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(LIMIT, what).await.context("no answer")? })
}

/// Without a live certificate of a declared fleet nobody gets a byte; with one, the bytes of that fleet and no others.
///
/// # Errors
/// Who got what.
pub fn only_the_own_fleet_is_heard() -> Result<()> {
    alone(async {
        let controller = Controller::start().await?;
        let authority = controller.authority.load_full();
        let now = SystemTime::now();
        let server = authority.server_identity(CONTROLLER_NAME, now, DAY)?;
        let attacks: Vec<(&str, Option<Own>)> = vec![
            ("no certificate", None),
            ("another authority's certificate", Some(signed(&mint()?, &identity(FLEETS[0])?, now)?)),
            ("an ended certificate", Some(signed(&authority, &identity(FLEETS[0])?, now - 3 * DAY)?)),
            ("a certificate of the future", Some(signed(&authority, &identity(FLEETS[0])?, now + 3 * DAY)?)),
            ("the controller's own certificate", Some((server.chain.clone(), server.key.clone()))),
            ("a certificate of no declared fleet", Some(signed(&authority, &identity("third")?, now)?)),
        ];
        for (what, own) in &attacks {
            if let Some(heard) = controller.listen(own.as_ref()).await.context(*what)? {
                bail!("with {what} somebody is served and hears {heard:?}");
            }
        }
        for fleet in FLEETS {
            let own = signed(&authority, &identity(fleet)?, now)?;
            let heard = controller.listen(Some(&own)).await?.ok_or_else(|| anyhow!("{fleet} is not served"))?;
            ensure!(heard.contains(&format!("bytes of fleet {fleet}")), "an agent of {fleet} hears {heard:?}");
            let others = FLEETS.iter().filter(|other| **other != fleet);
            for other in others {
                ensure!(!heard.contains(&format!("bytes of fleet {other}")), "{fleet} hears bytes of {other}");
            }
        }
        Ok(())
    })
}

/// Every method of every listener is closed to whoever may not call it, by the layer in front and not by chance.
///
/// # Errors
/// The method that answered, and what.
pub fn every_method_but_the_one_is_closed() -> Result<()> {
    alone(async {
        let controller = Controller::start().await?;
        let own = signed(&controller.authority.load_full(), &identity(FLEETS[0])?, SystemTime::now())?;
        for method in METHODS {
            let stranger = controller.call(controller.push, None, method).await?;
            ensure!(FIXED.contains(&&*stranger), "{method} without a certificate: {stranger}");
            if method != METHODS[0] {
                let agent = controller.call(controller.push, Some(&own), method).await?;
                ensure!(agent == FIXED[1], "{method} with a certificate: {agent}");
            }
            if method != METHODS[1] {
                let stranger = controller.call(controller.enrol, None, method).await?;
                ensure!(stranger == FIXED[1], "{method} where agents enrol: {stranger}");
            }
        }
        Ok(())
    })
}

/// Whatever a signing request asks for, the certificate names whom the token proved, and opens that fleet only.
///
/// # Errors
/// What the certificate opened.
pub fn a_request_does_not_choose_its_fleet() -> Result<()> {
    alone(async {
        let controller = Controller::start().await?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(identity(FLEETS[0])?.spiffe_id().try_into()?)];
        let csr = Bytes::copy_from_slice(params.serialize_request(&key)?.der());
        let mut client = EnrolmentClient::new(controller.channel(controller.enrol, None).await?);
        let answer = client.enroll(EnrollRequest { csr, token: "token".to_owned() }).await?.into_inner();
        let chain = answer.chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        let own: Own = (chain, Zeroizing::new(key.serialize_der()));
        let heard = controller.listen(Some(&own)).await?.ok_or_else(|| anyhow!("the agent is not served"))?;
        ensure!(
            heard.contains(&format!("bytes of fleet {}", FLEETS[1])) && !heard.contains(FLEETS[0]),
            "an agent of {} asked for a certificate of {} and hears {heard:?}",
            FLEETS[1],
            FLEETS[0]
        );
        Ok(())
    })
}
