//! The accept loop: TCP, TLS with the newest configuration under a time limit, then who the peer is.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use journal::mutants::{self, Mutant};
use rustls::CertificateError;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::server::Connected;

use super::signal::Signal;
use super::tls::TlsSlot;
use crate::identity::{AgentIdentity, FleetId};

/// How many connections a listener takes, and how long they may take to say who they are.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time; more are closed at once.
    pub connections: usize,
    /// Connections at a time from one address; more are closed at once.
    pub per_source: usize,
    /// From TCP to a finished handshake.
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 16_384, per_source: 1_024, handshake: Duration::from_secs(10) }
    }
}

/// What a verified client certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Who it is.
    pub identity: AgentIdentity,
    /// When the certificate ends.
    pub not_after: SystemTime,
}

/// The other end of a connection, in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Who it proved to be, if it did and the name in the certificate is one of ours.
    pub proven: Option<Proven>,
    /// Cuts the connection.
    pub cut: Cut,
    /// The connection is gone, whoever ended it.
    pub gone: CancellationToken,
}

/// Cuts a connection. Clones cut the same one.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<Signal>);

impl Cut {
    /// The connection fails at its next read, which is now if it waits for one.
    pub fn cut(&self) {
        self.0.tell(CUT);
    }
}

const CUT: u8 = 1;

/// After so many reads that gave something it is looked whether the connection was cut.
const LOOK: u32 = 16;

/// A connection whose handshake is done.
pub struct Connection {
    io: TlsStream<TcpStream>,
    peer: Peer,
    /// Reads so far.
    reads: u32,
    _gone: DropGuard,
    _places: (OwnedSemaphorePermit, SourcePlace),
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl Connection {
    /// What a read gave, unless the connection was cut. Asked when there is nothing to read, which is when the task stops
    /// and has to be woken, and now and then, for a peer that never lets it stop.
    fn alive(&mut self, context: &mut Context<'_>, read: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        self.reads = self.reads.wrapping_add(1);
        if (read.is_pending() || self.reads.is_multiple_of(LOOK)) && self.peer.cut.0.poll_is_set(context, CUT) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        read
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.alive(context, read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// Counts the connections of each source.
#[derive(Clone, Default)]
struct Sources(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Sources {
    fn take(&self, source: IpAddr, most: usize) -> Option<SourcePlace> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(SourcePlace { sources: self.clone(), source })
    }
}

struct SourcePlace {
    sources: Sources,
    source: IpAddr,
}

impl Drop for SourcePlace {
    fn drop(&mut self) {
        let mut counts = self.sources.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

/// How often it is said at most that somebody is refused because of the time: anybody can make it happen.
const SAY: Duration = Duration::from_secs(1);

/// When it was said last.
#[derive(Default)]
struct Said(Mutex<Option<Instant>>);

impl Said {
    fn may_say(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.is_none_or(|last| now.saturating_duration_since(last) >= SAY);
        if may {
            *last = Some(now);
        }
        may
    }
}

/// Whether a certificate was refused only because it has not begun or has ended, by this machine's clock.
fn is_out_of_time(error: &io::Error) -> bool {
    let rustls = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(
        rustls,
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        ))
    )
}

/// Accepts for ever; handshakes run side by side, none holds up another. Ends when the receiver is gone.
pub(super) async fn accept(
    listener: TcpListener,
    tls: TlsSlot,
    limits: Limits,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let (sources, said) = (Sources::default(), Arc::new(Said::default()));
    let mut handshakes = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = handshakes.join_next() => continue,
            () = ready.closed() => return,
        };
        let (tcp, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: give others a moment to end.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let Some(source) = sources.take(address.ip(), limits.per_source) else { continue };
        let (acceptor, ready, limit) = (TlsAcceptor::from(tls.load_full()), ready.clone(), limits.handshake);
        let said = Arc::clone(&said);
        handshakes.spawn(async move {
            if tcp.set_nodelay(true).is_err() {
                return;
            }
            match tokio::time::timeout(limit, acceptor.accept(tcp)).await {
                Ok(Ok(io)) => {
                    let proven = io.get_ref().1.peer_certificates().and_then(|chain| proven(chain));
                    let proven = proven.or_else(|| mutants::active(Mutant::NobodyIsAsked).then(anybody));
                    let gone = CancellationToken::new();
                    let peer = Peer { address, proven, cut: Cut::default(), gone: gone.clone() };
                    let connection =
                        Connection { io, peer, reads: 0, _gone: gone.drop_guard(), _places: (place, source) };
                    // Nobody to serve it any more: it is closed.
                    let _ = ready.send(Ok(connection)).await;
                }
                Ok(Err(error)) if is_out_of_time(&error) && said.may_say(Instant::now()) => {
                    tracing::warn!(%address, %error, "an agent is refused because of the time; is a clock wrong?");
                }
                Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
            }
        });
    }
}

fn proven(chain: &[CertificateDer<'_>]) -> Option<Proven> {
    let leaf = chain.first()?;
    let identity = AgentIdentity::from_certificate(leaf).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(leaf).ok()?;
    let not_after = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(Proven { identity, not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(not_after) })
}

/// Whom a stranger is taken for where nobody asks.
fn anybody() -> Proven {
    let fleet = FleetId::new("scalws", "default");
    let identity = AgentIdentity { fleet, pod: String::new(), uid: "anybody".to_owned() };
    Proven { identity, not_after: SystemTime::now() + Duration::from_secs(60) }
}
