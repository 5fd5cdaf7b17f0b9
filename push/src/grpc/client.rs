//! The agent's side of both listeners: enrolment, and the stream.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use proto::v1::enrolment_client::EnrolmentClient;
use proto::v1::push_client::PushClient;
use proto::v1::{AgentMessage, ControllerMessage, EnrollRequest};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use zeroize::Zeroizing;

use super::tls::{self, CONTROLLER_NAME};
use super::{CONNECTION_WINDOW, HEADERS, PING, PING_TIMEOUT, STREAM_WINDOW};
use crate::authority::key_and_request;
use crate::limits;

/// How long TCP and TLS may take together.
const CONNECT: Duration = Duration::from_secs(10);
/// How long enrolment may take.
const ENROLL: Duration = Duration::from_secs(30);
/// Messages that wait to be written. A session sends a few at a time; whoever writes waits when it is full.
const OUTGOING: usize = 64;

/// What an agent proves itself with, in memory only.
#[derive(Clone)]
pub struct Credentials {
    /// The certificate chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key, PKCS#8 in DER.
    pub key: Arc<Zeroizing<Vec<u8>>>,
    /// The authorities to trust from now on.
    pub trust_bundle: Vec<CertificateDer<'static>>,
    /// When to renew.
    pub renew_after: Duration,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("renew_after", &self.renew_after).finish_non_exhaustive()
    }
}

/// Why there is no stream or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The controller cannot be reached.
    #[error("cannot reach the controller at {address}: {cause}")]
    Connect {
        /// The address.
        address: String,
        /// What failed.
        cause: String,
    },
    /// Whoever answers there shows a certificate that none of the given authorities vouches for now. No token was sent.
    #[error("whoever answers at {address} does not prove to be the controller: {cause}")]
    Untrusted {
        /// The address.
        address: String,
        /// What is wrong with the certificate.
        cause: String,
    },
    /// It answered and refused.
    #[error("the controller refused: {0}")]
    Refused(String),
    /// What it answered cannot be used.
    #[error("the controller's answer cannot be used: {0}")]
    Answer(&'static str),
    /// Keys or certificates on this side cannot be used.
    #[error("{0}")]
    Tls(#[from] tls::TlsError),
}

/// An open stream.
#[derive(Debug)]
pub struct Link {
    /// Messages to the controller, in order.
    pub send: mpsc::Sender<AgentMessage>,
    /// Messages from the controller; it ends with the stream.
    pub receive: Streaming<ControllerMessage>,
}

/// Makes a key in memory and has it signed. `address` is `host:port`; the controller is known by its certificate.
pub async fn enroll(
    address: &str,
    trust: &[CertificateDer<'static>],
    token: Zeroizing<String>,
) -> Result<Credentials, ClientError> {
    enroll_with(address, trust, token, dial(address)).await
}

/// Enrols over a connection that `dial` makes.
///
/// # Errors
/// As [`enroll`].
pub async fn enroll_with<D, F, IO>(
    address: &str,
    trust: &[CertificateDer<'static>],
    token: Zeroizing<String>,
    dial: D,
) -> Result<Credentials, ClientError>
where
    D: FnMut() -> F + Send + 'static,
    F: Future<Output = io::Result<IO>> + Send + 'static,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (key, csr) = key_and_request().map_err(|_| ClientError::Answer("no key could be made"))?;
    let channel = channel_with(address, tls::client(trust, None)?, dial).await?;
    let request = EnrollRequest { csr: csr.into(), token: token.to_string() };
    let mut client = EnrolmentClient::new(channel).max_decoding_message_size(limits::MESSAGE);
    let answer = tokio::time::timeout(ENROLL, client.enroll(request)).await;
    let answer = answer.map_err(|_| ClientError::Answer("none came in time"))?;
    let answer = answer.map_err(|status| ClientError::Refused(status.message().to_owned()))?.into_inner();
    let der = |certificates: Vec<bytes::Bytes>| -> Vec<CertificateDer<'static>> {
        certificates.into_iter().map(|certificate| CertificateDer::from(certificate.to_vec())).collect()
    };
    let (chain, trust_bundle) = (der(answer.chain), der(answer.trust_bundle));
    if chain.is_empty() || trust_bundle.is_empty() {
        return Err(ClientError::Answer("certificates are missing"));
    }
    let renew_after = Duration::from_secs(answer.renew_after_seconds.max(1));
    Ok(Credentials { chain, key: Arc::new(key), trust_bundle, renew_after })
}

/// Opens the stream. Nothing is said yet: Hello comes from the session.
pub async fn connect(address: &str, credentials: &Credentials) -> Result<Link, ClientError> {
    connect_with(address, credentials, dial(address)).await
}

/// Opens the stream over a connection that `dial` makes, for who chooses where it begins or counts its bytes.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with<D, F, IO>(address: &str, credentials: &Credentials, dial: D) -> Result<Link, ClientError>
where
    D: FnMut() -> F + Send + 'static,
    F: Future<Output = io::Result<IO>> + Send + 'static,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = tls::client(&credentials.trust_bundle, Some((&credentials.chain, &credentials.key)))?;
    let channel = channel_with(address, config, dial).await?;
    let mut client =
        PushClient::new(channel).max_decoding_message_size(limits::MESSAGE).max_encoding_message_size(limits::MESSAGE);
    let (send, outgoing) = mpsc::channel(OUTGOING);
    let opened = tokio::time::timeout(CONNECT, client.sync(ReceiverStream::new(outgoing))).await;
    let opened = opened.map_err(|_| ClientError::Answer("the stream did not open in time"))?;
    let receive = opened.map_err(|status| ClientError::Refused(status.message().to_owned()))?.into_inner();
    Ok(Link { send, receive })
}

