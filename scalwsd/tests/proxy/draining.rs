//! The orderly end: what is under way ends, and nothing new begins.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::client::{H2, connect, get, read_reply, send, within};
use crate::site::Site;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn requests_under_way_end_and_their_connections_close() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut busy = connect(site.http).await;
    within(busy.write_all(b"GET /gate HTTP/1.1\r\nHost: a.example\r\n\r\n")).await.unwrap();
    let mut h2 = H2::over(connect(site.http).await).await;
    assert_eq!(h2.get("http://a.example/").await.status, 200);
    let mut idle = connect(site.http).await;
    assert_eq!(send(&mut idle, GET).await.status, 200);
    until(|| backend.requests() == 3).await;
    let mut silent = connect(site.http).await;
    until(|| site.worker.proxy.open() == 4).await;

    let proxy = std::sync::Arc::clone(&site.worker.proxy);
    let draining = tokio::spawn(async move { site.worker.drain(Duration::from_secs(20)).await });
    let mut rest = Vec::new();
    within(idle.read_to_end(&mut rest)).await.unwrap();
    within(silent.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
    until(|| h2.is_closed()).await;
    until(|| proxy.open() == 1).await;
    backend.gate.add_permits(1);
    let reply = read_reply(&mut busy).await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(within(draining).await.unwrap(), "everything ended by itself");
}

#[tokio::test]
async fn a_request_on_a_kept_connection_that_crosses_the_end_is_answered_and_told_that_it_was_the_last() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut kept = connect(site.http).await;
    assert_eq!(send(&mut kept, GET).await.status, 200);
    let proxy = std::sync::Arc::clone(&site.worker.proxy);
    // Connections are told to end by then.
    site.worker.loader.drain().await;
    let reply = send(&mut kept, GET).await;
    assert_eq!(
        (reply.status, reply.header("connection")),
        (200, Some("close")),
        "it was sent before the end was known"
    );
    let mut rest = Vec::new();
    within(kept.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
    until(|| proxy.open() == 0).await;
}

#[tokio::test]
async fn the_drain_time_is_a_limit() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut busy = connect(site.http).await;
    within(busy.write_all(b"GET /hang HTTP/1.1\r\nHost: a.example\r\n\r\n")).await.unwrap();
    until(|| backend.requests() == 1).await;
    assert!(!within(site.worker.drain(Duration::from_millis(50))).await);
}

#[tokio::test]
async fn a_draining_proxy_is_not_ready_and_accepts_nothing() {
    let mut site = Site::new().await;
    site.serve("a.example", &[], |_| {}).await;
    assert!(site.worker.loader.is_ready());
    site.worker.loader.drain().await;
    assert!(!site.worker.loader.is_ready());
    // The keeper's socket is open still: the connection waits for another worker.
    let mut stream = TcpStream::connect(("127.0.0.1", site.http)).await.unwrap();
    stream.write_all(GET.as_bytes()).await.unwrap();
    let other = site.another_worker().await;
    assert_eq!(read_reply(&mut stream).await.status, 503, "the other worker serves it");
    other.loader.drain().await;
}

#[tokio::test]
async fn another_worker_serves_what_was_accepted() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let other = site.another_worker().await;
    assert_eq!(other.loader.config().root, site.worker.loader.config().root);
    assert_ne!(other.loader.config().start, site.worker.loader.config().start);
    site.worker.loader.drain().await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 503, "nobody wrote the member set down");
}

#[tokio::test]
async fn another_worker_has_the_member_sets_of_the_volume_up_to_a_torn_end() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[], |_| {}).await;
    let name: std::sync::Arc<str> = crate::site::set_name("a.example").to_name().as_str().into();
    let set = journal::members::MemberSet::new(&name, vec![backend.address.as_str().into()]);
    let mut lines = Vec::new();
    journal::Record::Journal { id: "m".to_owned() }.encode_into(&mut lines);
    set.record(&name).encode_into(&mut lines);
    lines.extend_from_slice(br#"{"set":{"name":"torn"#);
    std::fs::write(site.dir.path().join(journal::MEMBERS_FILE), lines).unwrap();
    let other = site.another_worker().await;
    site.worker.loader.drain().await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 200);
    assert_eq!(other.members.get(&name).unwrap().digest, set.digest);
}
