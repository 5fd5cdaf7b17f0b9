//! TLS settings that all hosts share, and what a handshake for a name gets.

use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use crate::certificate::{self, Candidates};

/// What all TLS configurations share.
///
/// Tickets are the same for all hosts, because no host asks for client certificates yet: when one does, it needs a
/// ticketer of its own, or a session of another host could be resumed on it.
#[derive(Debug)]
pub struct Tls {
    provider: Arc<CryptoProvider>,
    ticketer: Arc<dyn ProducesTickets>,
    self_made: OnceLock<Result<Arc<ServerConfig>, String>>,
}

/// What a host's handshakes get.
#[derive(Clone, Debug)]
pub enum Handshake {
    /// A certificate of its own; HTTP follows.
    Serve(Arc<ServerConfig>),
    /// The listener's default certificate; HTTP follows.
    Default,
    /// Nothing (alert `unrecognized_name`).
    Refuse,
}

impl Tls {
    /// Settings with ring, TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// When there is no randomness for the keys of session tickets.
    pub fn new() -> Result<Tls, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let ticketer = rustls::crypto::ring::Ticketer::new()?;
        Ok(Tls { provider, ticketer, self_made: OnceLock::new() })
    }

    /// The cryptography in use.
    pub fn provider(&self) -> &CryptoProvider {
        &self.provider
    }

    /// A configuration that serves the first certificate the client can use.
    ///
    /// # Errors
    /// When the provider lacks the protocol versions; it does not.
    pub fn server(&self, certificates: Vec<Arc<CertifiedKey>>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Candidates(certificates)));
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Sessions are kept by clients, in tickets: a store for each of many hosts would take much memory.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.ticketer = Arc::clone(&self.ticketer);
        server.send_tls13_tickets = 2;
        // Early data could be replayed (RFC 8446 section 8).
        server.max_early_data_size = 0;
        Ok(Arc::new(server))
    }

    /// The configuration with the certificate that this process made for itself.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn self_made(&self) -> Result<Arc<ServerConfig>, String> {
        let make = || {
            let certificate = certificate::self_made(&self.provider)?;
            self.server(vec![certificate]).map_err(|e| e.to_string())
        };
        self.self_made.get_or_init(make).clone()
    }
}
