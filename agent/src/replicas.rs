//! Replicas of a controller that were named on the command line, with a join token from a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::bootstrap::{Addresses, Bootstrap, BootstrapError, Bootstrapped};

/// How long the addresses of a name are believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// How long a name may take to be looked up. What was known of it stays when it takes longer.
const LOOK_UP: Duration = Duration::from_secs(2);
/// The longest token or bundle that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses, or names that stand for all their addresses.
    pub hosts: Vec<String>,
    /// The port of enrolment, of all of them.
    pub enroll_port: u16,
    /// The port of the stream, of all of them.
    pub push_port: u16,
    /// The authorities, PEM.
    pub trust: PathBuf,
    /// The join token.
    pub token: PathBuf,
}

/// The source of tokens and addresses of an agent that has no supervisor.
#[derive(Debug)]
pub struct Replicas {
    options: Options,
    /// By host.
    known: Vec<Vec<SocketAddr>>,
    looked_up: Option<Instant>,
}

impl Replicas {
    /// Nothing is read or looked up yet.
    pub fn new(options: Options) -> Replicas {
        let known = vec![Vec::new(); options.hosts.len()];
        Replicas { options, known, looked_up: None }
    }

    /// Whether the files can be used now: whoever mistyped a path hears of it at once.
    ///
    /// # Errors
    /// When one of them cannot be.
    pub async fn check(&self) -> Result<(), BootstrapError> {
        self.files().await.map(drop)
    }

    async fn files(&self) -> Result<Bootstrapped, BootstrapError> {
        let token = read(&self.options.token).await?;
        let token = Zeroizing::new(token.trim().to_owned());
        if token.is_empty() {
            return Err(file(&self.options.token, "it is empty; `scalwsctl join-token` prints what belongs there"));
        }
        let trust = read(&self.options.trust).await?;
        let bundle: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(trust.as_bytes()).collect();
        let trust_bundle = bundle.ok().filter(|bundle| !bundle.is_empty()).ok_or_else(|| {
            file(&self.options.trust, "it holds no certificates in PEM; it should be the authority's ca.crt")
        })?;
        Ok(Bootstrapped { token, trust_bundle })
    }

    async fn look_up(&mut self) {
        for (host, known) in self.options.hosts.iter().zip(&mut self.known) {
            let looked =
                tokio::time::timeout(LOOK_UP, tokio::net::lookup_host((host.as_str(), self.options.push_port)));
            match looked.await {
                Ok(Ok(addresses)) => {
                    *known = addresses.collect();
                    // A resolver turns the order from time to time, which changes nothing.
                    known.sort();
                }
                Ok(Err(e)) => tracing::warn!(%host, "cannot look up the controller: {e}"),
                Err(_) => tracing::warn!(%host, "cannot look up the controller: no answer in {LOOK_UP:?}"),
            }
        }
        self.looked_up = Some(Instant::now());
    }
}

impl Bootstrap for Replicas {
    async fn credentials(&mut self) -> Result<Bootstrapped, BootstrapError> {
        self.files().await
    }

    async fn candidates(&mut self, anew: bool) -> Result<Vec<Addresses>, BootstrapError> {
        if anew || self.looked_up.is_none_or(|at| at.elapsed() >= BELIEVED) {
            self.look_up().await;
        }
        let mut candidates = Vec::new();
        for (host, known) in self.options.hosts.iter().zip(&self.known) {
            candidates.extend(known.iter().map(|push| Addresses {
                host: host.clone(),
                enroll: SocketAddr::new(push.ip(), self.options.enroll_port).to_string(),
                push: push.to_string(),
            }));
        }
        Ok(candidates)
    }
}

fn file(path: &Path, what: impl std::fmt::Display) -> BootstrapError {
    BootstrapError::File { path: path.to_owned(), what: what.to_string() }
}

/// A short text file, wiped when it is dropped.
async fn read(path: &Path) -> Result<Zeroizing<String>, BootstrapError> {
    let opened = tokio::fs::File::open(path).await.map_err(|e| file(path, e))?;
    // With room for all of it from the start: text that moves leaves a copy behind.
    let mut text = Zeroizing::new(String::with_capacity(LONGEST as usize + 1));
    opened.take(LONGEST + 1).read_to_string(&mut text).await.map_err(|e| file(path, e))?;
    if text.len() as u64 > LONGEST {
        return Err(file(path, format_args!("it is longer than {LONGEST} bytes")));
    }
    Ok(text)
}
