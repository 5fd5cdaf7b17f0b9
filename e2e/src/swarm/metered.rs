//! A connection that counts its bytes as they are on the wire: TLS records, without the headers of TCP and IP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

/// Connections from one loopback address: the controller takes 1,024, and 64 enrolments at once.
const PER_SOURCE: usize = 48;

/// Bytes since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// From the controller.
    pub down: u64,
    /// To the controller.
    pub up: u64,
}

/// Counts the bytes of all connections that were made with it. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<(AtomicU64, AtomicU64)>);

impl Meter {
    /// What was counted so far.
    pub fn read(&self) -> Bytes {
        Bytes { down: self.0.0.load(Ordering::Relaxed), up: self.0.1.load(Ordering::Relaxed) }
    }

    /// A connection of this agent, from the loopback address that it shares with a few others.
    ///
    /// # Errors
    /// When the other side does not take it.
    pub async fn dial(self, address: SocketAddr, agent: usize) -> io::Result<Metered> {
        let number = agent / PER_SOURCE;
        let octet = |n: usize| u8::try_from(n % 250 + 1).unwrap_or(1);
        let source = Ipv4Addr::new(127, octet(number / 62_500), octet(number / 250), octet(number));
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(source), 0))?;
        let tcp = socket.connect(address).await?;
        tcp.set_nodelay(true)?;
        Ok(Metered { tcp, meter: self })
    }
}

/// See the module.
#[derive(Debug)]
pub struct Metered {
    tcp: TcpStream,
    meter: Meter,
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(context, into))?;
        self.meter.0.0.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tcp).poll_write(context, bytes))?;
        self.meter.0.1.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tcp).poll_write_vectored(context, parts))?;
        self.meter.0.1.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}
