//! TLS of both listeners and of the client: TLS 1.3 only, no resumption, so that every connection proves itself anew.

use std::sync::Arc;

use arc_swap::ArcSwap;
use journal::mutants::{self, Mutant};
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::authority::ServerIdentity;

/// The name in the controller's certificate, whatever address it is reached at.
pub const CONTROLLER_NAME: &str = "controller.scalws.internal";

/// A server configuration that is replaced while connections come in: new ones see the new one, old ones go on.
pub type TlsSlot = Arc<ArcSwap<ServerConfig>>;

/// A slot with this configuration.
pub fn slot(config: ServerConfig) -> TlsSlot {
    Arc::new(ArcSwap::from_pointee(config))
}

/// Why a TLS configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key is not usable.
    #[error("TLS cannot be set up: {0}")]
    Rustls(#[from] rustls::Error),
    /// The authorities are not usable.
    #[error("TLS cannot be set up: no usable authority")]
    Authorities,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for authority in authorities {
        store.add(authority.clone())?;
    }
    if store.is_empty() { Err(TlsError::Authorities) } else { Ok(store) }
}

/// For the push listener: a client certificate of one of these authorities is a must.
pub fn push_server(own: &ServerIdentity, authorities: &[CertificateDer<'static>]) -> Result<ServerConfig, TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider());
    let open = mutants::active(Mutant::NobodyIsAsked);
    let verifier = if open { verifier.allow_unauthenticated() } else { verifier };
    let verifier = verifier.build().map_err(|_| TlsError::Authorities)?;
    let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    finish(config.with_client_cert_verifier(verifier).with_single_cert(own.chain.clone(), own.private_key())?)
}

/// For the enrolment listener: the server proves itself, the caller's token comes later.
pub fn enrolment_server(own: &ServerIdentity) -> Result<ServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    finish(config.with_no_client_auth().with_single_cert(own.chain.clone(), own.private_key())?)
}

fn finish(mut config: ServerConfig) -> Result<ServerConfig, TlsError> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// For an agent: trusts these authorities, and shows this certificate if it has one.
pub fn client(
    authorities: &[CertificateDer<'static>],
    own: Option<(&[CertificateDer<'static>], &Zeroizing<Vec<u8>>)>,
) -> Result<ClientConfig, TlsError> {
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let config = config.with_root_certificates(roots(authorities)?);
    let mut config = match own {
        Some((chain, key)) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
            config.with_client_auth_cert(chain.to_vec(), key)?
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}
