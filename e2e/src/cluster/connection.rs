//! Connections of a test to the API server, as one who may do everything: bytes in and out, and nothing that a client adds.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The API server, as seen from its own network.
const ADDRESS: &str = "127.0.0.1:6443";

/// Opens connections for a thread that is in the network of the control plane.
#[derive(Clone)]
pub struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
    address: SocketAddr,
}

impl Connector {
    /// From the folder of keys of a control plane.
    ///
    /// # Errors
    /// When a file is missing.
    pub fn admin(keys: &Path) -> Result<Connector> {
        let mut roots = RootCertStore::empty();
        let certificates = |name: &str| -> Result<Vec<CertificateDer<'static>>> {
            let path = keys.join(name);
            let all = CertificateDer::pem_file_iter(&path).with_context(|| path.display().to_string())?;
            Ok(all.collect::<Result<_, _>>()?)
        };
        for certificate in certificates("ca.crt")? {
            roots.add(certificate)?;
        }
        let key = PrivateKeyDer::from_pem_file(keys.join("admin.key")).context("admin.key")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates("admin.crt")?, key)?;
        Ok(Connector {
            tls: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from("localhost")?,
            address: ADDRESS.parse()?,
        })
    }

    /// A new connection.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn open(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(self.tls.connect(self.name.clone(), stream).await?)
    }
}
