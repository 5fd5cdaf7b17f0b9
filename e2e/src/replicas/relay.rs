//! A way between two ends over TCP that a test can cut, or let go silent.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They pass.
    Open,
    /// They stay where they are, and connections stay open: a link that drops packets.
    Silent,
    /// Connections end, and new ones are closed at once.
    Cut,
}

/// How it stands: what becomes of bytes, how often the way was cut, and how often it forgot its connections. Who looks too late still
/// sees that there was one.
#[derive(Clone, Copy, Debug)]
struct Standing {
    way: Way,
    cuts: u64,
    forgotten: u64,
}

/// A listening end whose connections go to another address. Dropping it ends them.
#[derive(Debug)]
pub struct Relay {
    standing: watch::Sender<Standing>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens here and connects there, on this runtime.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(runtime: &Handle, from: SocketAddr, to: SocketAddr) -> Result<Relay> {
        runtime.block_on(Relay::start_here(from, to))
    }

    /// As [`Relay::start`], on the runtime of whoever calls.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start_here(from: SocketAddr, to: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind(from).await.with_context(|| format!("a relay on {from}"))?;
        let standing = watch::Sender::new(Standing { way: Way::Open, cuts: 0, forgotten: 0 });
        let task = tokio::spawn(serve(listener, to, standing.subscribe()));
        Ok(Relay { standing, task })
    }

    /// Changes what becomes of bytes from now on. A cut ends all connections, however soon it is over.
    pub fn set(&self, way: Way) {
        self.standing.send_modify(|standing| {
            standing.way = way;
            standing.cuts += u64::from(way == Way::Cut);
        });
    }

    /// Connections that are there stay open, and nothing passes on them any more; new ones are as if nothing had been: a firewall
    /// that lost its table.
    pub fn forget(&self) {
        self.standing.send_modify(|standing| standing.forgotten += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, standing: watch::Receiver<Standing>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(carry(stream, to, standing.clone()));
    }
}

async fn carry(near: TcpStream, to: SocketAddr, standing: watch::Receiver<Standing>) {
    let Standing { cuts, forgotten, .. } = *standing.borrow();
    let mut cut = standing.clone();
    let both = async {
        wait_open(&mut standing.clone()).await;
        let Ok(far) = TcpStream::connect(to).await else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());

        tokio::select! {
            () = copy(near_read, far_write, &standing, forgotten) => {}
            () = copy(far_read, near_write, &standing, forgotten) => {}
        }
    };
    tokio::select! {
        () = both => {}
        // An error is a relay that is gone.
        _ = cut.wait_for(|standing| standing.way == Way::Cut || standing.cuts != cuts) => {}
    }
}

async fn wait_open(standing: &mut watch::Receiver<Standing>) {
    // An error is a relay that is gone; the caller ends with it.
    let _ = standing.wait_for(|standing| standing.way == Way::Open).await;
}

/// Carries bytes until either side ends. While the way is silent, they wait; once the connection is forgotten, for ever.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    standing: &watch::Receiver<Standing>,
    forgotten: u64,
) {
    let mut standing = standing.clone();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        if standing.borrow().forgotten != forgotten {
            // Not even the end is told.
            std::future::pending::<()>().await;
        }
        let Ok(length @ 1..) = read else { return };
        wait_open(&mut standing).await;
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
