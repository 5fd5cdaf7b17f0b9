//! Clients: raw bytes, HTTP/1.1, HTTP/2, TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Everything here is over within this time, or the test fails.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it took longer than 20 s")
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The echo's JSON.
    pub(crate) fn echo(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// A header as the backend saw it, all values.
    pub(crate) fn saw(&self, name: &str) -> Vec<String> {
        let echo = self.echo();
        let pairs = echo["headers"].as_array().unwrap();
        pairs.iter().filter(|p| p[0] == name).map(|p| p[1].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) async fn connect(port: u16) -> TcpStream {
    let stream = within(TcpStream::connect(("127.0.0.1", port))).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes and reads until the other end closes.
pub(crate) async fn raw(port: u16, bytes: &[u8]) -> String {
    let mut stream = connect(port).await;
    within(stream.write_all(bytes)).await.unwrap();
    let mut out = Vec::new();
    // A reset after the answer is an end, too.
    let _reset = within(stream.read_to_end(&mut out)).await;
    String::from_utf8_lossy(&out).into_owned()
}

/// Reads one answer with a length, without a body, or to the end of the stream.
pub(crate) async fn read_reply(stream: &mut (impl AsyncRead + Unpin)) -> Reply {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(':').map(|(n, v)| (n.to_lowercase(), v.trim().to_owned()))).collect();
    let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let mut body = Vec::new();
    if let Some(length) = find("content-length") {
        body.resize(length.parse().unwrap(), 0);
        within(stream.read_exact(&mut body)).await.unwrap();
    } else if find("transfer-encoding").is_some() {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(within(stream.read_u8()).await.unwrap());
            }
            let size = usize::from_str_radix(String::from_utf8(line).unwrap().trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            within(stream.read_exact(&mut chunk)).await.unwrap();
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    Reply { status, headers, body: String::from_utf8(body).unwrap() }
}

pub(crate) async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> Reply {
    within(stream.write_all(request.as_bytes())).await.unwrap();
    read_reply(stream).await
}

/// One GET on a connection of its own.
pub(crate) async fn get(port: u16, host: &str, path: &str) -> Reply {
    let mut stream = connect(port).await;
    send(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await
}

pub(crate) struct H2(hyper::client::conn::http2::SendRequest<Full<Bytes>>);

impl H2 {
    pub(crate) async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> H2 {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io));
        let (sender, connection) = within(handshake).await.unwrap();
        tokio::spawn(connection);
        H2(sender)
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> (Reply, Option<http::HeaderMap>) {
        within(self.0.ready()).await.unwrap();
        let response = within(self.0.send_request(request)).await.unwrap();
        let (head, body) = response.into_parts();
        let collected = within(body.collect()).await.unwrap();
        let trailers = collected.trailers().cloned();
        let headers =
            head.headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap_or_default().to_owned())).collect();
        let body = String::from_utf8(collected.to_bytes().to_vec()).unwrap();
        (Reply { status: head.status.as_u16(), headers, body }, trailers)
    }

    pub(crate) async fn get(&mut self, uri: &str) -> Reply {
        self.send(Request::get(uri).body(Full::default()).unwrap()).await.0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Takes every certificate: the tests look at it themselves.
#[derive(Debug)]
struct Anyone(rustls::crypto::CryptoProvider);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

pub(crate) struct Tls {
    pub(crate) versions: &'static [&'static rustls::SupportedProtocolVersion],
    pub(crate) alpn: &'static [&'static str],
}

impl Default for Tls {
    fn default() -> Tls {
        Tls { versions: rustls::ALL_VERSIONS, alpn: &["http/1.1"] }
    }
}

impl Tls {
    /// Without a name, none is sent.
    pub(crate) async fn connect(&self, port: u16, name: Option<&str>) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = rustls::crypto::ring::default_provider();
        let verifier = Arc::new(Anyone(provider.clone()));
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = self.alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        config.enable_sni = name.is_some();
        let name = ServerName::try_from(name.unwrap_or("unnamed.invalid").to_owned()).unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        within(connector.connect(name, connect(port).await)).await
    }
}

/// The certificate that was served.
pub(crate) fn served(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}
