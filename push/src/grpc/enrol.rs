//! The enrolment listener: a token and a public key in, a short-lived certificate out.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use proto::v1::{EnrollRequest, EnrollResponse};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};
use zeroize::Zeroizing;

use super::accept::{Limits, Peer};
use super::identity_layer::{Method, Only};
use super::server::{ServeError, serve_on};
use super::tls::TlsSlot;
use crate::authority::{Authority, RequestError};
use crate::identity::AgentIdentity;

/// The longest token, in bytes. A bound ServiceAccount token has about 1.2 KiB.
const LONGEST_TOKEN: usize = 16 * 1024;
/// The longest enrolment message, in bytes.
const LONGEST_MESSAGE: usize = 32 * 1024;

/// Strangers do not keep a connection for longer; one request takes less.
const LONGEST_CONNECTION: Duration = Duration::from_secs(60);

/// Turns a token into who presented it.
pub trait Redeemer: Send + Sync + 'static {
    /// Who this token proves, or nobody. Every doubt is nobody. Must have a time limit of its own.
    fn redeem(&self, token: Zeroizing<String>) -> impl Future<Output = Option<AgentIdentity>> + Send;
}

/// How often one source may ask.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Requests at once.
    pub burst: u32,
    /// And again so many each second.
    pub per_second: u32,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { burst: 64, per_second: 8 }
    }
}

/// Serves enrolment until `shutdown`. The authority can be replaced meanwhile.
pub async fn serve<R: Redeemer>(
    listener: TcpListener,
    tls: TlsSlot,
    limits: Limits,
    rate: Rate,
    authority: Arc<ArcSwap<Authority>>,
    redeemer: R,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let service = Service { authority, redeemer, sources: RateLimit { rate, sources: Mutex::default() } };
    let service = EnrolmentServer::new(service).max_decoding_message_size(LONGEST_MESSAGE);
    let routes = tonic::service::Routes::new(service);
    serve_on(listener, tls, limits, Only(Method::Enroll), Some(LONGEST_CONNECTION), routes, shutdown).await
}

struct Service<R> {
    authority: Arc<ArcSwap<Authority>>,
    redeemer: R,
    sources: RateLimit,
}

#[tonic::async_trait]
impl<R: Redeemer> Enrolment for Service<R> {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        let source = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
        let EnrollRequest { csr, token } = request.into_inner();
        let token = Zeroizing::new(token);
        if !source.is_some_and(|source| self.sources.permits(source, Instant::now())) {
            return Err(Status::resource_exhausted("too many attempts"));
        }
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(Status::unauthenticated("enrolment refused"));
        }
        // Before the token is spent: whoever sends nonsense keeps it.
        crate::authority::check_request(&csr).map_err(bad_request)?;
        let agent = self.redeemer.redeem(token).await.ok_or_else(|| Status::unauthenticated("enrolment refused"))?;
        let authority = self.authority.load_full();
        let signed = authority.sign(&csr, &agent, SystemTime::now()).map_err(bad_request)?;
        tracing::info!(fleet = %agent.fleet, pod = %agent.pod, uid = %agent.uid, "enrolled an agent");
        let der = |certificate: &rustls_pki_types::CertificateDer<'_>| bytes::Bytes::copy_from_slice(certificate);
        Ok(Response::new(EnrollResponse {
            chain: signed.chain.iter().map(der).collect(),
            trust_bundle: authority.bundle().iter().map(der).collect(),
            renew_after_seconds: signed.renew_after.as_secs(),
        }))
    }
}

fn bad_request(error: RequestError) -> Status {
    match error {
        RequestError::Request | RequestError::Key => Status::invalid_argument("the signing request cannot be used"),
        RequestError::Sign => Status::internal("enrolment failed"),
    }
}

/// A bucket of tokens for each source.
struct RateLimit {
    rate: Rate,
    sources: Mutex<HashMap<IpAddr, (f64, Instant)>>,
}

/// Sources that are remembered; when there are more, those whose bucket is full again are forgotten.
const SOURCES: usize = 4_096;

impl RateLimit {
    fn permits(&self, source: IpAddr, now: Instant) -> bool {
        let (burst, refill) = (f64::from(self.rate.burst), f64::from(self.rate.per_second));
        let level = |(level, at): &(f64, Instant)| {
            let since: Duration = now.saturating_duration_since(*at);
            (level + since.as_secs_f64() * refill).min(burst)
        };
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= SOURCES && !sources.contains_key(&source) {
            sources.retain(|_, bucket| level(bucket) < burst);
            if sources.len() >= SOURCES {
                return false;
            }
        }
        let bucket = sources.entry(source).or_insert((burst, now));
        let left = level(bucket);
        *bucket = (if left >= 1.0 { left - 1.0 } else { left }, now);
        left >= 1.0
    }
}
