//! A link between two networks whose packets this process carries: slow, lossy, narrow or cut, as a test wants it.
//!
//! Both ends are TUN devices, so that the kernel's own TCP runs over it on both sides.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::native;
use super::network::Network;
use super::not_run::not_run;
use super::programs::Programs;

/// The device's name at both ends.
const DEVICE: &str = "carried";
/// The address of the near end, and of the far one.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Packets that may be under way in one direction; more are lost.
const UNDER_WAY: usize = 16_384;

/// What the link does to packets, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// How long each takes.
    pub delay: Duration,
    /// The share that is lost, 0 to 1.
    pub loss: f64,
    /// How many bytes pass in a second; none is no limit.
    pub bytes_per_second: Option<u64>,
    /// How long packets may queue for their turn before they are lost, as in the buffer of a router.
    pub queue: Duration,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions { delay: Duration::ZERO, loss: 0.0, bytes_per_second: None, queue: Duration::from_millis(100) }
    }
}

/// What all threads of a link share.
#[derive(Debug)]
struct Shared {
    conditions: Mutex<Conditions>,
    cut: AtomicBool,
    carried: AtomicU64,
    lost: AtomicU64,
    crowded: AtomicU64,
}

/// Two networks and the link between them. What listens on a loopback address of the near one is reached under the same address
/// from the far one, which has no loopback interface of its own.
#[derive(Debug)]
pub struct Link {
    near: Network,
    far: Network,
    shared: Arc<Shared>,
    ends: Vec<Child>,
    sockets: Vec<UnixDatagram>,
    threads: Vec<JoinHandle<()>>,
    _built: TempDir,
}

/// Packets that went over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Arrived.
    pub carried: u64,
    /// Lost by the dice.
    pub lost: u64,
    /// Lost because too many waited.
    pub crowded: u64,
}

impl Link {
    /// Makes both. None without root, iproute2 and `/dev/net/tun`; why not is said.
    ///
    /// # Errors
    /// When they can be made but not joined.
    pub fn new(conditions: Conditions, seed: u64, what: &str) -> Result<Option<Link>> {
        let device = Path::new("/dev/net/tun").exists();
        let (Some(near), Some(far), true) = (Network::new(true), Network::new(false), device) else {
            not_run(what, "it needs root, iproute2 and /dev/net/tun");
            return Ok(None);
        };
        for (network, [own, other]) in [(&near, ADDRESSES), (&far, [ADDRESSES[1], ADDRESSES[0]])] {
            network.ip(&["tuntap", "add", "dev", DEVICE, "mode", "tun"])?;
            network.ip(&["addr", "add", own, "peer", other, "dev", DEVICE])?;
            network.ip(&["link", "set", "dev", DEVICE, "up"])?;
            // Loopback addresses may come and go over it.
            network.set(&format!("ipv4/conf/{DEVICE}/route_localnet"), "1")?;
        }
        far.ip(&["route", "add", "127.0.0.0/8", "dev", DEVICE, "src", ADDRESSES[1]])?;

        let built = tempfile::tempdir()?;
        let end = native::compile("link_end.c", built.path(), &[])?;
        let mut link = Link {
            shared: Arc::new(Shared {
                conditions: Mutex::new(conditions),
                cut: AtomicBool::new(false),
                carried: AtomicU64::new(0),
                lost: AtomicU64::new(0),
                crowded: AtomicU64::new(0),
            }),
            near,
            far,
            ends: Vec::new(),
            sockets: Vec::new(),
            threads: Vec::new(),
            _built: built,
        };
        for network in [&link.near, &link.far] {
            let (ours, theirs) = UnixDatagram::pair()?;
            let [ip, words @ ..] = network.within();
            let mut command = Command::new(ip);
            command.args(words).arg(&end).arg(DEVICE).stdin(Stdio::from(OwnedFd::from(theirs)));
            link.ends.push(command.spawn().context("the end of a link")?);
            link.sockets.push(ours);
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let (take, give) = (link.sockets[from].try_clone()?, link.sockets[to].try_clone()?);
            let (queue, queued) = sync_channel(UNDER_WAY);
            let (shared, dice) = (Arc::clone(&link.shared), StdRng::seed_from_u64(seed + from as u64));
            link.threads.push(std::thread::spawn(move || take_packets(&take, &shared, dice, &queue)));
            let shared = Arc::clone(&link.shared);
            link.threads.push(std::thread::spawn(move || give_packets(&give, &shared, &queued)));
        }
        Ok(Some(link))
    }

    /// The network with loopback addresses.
    pub fn near(&self) -> &Network {
        &self.near
    }

    /// The programs as they were built, but the agents of some replicas run behind the link: those that a pattern of `sh` names.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn behind(&self, agents: &str) -> Result<Programs> {
        let far = self.far.within().join(" ");
        let lines = format!("case \"$*\" in *{agents}*) exec {far} \"$program\" \"$@\";; esac");
        Programs::new(&[("scalws-agent", &lines)])
    }

    /// The network behind the link.
    pub fn far(&self) -> &Network {
        &self.far
    }

    /// What it does to packets that come from now on.
    pub fn set(&self, conditions: Conditions) {
        *self.shared.conditions.lock().unwrap_or_else(PoisonError::into_inner) = conditions;
    }

    /// Loses every packet, or none for this reason any more.
    pub fn cut(&self, cut: bool) {
        self.shared.cut.store(cut, Ordering::SeqCst);
    }

    /// What went over it until now.
    pub fn packets(&self) -> Packets {
        let Shared { carried, lost, crowded, .. } = &*self.shared;
        let [carried, lost, crowded] = [carried, lost, crowded].map(|count| count.load(Ordering::SeqCst));
        Packets { carried, lost, crowded }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for end in &mut self.ends {
            let _ = end.kill();
            let _ = end.wait();
        }
        for socket in &self.sockets {
            // Ends the threads: nothing comes any more.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Takes packets in, and says of each when it arrives, or loses it.
fn take_packets(socket: &UnixDatagram, shared: &Shared, mut dice: StdRng, queue: &SyncSender<(Instant, Vec<u8>)>) {
    let mut packet = vec![0; 65_536];
    let mut free = Instant::now();
    while let Ok(length @ 1..) = socket.recv(&mut packet) {
        let conditions = *shared.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        if dice.random_bool(conditions.loss) || shared.cut.load(Ordering::SeqCst) {
            shared.lost.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let now = Instant::now();
        let turn = free.max(now);
        if turn - now > conditions.queue {
            shared.crowded.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let takes = conditions.bytes_per_second.map_or(0, |rate| length as u64 * 1_000_000_000 / rate.max(1));
        free = turn + Duration::from_nanos(takes);
        if queue.try_send((free + conditions.delay, packet[..length].to_vec())).is_err() {
            shared.crowded.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Gives packets out when it is their time.
fn give_packets(socket: &UnixDatagram, shared: &Shared, queue: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((arrives, packet)) = queue.recv() {
        // sleep: the delay is the input of the test.
        std::thread::sleep(arrives.saturating_duration_since(Instant::now()));
        if socket.send(&packet).is_ok() {
            shared.carried.fetch_add(1, Ordering::SeqCst);
        }
    }
}
