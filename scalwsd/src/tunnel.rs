//! WebSocket over HTTP/1.1 (RFC 6455): the handshake is forwarded and checked, then bytes are piped both ways.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::body::ResponseBody;
use crate::clock;
use crate::forward::Flight;
use crate::headers::has_token;
use crate::service::fixed;

/// What RFC 6455 section 1.3 appends to the key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes that are in transit in one direction.
const BUFFER: usize = 16 * 1024;

/// A client asks for WebSocket.
#[derive(Debug)]
pub struct Asked {
    /// What the member must answer.
    accept: String,
}

/// Whether a request asks for WebSocket. Every other `Upgrade` is ignored, as RFC 9110 section 7.8 allows: a protocol that
/// is not known here would lead around every route.
pub fn asked_for(head: &Parts) -> Option<Asked> {
    let mut keys = head.headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next()?;
    let asked = head.version == Version::HTTP_11
        && head.method == Method::GET
        && keys.next().is_none()
        && has_token(&head.headers, &CONNECTION, "upgrade")
        && head.headers.get_all(UPGRADE).iter().count() == 1
        && head.headers.get(UPGRADE)?.as_bytes().eq_ignore_ascii_case(b"websocket")
        && head.headers.get(SEC_WEBSOCKET_VERSION)?.as_bytes() == b"13";
    asked.then(|| Asked { accept: accept_of(key.as_bytes()) })
}

fn accept_of(key: &[u8]) -> String {
    // SHA-1 is what the RFC asks for; nothing secret depends on it.
    let mut hash = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID.as_bytes());
    STANDARD.encode(hash.finish())
}

impl Asked {
    /// Asks the member.
    pub fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// Answers 101 and pipes, if the member's answer is the right one.
pub fn open(
    asked: Asked,
    mut flight: Flight,
    mut response: Response<Incoming>,
    client: OnUpgrade,
    idle_ms: u64,
) -> Response<ResponseBody> {
    let headers = response.headers();
    let right = headers.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|a| a.as_bytes() == asked.accept.as_bytes())
        && has_token(headers, &UPGRADE, "websocket")
        && has_token(headers, &CONNECTION, "upgrade");
    if !right {
        flight.trace.because("the member's WebSocket handshake is not the answer to the client's");
        return fixed(flight.trace, StatusCode::BAD_GATEWAY);
    }
    let member = hyper::upgrade::on(&mut response);
    flight.trace.answered(StatusCode::SWITCHING_PROTOCOLS);
    // From here on there are no request heads on this connection any more.
    flight.trace.peer.taken_over();
    let mut answer = Response::new(ResponseBody::fixed(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    crate::headers::remove_hop_by_hop(answer.headers_mut());
    asked.ask(answer.headers_mut());
    tokio::spawn(async move {
        let proxy = Arc::clone(flight.trace.proxy());
        proxy.metrics.tunnels_active.inc();
        let piped = async {
            let (client, member) = tokio::try_join!(client, member).map_err(io::Error::other)?;
            pipe(TokioIo::new(client), TokioIo::new(member), idle_ms).await
        };
        let (sent, result) = match piped.await {
            Ok((sent, why)) => (sent, why),
            Err(error) => (0, Some(error.to_string())),
        };
        proxy.metrics.tunnels_active.dec();
        flight.trace.sent(sent, true);
        if let Some(why) = result {
            flight.trace.because(why);
        }
        // The connection to the member is used up.
        flight.sender = None;
        drop(flight);
    });
    answer
}

/// Pipes until both sides are done, one breaks, or nothing came for `idle_ms`. Gives the bytes for the client and, if it did
/// not end by itself, why.
async fn pipe(
    client: impl AsyncRead + AsyncWrite,
    member: impl AsyncRead + AsyncWrite,
    idle_ms: u64,
) -> io::Result<(u64, Option<String>)> {
    let (client_read, client_write) = tokio::io::split(client);
    let (member_read, member_write) = tokio::io::split(member);
    let last = AtomicU64::new(clock::now_ms());
    let (received, sent) = (AtomicU64::new(0), AtomicU64::new(0));
    let both = async {
        tokio::try_join!(
            copy(client_read, member_write, &last, &received),
            copy(member_read, client_write, &last, &sent)
        )
    };
    let why = tokio::select! {
        result = both => result.err().map(|e| e.to_string()),
        () = standstill(&last, idle_ms) => Some(format!("nothing came for {idle_ms} ms")),
    };
    Ok((sent.load(Ordering::Relaxed), why))
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &AtomicU64,
    bytes: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        last.store(clock::now_ms(), Ordering::Relaxed);
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..read).unwrap_or_default()).await?;
        to.flush().await?;
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        last.store(clock::now_ms(), Ordering::Relaxed);
    }
}

async fn standstill(last: &AtomicU64, idle_ms: u64) {
    if idle_ms == 0 {
        return std::future::pending().await;
    }
    loop {
        let quiet = clock::now_ms().saturating_sub(last.load(Ordering::Relaxed));
        if quiet >= idle_ms {
            return;
        }
        tokio::time::sleep(Duration::from_millis(idle_ms - quiet)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn the_accept_value_is_that_of_the_rfc() {
        assert_eq!(accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    fn asked(changes: &[(&str, Option<&str>)]) -> bool {
        let mut request = Request::builder()
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "WebSocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .body(())
            .unwrap();
        for (name, value) in changes {
            match value {
                Some(value) => {
                    let name = http::HeaderName::try_from(*name).unwrap();
                    request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap())
                }
                None => request.headers_mut().remove(*name),
            };
        }
        asked_for(&request.into_parts().0).is_some()
    }

    #[test]
    fn only_a_whole_websocket_handshake_is_one() {
        assert!(asked(&[]));
        for change in [
            ("connection", Some("keep-alive")),
            ("connection", None),
            ("upgrade", Some("h2c")),
            ("upgrade", Some("websocket, h2c")),
            ("upgrade", None),
            ("sec-websocket-version", Some("8")),
            ("sec-websocket-version", None),
            ("sec-websocket-key", None),
        ] {
            assert!(!asked(&[change]), "{change:?}");
        }
    }

    #[tokio::test]
    async fn bytes_are_piped_both_ways_until_both_ends_are_done() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut member) = tokio::io::duplex(64);
        let piping = tokio::spawn(pipe(near, far, 0));
        client.write_all(b"to the member").await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = String::new();
        member.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "to the member");
        member.write_all(b"to the client").await.unwrap();
        drop(member);
        text.clear();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "to the client");
        assert_eq!(piping.await.unwrap().unwrap(), (13, None));
    }

    #[tokio::test]
    async fn a_pipe_that_stands_still_ends() {
        let ((_client, near), (far, _member)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        let (sent, why) = pipe(near, far, 20).await.unwrap();
        assert_eq!((sent, why.as_deref()), (0, Some("nothing came for 20 ms")));
    }
}