/// A connection with this TLS configuration to whoever proves to be the controller at this address.
pub async fn channel(address: &str, config: ClientConfig) -> Result<Channel, ClientError> {
    channel_with(address, config, dial(address)).await
}

/// TCP to this address.
fn dial(address: &str) -> impl FnMut() -> BoxFuture<'static, io::Result<TcpStream>> + Send + 'static {
    let address = address.to_owned();
    move || {
        let address = address.clone();
        Box::pin(async move {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            Ok(tcp)
        })
    }
}

async fn channel_with<D, F, IO>(address: &str, config: ClientConfig, mut dial: D) -> Result<Channel, ClientError>
where
    D: FnMut() -> F + Send + 'static,
    F: Future<Output = io::Result<IO>> + Send + 'static,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |cause: String| ClientError::Connect { address: address.to_owned(), cause };
    let endpoint = Endpoint::from_shared(format!("http://{CONTROLLER_NAME}"))
        .map_err(|error| failed(error.to_string()))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADERS);
    let connector = TlsConnector::from(Arc::new(config));
    let connect = tower::service_fn(move |_| {
        let (connector, connection) = (connector.clone(), dial());
        async move {
            let name = ServerName::try_from(CONTROLLER_NAME).map_err(io::Error::other)?;
            Ok::<_, io::Error>(TokioIo::new(connector.connect(name, connection.await?).await?))
        }
    });
    endpoint.connect_with_connector(connect).await.map_err(|error| {
        let cause = root_cause(&error);
        if is_untrusted(cause) {
            return ClientError::Untrusted { address: address.to_owned(), cause: cause.to_string() };
        }
        failed(cause.to_string())
    })
}

/// tonic says "transport error"; the reason is at the end of the chain.
fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

/// Whether it is about the other end's certificate. tokio-rustls wraps what rustls says in an error of input and output.
fn is_untrusted(cause: &(dyn std::error::Error + 'static)) -> bool {
    let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let said = wrapped.and_then(|said| said.downcast_ref::<rustls::Error>()).or_else(|| cause.downcast_ref());
    matches!(said, Some(rustls::Error::InvalidCertificate(_)))
}
