//! One client connection: which HTTP it speaks, its limits, and its orderly end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use config::ListenerName;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::head_guard::{Fault, Findings, Scanner};
use crate::proxy::{Open, Proxy};
use crate::service;

/// How long a client may take for a request head; an idle kept connection is closed after it, too.
pub const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// How long a kept connection may go on to bring requests once it is to end. A client may be sending its next one at this moment: it is
/// answered, and told that it was the last (RFC 9112 section 9.6). HTTP/2 has a frame for that.
const LAST_CALL: Duration = Duration::from_secs(2);
/// How long a client may take no byte of what is written to it.
const WRITE_LIMIT: Duration = Duration::from_secs(60);
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
    let ending = stop.clone();
    let answer = service_fn(move |request| {
        let (proxy, peer, ending) = (Arc::clone(&proxy), Arc::clone(&peer), ending.clone());
        async move {
            let mut response = service::handle(proxy, peer, request).await;
            if version == Version::Http1 && *ending.borrow() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(io);
    let result = match version {
        Version::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(HEAD_BYTES);
            let mut connection = pin!(builder.serve_connection(io, answer).with_upgrades());
            tokio::select! {
                result = connection.as_mut() => result,
                () = stopped(&mut stop) => match tokio::time::timeout(LAST_CALL, connection.as_mut()).await {
                    Ok(result) => result,
                    Err(_) => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                },
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

/// A stream that gives bytes which were read already first, shows HTTP/1 bytes to the scanner, and breaks when the client
/// takes nothing for too long: a body that waits for such a client would hold the member's connection for ever.
#[derive(Debug)]
struct Watched<IO> {
    first: Bytes,
    io: IO,
    scanner: Option<Scanner>,
    write_limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<IO> Watched<IO> {
    fn new(first: Bytes, io: IO, version: Version) -> Watched<IO> {
        let scanner = (version == Version::Http1).then(Scanner::default);
        Watched { first, io, scanner, write_limit: WRITE_LIMIT, stalled: None }
    }

    /// Limits how long a write may stand still.
    fn limit<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.write_limit;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
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
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.limit(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.limit(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(cx);
        self.limit(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut watched = Watched::new(Bytes::new(), near, Version::Http1);
        watched.write_limit = Duration::from_millis(200);
        let writing = tokio::spawn(async move {
            watched.write_all(b"12345678").await?;
            // Half of it was taken; nobody takes the rest.
            watched.write_all(b"more").await
        });
        let mut half = [0; 4];
        far.read_exact(&mut half).await.unwrap();
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!((&half, error.kind()), (b"1234", io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn the_first_bytes_tell_http_2_from_http_1() {
        for (bytes, wanted) in [
            (&b"GET / HTTP/1.1\r\n"[..], Version::Http1),
            (b"PRI / HTTP/1.1\r\n", Version::Http1),
            (PREFACE, Version::Http2),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", Version::Http2),
        ] {
            // One byte at a time.
            let (mut near, mut far) = tokio::io::duplex(1);
            let writing = tokio::spawn(async move { near.write_all(bytes).await });
            let (first, version) = read_first(&mut far).await.unwrap();
            assert_eq!((version, bytes.starts_with(&first)), (wanted, true));
            writing.abort();
        }
    }
}
