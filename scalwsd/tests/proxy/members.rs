//! Member sets at run time, and the balance between members.

use std::collections::BTreeMap;

use journal::AdminClient;
use journal::admin::PatchMembers;

use crate::backend::Backend;
use crate::client::{connect, get, send};
use crate::site::{Site, set_name};

#[tokio::test]
async fn members_change_without_a_reload_or_a_lost_connection() {
    let mut site = Site::new().await;
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    site.serve("a.example", &[&one.address], |_| {}).await;
    let mut stream = connect(site.http).await;
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(send(&mut stream, request).await.header("x-backend"), Some("one"));
    site.members("a.example", &[&two.address]);
    assert_eq!(send(&mut stream, request).await.header("x-backend"), Some("two"));
    site.members("a.example", &[]);
    assert_eq!(send(&mut stream, request).await.status, 503);
    site.members("a.example", &[&one.address]);
    assert_eq!(send(&mut stream, request).await.header("x-backend"), Some("one"));
}

#[tokio::test]
async fn a_request_under_way_ends_on_a_member_that_was_taken_away() {
    let mut site = Site::new().await;
    let one = Backend::start("one").await;
    site.serve("a.example", &[&one.address], |_| {}).await;
    let port = site.http;
    let waiting = tokio::spawn(async move { get(port, "a.example", "/gate").await });
    crate::client::within(async {
        while one.requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    site.members("a.example", &[]);
    one.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn requests_are_spread_over_members() {
    let mut site = Site::new().await;
    let backends = [Backend::start("one").await, Backend::start("two").await, Backend::start("three").await];
    site.serve("a.example", &backends.each_ref().map(|b| b.address.as_str()), |_| {}).await;
    let mut stream = connect(site.http).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..300 {
        let reply = send(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        *counts.entry(reply.header("x-backend").unwrap().to_owned()).or_default() += 1;
    }
    // 100 each are expected; below 40 has a chance of less than 1 in 10^12.
    assert!(counts.len() == 3 && counts.values().all(|n| *n > 40), "{counts:?}");
}

#[tokio::test]
async fn a_busy_member_gets_less() {
    let mut site = Site::new().await;
    let (busy, free) = (Backend::start("busy").await, Backend::start("free").await);
    site.serve("a.example", &[&busy.address], |_| {}).await;
    let port = site.http;
    let waiting = tokio::spawn(async move { get(port, "a.example", "/gate").await });
    crate::client::within(async {
        while busy.requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    site.members("a.example", &[&busy.address, &free.address]);
    for _ in 0..20 {
        assert_eq!(get(site.http, "a.example", "/").await.header("x-backend"), Some("free"));
    }
    busy.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn the_admin_api_puts_patches_and_drops_sets() {
    let site = Site::new().await;
    let socket = site.dir.path().join("admin");
    tokio::spawn(site.worker.admin().serve(scalwsd::admin::bind(&socket).unwrap()));
    let mut client = AdminClient::connect(&socket).await.unwrap();
    let set = set_name("s").to_name();
    let members = |list: &[&str]| list.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>();
    let first = client.put_members(set.as_str(), members(&["10.0.0.1:80", "10.0.0.2:80"])).await.unwrap();
    let patch = PatchMembers { base: first, add: members(&["10.0.0.3:80"]), remove: members(&["10.0.0.1:80"]) };
    let second = client.patch_members(set.as_str(), &patch).await.unwrap();
    let conflict = client.patch_members(set.as_str(), &patch).await.unwrap_err();
    assert!(matches!(conflict, journal::client::AdminError::Conflict { digest } if digest == second), "{conflict}");
    let found = client.upstream(set.as_str()).await.unwrap().unwrap();
    assert_eq!((found.digest, found.members), (second, members(&["10.0.0.2:80", "10.0.0.3:80"])));
    let all = client.upstreams().await.unwrap();
    assert_eq!(all.sets, [(set.as_str().to_owned(), second)]);
    let mut tree = journal::MemberTree::default();
    tree.insert(set.as_str().into(), second);
    assert_eq!(all.root, Some(tree.root()));
    let refused = client.put_members(set.as_str(), members(&["somewhere"])).await.unwrap_err();
    assert!(refused.to_string().contains("somewhere"), "{refused}");
    client.delete_members(set.as_str()).await.unwrap();
    assert_eq!(client.upstream(set.as_str()).await.unwrap(), None);
    assert_eq!(client.upstreams().await.unwrap().root, Some(journal::MemberTree::default().root()));
}
