//! Forwarding in all combinations of HTTP versions, and what reaches both ends.

use bytes::Bytes;
use config::{Action, HeaderChanges, PathMatch, PathRewrite, Redirect, RedirectPath, UpstreamProtocol};
use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::Backend;
use crate::client::{H2, Tls, connect, get, read_reply, send, within};
use crate::site::{Site, act, forward_to, fragment, fragment_of, host, pool, terminate};

#[tokio::test]
async fn http_1_is_forwarded_with_what_the_upstream_needs_to_know() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut stream = connect(site.http).await;
    let request = format!(
        "POST /p%2fq?x=1 HTTP/1.1\r\nHost: A.example:{}\r\nContent-Length: 5\r\nX-Forwarded-For: 6.6.6.6\r\nConnection: x-a\r\nX-A: 1\r\nTE: gzip\r\n\r\nhello",
        site.http
    );
    let reply = send(&mut stream, &request).await;
    let echo = reply.echo();
    assert_eq!((reply.status, reply.header("x-backend")), (200, Some("one")));
    assert_eq!(
        (echo["method"].as_str(), echo["target"].as_str(), echo["body"].as_str()),
        (Some("POST"), Some("/p%2fq?x=1"), Some("hello"))
    );
    assert_eq!(reply.saw("host"), [format!("A.example:{}", site.http)]);
    assert_eq!(reply.saw("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(reply.saw("x-forwarded-proto"), ["http"]);
    assert_eq!(reply.saw("x-forwarded-port"), [site.http.to_string()]);
    for gone in ["x-a", "te", "connection"] {
        assert_eq!(reply.saw(gone), [] as [&str; 0], "{gone}");
    }
    // The connections on both sides are used again.
    let again = send(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert_eq!((again.status, backend.requests(), backend.connections()), (200, 2, 1));
}

#[tokio::test]
async fn headers_of_one_hop_do_not_come_back_from_the_upstream() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let reply = get(site.http, "a.example", "/hopby").await;
    assert_eq!((reply.header("x-kept"), reply.header("x-mine"), reply.header("keep-alive")), (Some("1"), None, None));
}

#[tokio::test]
async fn http_2_by_prior_knowledge_is_forwarded_as_http_1() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut h2 = H2::over(connect(site.http).await).await;
    let request = Request::post("http://a.example/x").body(Full::new(Bytes::from("hello"))).unwrap();
    let (reply, _) = h2.send(request).await;
    assert_eq!(reply.echo()["version"], "HTTP/1.1");
    assert_eq!(reply.echo()["body"], "hello");
    assert_eq!(reply.saw("host"), ["a.example"]);
}

async fn h2_site(backend: &Backend) -> Site {
    let mut site = Site::new().await;
    site.members("grpc", &[&backend.address]);
    let ports = [site.http, site.https];
    let forward = act(Action::Forward(forward_to("grpc")));
    let edits = [
        pool("grpc", UpstreamProtocol::H2),
        host(ports[0], "g.example", None),
        host(ports[1], "g.example", terminate(&[])),
        fragment(&ports, "g.example", vec![("/", forward)]),
    ];
    assert_eq!(site.commit(edits).await.not_live, []);
    site
}

#[tokio::test]
async fn grpc_passes_over_tls_and_without_with_its_trailers() {
    let backend = Backend::start("grpc").await;
    let site = h2_site(&backend).await;
    let tls = Tls { alpn: &["h2"], ..Tls::default() }.connect(site.https, Some("g.example")).await.unwrap();
    for mut h2 in [H2::over(connect(site.http).await).await, H2::over(tls).await] {
        let request = Request::post("https://g.example/trailers")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from("x")))
            .unwrap();
        let (reply, trailers) = h2.send(request).await;
        assert_eq!(reply.echo()["version"], "HTTP/2.0");
        assert_eq!(reply.echo()["authority"], "g.example");
        assert_eq!(reply.saw("te"), ["trailers"]);
        assert_eq!(trailers.unwrap()["grpc-status"], "0");
    }
    assert_eq!(backend.connections(), 1, "one connection carries all requests");
}

#[tokio::test]
async fn http_1_reaches_members_that_speak_http_2() {
    let backend = Backend::start("grpc").await;
    let site = h2_site(&backend).await;
    let reply = get(site.http, "g.example", "/x").await;
    assert_eq!((reply.status, reply.echo()["version"].as_str()), (200, Some("HTTP/2.0")));
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut stream = connect(site.http).await;
    within(stream.write_all(b"GET /stream HTTP/1.1\r\nHost: a.example\r\n\r\n")).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(within(stream.read_u8()).await.unwrap());
    }
    backend.gate.add_permits(1);
    while !seen.ends_with(b"second\r\n") {
        seen.push(within(stream.read_u8()).await.unwrap());
    }
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_it_when_its_body_is_wanted() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut stream = connect(site.http).await;
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let first = send(&mut stream, head).await;
    assert_eq!(first.status, 100);
    let reply = send(&mut stream, "hello").await;
    assert_eq!((reply.status, reply.echo()["body"].as_str()), (200, Some("hello")));
    assert_eq!(reply.saw("expect"), [] as [&str; 0]);
}

