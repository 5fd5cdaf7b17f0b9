//! Keeps a stream to a controller: enrols, connects, waits, and comes again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use push::agent_session::Close;
use push::authority::validity_of;
use push::grpc::client::{self, ClientError, Credentials, Link};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustls_pki_types::CertificateDer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use crate::bootstrap::{Addresses, Bootstrap, BootstrapError, Bootstrapped};
use crate::candidates::{Answer, Attempt, Candidates};
use crate::status::Status;

/// How long to wait when the source of addresses says that no controller is there. Asking it costs nothing.
const NOBODY: Duration = Duration::from_millis(100);
/// How long to wait before another attempt to renew a certificate that still serves.
const RENEW_RETRY: Duration = Duration::from_secs(30);
/// How long enrolment may take when a certificate is renewed beside a stream that serves.
const RENEW: Duration = Duration::from_secs(10);
/// After so many connections in a row, to each candidate, that failed, the certificate is suspected: enrol anew.
const SUSPECT: usize = 3;

/// An open stream, handed to the driver. It takes the place of the one before.
#[derive(Debug)]
pub struct Opened {
    /// The stream.
    pub link: Link,
    /// How long the first answer to Hello may take, in milliseconds.
    pub answer_ms: u64,
    /// To be told how it ended.
    pub ended: oneshot::Sender<Ended>,
    /// To be told whether the leader at the other end is unsure to lead.
    pub unsure: watch::Sender<bool>,
}

/// How a stream ended.
#[derive(Debug)]
pub struct Ended {
    /// Whether the controller had served it.
    pub served: bool,
    /// Whether anything had come from the controller.
    pub answered: bool,
    /// Why the session closed it; `None` when the connection was lost.
    pub close: Option<Close>,
}

impl Ended {
    /// What it means for the choice of the next controller.
    fn answer(&self) -> Answer {
        match &self.close {
            Some(Close::RetryAfter { ms }) => Answer::RetryAfter { ms: *ms },
            Some(Close::NotLeader { leader_address, retry_ms }) => {
                Answer::NotLeader { leader_address: leader_address.clone(), retry_ms: *retry_ms }
            }
            Some(Close::Superseded) => Answer::Superseded,
            Some(Close::Silent) => Answer::Silent,
            None if self.answered => Answer::Lost,
            _ => Answer::Failed,
        }
    }
}

struct Identity {
    credentials: Credentials,
    renew_at: Instant,
}

/// The certificate of this agent, in memory only, and the way to a new one.
struct Enrolment<B> {
    bootstrap: B,
    status: Arc<Status>,
    identity: Option<Identity>,
    /// The authorities of the last answer. They outlive the certificate: a file that was copied once knows less of an authority that
    /// was replaced since.
    trust: Option<Vec<CertificateDer<'static>>>,
}

impl<B: Bootstrap> Enrolment<B> {
    /// A certificate that is not due for renewal; the old one when renewing fails and there is one.
    async fn current(&mut self, address: &Addresses, limit: Duration) -> Result<Credentials, LinkError> {
        let due = self.identity.as_ref().is_none_or(|identity| identity.renew_at <= Instant::now());
        if due && let Err(e) = self.enrol(&address.enroll, limit).await {
            match &mut self.identity {
                Some(identity) if !e.is_final() => {
                    tracing::warn!("cannot renew the certificate yet: {e}");
                    identity.renew_at = Instant::now() + RENEW_RETRY;
                }
                _ => return Err(e),
            }
        }
        self.identity.as_ref().map(|i| i.credentials.clone()).ok_or(LinkError::Client(ClientError::Answer("none came")))
    }

    async fn enrol(&mut self, address: &str, limit: Duration) -> Result<(), LinkError> {
        let Bootstrapped { token, trust_bundle: given } = self.bootstrap.credentials().await?;
        let enrolled = timeout(limit, enrol_trusting(address, self.trust.as_deref(), &given, token)).await;
        let credentials =
            enrolled.map_err(|_| LinkError::TooSlow { what: "enrolment", address: address.to_owned() })??;
        tracing::info!(renew_after_s = credentials.renew_after.as_secs(), "enrolled");
        self.status.certificate_ends.set(end_of(&credentials));
        let renew_at = Instant::now() + credentials.renew_after;
        self.trust = Some(credentials.trust_bundle.clone());
        self.identity = Some(Identity { credentials, renew_at });
        Ok(())
    }

