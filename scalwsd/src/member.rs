//! One member of a member set: its load, its health, and its kept connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use crate::body::RequestBody;
use crate::clock;

/// How many idle HTTP/1.1 connections are kept to one member.
const IDLE_MAX: usize = 128;
/// How long an idle connection is kept, in milliseconds.
const IDLE_MS: u64 = 60_000;
/// How long a member that refused a connection is passed over, in milliseconds: at first, and at most.
const COOL_MS: (u64, u64) = (500, 10_000);

/// One address that requests go to.
#[derive(Debug)]
pub struct Member {
    /// Where it is.
    pub address: SocketAddr,
    load: AtomicUsize,
    failures: AtomicU32,
    usable_from_ms: AtomicU64,
    /// Made with the first connection: most members never have one.
    connections: OnceLock<Box<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    idle: Mutex<Vec<Idle>>,
    multiplexed: Mutex<Option<http2::SendRequest<RequestBody>>>,
}

#[derive(Debug)]
struct Idle {
    sender: http1::SendRequest<RequestBody>,
    since_ms: u64,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It took too long.
    #[error("no connection to {address} within {ms} ms")]
    Late {
        /// The member.
        address: SocketAddr,
        /// The limit.
        ms: u64,
    },
    /// It was refused, or there is no way there.
    #[error("no connection to {address}: {why}")]
    Refused {
        /// The member.
        address: SocketAddr,
        /// What the operating system or the peer says.
        why: String,
    },
}

/// A connection to send one HTTP/1.1 request on.
#[derive(Debug)]
pub struct Http1 {
    /// Sends it.
    pub sender: http1::SendRequest<RequestBody>,
    /// Whether it has carried a request before: the member may have closed it in the meantime.
    pub reused: bool,
}

/// A connection to send HTTP/2 requests on.
#[derive(Debug)]
pub struct Http2 {
    /// Sends them.
    pub sender: http2::SendRequest<RequestBody>,
    /// Whether it was there already.
    pub reused: bool,
}

/// Counts one request as load of its member for as long as it lives.
#[derive(Debug)]
pub struct Load(Arc<Member>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Load {
    /// The member.
    pub fn member(&self) -> &Arc<Member> {
        &self.0
    }
}

impl Member {
    /// A member that nothing is known about.
    pub fn new(address: SocketAddr) -> Member {
        Member {
            address,
            load: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            usable_from_ms: AtomicU64::new(0),
            connections: OnceLock::new(),
        }
    }

    /// Requests under way.
    pub fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Counts one request more.
    pub fn take(self: &Arc<Self>) -> Load {
        self.load.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(self))
    }

    /// Whether it refused a connection a moment ago.
    pub fn is_cooling(&self, now_ms: u64) -> bool {
        self.usable_from_ms.load(Ordering::Relaxed) > now_ms
    }

    fn failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(10);
        let pause = (COOL_MS.0 << failures).min(COOL_MS.1);
        self.usable_from_ms.store(clock::now_ms() + pause, Ordering::Relaxed);
    }

    fn worked(&self) {
        // Written only when it changes: every request comes by here.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.usable_from_ms.store(0, Ordering::Relaxed);
        }
    }

    /// A kept HTTP/1.1 connection, the most recently used one, or a new one.
    ///
    /// # Errors
    /// When a new one is needed and cannot be made.
    pub async fn http1(&self, connect_ms: u64) -> Result<Http1, ConnectError> {
        let fresh_since = clock::now_ms().saturating_sub(IDLE_MS);
        while let Some(mut kept) = self.pop_idle(fresh_since) {
            // The connection's task may still be finishing what was before; a closed one says so at once.
            if kept.sender.is_ready() || (!kept.sender.is_closed() && kept.sender.ready().await.is_ok()) {
                return Ok(Http1 { sender: kept.sender, reused: true });
            }
        }
        let stream = self.connect(connect_ms).await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.refused(&e.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a member ended");
            }
        });
        Ok(Http1 { sender, reused: false })
    }

    fn pop_idle(&self, fresh_since_ms: u64) -> Option<Idle> {
        let mut idle = self.connections.get()?.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let last = idle.pop()?;
        if last.since_ms < fresh_since_ms {
            // The last one was used last: all others are older still.
            idle.clear();
            return None;
        }
        Some(last)
    }

    /// Gives back a connection whose request and answer are complete.
    pub fn keep(&self, sender: http1::SendRequest<RequestBody>) {
        self.worked();
        if sender.is_closed() {
            return;
        }
        let mut idle = self.connections().idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(Idle { sender, since_ms: clock::now_ms() });
        }
    }

    /// Closes connections that were idle for too long.
    pub fn sweep(&self) {
        let Some(connections) = self.connections.get() else { return };
        let fresh_since = clock::now_ms().saturating_sub(IDLE_MS);
        let mut idle = connections.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|kept| kept.since_ms >= fresh_since && !kept.sender.is_closed());
    }

    /// The HTTP/2 connection, or a new one.
    ///
    /// # Errors
    /// When a new one is needed and cannot be made.
    pub async fn http2(&self, connect_ms: u64) -> Result<Http2, ConnectError> {
        if let Some(sender) = self.multiplexed().clone().filter(|s| !s.is_closed()) {
            return Ok(Http2 { sender, reused: true });
        }
        let stream = self.connect(connect_ms).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .adaptive_window(true)
            // A member that is gone without a word must not hold requests for ever.
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .max_header_list_size(64 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| self.refused(&e.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a member ended");
            }
        });
        let mut slot = self.multiplexed();
        // Several requests may have connected at once; one connection is enough for those that come.
        if slot.as_ref().is_none_or(http2::SendRequest::is_closed) {
            *slot = Some(sender.clone());
        }
        Ok(Http2 { sender, reused: false })
    }

    fn multiplexed(&self) -> std::sync::MutexGuard<'_, Option<http2::SendRequest<RequestBody>>> {
        self.connections().multiplexed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> &Connections {
        self.connections.get_or_init(Box::default)
    }

    /// The HTTP/2 connection carried an answer.
    pub fn answered(&self) {
        self.worked();
    }

    async fn connect(&self, connect_ms: u64) -> Result<TcpStream, ConnectError> {
        let connecting = TcpStream::connect(self.address);
        let result = match connect_ms {
            0 => connecting.await,
            ms => match tokio::time::timeout(Duration::from_millis(ms), connecting).await {
                Ok(result) => result,
                Err(_) => {
                    self.failed();
                    return Err(ConnectError::Late { address: self.address, ms });
                }
            },
        };
        let stream = result.map_err(|e| self.refused(&e.to_string()))?;
        stream.set_nodelay(true).map_err(|e| self.refused(&e.to_string()))?;
        Ok(stream)
    }

    fn refused(&self, why: &str) -> ConnectError {
        self.failed();
        ConnectError::Refused { address: self.address, why: why.to_owned() }
    }
}

