//! Requests that could mean two things are refused, and nothing of them reaches a backend.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::Backend;
use crate::client::{H2, connect, raw, send, within};
use crate::site::Site;

fn statuses(answers: &str) -> Vec<&str> {
    answers.lines().filter(|line| line.starts_with("HTTP/1.")).filter_map(|line| line.get(9..12)).collect()
}

#[tokio::test]
async fn ambiguous_requests_are_refused_and_the_connection_ends() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    site.serve("*", &[&backend.address], |_| {}).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for (what, status, head) in [
        (
            "two lengths",
            "400",
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "two lengths, turned",
            "400",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        ),
        (
            "another coding",
            "501",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "two codings",
            "501",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "coding at the wrong end",
            "400",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        ),
        (
            "two different lengths",
            "400",
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        ),
        ("a list of lengths", "400", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4, 4\r\n\r\nabcd"),
        ("a signed length", "400", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +4\r\n\r\nabcd"),
        ("no Host", "400", "GET / HTTP/1.1\r\n\r\n"),
        ("no Host in 1.0", "400", "GET / HTTP/1.0\r\n\r\n"),
        ("two Hosts", "400", "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n"),
        ("an empty Host", "400", "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        ("a user in Host", "400", "GET / HTTP/1.1\r\nHost: x@a.example\r\n\r\n"),
        ("target and Host differ", "400", "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ("target of another scheme", "400", "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ("a fragment", "400", "GET /a#b HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ("asterisk form", "400", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ("a tunnel", "405", "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n"),
        ("space before the colon", "400", "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n"),
        ("a folded line", "400", "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\r\n b\r\n\r\n"),
        ("a control character", "400", "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\0b\r\n\r\n"),
    ] {
        let answer = raw(site.http, format!("{head}{smuggled}").as_bytes()).await;
        assert_eq!(statuses(&answer), [status], "{what}: {answer}");
    }
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn a_refused_request_behind_a_good_one_does_not_touch_the_good_one() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let good = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let bad = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = raw(site.http, [good, bad, good].concat().as_bytes()).await;
    assert_eq!(statuses(&answer), ["200", "400"], "{answer}");
    assert_eq!(backend.requests(), 1);
}

#[tokio::test]
async fn no_padding_hides_the_next_request_from_the_guard() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let post = "POST / HTTP/1.1\r\nHost: a.example\r\n";
    let bad = format!("{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let (spaces, tabs, zeros, long) = (" ".repeat(200), "\t".repeat(200), "0".repeat(200), "x".repeat(200));
    let mut served = 0;
    for (what, good, statuses_wanted) in [
        ("spaces", format!("{post}Content-Length:{spaces}3\r\n\r\nabc"), &["200", "400"][..]),
        ("spaces behind", format!("{post}Content-Length: 3{spaces}\r\n\r\nabc"), &["200", "400"]),
        ("tabs", format!("{post}Content-Length:{tabs}3\r\n\r\nabc"), &["200", "400"]),
        ("zeros", format!("{post}Content-Length: {zeros}3\r\n\r\nabc"), &["200", "400"]),
        ("coding", format!("{post}Transfer-Encoding:{spaces}chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), &["200", "400"]),
        ("size", format!("{post}Transfer-Encoding: chunked\r\n\r\n{zeros}3\r\nabc\r\n0\r\n\r\n"), &["200", "400"]),
        ("extension", format!("{post}Transfer-Encoding: chunked\r\n\r\n3;{long}\r\nabc\r\n0\r\n\r\n"), &["200", "400"]),
        ("trailer", format!("{post}Transfer-Encoding: chunked\r\n\r\n0\r\n{long}: a\r\n\r\n"), &["200", "400"]),
        ("name", format!("{post}{long}: a\r\n\r\n"), &["200", "400"]),
        ("empty lines", format!("{}{post}\r\n", "\r\n".repeat(200)), &["200", "400"]),
        // hyper reads the bare LF as a part of the trailers, and so what follows it.
        (
            "bare LF in front of trailers",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n0\r\n\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            &["200", "400"],
        ),
    ] {
        let answer = raw(site.http, [good.as_str(), &bad].concat().as_bytes()).await;
        assert_eq!(statuses(&answer), statuses_wanted, "{what}: {answer}");
        served += 1;
        assert_eq!(backend.requests(), served, "{what}: a refused request reached the backend");
    }
}

#[tokio::test]
async fn what_http_2_drops_behind_a_hash_reaches_neither_the_router_nor_the_backend() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    // h2 makes a URI of `:path` before anybody else sees it, and with it the fragment goes. What is left is one text.
    for (path, left) in [("/a#b", "/a"), ("/a?q#b", "/a?q"), ("/a#/../b?q", "/a"), ("/a/../c#d", "/c")] {
        let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x01\x09a.example");
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(&[0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
        bytes.extend_from_slice(&block);
        let mut stream = connect(site.http).await;
        within(stream.write_all(&bytes)).await.unwrap();
        let mut body = Vec::new();
        loop {
            let mut head = [0; 9];
            within(stream.read_exact(&mut head)).await.unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            within(stream.read_exact(&mut payload)).await.unwrap();
            if head[3] == 0 {
                body.extend_from_slice(&payload);
            }
            if head[8] == 1 && head[4] & 1 == 1 {
                break;
            }
        }
        let echo: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(echo["target"], left, "{path}");
    }
}

#[tokio::test]
async fn paths_that_two_servers_may_read_differently_are_refused() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    for path in ["/%00", "/../x", "/a%", "/a%zz"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let reply = send(&mut connect(site.http).await, &request).await;
        assert_eq!(reply.status, 400, "{path}");
    }
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn only_websocket_upgrades_and_others_are_ignored() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let reply = send(&mut connect(site.http).await, request).await;
    assert_eq!(reply.status, 200);
    for gone in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(reply.saw(gone), [] as [&str; 0], "{gone}");
    }
}

#[tokio::test]
async fn http_2_requests_with_two_authorities_are_refused() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut h2 = H2::over(connect(site.http).await).await;
    let request = http::Request::get("http://a.example/").header("host", "b.example");
    let (reply, _) = h2.send(request.body(http_body_util::Full::default()).unwrap()).await;
    assert_eq!(reply.status, 400);
    assert_eq!(h2.get("http://a.example/").await.status, 200, "other requests of the connection go on");
    assert_eq!(backend.requests(), 1);
}

#[tokio::test]
async fn absolute_targets_that_agree_are_served() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let request = "GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let reply = send(&mut connect(site.http).await, request).await;
    assert_eq!(reply.echo()["target"], "/x?y");
}
