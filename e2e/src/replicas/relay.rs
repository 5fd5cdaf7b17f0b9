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

/// A listening end whose connections go to another address. Dropping it ends them.
#[derive(Debug)]
pub struct Relay {
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens here and connects there, on this runtime.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(runtime: &Handle, from: SocketAddr, to: SocketAddr) -> Result<Relay> {
        let listener = runtime.block_on(TcpListener::bind(from)).with_context(|| format!("a relay on {from}"))?;
        let way = watch::Sender::new(Way::Open);
        let task = runtime.spawn(serve(listener, to, way.subscribe()));
        Ok(Relay { way, task })
    }

    /// Changes what becomes of bytes from now on.
    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, way: watch::Receiver<Way>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(carry(stream, to, way.clone()));
    }
}

async fn carry(near: TcpStream, to: SocketAddr, way: watch::Receiver<Way>) {
    let mut cut = way.clone();
    let both = async {
        wait_open(&mut way.clone()).await;
        let Ok(far) = TcpStream::connect(to).await else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());

        tokio::select! {
            () = copy(near_read, far_write, &way) => {}
            () = copy(far_read, near_write, &way) => {}
        }
    };
    tokio::select! {
        () = both => {}
        // An error is a relay that is gone.
        _ = cut.wait_for(|way| *way == Way::Cut) => {}
    }
}

async fn wait_open(way: &mut watch::Receiver<Way>) {
    // An error is a relay that is gone; the caller ends with it.
    let _ = way.wait_for(|way| *way == Way::Open).await;
}

/// Carries bytes until either side ends. While the way is silent, they wait.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, way: &watch::Receiver<Way>) {
    let mut way = way.clone();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        wait_open(&mut way).await;
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