    /// Renews in time while a stream serves, at the replica that serves or any other. The stream keeps the certificate it was
    /// opened with. Ends only when there will be no token any more.
    async fn keep_fresh(&mut self, candidates: &[Addresses]) -> BootstrapError {
        loop {
            let renew_at = self.identity.as_ref().map_or_else(Instant::now, |identity| identity.renew_at);
            tokio::time::sleep_until(renew_at).await;
            let mut renewed = false;
            for candidate in candidates {
                match self.enrol(&candidate.enroll, RENEW).await {
                    Ok(()) => renewed = true,
                    Err(LinkError::Bootstrap(e)) if e.is_final() => return e,
                    Err(e) => tracing::warn!("cannot renew the certificate yet: {e}"),
                }
                if renewed {
                    break;
                }
            }
            if !renewed && let Some(identity) = &mut self.identity {
                identity.renew_at = Instant::now() + RENEW_RETRY;
            }
        }
    }

    async fn open(&mut self, attempt: &Attempt) -> Result<Link, LinkError> {
        let (connect, answer) = (Duration::from_millis(attempt.connect_ms), Duration::from_millis(attempt.answer_ms));
        let credentials = self.current(&attempt.address, connect + answer).await?;
        let opened = timeout(connect, client::connect(&attempt.address.push, &credentials)).await;
        let opened =
            opened.map_err(|_| LinkError::TooSlow { what: "the stream", address: attempt.address.push.clone() })?;
        if let (Err(ClientError::Untrusted { .. }), Some(identity)) = (&opened, &mut self.identity) {
            // The authority was replaced without us: the next attempt asks for the authorities that are trusted now. This
            // certificate stays for the case that only this address is wrong.
            identity.renew_at = Instant::now();
        }
        Ok(opened?)
    }
}

