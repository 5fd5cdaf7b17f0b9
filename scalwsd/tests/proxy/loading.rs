//! Loading: one swap, one resource at a time, and nothing lost by what is wrong.

use std::net::TcpListener;
use std::sync::Arc;

use config::{Action, Kind, ListenerProtocol, ResourceId, UpstreamProtocol};
use journal::AdminClient;
use journal::admin::{ReloadRequest, codes};
use scalwsd::access_log::Destination;

use crate::backend::Backend;
use crate::client::{connect, get, read_reply, within};
use crate::site::{Edit, Site, act, forward_to, fragment, fragment_id, host, host_id, listener_on, pool, pool_id, raw};

#[tokio::test]
async fn a_request_under_way_keeps_what_it_started_with() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let port = site.http;
    let waiting = tokio::spawn(async move { get(port, "a.example", "/gate").await });
    within(async {
        while backend.requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let gone = [fragment_id("a.example"), pool_id("a.example"), host_id(site.http, "a.example")];
    site.commit(gone.map(Edit::Remove)).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 404);
    backend.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn the_admin_api_reloads_and_says_what_runs() {
    let mut site = Site::new().await;
    let socket = site.dir.path().join("admin");
    tokio::spawn(site.worker.admin().serve(scalwsd::admin::bind(&socket).unwrap()));
    let mut client = AdminClient::connect(&socket).await.unwrap();
    let request = site.write([host(site.http, "a.example", None)]);
    let answer = client.reload(&request).await.unwrap();
    assert_eq!((answer.changed, answer.not_live.len()), (1, 0));
    let config = client.config().await.unwrap();
    assert_eq!(
        (config.root, Some(config.commit), config.journal),
        (answer.root, request.commit, request.journal.clone())
    );
    assert_eq!(config.listening.len(), 2);
    assert!(client.ready().await.unwrap());
    // The same again is the same answer, and changes nothing.
    let again = client.reload(&request).await.unwrap();
    assert_eq!((again.root, again.changed), (answer.root, 0));
    let refused = client.reload(&ReloadRequest { commit: Some(99), ..request }).await.unwrap_err();
    assert!(refused.to_string().contains("99"), "{refused}");
    assert_eq!(client.config().await.unwrap().root, answer.root);
    let refused = client.reload(&ReloadRequest::default()).await.unwrap_err();
    assert!(refused.to_string().contains("journal and commit"), "{refused}");
    client.drain().await.unwrap();
    assert!(!client.ready().await.unwrap());
}

#[tokio::test]
async fn an_envelope_that_does_not_decode_refuses_the_whole_and_names_it() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let before = site.worker.loader.config();
    let broken = Edit::Foreign("fragment", "Ingress/t/x/x.example", r#"{"body":{"actions":[]}}"#);
    let error = site.commit_unusable([Edit::Remove(pool_id("a.example")), broken]).await;
    assert!(error.to_string().contains("Ingress/t/x/x.example"), "{error}");
    assert_eq!(site.worker.loader.config(), before);
    assert_eq!(get(site.http, "a.example", "/").await.status, 200);
}

#[tokio::test]
async fn an_unknown_kind_is_not_live_and_hurts_nothing() {
    let mut site = Site::new().await;
    let answer = site.commit([Edit::Foreign("wormhole", "t/x", "{}"), host(site.http, "a.example", None)]).await;
    assert_eq!((answer.not_live.len(), answer.not_live[0].resource.as_str()), (1, "wormhole/t/x"));
    assert_eq!(answer.not_live[0].code, codes::UNSUPPORTED);
}

#[tokio::test]
async fn listeners_come_and_go_without_a_restart() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let port = site.keeper.pin(0).unwrap();
    let edits = [
        listener_on(port, ListenerProtocol::Http),
        host(port, "b.example", None),
        fragment(&[port], "b.example", vec![("/", act(Action::Respond(204)))]),
    ];
    site.commit(edits).await;
    let mut open = connect(port).await;
    assert_eq!(crate::client::send(&mut open, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n").await.status, 204);
    assert_eq!(get(site.http, "b.example", "/").await.status, 404, "the other listener does not serve it");
    let id = ResourceId { kind: Kind::Listener, name: config::ListenerName::tcp(port).to_name() };
    site.commit([Edit::Remove(id)]).await;
    let mut rest = Vec::new();
    within(tokio::io::AsyncReadExt::read_to_end(&mut open, &mut rest)).await.unwrap();
    assert_eq!(rest, b"", "its connections end in order");
    assert_eq!(site.worker.loader.config().listening.len(), 2);
    assert_eq!(get(site.http, "a.example", "/").await.status, 200);
}

#[tokio::test]
async fn a_taken_port_is_reported_hurts_nothing_else_and_is_opened_when_it_is_free() {
    let mut site = Site::new().await;
    let other = TcpListener::bind(("::", 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    let edits = [
        listener_on(port, ListenerProtocol::Http),
        host(port, "a.example", None),
        fragment(&[port], "a.example", vec![("/", act(Action::Respond(204)))]),
    ];
    let answer = site.commit(edits).await;
    assert_eq!(answer.not_live[0].resource, format!("listener/tcp/{port}"));
    assert_eq!(answer.not_live[0].code, codes::PORT_TAKEN);
    assert!(site.worker.loader.is_ready(), "it is reported, so the proxy is ready");
    let maintaining = tokio::spawn(Arc::clone(&site.worker.loader).maintain());
    drop(other);
    within(async {
        while !site.not_live().await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    maintaining.abort();
    assert_eq!(get(port, "a.example", "/").await.status, 204);
}

#[tokio::test]
async fn an_empty_volume_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let (follower, accepted) = journal::Follower::open(&dir.path().join("config.jsonl")).unwrap();
    let metrics: Arc<scalwsd::metrics::Metrics> = Arc::default();
    let log = scalwsd::access_log::AccessLog::open(&Destination::Off, Arc::clone(&metrics)).unwrap();
    let worker = scalwsd::worker::Worker::new(
        scalwsd::loader::Source::Volume(Box::new(follower)),
        scalwsd::keys::Keys::Folder(dir.path().join("keys")),
        scalwsd::listeners::Sockets::Own,
        scalwsd::dns::AddressRules::default(),
        metrics,
        log,
    )
    .unwrap();
    worker.loader.load_volume(accepted, Some(dir.path().join("members.jsonl"))).await.unwrap();
    assert!(!worker.loader.is_ready());
    assert_eq!(worker.loader.config().commit, 0);
}

#[tokio::test]
async fn the_access_log_names_route_member_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut site = Site::with_log(Destination::File(path.clone())).await;
    let backend = Backend::start("one").await;
    site.serve("a.example", &[&backend.address], |_| {}).await;
    assert_eq!(get(site.http, "a.example", "/x?y").await.status, 200);
    assert_eq!(get(site.http, "b.example", "/").await.status, 404);
    let text = within(async {
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.lines().count() == 2 {
                return text;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let good = lines.iter().find(|l| l["status"] == 200).unwrap();
    assert_eq!(
        (&good["host"], &good["target"], &good["member"]),
        (&"a.example".into(), &"/x?y".into(), &backend.address.clone().into())
    );
    assert_eq!(good["fragment"], fragment_id("a.example").name.as_str());
    assert!(lines.iter().any(|l| l["status"] == 404 && l["why"] == "no such host"));
}

#[tokio::test]
async fn a_change_costs_the_same_with_few_and_many_resources() {
    let mut site = Site::new().await;
    let many = |site: &Site, from: usize, to: usize| -> Vec<Edit> {
        let http = site.http;
        (from..to)
            .flat_map(|n| {
                let domain = format!("h{n}.example");
                let route = vec![("/", act(Action::Forward(forward_to("shared"))))];
                [host(http, &domain, None), fragment(&[http], &domain, route)]
            })
            .collect()
    };
    site.commit([pool("shared", UpstreamProtocol::Http1)]).await;
    let mut best = Vec::new();
    for size in [100, 10_000] {
        let from = if size == 100 { 0 } else { 100 };
        let edits = many(&site, from, size);
        site.commit(edits).await;
        // The least of several: what disturbs a measurement only ever makes it longer.
        let mut least = std::time::Duration::MAX;
        for n in 0..20 {
            let route = vec![("/", act(Action::Respond(200 + n)))];
            let request = site.write([fragment(&[site.http], "h1.example", route)]);
            let began = std::time::Instant::now();
            site.worker.loader.reload(&request).await.unwrap();
            least = least.min(began.elapsed());
            site.accept();
        }
        best.push(least);
    }
    assert!(best[1] < best[0] * 4, "{best:?}: a change grows with what is loaded");
}

#[tokio::test]
async fn a_connection_that_says_nothing_reads_no_request() {
    // An answer to half a preface of HTTP/2 is that of HTTP/1: a request that cannot be read.
    let site = Site::new().await;
    let mut stream = connect(site.http).await;
    within(tokio::io::AsyncWriteExt::write_all(&mut stream, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.status, 400);
}

#[cfg(all(feature = "poison", debug_assertions))]
#[tokio::test]
async fn a_poisoned_body_is_refused_by_its_trigger() {
    let mut site = Site::new().await;
    let mut route = act(Action::Respond(200));
    route.response_headers.set = vec![("x-scalws-test-poison".to_owned(), "refuse".to_owned())];
    let edits = [host(site.http, "a.example", None), fragment(&[site.http], "a.example", vec![("/", route)])];
    let answer = site.commit(edits).await;
    assert_eq!(answer.not_live[0].code, codes::INVALID);
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
}

#[tokio::test]
async fn a_withheld_fragment_is_live_as_what_it_is() {
    let mut site = Site::new().await;
    let id = fragment_id("a.example");
    let claims = crate::site::claims(&[site.http], "a.example", &[config::PathMatch::Prefix("/".to_owned())]);
    let reason = config::Withheld { code: "AnnotationRefused".to_owned(), message: "not served yet".to_owned() };
    let withheld = config::Envelope::without_body(id.clone(), Vec::new(), Some(claims.clone()), reason);
    let answer = site.commit([host(site.http, "a.example", None), Edit::Put(withheld)]).await;
    assert_eq!(answer.not_live, [], "the owner knows already");
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    site.commit([raw(id, Some(claims), r#"{"actions":[{"action":{"respond":204}}]}"#)]).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 204);
}
