//! What requests get by host, route and action, live or not.

use config::{Action, HostTls, Kind, PathMatch, PolicyName, Redirect, RedirectPath, Share, ToHttps, UpstreamProtocol};
use journal::admin::codes;

use crate::backend::Backend;
use crate::client::{Tls, connect, get, send};
use crate::site::{
    Edit, Site, act, claims, forward_to, fragment, fragment_id, fragment_of, host, host_id, pool, pool_id, pool_name,
    raw, terminate,
};

#[tokio::test]
async fn unknown_hosts_and_routes_are_404_and_empty_pools_503() {
    let mut site = Site::new().await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 404);
    site.serve("a.example", &[], |_| {}).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    let only = fragment(&[site.http], "b.example", vec![("/x", act(Action::Respond(204)))]);
    site.commit([host(site.http, "b.example", None), only]).await;
    assert_eq!(get(site.http, "b.example", "/x/y").await.status, 204);
    let missed = get(site.http, "b.example", "/y").await;
    assert_eq!((missed.status, missed.body.as_str()), (404, "404 Not Found\n"));
}

#[tokio::test]
async fn a_dead_fragment_keeps_its_claims_and_answers_503() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("a.example", &[&backend.address], |_| {}).await;
    let paths = [PathMatch::Prefix("/dead".to_owned())];
    let claims = claims(&[site.http], "a.example", &paths);
    let id = config::ResourceId {
        kind: Kind::Fragment,
        name: config::FragmentName {
            source: config::ObjectRef { kind: "Ingress".into(), namespace: "t".into(), name: "dead".into() },
            domain: "a.example".parse().unwrap(),
        }
        .to_name(),
    };
    let answer = site.commit([raw(id.clone(), Some(claims), r#"{"actions":[{"action":{"teleport":{}}}]}"#)]).await;
    assert_eq!((answer.not_live.len(), answer.not_live[0].code.as_str()), (1, codes::UNSUPPORTED));
    assert_eq!(answer.not_live[0].resource, id.to_string());
    assert_eq!(get(site.http, "a.example", "/dead/x").await.status, 503);
    assert_eq!(get(site.http, "a.example", "/alive").await.status, 200);
    let answer = site.commit([Edit::Remove(id)]).await;
    assert_eq!(answer.not_live, []);
    assert_eq!(get(site.http, "a.example", "/dead/x").await.status, 200);
}

#[tokio::test]
async fn a_match_that_cannot_be_built_is_claimed_as_its_literal_prefix_and_answers_503() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.members("s", &[&backend.address]);
    let paths = [PathMatch::Regex("/ab(".to_owned()), PathMatch::Prefix("/".to_owned())];
    let forward = || act(Action::Forward(forward_to("s")));
    let edits = [
        pool("s", UpstreamProtocol::Http1),
        host(site.http, "a.example", None),
        fragment_of(&[site.http], "a.example", &paths, vec![forward(), forward()]),
    ];
    let answer = site.commit(edits).await;
    assert_eq!(answer.not_live[0].resource, fragment_id("a.example").to_string());
    assert!(answer.not_live[0].message.starts_with("matches[0]"), "{:?}", answer.not_live);
    assert_eq!(get(site.http, "a.example", "/c").await.status, 200);
    assert_eq!(get(site.http, "a.example", "/abc").await.status, 503);
}

#[tokio::test]
async fn a_missing_pool_answers_503_for_its_share_only_and_lives_when_it_comes() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.members("s", &[&backend.address]);
    let edits = [
        host(site.http, "a.example", None),
        fragment(&[site.http], "a.example", vec![("/", act(Action::Forward(forward_to("s"))))]),
    ];
    let answer = site.commit(edits).await;
    assert_eq!(answer.not_live[0].code, codes::MISSING);
    assert!(answer.not_live[0].message.contains(&pool_id("s").to_string()), "{:?}", answer.not_live);
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    let answer = site.commit([pool("s", UpstreamProtocol::Http1)]).await;
    assert_eq!(answer.not_live, []);
    assert_eq!(get(site.http, "a.example", "/").await.status, 200);
    site.commit([raw(pool_id("s"), None, r#"{"members":{"nowhere":1}}"#)]).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    let answer = site.commit([Edit::Remove(pool_id("s"))]).await;
    assert_eq!((answer.not_live.len(), answer.not_live[0].code.as_str()), (1, codes::MISSING));
}

#[tokio::test]
async fn shares_without_weight_get_nothing_and_all_without_weight_is_500() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.members("s", &[&backend.address]);
    let shares = |weights: [u32; 2]| {
        let mut forward = forward_to("s");
        forward.shares = vec![
            Share::Pool { name: pool_name("s"), weight: weights[0] },
            Share::Status { status: 418, weight: weights[1] },
        ];
        act(Action::Forward(forward))
    };
    let routes = vec![("/pool", shares([5, 0])), ("/status", shares([0, 1])), ("/none", shares([0, 0]))];
    let edits = [
        pool("s", UpstreamProtocol::Http1),
        host(site.http, "a.example", None),
        fragment(&[site.http], "a.example", routes),
    ];
    site.commit(edits).await;
    for (path, status) in [("/pool", 200), ("/status", 418), ("/none", 500)] {
        assert_eq!(get(site.http, "a.example", path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_policy_is_never_skipped() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.members("s", &[&backend.address]);
    let policy = PolicyName { namespace: "t".to_owned(), name: "allow".to_owned(), variant: String::new() };
    let id = config::ResourceId { kind: Kind::Policy, name: policy.to_name() };
    let mut guarded = act(Action::Forward(forward_to("s")));
    guarded.policies = vec![policy];
    let edits = [
        pool("s", UpstreamProtocol::Http1),
        raw(id.clone(), None, r#"{"allow":["127.0.0.0/8"]}"#),
        host(site.http, "a.example", None),
        fragment(&[site.http], "a.example", vec![("/", guarded)]),
    ];
    let answer = site.commit(edits).await;
    assert_eq!(
        (answer.not_live[0].resource.clone(), answer.not_live[0].code.as_str()),
        (id.to_string(), codes::UNSUPPORTED)
    );
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    site.commit([Edit::Remove(id)]).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn a_dead_host_is_503_and_no_wildcard_steps_in() {
    let (mut site, backend) = (Site::new().await, Backend::start("one").await);
    site.serve("*.example", &[&backend.address], |_| {}).await;
    assert_eq!(get(site.http, "a.example", "/").await.status, 200);
    let answer = site.commit([raw(host_id(site.http, "a.example"), None, r#"{"owner":"t","more":1}"#)]).await;
    assert_eq!(answer.not_live[0].code, codes::UNSUPPORTED);
    assert_eq!(get(site.http, "a.example", "/").await.status, 503);
    assert_eq!(get(site.http, "b.example", "/").await.status, 200);
}

#[tokio::test]
async fn redirects_keep_what_they_do_not_change() {
    let mut site = Site::new().await;
    let redirect = Redirect {
        status: 302,
        scheme: Some("https".to_owned()),
        host: Some("new.example".to_owned()),
        port: None,
        path: Some(RedirectPath::Prefix("/to".to_owned())),
    };
    let mut upgraded = act(Action::Respond(200));
    upgraded.to_https = Some(ToHttps { status: 308, port: 443 });
    let mut odd = upgraded.clone();
    odd.to_https = Some(ToHttps { status: 301, port: 8443 });
    let routes = vec![("/from", act(Action::Redirect(redirect))), ("/up", upgraded), ("/odd", odd)];
    let ports = [site.http, site.https];
    let edits = [
        host(ports[0], "a.example", None),
        host(ports[1], "a.example", terminate(&[])),
        fragment(&ports, "a.example", routes),
    ];
    site.commit(edits).await;
    for (path, status, location) in [
        ("/from/x?y=1", 302, "https://new.example/to/x?y=1"),
        ("/up//x%20y?z", 308, "https://a.example/up//x%20y?z"),
        ("/odd", 301, "https://a.example:8443/odd"),
    ] {
        let reply = get(site.http, "A.example.:80", path).await;
        assert_eq!((reply.status, reply.header("location")), (status, Some(location)), "{path}");
    }
    let mut tls = Tls::default().connect(site.https, Some("a.example")).await.unwrap();
    let reply = send(&mut tls, "GET /up HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert_eq!(reply.status, 200, "over TLS nothing is redirected");
}

#[tokio::test]
async fn kinds_that_are_not_built_yet_fail_closed() {
    let mut site = Site::new().await;
    let passthrough = HostTls::Passthrough { pool: pool_name("s") };
    let edits = [
        raw(
            pool_id("s"),
            None,
            &format!(r#"{{"members":{{"set":"{}"}},"protocol":"raw"}}"#, crate::site::set_name("s")),
        ),
        host(site.https, "p.example", Some(passthrough)),
    ];
    let answer = site.commit(edits).await;
    let codes: Vec<_> = answer.not_live.iter().map(|n| n.code.as_str()).collect();
    assert_eq!(codes, [codes::UNSUPPORTED, codes::UNSUPPORTED]);
    Tls::default().connect(site.https, Some("p.example")).await.unwrap_err();
    // A connection that was made for another name does not lead there either.
    let mut tls = Tls::default().connect(site.https, Some("other.example")).await.unwrap();
    let reply = send(&mut tls, "GET / HTTP/1.1\r\nHost: p.example\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("connection")), (421, Some("close")));
    let mut stream = connect(site.http).await;
    assert_eq!(send(&mut stream, "GET / HTTP/1.1\r\nHost: p.example\r\n\r\n").await.status, 404);
}