/// When the certificate ends, in seconds since 1970; 0 when it does not say.
fn end_of(credentials: &Credentials) -> i64 {
    let validity = credentials.chain.first().and_then(|leaf| validity_of(leaf).ok());
    let since = validity.and_then(|validity| validity.not_after.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or_default()
}

/// Enrols with whoever the last answer vouches for, or else the source of tokens, which is read anew each time: it knows of an
/// authority that took the other one's place without an overlap, as when a Secret was restored.
async fn enrol_trusting(
    address: &str,
    learnt: Option<&[CertificateDer<'static>]>,
    given: &[CertificateDer<'static>],
    token: Zeroizing<String>,
) -> Result<Credentials, ClientError> {
    if let Some(learnt) = learnt.filter(|learnt| *learnt != given) {
        match client::enroll(address, learnt, token.clone()).await {
            Err(ClientError::Untrusted { cause, .. }) => {
                tracing::warn!(
                    controller = address,
                    cause,
                    "not of the authorities of the last enrolment; trying those given"
                );
            }
            answer => return answer,
        }
    }
    client::enroll(address, given, token).await
}

/// Why there is no stream now.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the controller at {address} took too long: {what}")]
    TooSlow { what: &'static str, address: String },
}

impl LinkError {
    fn is_final(&self) -> bool {
        matches!(self, LinkError::Bootstrap(e) if e.is_final())
    }

    /// What it means for the choice of the next controller.
    fn answer(&self) -> Answer {
        if matches!(self, LinkError::TooSlow { .. }) { Answer::Silent } else { Answer::Failed }
    }
}

/// What came of a stream that was handed over.
enum Next {
    Ended(Ended),
    /// The leader is not sure, and another replica could be reached.
    Elsewhere(Link, u64),
}

/// Looks for the leader, one candidate after the other.
struct Seeker<B> {
    enrolment: Enrolment<B>,
    candidates: Candidates,
    /// Addresses as they were named last, for renewals.
    named: Vec<Addresses>,
    rng: StdRng,
    began: Instant,
    /// Connections in a row that failed.
    failures: usize,
}

/// Hands over one stream after the other, and says in the status when the certificate ends. Ends when nobody takes them, or the source of
/// tokens is gone.
///
/// # Errors
/// When the source of tokens and addresses is gone.
pub async fn keep<B: Bootstrap>(
    bootstrap: B,
    opened: mpsc::Sender<Opened>,
    status: Arc<Status>,
) -> Result<(), BootstrapError> {
    let mut seeker = Seeker {
        enrolment: Enrolment { bootstrap, status, identity: None, trust: None },
        candidates: Candidates::default(),
        named: Vec::new(),
        rng: StdRng::from_os_rng(),
        began: Instant::now(),
        failures: 0,
    };
    while !opened.is_closed() {
        let Some((mut link, mut answer_ms)) = seeker.attempt().await? else { continue };
        loop {
            let (ended, end) = oneshot::channel();
            let (unsure, doubt) = watch::channel(false);
            if opened.send(Opened { link, answer_ms, ended, unsure }).await.is_err() {
                return Ok(());
            }
            match seeker.attend(end, doubt).await? {
                Next::Ended(end) => {
                    seeker.ended(&end);
                    break;
                }
                Next::Elsewhere(other, ms) => (link, answer_ms) = (other, ms),
            }
        }
    }
    Ok(())
}

impl<B: Bootstrap> Seeker<B> {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn sleep_until_due(&self) {
        tokio::time::sleep_until(self.began + Duration::from_millis(self.candidates.due())).await;
    }

    /// One attempt when it is due: a stream, or none.
    async fn attempt(&mut self) -> Result<Option<(Link, u64)>, BootstrapError> {
        self.sleep_until_due().await;
        // Asked for after the wait: a controller that was started again has another port.
        self.named = self.enrolment.bootstrap.candidates(self.candidates.all_failed()).await?;
        self.candidates.replace(self.named.clone(), self.rng.random());
        let Some(attempt) = self.candidates.next(self.now_ms()) else {
            tokio::time::sleep(NOBODY).await;
            return Ok(None);
        };
        match self.open(&attempt).await? {
            Ok(link) => Ok(Some((link, attempt.answer_ms))),
            Err(answer) => {
                let (now, dice) = (self.now_ms(), self.rng.random());
                self.candidates.ended(now, dice, false, &answer);
                Ok(None)
            }
        }
    }

    /// Opens a stream; counts when that fails, and says how.
    async fn open(&mut self, attempt: &Attempt) -> Result<Result<Link, Answer>, BootstrapError> {
        match self.enrolment.open(attempt).await {
            Ok(link) => {
                self.failures = 0;
                Ok(Ok(link))
            }
            Err(LinkError::Bootstrap(e)) if e.is_final() => Err(e),
            Err(e) => {
                self.failures += 1;
                if self.failures.is_multiple_of(SUSPECT * self.candidates.len().max(1)) {
                    self.enrolment.identity = None;
                }
                tracing::warn!(controller = attempt.address.push, "no stream: {e}");
                Ok(Err(e.answer()))
            }
        }
    }

    /// Stays with a stream until it ends, or until its leader is unsure and another replica could be reached.
    async fn attend(
        &mut self,
        mut end: oneshot::Receiver<Ended>,
        mut doubt: watch::Receiver<bool>,
    ) -> Result<Next, BootstrapError> {
        let lost = Ended { served: false, answered: false, close: None };
        let Some(here) = self.candidates.current().cloned() else { return Ok(Next::Ended(lost)) };
        let mut renew_at = vec![here.clone()];
        renew_at.extend(self.named.iter().filter(|other| **other != here).cloned());
        loop {
            tokio::select! {
                end = &mut end => return Ok(Next::Ended(end.unwrap_or(lost))),
                gone = self.enrolment.keep_fresh(&renew_at) => return Err(gone),
                () = turns(&mut doubt, true) => {}
            }
            let (now, dice) = (self.now_ms(), self.rng.random());
            let several = self.candidates.turn_from_current(now, dice);
            tokio::select! {
                end = &mut end => {
                    // Back to what it was before the look around.
                    self.candidates.stay_with(&here);
                    return Ok(Next::Ended(end.unwrap_or(lost)));
                }
                () = turns(&mut doubt, false) => self.candidates.stay_with(&here),
                other = self.other(), if several => {
                    let (link, answer_ms) = other?;
                    return Ok(Next::Elsewhere(link, answer_ms));
                }
            }
        }
    }

    /// A stream to any replica but the one that the candidates were turned from.
    async fn other(&mut self) -> Result<(Link, u64), BootstrapError> {
        loop {
            self.sleep_until_due().await;
            let Some(attempt) = self.candidates.next(self.now_ms()) else { return std::future::pending().await };
            match self.open(&attempt).await? {
                Ok(link) => return Ok((link, attempt.answer_ms)),
                Err(answer) => {
                    let (now, dice) = (self.now_ms(), self.rng.random());
                    self.candidates.ended_beside(now, dice, &answer);
                }
            }
        }
    }

    fn ended(&mut self, end: &Ended) {
        let (now, dice) = (self.now_ms(), self.rng.random());
        self.candidates.ended(now, dice, end.served, &end.answer());
        let wait_ms = self.candidates.due().saturating_sub(now);
        match &end.close {
            Some(Close::NotLeader { leader_address, .. }) => {
                tracing::warn!(wait_ms, leader = leader_address, "closed the stream: this controller does not lead");
            }
            Some(close) => tracing::warn!(wait_ms, "closed the stream: {close:?}"),
            None => tracing::warn!(wait_ms, "lost the stream"),
        }
    }
}

/// Waits until the leader is unsure, or sure again; for ever when the stream is gone, whose end says so elsewhere.
async fn turns(doubt: &mut watch::Receiver<bool>, to: bool) {
    if doubt.wait_for(|unsure| *unsure == to).await.is_err() {
        std::future::pending().await
    }
}
