//! TLS: the name decides, certificates change without a lost connection, and nothing laxer steps in.

use config::{ClientAuth, HostTls, SecretDigest, UnknownName, UpstreamProtocol};
use journal::admin::codes;

use crate::backend::Backend;
use crate::client::{H2, Tls, send, served};
use crate::site::{
    Edit, Site, act, certificate, certificate_name, forward_to, fragment, host, listener_with_default, pool, raw,
    terminate,
};

struct Pair {
    chain: String,
    key: String,
    der: Vec<u8>,
}

fn pair(name: &str) -> Pair {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    Pair { chain: made.cert.pem(), key: made.signing_key.serialize_pem(), der: made.cert.der().to_vec() }
}

/// A certificate resource with its key on the volume.
fn with_key(site: &Site, name: &str, pair: &Pair) -> Edit {
    certificate(name, &pair.chain, site.write_key(&pair.key))
}

async fn serve(site: &mut Site, backend: &Backend, domain: &str, tls: Option<HostTls>) {
    site.members("s", &[&backend.address]);
    let ports = [site.http, site.https];
    let edits = [
        pool("s", UpstreamProtocol::Http1),
        host(ports[0], domain, None),
        host(ports[1], domain, tls),
        fragment(&ports, domain, vec![("/", act(config::Action::Forward(forward_to("s"))))]),
    ];
    site.commit(edits).await;
}

#[tokio::test]
async fn each_name_gets_its_certificate_in_any_case_and_version() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let (a, wild) = (pair("a.example"), pair("*.example"));
    let edits = [with_key(&site, "a", &a), with_key(&site, "wild", &wild)];
    site.commit(edits).await;
    serve(&mut site, &backend, "a.example", terminate(&["a"])).await;
    serve(&mut site, &backend, "*.example", terminate(&["wild"])).await;
    for version in rustls::ALL_VERSIONS {
        let tls = Tls { versions: std::slice::from_ref(version), ..Tls::default() };
        for (name, wanted) in [("a.example", &a), ("A.Example", &a), ("b.example", &wild)] {
            let mut stream = tls.connect(site.https, Some(name)).await.unwrap();
            assert!(served(&stream) == wanted.der, "{name} {version:?}");
            let reply = send(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
            assert_eq!((reply.status, reply.saw("x-forwarded-proto")), (200, vec!["https".to_owned()]));
        }
    }
}

#[tokio::test]
async fn http_2_is_negotiated() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let a = pair("a.example");
    site.commit([with_key(&site, "a", &a)]).await;
    serve(&mut site, &backend, "a.example", terminate(&["a"])).await;
    let tls = Tls { alpn: &["h2", "http/1.1"], ..Tls::default() };
    let mut h2 = H2::over(tls.connect(site.https, Some("a.example")).await.unwrap()).await;
    assert_eq!(h2.get("https://a.example/").await.status, 200);
    Tls { alpn: &["spdy/3"], ..Tls::default() }.connect(site.https, Some("a.example")).await.unwrap_err();
}

