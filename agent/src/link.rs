//! Keeps a stream to a controller: enrols, connects, waits, and comes again.

use std::time::Duration;

use push::agent_session::Close;
use push::grpc::client::{self, ClientError, Credentials, Link};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backoff::{Backoff, asked_for};
use crate::bootstrap::{Addresses, Bootstrap, BootstrapError};

/// How long to wait when the source of addresses says that no controller is there. Asking it costs nothing.
const NOBODY: Duration = Duration::from_millis(100);
/// How long to wait after a newer session of this identity took over.
const SUPERSEDED_MS: u64 = 5_000;
/// How long to wait before another attempt to renew a certificate that still serves.
const RENEW_RETRY: Duration = Duration::from_secs(30);
/// After so many connections in a row that failed, the certificate is suspected: enrol anew.
const SUSPECT: u32 = 3;

/// An open stream, handed to the driver.
#[derive(Debug)]
pub struct Opened {
    /// The stream.
    pub link: Link,
    /// To be told how it ended.
    pub ended: oneshot::Sender<Ended>,
}

/// How a stream ended.
#[derive(Debug)]
pub struct Ended {
    /// Whether the controller had served it.
    pub served: bool,
    /// Why the session closed it; `None` when the connection was lost.
    pub close: Option<Close>,
}

struct Identity {
    credentials: Credentials,
    renew_at: Instant,
}

/// The certificate of this agent, in memory only, and the way to a new one.
struct Enrolment<B> {
    bootstrap: B,
    identity: Option<Identity>,
}

impl<B: Bootstrap> Enrolment<B> {
    /// A certificate that is not due for renewal; the old one when renewing fails and there is one.
    async fn current(&mut self, addresses: &Addresses) -> Result<Credentials, LinkError> {
        let due = self.identity.as_ref().is_none_or(|identity| identity.renew_at <= Instant::now());
        if due && let Err(e) = self.enrol(&addresses.enroll).await {
            match &mut self.identity {
                Some(identity) if !matches!(e, LinkError::Bootstrap(_)) => {
                    tracing::warn!("cannot renew the certificate yet: {e}");
                    identity.renew_at = Instant::now() + RENEW_RETRY;
                }
                _ => return Err(e),
            }
        }
        self.identity.as_ref().map(|i| i.credentials.clone()).ok_or(LinkError::Client(ClientError::Answer("none came")))
    }

    async fn enrol(&mut self, address: &str) -> Result<(), LinkError> {
        let boot = self.bootstrap.credentials().await?;
        let trust = self.identity.as_ref().map_or(&boot.trust_bundle, |i| &i.credentials.trust_bundle);
        let credentials = client::enroll(address, trust, boot.token).await?;
        tracing::info!(renew_after_s = credentials.renew_after.as_secs(), "enrolled");
        let renew_at = Instant::now() + credentials.renew_after;
        self.identity = Some(Identity { credentials, renew_at });
        Ok(())
    }

    /// Renews in time while a stream serves. The stream keeps the certificate it was opened with.
    async fn keep_fresh(&mut self, addresses: &Addresses) -> BootstrapError {
        loop {
            let renew_at = self.identity.as_ref().map_or_else(Instant::now, |identity| identity.renew_at);
            tokio::time::sleep_until(renew_at).await;
            if let Err(LinkError::Bootstrap(e)) = self.current(addresses).await {
                return e;
            }
        }
    }
}

/// Why there is no stream now.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Hands over one stream after the other. Ends when nobody takes them, or the source of tokens is gone.
///
/// # Errors
/// When the source of tokens and addresses is gone.
pub async fn keep<B: Bootstrap>(bootstrap: B, opened: mpsc::Sender<Opened>) -> Result<(), BootstrapError> {
    let mut enrolment = Enrolment { bootstrap, identity: None };
    let mut rng = StdRng::from_os_rng();
    let mut backoff = Backoff::default();
    let mut failures = 0;
    while !opened.is_closed() {
        let Some(addresses) = enrolment.bootstrap.addresses().await? else {
            tokio::time::sleep(NOBODY).await;
            continue;
        };
        let link = match open(&mut enrolment, &addresses).await {
            Ok(link) => link,
            Err(LinkError::Bootstrap(e)) => return Err(e),
            Err(LinkError::Client(e)) => {
                failures += 1;
                if failures % SUSPECT == 0 {
                    enrolment.identity = None;
                }
                let wait = backoff.next_wait(&mut rng);
                tracing::warn!(wait_ms = wait.as_millis(), "no stream: {e}");
                tokio::time::sleep(wait).await;
                continue;
            }
        };
        failures = 0;
        let (ended, mut end) = oneshot::channel();
        if opened.send(Opened { link, ended }).await.is_err() {
            return Ok(());
        }
        let end = tokio::select! {
            end = &mut end => end.unwrap_or(Ended { served: false, close: None }),
            gone = enrolment.keep_fresh(&addresses) => return Err(gone),
        };
        if end.served {
            backoff.reset();
        }
        let wait = match &end.close {
            Some(Close::RetryAfter { ms }) => asked_for(*ms, &mut rng),
            Some(Close::NotLeader { retry_ms, .. }) => asked_for(*retry_ms, &mut rng),
            Some(Close::Superseded) => asked_for(SUPERSEDED_MS, &mut rng),
            _ => backoff.next_wait(&mut rng),
        };
        match &end.close {
            Some(close) => tracing::warn!(wait_ms = wait.as_millis(), "closed the stream: {close:?}"),
            None => tracing::warn!(wait_ms = wait.as_millis(), "lost the stream"),
        }
        tokio::time::sleep(wait).await;
    }
    Ok(())
}

async fn open<B: Bootstrap>(enrolment: &mut Enrolment<B>, addresses: &Addresses) -> Result<Link, LinkError> {
    let credentials = enrolment.current(addresses).await?;
    Ok(client::connect(&addresses.push, &credentials).await?)
}
