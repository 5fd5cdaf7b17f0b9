//! One connection of the traffic, and what its end or answer means.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Kind, Target};

/// The certificates that may be shown at the moment.
#[derive(Clone, Debug, Default)]
pub struct Trusted(Arc<Mutex<Vec<CertificateDer<'static>>>>);

impl Trusted {
    /// Only this one (PEM; the first certificate counts).
    ///
    /// # Errors
    /// When there is none in it.
    pub fn only(pem: &str) -> Result<Trusted> {
        let trusted = Trusted::default();
        trusted.also(pem)?;
        Ok(trusted)
    }

    /// This one may be shown from now on, too.
    ///
    /// # Errors
    /// When there is none in it.
    pub fn also(&self, pem: &str) -> Result<()> {
        let certificate = CertificateDer::pem_slice_iter(pem.as_bytes()).next().context("no certificate")??;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(certificate);
        Ok(())
    }

    /// None but the newest may be shown in handshakes that begin from now on.
    pub fn newest_only(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = all.pop();
        all.clear();
        all.extend(newest);
    }

    fn now(&self) -> Vec<CertificateDer<'static>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open {
    sender: SendRequest<Empty<Bytes>>,
}

/// Ends when the connection does.
pub(super) type Driver = BoxFuture<'static, Result<(), hyper::Error>>;

impl Open {
    /// Whether the other side has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// One request, and what is wrong with its answer.
    pub(super) async fn ask(&mut self, target: &Target) -> Result<(), Kind> {
        let request = Request::get(&target.path).header(http::header::HOST, &target.host).body(Empty::new());
        let request = request.map_err(|error| Kind::Reset(error.to_string()))?;
        let broken = |error: hyper::Error| Kind::Reset(error.to_string());
        self.sender.ready().await.map_err(broken)?;
        let (head, body) = self.sender.send_request(request).await.map_err(broken)?.into_parts();
        let body = body.collect().await.map_err(broken)?.to_bytes();
        if head.status != StatusCode::OK {
            return Err(Kind::Status(head.status.as_u16()));
        }
        // The echo servers answer with JSON that is printed for people.
        let text = String::from_utf8_lossy(&body);
        let service = text.split("\"service\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        if target.services.iter().any(|known| known == service) {
            Ok(())
        } else {
            Err(Kind::WrongBackend(service.to_owned()))
        }
    }
}

/// Opens a connection; the second value has to be polled for anything to happen on it.
pub(super) async fn open(target: &Target, tls: &Arc<ClientConfig>) -> Result<(Open, Driver), Kind> {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, target.port))).await;
    let stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Kind::Refused,
        _ => Kind::Reset(error.to_string()),
    })?;
    let _ = stream.set_nodelay(true);
    let Some(trusted) = &target.tls else { return over(TokioIo::new(stream)).await };
    let before = trusted.now();
    let name = ServerName::try_from(target.host.clone()).map_err(|error| Kind::Tls(error.to_string()))?;
    let stream =
        TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                Kind::Tls(format!("cut: {error}"))
            }
            _ => Kind::Tls(error.to_string()),
        })?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    // It may have become right, or wrong, during the handshake.
    if !shown.is_some_and(|shown| before.contains(shown) || trusted.now().contains(shown)) {
        return Err(Kind::WrongCertificate);
    }
    over(TokioIo::new(stream)).await
}

async fn over<S>(stream: S) -> Result<(Open, Driver), Kind>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let hands = hyper::client::conn::http1::handshake(stream).await;
    let (sender, connection) = hands.map_err(|error| Kind::Reset(error.to_string()))?;
    Ok((Open { sender }, connection.boxed()))
}

/// TLS that looks at no authority: which certificate was shown is compared afterwards. Without resumption, so that each
/// handshake shows one.
pub(super) fn tls() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyAuthority(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Checks that the other side has the key of its certificate, and nothing else.
#[derive(Debug)]
struct AnyAuthority(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyAuthority {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
