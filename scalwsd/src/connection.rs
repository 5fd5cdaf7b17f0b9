//! One client connection: which HTTP it speaks, its limits, and its orderly end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use config::ListenerName;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::head_guard::{Fault, Findings, Scanner};
use crate::proxy::{Open, Proxy};
use crate::service;

/// How long a client may take for a request head; an idle kept connection is closed after it, too.
pub const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// The most bytes of one HTTP/1 request head, and of one HTTP/2 header list.
const HEAD_BYTES: usize = 64 * 1024;
/// How many requests of one HTTP/2 connection run at the same time.
const STREAMS: u32 = 128;
/// What an HTTP/2 client sends first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The client's end of a connection, as requests see it.
#[derive(Debug)]
pub struct Peer {
    /// The client's address.
    pub client: SocketAddr,
    /// The listener it came to.
    pub listener: ListenerName,
    /// Whether it speaks TLS.
    pub tls: bool,
    requests: AtomicU64,
    findings: Option<Findings>,
    _open: Open,
}

impl Peer {
    /// The number of the request that begins now, from 0, and what its bytes showed.
    pub fn next_fault(&self) -> Option<Fault> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        self.findings.as_ref()?.fault(number)
    }

    /// The connection was taken over by another protocol.
    pub fn taken_over(&self) {
        if let Some(findings) = &self.findings {
            findings.stop();
        }
    }
}

/// What is known about a connection before it speaks HTTP.
#[derive(Debug)]
pub struct Arrival {
    /// The client's address.
    pub client: SocketAddr,
    /// The listener it came to.
    pub listener: ListenerName,
    /// Counts it.
    pub open: Open,
    /// Becomes true when the connection should end in order.
    pub stop: watch::Receiver<bool>,
}

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1 or 1.0.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Serves a connection without TLS: HTTP/2 if it begins with the preface, HTTP/1 otherwise.
pub async fn serve_plain(proxy: Arc<Proxy>, mut io: tokio::net::TcpStream, arrival: Arrival) {
    let mut stop = arrival.stop.clone();
    let first = tokio::select! {
        first = tokio::time::timeout(HEAD_LIMIT, read_first(&mut io)) => first,
        // Nothing was asked on it yet: it can be closed at once.
        () = stopped(&mut stop) => return,
    };
    let Ok(Ok((first, version))) = first else { return };
    serve(proxy, Watched::new(first, io, version), arrival, version, false).await;
}

/// Serves a connection inside TLS.
pub async fn serve_tls<IO>(proxy: Arc<Proxy>, io: IO, arrival: Arrival, version: Version)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    serve(proxy, Watched::new(Bytes::new(), io, version), arrival, version, true).await;
}

/// Waits until the connection should end in order. When nobody can say so any more, it should.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The result holds a lock, which must not live across a wait.
    let _stopped = stop.wait_for(|stop| *stop).await.is_ok();
}

/// Reads until it is clear whether the preface of HTTP/2 comes.
async fn read_first(io: &mut (impl AsyncRead + Unpin)) -> io::Result<(Bytes, Version)> {
    let mut first = BytesMut::with_capacity(4096);
    loop {
        if io.read_buf(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let compared = first.len().min(PREFACE.len());
        if first.get(..compared) != PREFACE.get(..compared) {
            return Ok((first.freeze(), Version::Http1));
        }
        if compared == PREFACE.len() {
            return Ok((first.freeze(), Version::Http2));
        }
    }
}

async fn serve<IO>(proxy: Arc<Proxy>, io: Watched<IO>, arrival: Arrival, version: Version, tls: bool)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Arrival { client, listener, open, mut stop } = arrival;
    let findings = io.scanner.as_ref().map(Scanner::findings);
    let peer = Arc::new(Peer { client, listener, tls, requests: AtomicU64::new(0), findings, _open: open });
    let answer = service_fn(move |request| {
        let (proxy, peer) = (Arc::clone(&proxy), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(service::handle(proxy, peer, request).await) }
    });
    let io = TokioIo::new(io);
    let result = match version {
        Version::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(HEAD_BYTES);
            let mut connection = pin!(builder.serve_connection(io, answer).with_upgrades());
            tokio::select! {
                result = connection.as_mut() => result,
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
        Version::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS)
                .max_header_list_size(HEAD_BYTES as u32)
                .max_send_buf_size(256 * 1024)
                .initial_stream_window_size(256 * 1024)
                .initial_connection_window_size(1024 * 1024)
                // A client that is gone without a word is noticed.
                .keep_alive_interval(Duration::from_secs(30))
                .keep_alive_timeout(Duration::from_secs(20));
            let mut connection = pin!(builder.serve_connection(io, answer));
            tokio::select! {
                result = connection.as_mut() => result,
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, %client, "a client connection ended");
    }
}

/// A stream that gives bytes which were read already first, and shows HTTP/1 bytes to the scanner.
#[derive(Debug)]
struct Watched<IO> {
    first: Bytes,
    io: IO,
    scanner: Option<Scanner>,
}

impl<IO> Watched<IO> {
    fn new(first: Bytes, io: IO, version: Version) -> Watched<IO> {
        Watched { first, io, scanner: (version == Version::Http1).then(Scanner::default) }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let result = if this.first.is_empty() {
            Pin::new(&mut this.io).poll_read(cx, buffer)
        } else {
            let length = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..length]);
            this.first.advance(length);
            Poll::Ready(Ok(()))
        };
        if let Some(scanner) = &mut this.scanner {
            scanner.feed(buffer.filled().get(before..).unwrap_or_default());
        }
        result
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
