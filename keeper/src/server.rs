//! The keeper's side: opens ports when they are asked for and hands the same socket to everybody.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Interest};
use tokio::net::{UnixListener, UnixStream};

use crate::protocol::{Answer, LINE_LIMIT, Port, Request};
use crate::{KeeperError, Transport, codes, socket};

/// How long a port stays open after its last asker vanished without releasing it: long enough for a worker to be
/// started again, so that the connections which wait in the queue are not lost.
pub const GRACE: Duration = Duration::from_secs(30);

/// How many askers may be connected at the same time.
const MAX_ASKERS: usize = 256;

/// The sockets, and who holds them. Clones share them.
#[derive(Clone, Debug)]
pub struct Keeper {
    inner: Arc<Mutex<Sockets>>,
    grace: Duration,
}

#[derive(Debug, Default)]
struct Sockets {
    kept: BTreeMap<Port, Kept>,
    askers: usize,
    turns: u64,
}

#[derive(Debug)]
struct Kept {
    socket: Arc<OwnedFd>,
    /// Never closed.
    pinned: bool,
    /// Connected askers that hold it.
    holders: usize,
    /// Changes with every change of holders, so that an old timer does not close what is in use again.
    turn: u64,
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper::new()
    }
}

impl Keeper {
    /// A keeper without sockets.
    pub fn new() -> Keeper {
        Keeper::with_grace(GRACE)
    }

    /// A keeper with another time than [`GRACE`].
    pub fn with_grace(grace: Duration) -> Keeper {
        Keeper { inner: Arc::default(), grace }
    }

    /// Opens a TCP port now and keeps it for as long as the keeper lives. Port 0 lets the kernel choose; gives the port.
    ///
    /// # Errors
    /// What the operating system says; [`KeeperError::of_bind`] puts it into words.
    pub fn pin(&self, port: u16) -> io::Result<u16> {
        let mut sockets = self.lock();
        if let Some(kept) = sockets.kept.get_mut(&Port { transport: Transport::Tcp, port }) {
            kept.pinned = true;
            return Ok(port);
        }
        let opened = socket::bind(Transport::Tcp, port)?;
        let port = socket::local_port(&opened)?;
        let kept = Kept { socket: Arc::new(opened), pinned: true, holders: 0, turn: 0 };
        sockets.kept.insert(Port { transport: Transport::Tcp, port }, kept);
        Ok(port)
    }

    /// The ports that are open, as `tcp/443`.
    pub fn open_ports(&self) -> Vec<String> {
        self.lock().kept.keys().map(|p| format!("{}/{}", p.transport, p.port)).collect()
    }

    /// Answers askers on a unix listener until the future is dropped.
    ///
    /// # Errors
    /// When the listener itself breaks; a broken asker ends only itself.
    pub async fn serve(&self, listener: UnixListener) -> io::Result<()> {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, "an asker could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.lock().askers >= MAX_ASKERS {
                tracing::warn!("more than {MAX_ASKERS} askers: one was turned away");
                continue;
            }
            let asker = Asker::new(self.clone());
            tokio::spawn(async move {
                if let Err(error) = asker.converse(stream).await {
                    tracing::debug!(%error, "an asker broke off");
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, port: Port, first: bool) -> Result<Arc<OwnedFd>, KeeperError> {
        if port.port == 0 {
            return Err(KeeperError::new(codes::BAD_REQUEST, "port 0 cannot be shared"));
        }
        let mut sockets = self.lock();
        sockets.turns += 1;
        let turn = sockets.turns;
        let kept = match sockets.kept.entry(port) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let opened = socket::bind(port.transport, port.port)
                    .map_err(|error| KeeperError::of_bind(port.transport, port.port, &error))?;
                entry.insert(Kept { socket: Arc::new(opened), pinned: false, holders: 0, turn })
            }
        };
        if first {
            kept.holders += 1;
            kept.turn = turn;
        }
        Ok(Arc::clone(&kept.socket))
    }

    /// One holder less. A port that was released is closed at once, one whose holder vanished after [`GRACE`].
    fn give_back(&self, port: Port, released: bool) {
        let mut sockets = self.lock();
        sockets.turns += 1;
        let turn = sockets.turns;
        let Some(kept) = sockets.kept.get_mut(&port) else { return };
        kept.holders = kept.holders.saturating_sub(1);
        kept.turn = turn;
        if kept.holders > 0 || kept.pinned {
            return;
        }
        if released {
            sockets.kept.remove(&port);
            return;
        }
        drop(sockets);
        // Without a runtime the process is ending, and its sockets with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let keeper = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(keeper.grace).await;
            let mut sockets = keeper.lock();
            if sockets.kept.get(&port).is_some_and(|k| k.turn == turn && !k.pinned) {
                sockets.kept.remove(&port);
                tracing::info!(transport = %port.transport, port = port.port, "nobody asked for the port again: closed");
            }
        });
    }
}

/// Errors of accept(2) that pass by themselves.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::CONNABORTED | Errno::INTR)
    )
}

/// One connected asker and what it holds; given back when it goes.
struct Asker {
    keeper: Keeper,
    holds: BTreeSet<Port>,
}

impl Asker {
    fn new(keeper: Keeper) -> Asker {
        keeper.lock().askers += 1;
        Asker { keeper, holds: BTreeSet::new() }
    }

    async fn converse(mut self, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let limit = LINE_LIMIT as u64;
            if (&mut stream).take(limit).read_until(b'\n', &mut line).await? == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                let error = KeeperError::new(codes::BAD_REQUEST, "a request is one line of at most 1024 bytes");
                return send(stream.get_ref(), &Answer::Error(error), None).await;
            }
            let (answer, socket) = match serde_json::from_slice::<Request>(&line) {
                Err(error) => (Answer::Error(KeeperError::new(codes::BAD_REQUEST, error.to_string())), None),
                Ok(Request::Listen(port)) => match self.keeper.take(port, !self.holds.contains(&port)) {
                    Ok(socket) => {
                        self.holds.insert(port);
                        (Answer::Ok { port: port.port }, Some(socket))
                    }
                    Err(error) => (Answer::Error(error), None),
                },
                Ok(Request::Release(port)) => {
                    if self.holds.remove(&port) {
                        self.keeper.give_back(port, true);
                    }
                    (Answer::Ok { port: port.port }, None)
                }
            };
            send(stream.get_ref(), &answer, socket.as_deref().map(AsFd::as_fd)).await?;
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.keeper.lock().askers -= 1;
        for port in std::mem::take(&mut self.holds) {
            self.keeper.give_back(port, false);
        }
    }
}

/// Writes one line. The descriptor travels with its first byte.
async fn send(stream: &UnixStream, answer: &Answer, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut sent = 0;
    while sent < line.len() {
        stream.writable().await?;
        let rest = &line[sent..];
        let write = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket.unwrap_or_else(|| stream.as_fd())];
            if sent == 0 && socket.is_some() {
                control.push(SendAncillaryMessage::ScmRights(&sockets));
            }
            Ok(rustix::net::sendmsg(stream, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL)?)
        };
        match stream.try_io(Interest::WRITABLE, write) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
