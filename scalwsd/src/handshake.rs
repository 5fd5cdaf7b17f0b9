//! TLS handshakes: the name in the ClientHello decides who serves, before anything is answered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use config::ListenerName;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use crate::connection::{Arrival, Version, serve_tls, stopped};
use crate::proxy::Proxy;
use crate::snapshot::{Host, Snapshot, Speaks};
use crate::tls::Handshake;

/// How long a handshake may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A fatal alert `unrecognized_name` as a TLS record (RFC 8446 sections 5.1 and 6.2, RFC 6066 section 3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// What a handshake gets. Without a name it is that of the catch-all host.
pub fn decide(snapshot: &Snapshot, listener: ListenerName, name: Option<&str>) -> Handshake {
    let Some(Speaks::Tls { unknown, default }) = snapshot.listeners.get(&listener).map(|l| &**l) else {
        return Handshake::Refuse;
    };
    let Some(table) = snapshot.router.find_host(listener, name.unwrap_or("")) else {
        return unknown.clone();
    };
    match table.host().map(|host| &**host) {
        Some(Host::Live(Some(Handshake::Default))) => default.clone(),
        Some(Host::Live(Some(handshake))) => handshake.clone(),
        // Not live, or it says nothing about TLS: nothing else steps in.
        Some(Host::Live(None) | Host::Dead) | None => Handshake::Refuse,
    }
}

/// Does the handshake and serves the connection.
pub async fn serve(proxy: Arc<Proxy>, stream: TcpStream, arrival: Arrival) {
    let mut stop = arrival.stop.clone();
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(LIMIT, shake(&proxy, stream, arrival.listener)) => shaken,
        // Nothing was asked on it yet: it can be closed at once.
        () = stopped(&mut stop) => return,
    };
    match shaken {
        Ok(Ok(Some((stream, version)))) => serve_tls(proxy, stream, arrival, version).await,
        Ok(Ok(None)) => {
            proxy.metrics.handshakes_failed.inc();
        }
        Ok(Err(error)) => {
            proxy.metrics.handshakes_failed.inc();
            tracing::debug!(%error, client = %arrival.client, "a handshake failed");
        }
        Err(_) => {
            proxy.metrics.handshakes_failed.inc();
            tracing::debug!(client = %arrival.client, "a handshake took too long");
        }
    }
}

type Stream = tokio_rustls::server::TlsStream<TcpStream>;

async fn shake(proxy: &Proxy, stream: TcpStream, listener: ListenerName) -> io::Result<Option<(Stream, Version)>> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let decision = decide(&proxy.snapshot.load(), listener, start.client_hello().server_name());
    let Handshake::Serve(server) = decision else {
        let mut stream = start.io;
        stream.write_all(&UNRECOGNIZED_NAME).await?;
        stream.shutdown().await?;
        return Ok(None);
    };
    let stream = start.into_stream(server).await?;
    let version = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Version::Http2,
        _ => Version::Http1,
    };
    Ok(Some((stream, version)))
}