#[tokio::test]
async fn head_requests_have_no_body_and_keep_the_connection() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let mut stream = connect(site.http).await;
    within(stream.write_all(b"HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: b\r\n\r\n"))
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"));
    assert_eq!(read_reply(&mut stream).await.status, 404);
}

#[tokio::test]
async fn routes_change_path_host_and_headers() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.members("s", &[&backend.address]);
    let pair = |n: &str, v: &str| (n.to_owned(), v.to_owned());
    let mut prefix = forward_to("s");
    prefix.path = Some(PathRewrite::Prefix("/new".to_owned()));
    prefix.host = Some("inner.example:81".to_owned());
    prefix.request_headers =
        HeaderChanges { remove: vec!["x-gone".to_owned()], set: vec![pair("x-set", "1")], add: Vec::new() };
    let mut template = forward_to("s");
    template.path = Some(PathRewrite::Template("/t/$2/$1".to_owned()));
    let mut changed = act(Action::Forward(prefix));
    changed.response_headers =
        HeaderChanges { remove: vec!["x-backend".to_owned()], set: vec![pair("x-answer", "2")], add: Vec::new() };
    let paths = [PathMatch::Prefix("/old".to_owned()), PathMatch::Regex("/r/([a-z]+)/([0-9]+)".to_owned())];
    let edits = [
        pool("s", UpstreamProtocol::Http1),
        host(site.http, "a.example", None),
        fragment_of(&[site.http], "a.example", &paths, vec![changed, act(Action::Forward(template))]),
    ];
    assert_eq!(site.commit(edits).await.not_live, []);
    let request = "GET /old/x?q=%20 HTTP/1.1\r\nHost: a.example\r\nX-Gone: 1\r\nX-Set: 0\r\n\r\n";
    let reply = send(&mut connect(site.http).await, request).await;
    assert_eq!(reply.echo()["target"], "/new/x?q=%20");
    assert_eq!((reply.saw("host"), reply.saw("x-set")), (vec!["inner.example:81".to_owned()], vec!["1".to_owned()]));
    assert_eq!(reply.saw("x-gone"), [] as [&str; 0]);
    assert_eq!((reply.header("x-backend"), reply.header("x-answer")), (None, Some("2")));
    assert_eq!(reply.saw("x-forwarded-host"), ["a.example"], "it says what the client asked for");
    let reply = get(site.http, "a.example", "/r/abc/42?z").await;
    assert_eq!(reply.echo()["target"], "/t/42/abc?z");
}

#[tokio::test]
async fn a_new_prefix_stands_for_what_the_router_says_was_covered() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.members("s", &[&backend.address]);
    let mut prefix = forward_to("s");
    prefix.path = Some(PathRewrite::Prefix("/new".to_owned()));
    let redirect = Redirect {
        status: 302,
        scheme: None,
        host: None,
        port: None,
        path: Some(RedirectPath::Prefix("/new".to_owned())),
    };
    let spellings = ["/a b", "/100%", "/%7eme", "/u%40h", "/g:v", "/\u{fc}", "/a%2fb", "/x//y", "/plain"];
    let requests = ["/a%20b", "/100%25", "/~me", "/u@h", "/g%3Av", "/%C3%BC", "/a%2Fb", "/x//y", "/pl%61in"];
    for (action, redirects) in [(Action::Forward(prefix), false), (Action::Redirect(redirect), true)] {
        let routes = spellings.iter().map(|spelling| (*spelling, act(action.clone()))).collect();
        let edits = [
            pool("s", UpstreamProtocol::Http1),
            host(site.http, "a.example", None),
            fragment(&[site.http], "a.example", routes),
        ];
        assert_eq!(site.commit(edits).await.not_live, []);
        for request in requests {
            for (rest, wanted) in [("/x", "/new/x"), ("/x%40y?q", "/new/x%40y?q"), ("", "/new"), ("/", "/new/")] {
                let reply = get(site.http, "a.example", &format!("{request}{rest}")).await;
                if redirects {
                    let location = reply.header("location").unwrap_or_default();
                    assert_eq!(location, format!("http://a.example:{}{wanted}", site.http), "{request}{rest}");
                } else {
                    assert_eq!(reply.echo()["target"], *wanted, "{request}{rest}");
                }
            }
        }
    }
}

#[tokio::test]
async fn what_was_matched_is_what_is_served_when_dots_lead_elsewhere() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    for (sent, forwarded) in [("/a/../b?q", "/b?q"), ("/a/%2e%2E/b", "/b"), ("/a%2Db", "/a%2Db"), ("/a//b", "/a//b")] {
        let reply = get(site.http, "a.example", sent).await;
        assert_eq!(reply.echo()["target"], forwarded, "{sent}");
    }
}
