//! A client for tests: one request on a new connection, or many on one that is kept.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::process::SOON;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// A field of the JSON that an echo server answers with; empty if it is none.
    pub fn echo(&self, field: &str) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body[field].as_str().unwrap_or_default().to_owned()
    }
}

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Empty<Bytes>>,
}

impl Connection {
    /// Connects to a port on the loopback interface.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        Connection::over(TokioIo::new(stream)).await
    }

    /// Connects to a unix socket.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn open_unix(path: &Path) -> Result<Connection> {
        let stream = UnixStream::connect(path).await.with_context(|| path.display().to_string())?;
        Connection::over(TokioIo::new(stream)).await
    }

    /// Connects with TLS: the name is sent as SNI and must be in the certificate, which `trusted` (PEM) must have issued.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn open_tls(port: u16, name: &str, trusted: &str) -> Result<Connection> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let name = ServerName::try_from(name.to_owned())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Connection::over(TokioIo::new(stream)).await
    }

    async fn over<S>(stream: S) -> Result<Connection>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        tokio::spawn(connection);
        Ok(Connection { sender })
    }

    /// `GET` on this connection.
    ///
    /// # Errors
    /// When the connection breaks or no answer comes within [`SOON`].
    pub async fn get(&mut self, host: &str, path: &str) -> Result<Reply> {
        let request = Request::get(path).header(http::header::HOST, host).body(Empty::new())?;
        let exchange = async {
            self.sender.ready().await?;
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Reply { status: head.status, headers: head.headers, body })
        };
        tokio::time::timeout(SOON, exchange).await.with_context(|| format!("no answer for {host}{path}"))?
    }
}

/// `GET` on a new connection.
///
/// # Errors
/// When no answer comes.
pub async fn get(port: u16, host: &str, path: &str) -> Result<Reply> {
    Connection::open(port).await?.get(host, path).await
}

/// `GET` on a new connection to a unix socket.
///
/// # Errors
/// When no answer comes.
pub async fn unix_get(path: &Path, resource: &str) -> Result<Reply> {
    Connection::open_unix(path).await?.get("localhost", resource).await
}
