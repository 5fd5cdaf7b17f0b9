//! Where an agent gets its tokens and the controllers' addresses from.

use std::path::PathBuf;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::candidates::host_of;

/// Both listeners of a controller, `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The host as it was given, for hints that name it.
    pub host: String,
    /// Enrolment.
    pub enroll: String,
    /// The stream.
    pub push: String,
}

/// What an agent enrols with.
pub struct Bootstrapped {
    /// Proves once, or for a short time, which pod this is.
    pub token: Zeroizing<String>,
    /// Authorities of the controller's certificate.
    pub trust_bundle: Vec<CertificateDer<'static>>,
}

impl std::fmt::Debug for Bootstrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bootstrapped").field("trust_bundle", &self.trust_bundle.len()).finish_non_exhaustive()
    }
}

/// Why there is nothing to enrol with.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The other side is gone.
    #[error("the descriptor is closed")]
    Closed,
    /// It cannot be written.
    #[error("the descriptor cannot be written: {0}")]
    Io(#[from] std::io::Error),
    /// The trust bundle is not PEM.
    #[error("the trust bundle of the credentials is not PEM")]
    TrustBundle,
    /// A file of the join token or the authorities is of no use now; it may be later.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl BootstrapError {
    /// Whether the source will never give anything again.
    pub fn is_final(&self) -> bool {
        !matches!(self, BootstrapError::File { .. })
    }
}

/// A source of tokens and addresses: the supervisor's descriptor, or token file and Service of a cluster.
pub trait Bootstrap: Send {
    /// A fresh token with what goes with it.
    fn credentials(&mut self) -> impl Future<Output = Result<Bootstrapped, BootstrapError>> + Send;
    /// Where controllers may be now; none while they are down. `anew`: all that are known failed, so what was looked up
    /// before is not to be relied on.
    fn candidates(&mut self, anew: bool) -> impl Future<Output = Result<Vec<Addresses>, BootstrapError>> + Send;
}

/// A line of the supervisor.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Credentials(CredentialsLine),
    Addresses(Option<AddressesLine>),
}

#[derive(Deserialize)]
struct AddressesLine {
    enroll: Option<String>,
    push: Option<String>,
}

#[derive(Deserialize)]
struct CredentialsLine {
    token: String,
    trust_bundle_pem: String,
}

/// Asks the supervisor over stdin and stdout, one JSON object a line.
#[derive(Debug)]
pub struct Descriptor {
    lines: mpsc::Receiver<Zeroizing<String>>,
    stdout: tokio::io::Stdout,
}

impl Descriptor {
    /// Takes stdin and stdout over. The second value ends when stdin does: the supervisor is gone.
    pub fn new() -> (Descriptor, tokio::task::JoinHandle<()>) {
        let (send, lines) = mpsc::channel(8);
        let reader = tokio::spawn(async move {
            let mut stdin = BufReader::new(tokio::io::stdin());
            loop {
                let mut line = Zeroizing::new(String::new());
                match stdin.read_line(&mut line).await {
                    Ok(0) | Err(_) => return,
                    // A receiver that is gone is no reason to stop reading: the end of stdin still counts.
                    Ok(_) => drop(send.send(line).await),
                }
            }
        });
        (Descriptor { lines, stdout: tokio::io::stdout() }, reader)
    }

    async fn ask(&mut self, what: &str) -> Result<(), BootstrapError> {
        self.stdout.write_all(format!("{{\"need\":\"{what}\"}}\n").as_bytes()).await?;
        self.stdout.flush().await?;
        Ok(())
    }

    async fn next(&mut self) -> Result<Line, BootstrapError> {
        loop {
            let line = self.lines.recv().await.ok_or(BootstrapError::Closed)?;
            match serde_json::from_str(&line) {
                Ok(line) => return Ok(line),
                // Never the line itself: it may hold a token.
                Err(_) => tracing::warn!("the supervisor sent a line that is not understood"),
            }
        }
    }
}

impl Bootstrap for Descriptor {
    async fn credentials(&mut self) -> Result<Bootstrapped, BootstrapError> {
        self.ask("credentials").await?;
        loop {
            if let Line::Credentials(CredentialsLine { token, trust_bundle_pem }) = self.next().await? {
                let token = Zeroizing::new(token);
                let trust_bundle = CertificateDer::pem_slice_iter(trust_bundle_pem.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_| BootstrapError::TrustBundle)?;
                return Ok(Bootstrapped { token, trust_bundle });
            }
        }
    }

    async fn candidates(&mut self, _: bool) -> Result<Vec<Addresses>, BootstrapError> {
        self.ask("addresses").await?;
        loop {
            if let Line::Addresses(addresses) = self.next().await? {
                let both = addresses.and_then(|line| Some((line.enroll?, line.push?)));
                let one = both.map(|(enroll, push)| Addresses { host: host_of(&push).to_owned(), enroll, push });
                return Ok(one.into_iter().collect());
            }
        }
    }
}
