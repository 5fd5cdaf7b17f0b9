//! What happens when members fail: tries that are safe, none that are not, and time limits.

use std::time::Duration;

use config::Timeouts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::{Backend, read_head, refusing, scripted};
use crate::client::{connect, get, send, within};
use crate::site::Site;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_refused_connection_costs_no_request_not_even_one_with_a_body() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&refusing(), &refusing(), &backend.address], |_| {}).await;
    for _ in 0..20 {
        let request = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
        let reply = send(&mut connect(site.http).await, request).await;
        assert_eq!((reply.status, reply.echo()["body"].as_str()), (200, Some("hello")));
    }
    assert_eq!(backend.requests(), 20);
}

#[tokio::test]
async fn tries_are_limited_and_then_it_is_502() {
    let mut site = Site::new().await;
    site.serve("a.example", &[&refusing(), &refusing(), &refusing(), &refusing()], |f| f.retries = 2).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 502);
    let text = site.worker.proxy.metrics.text();
    assert!(text.contains("scalwsd_upstream_retries_total 2\n"), "{text}");
}

/// Answers one request, then dies on the second of each connection. Connections after `good` do not answer at all.
async fn dies_when_used_again(good: usize) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    scripted(move |number, mut stream| async move {
        read_head(&mut stream).await;
        if number < good {
            stream.write_all(OK).await.unwrap();
            read_head(&mut stream).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_kept_connection_that_dies_is_tried_again_for_requests_that_do_nothing_twice() {
    let mut site = Site::new().await;
    let (address, connections) = dies_when_used_again(2).await;
    site.serve("a.example", &[&address], |_| {}).await;
    let mut stream = connect(site.http).await;
    for _ in 0..2 {
        assert_eq!(send(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status, 200);
    }
    assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_that_does_something_is_never_sent_twice() {
    for request in [
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut site = Site::new().await;
        let (address, connections) = dies_when_used_again(9).await;
        site.serve("a.example", &[&address], |_| {}).await;
        let mut stream = connect(site.http).await;
        assert_eq!(send(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status, 200);
        assert_eq!(send(&mut stream, request).await.status, 502, "{request}");
        assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_new_connection_that_dies_before_an_answer_is_502_at_once() {
    let mut site = Site::new().await;
    let (address, connections) = dies_when_used_again(0).await;
    site.serve("a.example", &[&address], |_| {}).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 502);
    assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}

fn limits(idle_ms: u64, request_ms: u64) -> impl FnOnce(&mut config::ForwardAction) {
    move |forward| {
        forward.timeouts = Timeouts { connect_ms: None, idle_ms: Some(idle_ms), request_ms: Some(request_ms) };
    }
}

#[tokio::test]
async fn a_member_that_says_nothing_is_504_by_either_limit() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("idle.example", &[&backend.address], limits(50, 0)).await;
    site.serve("whole.example", &[&backend.address], limits(0, 50)).await;
    for host in ["idle.example", "whole.example"] {
        assert_eq!(get(site.http, host, "/hang").await.status, 504, "{host}");
    }
    assert_eq!(get(site.http, "idle.example", "/").await.status, 200);
}

#[tokio::test]
async fn an_answer_that_stands_still_is_cut_and_never_looks_whole() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], limits(50, 0)).await;
    let mut stream = connect(site.http).await;
    within(stream.write_all(b"GET /stream HTTP/1.1\r\nHost: a.example\r\n\r\n")).await.unwrap();
    let mut text = Vec::new();
    let _reset = within(stream.read_to_end(&mut text)).await;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("first") && !text.ends_with("0\r\n\r\n"), "{text}");
    assert!(site.worker.proxy.metrics.text().contains("upstream_answers_cut_total 1\n"));
}

#[tokio::test]
async fn a_client_that_stops_sending_is_408() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], limits(100, 0)).await;
    let mut stream = connect(site.http).await;
    let reply = send(&mut stream, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\nhalf").await;
    assert_eq!(reply.status, 408);
}

#[tokio::test]
async fn a_slow_body_that_moves_is_not_late() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], limits(400, 0)).await;
    let mut stream = connect(site.http).await;
    within(stream.write_all(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n")).await.unwrap();
    let began = std::time::Instant::now();
    for _ in 0..10 {
        // sleep: the pause is what is tested: each is well below the limit, all together are above it.
        tokio::time::sleep(Duration::from_millis(60)).await;
        within(stream.write_all(b"x")).await.unwrap();
    }
    assert!(began.elapsed() > Duration::from_millis(400));
    assert_eq!(send(&mut stream, "").await.status, 200);
}
