//! Measures what one change and one lookup cost as the number of hosts and fragments grows. Figures go to stderr.
//!
//! `cargo run --release -p router --example measure`

use std::time::{Duration, Instant};

use config::{Claims, Domain, FragmentName, ListenerName, Match, ObjectRef, OrderKey, PathMatch};
use http::HeaderMap;
use router::{Change, Fragment, Router};

fn fragment(n: usize, domain: &str, paths: [PathMatch; 2]) -> Fragment<usize> {
    let name = format!("i-{n}");
    let rank = |path: &PathMatch| match path {
        PathMatch::Exact(text) => vec![3, text.len() as u32],
        PathMatch::Prefix(text) => vec![1, text.len() as u32],
        PathMatch::Regex(_) => vec![2],
    };
    let matches = paths.into_iter().enumerate().map(|(i, path)| Match {
        key: OrderKey { rank: rank(&path), created: n as i64, tie: ("demo".into(), name.clone(), i as u32) },
        path,
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    });
    let host: Domain = domain.parse().expect("a domain");
    let listeners = vec![ListenerName::tcp(80), ListenerName::tcp(443)];
    let claims = Claims { listeners, host: host.clone(), matches: matches.collect() };
    let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name };
    Fragment::new(FragmentName { source, domain: host }, claims, n)
}

fn plain(n: usize, domain: &str) -> Fragment<usize> {
    fragment(n, domain, [PathMatch::Exact(format!("/svc-{n}/login")), PathMatch::Prefix(format!("/svc-{n}"))])
}

fn with_regex(n: usize, domain: &str) -> Fragment<usize> {
    fragment(n, domain, [PathMatch::Regex(format!("/svc-{n}/v[0-9]+/(.*)")), PathMatch::Prefix(format!("/svc-{n}"))])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn measure(title: &str, count: usize, domain: impl Fn(usize) -> String, make: impl Fn(usize, &str) -> Fragment<usize>) {
    let start = Instant::now();
    let router: Router<usize, ()> = Router::default().update((0..count).map(|n| Change::Fragment(make(n, &domain(n)))));
    let built = start.elapsed();
    let (mut changed, mut found) = (Vec::new(), Vec::new());
    let mut next = router.clone();
    for i in 0..501 {
        let n = i * 7919 % count;
        let new = make(n, &domain(n));
        let start = Instant::now();
        next = next.update([Change::Fragment(new)]);
        changed.push(start.elapsed());
        let (name, path, headers) = (domain(n), format!("/svc-{n}/v1/x"), HeaderMap::new());
        let start = Instant::now();
        let table = next.find_host(ListenerName::tcp(443), &name).expect("the host");
        let hit = table.route("GET", &path, &headers, None).expect("plain").expect("a route");
        found.push(start.elapsed());
        assert_eq!(*hit.fragment.payload(), n);
    }
    eprintln!("{title:44} build {built:>10.1?}  change {:>9.1?}  lookup {:>9.1?}", median(changed), median(found));
}

fn main() {
    for count in [100, 1_000, 10_000, 50_000] {
        measure(&format!("{count} fragments, one host each"), count, |n| format!("h{n}.example.com"), plain);
    }
    for count in [100, 1_000, 10_000] {
        measure(&format!("{count} fragments on one host"), count, |_| "shop.example.com".to_owned(), plain);
    }
    for count in [100, 1_000] {
        measure(
            &format!("{count} fragments on one host, one regex each"),
            count,
            |_| "shop.example.com".to_owned(),
            with_regex,
        );
    }
}