#[tokio::test]
async fn a_new_certificate_is_served_at_once_and_open_connections_go_on() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let (old, new) = (pair("a.example"), pair("a.example"));
    site.commit([with_key(&site, "a", &old)]).await;
    serve(&mut site, &backend, "a.example", terminate(&["a"])).await;
    let mut open = Tls::default().connect(site.https, Some("a.example")).await.unwrap();
    assert!(served(&open) == old.der);
    site.commit([with_key(&site, "a", &new)]).await;
    assert!(served(&Tls::default().connect(site.https, Some("a.example")).await.unwrap()) == new.der);
    assert_eq!(send(&mut open, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn names_without_a_host_and_no_name_get_the_default_certificate_and_404() {
    let (site, unknown) = (Site::new().await, Some("unknown.example"));
    let first = Tls::default().connect(site.https, unknown).await.unwrap();
    let mut second = Tls::default().connect(site.https, None).await.unwrap();
    assert!(served(&first) == served(&second), "one certificate for the life of the process");
    assert_eq!(send(&mut second, "GET / HTTP/1.1\r\nHost: unknown.example\r\n\r\n").await.status, 404);
}

#[tokio::test]
async fn a_default_certificate_that_comes_with_its_listener_is_served_at_once() {
    let (mut site, own) = (Site::new().await, pair("own.example"));
    let listener = listener_with_default(site.https, "own");
    let answer = site.commit([with_key(&site, "own", &own), listener]).await;
    assert_eq!(answer.not_live, []);
    let unknown = Tls::default().connect(site.https, Some("unknown.example")).await.unwrap();
    assert!(served(&unknown) == own.der);
}

#[tokio::test]
async fn a_listener_can_refuse_unknown_names() {
    let mut site = Site::new().await;
    let id = config::ResourceId { kind: config::Kind::Listener, name: config::ListenerName::tcp(site.https).to_name() };
    site.commit([raw(id, None, r#"{"protocol":"tls","unknownName":"refuse"}"#)]).await;
    for name in [Some("unknown.example"), None] {
        let error = Tls::default().connect(site.https, name).await.unwrap_err();
        assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_live_leads_to_the_fallback_of_its_host() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let (a, other) = (pair("a.example"), pair("other.example"));
    let key_of_other = site.write_key(&other.key);
    let answer = site.commit([certificate("a", &a.chain, key_of_other)]).await;
    assert_eq!(answer.not_live[0].code, codes::INVALID);
    assert!(!answer.not_live[0].message.contains("PRIVATE"), "{:?}", answer.not_live);
    serve(&mut site, &backend, "a.example", terminate(&["a"])).await;
    let unknown = Tls::default().connect(site.https, Some("unknown.example")).await.unwrap();
    let fallen = Tls::default().connect(site.https, Some("a.example")).await.unwrap();
    assert!(served(&fallen) == served(&unknown));
    let refuse = HostTls::Terminate {
        certificates: vec![certificate_name("a")],
        fallback: UnknownName::Refuse,
        client_auth: None,
    };
    site.commit([host(site.https, "a.example", Some(refuse))]).await;
    Tls::default().connect(site.https, Some("a.example")).await.unwrap_err();
    site.commit([with_key(&site, "a", &a)]).await;
    assert!(served(&Tls::default().connect(site.https, Some("a.example")).await.unwrap()) == a.der);
}

#[tokio::test]
async fn the_next_certificate_serves_when_the_first_is_not_live() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let second = pair("a.example");
    site.commit([with_key(&site, "second", &second)]).await;
    serve(&mut site, &backend, "a.example", terminate(&["first", "second"])).await;
    assert_eq!(site.not_live().await[0].code, codes::MISSING);
    assert!(served(&Tls::default().connect(site.https, Some("a.example")).await.unwrap()) == second.der);
}

#[tokio::test]
async fn a_missing_key_file_blames_nobody_and_is_tried_again() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let a = pair("a.example");
    let digest = SecretDigest(journal::Digest::of(a.key.as_bytes()).to_string().into());
    let answer = site.commit([certificate("a", &a.chain, digest)]).await;
    assert_eq!(answer.not_live[0].code, codes::KEY_MISSING);
    serve(&mut site, &backend, "a.example", terminate(&["a"])).await;
    let maintaining = tokio::spawn(std::sync::Arc::clone(&site.worker.loader).maintain());
    site.write_key(&a.key);
    crate::client::within(async {
        while !site.not_live().await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    maintaining.abort();
    assert!(served(&Tls::default().connect(site.https, Some("a.example")).await.unwrap()) == a.der);
}

#[tokio::test]
async fn a_host_with_client_authentication_is_never_reached_without_it() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    let auth = ClientAuth { authorities: SecretDigest("a".repeat(64).into()), optional: false };
    let strict = HostTls::Terminate { certificates: vec![], fallback: UnknownName::Default, client_auth: Some(auth) };
    serve(&mut site, &backend, "open.example", terminate(&[])).await;
    serve(&mut site, &backend, "strict.example", Some(strict.clone())).await;
    assert_eq!(site.not_live().await[0].code, codes::UNSUPPORTED);
    Tls::default().connect(site.https, Some("strict.example")).await.unwrap_err();
    let mut open = Tls::default().connect(site.https, Some("open.example")).await.unwrap();
    assert_eq!(send(&mut open, "GET / HTTP/1.1\r\nHost: open.example\r\n\r\n").await.status, 200);
    // The policy of the host changes under an open connection.
    site.commit([host(site.https, "open.example", Some(strict))]).await;
    let reply = send(&mut open, "GET / HTTP/1.1\r\nHost: open.example\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("connection")), (421, Some("close")));
    assert_eq!(backend.requests(), 1);
}