/// Chooses a member: the less loaded of two that are drawn at random, passing over those that were tried for this request
/// and those that refused a connection a moment ago, as long as there are others.
///
/// `draw(n)` gives a number below `n`.
pub fn choose<'a>(
    members: &'a [Arc<Member>],
    tried: &[SocketAddr],
    now_ms: u64,
    mut draw: impl FnMut(usize) -> usize,
) -> Option<&'a Arc<Member>> {
    let count = members.len();
    if count <= 1 {
        return members.first();
    }
    let first = draw(count);
    // A second one that differs from the first, all with the same chance.
    let second = (first + 1 + draw(count - 1)) % count;
    let good = |m: &Arc<Member>| !tried.contains(&m.address) && !m.is_cooling(now_ms);
    let (a, b) = (members.get(first)?, members.get(second)?);
    match (good(a), good(b)) {
        (true, true) if b.load() < a.load() => Some(b),
        (true, _) => Some(a),
        (false, true) => Some(b),
        (false, false) => {
            let around = || members.iter().cycle().skip(first).take(count);
            around().find(|m| good(m)).or_else(|| around().find(|m| !tried.contains(&m.address))).or(Some(a))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u16) -> Vec<Arc<Member>> {
        (0..count).map(|n| Arc::new(Member::new(SocketAddr::from(([10, 0, 0, 1], 1000 + n))))).collect()
    }

    /// Draws every pair of numbers once.
    fn choices(members: &[Arc<Member>], tried: &[SocketAddr]) -> Vec<u16> {
        let mut chosen = Vec::new();
        for first in 0..members.len() {
            for second in 0..members.len() - 1 {
                let mut draws = [first, second].into_iter();
                let member = choose(members, tried, clock::now_ms(), |_| draws.next().unwrap()).unwrap();
                chosen.push(member.address.port() - 1000);
            }
        }
        chosen
    }

    #[test]
    fn the_less_loaded_of_two_gets_the_request() {
        let members = members(3);
        let _loads = [members[0].take(), members[0].take(), members[1].take()];
        let chosen = choices(&members, &[]);
        assert_eq!(chosen.iter().filter(|n| **n == 0).count(), 0);
        assert_eq!(chosen.iter().filter(|n| **n == 1).count(), 2);
        assert_eq!(chosen.iter().filter(|n| **n == 2).count(), 4);
    }

    #[test]
    fn load_ends_with_its_request() {
        let members = members(1);
        let load = members[0].take();
        assert_eq!(members[0].load(), 1);
        drop(load);
        assert_eq!(members[0].load(), 0);
    }

    #[test]
    fn members_that_were_tried_or_refused_a_connection_are_passed_over() {
        let members = members(4);
        members[3].failed();
        let tried = [members[0].address, members[1].address];
        assert!(choices(&members, &tried).iter().all(|n| *n == 2));
    }

    #[test]
    fn a_member_that_refused_is_used_rather_than_none_and_one_that_works_again_is_as_before() {
        let members = members(2);
        members.iter().for_each(|m| m.failed());
        assert!(choices(&members, &[members[0].address]).iter().all(|n| *n == 1));
        assert!(choose(&[], &[], 0, |_| 0).is_none());
        members[0].worked();
        assert!(!members[0].is_cooling(clock::now_ms()));
    }
}
