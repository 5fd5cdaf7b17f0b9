//! WebSocket: only a whole handshake that the member answers rightly opens a tunnel.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::{read_head, scripted};
use crate::client::{connect, read_reply, send, within};
use crate::site::Site;

const ASK: &str = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

/// Answers with this, then echoes bytes in upper case.
async fn member(answer: &'static str) -> String {
    let script = move |_, mut stream: TcpStream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.to_lowercase().contains("\r\nupgrade: websocket\r\n"), "{head}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut bytes = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            if stream.write_all(&bytes[..read].to_ascii_uppercase()).await.is_err() {
                return;
            }
        }
    };
    scripted(script).await.0
}

#[tokio::test]
async fn bytes_go_both_ways_after_the_handshake() {
    let mut site = Site::new().await;
    site.serve("a.example", &[&member(ACCEPT).await], |_| {}).await;
    let mut stream = connect(site.http).await;
    let reply = send(&mut stream, ASK).await;
    assert_eq!((reply.status, reply.header("sec-websocket-protocol")), (101, Some("chat")));
    assert_eq!((reply.header("upgrade"), reply.header("connection")), (Some("websocket"), Some("Upgrade")));
    // What looks like a smuggled head is only bytes here.
    for text in ["hello", "post / http/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"] {
        within(stream.write_all(text.as_bytes())).await.unwrap();
        let mut back = vec![0; text.len()];
        within(stream.read_exact(&mut back)).await.unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), text.to_uppercase());
    }
    drop(stream);
    within(site.worker.proxy.all_closed()).await;
}

#[tokio::test]
async fn a_wrong_answer_opens_no_tunnel() {
    let mut site = Site::new().await;
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
    site.serve("a.example", &[&member(wrong).await], |_| {}).await;
    let reply = send(&mut connect(site.http).await, ASK).await;
    assert_eq!(reply.status, 502);
}

#[tokio::test]
async fn a_member_that_does_not_upgrade_answers_as_usual() {
    let mut site = Site::new().await;
    let plain = "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno";
    site.serve("a.example", &[&member(plain).await], |_| {}).await;
    let mut stream = connect(site.http).await;
    let reply = send(&mut stream, ASK).await;
    assert_eq!((reply.status, reply.body.as_str()), (426, "no"));
    // And what follows on the connection is looked at as strictly as before.
    let smuggled = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(send(&mut stream, smuggled).await.status, 400);
}

#[tokio::test]
async fn a_member_that_switches_without_being_asked_is_502() {
    let mut site = Site::new().await;
    let script = |_, mut stream: TcpStream| async move {
        read_head(&mut stream).await;
        stream.write_all(ACCEPT.as_bytes()).await.unwrap();
        read_head(&mut stream).await;
    };
    site.serve("a.example", &[&scripted(script).await.0], |_| {}).await;
    let mut stream = connect(site.http).await;
    assert_eq!(send(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status, 502);
}

#[tokio::test]
async fn a_tunnel_that_stands_still_is_closed() {
    let mut site = Site::new().await;
    site.serve("a.example", &[&member(ACCEPT).await], |f| f.timeouts.idle_ms = Some(50)).await;
    let mut stream = connect(site.http).await;
    within(stream.write_all(ASK.as_bytes())).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.status, 101);
    let mut rest = Vec::new();
    within(stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}
