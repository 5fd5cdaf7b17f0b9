//! The router against its definition: sort all matches by key, take the first that fits.

use std::collections::BTreeMap;

use config::{
    Claims, Domain, FragmentName, HeaderMatch, HostName, ListenerName, Match, Method, ObjectRef, OrderKey, PathMatch,
    QueryMatch, ValueMatch,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use regex::Regex;
use router::{Change, Fragment, Router, normalise};

/// A request in a form that the oracle reads without help.
#[derive(Clone, Debug)]
struct Asked {
    method: &'static str,
    name: String,
    path: String,
    headers: BTreeMap<&'static str, &'static str>,
    query: BTreeMap<&'static str, &'static str>,
}

fn path_fits(rule: &PathMatch, path: &str) -> bool {
    match rule {
        PathMatch::Exact(wanted) => wanted == path,
        PathMatch::Prefix(wanted) if wanted == "/" => true,
        PathMatch::Prefix(wanted) => path == wanted || path.starts_with(&format!("{wanted}/")),
        PathMatch::Regex(text) => Regex::new(&format!("^(?:{text})")).expect("legal in a test").is_match(path),
    }
}

fn value_fits(rule: &ValueMatch, value: Option<&&str>) -> bool {
    match (rule, value) {
        (_, None) => false,
        (ValueMatch::Exact(wanted), Some(value)) => wanted == value,
        (ValueMatch::Regex(text), Some(value)) => {
            Regex::new(&format!("^(?:{text})$")).expect("legal in a test").is_match(value)
        }
        (ValueMatch::Present, Some(_)) => true,
    }
}

fn fits(rule: &Match, asked: &Asked) -> bool {
    path_fits(&rule.path, &asked.path)
        && rule.method.as_ref().is_none_or(|method| method.0 == asked.method)
        && rule.headers.iter().all(|one| value_fits(&one.value, asked.headers.get(one.name.as_str())))
        && rule.query.iter().all(|one| value_fits(&one.value, asked.query.get(one.name.as_str())))
}

type World = BTreeMap<FragmentName, Claims>;

/// The domain that serves a name, by the words of the rule.
fn naive_domain(world: &World, listener: ListenerName, name: &str) -> Option<Domain> {
    let mut domains: Vec<&Domain> =
        world.values().filter(|claims| claims.listeners.contains(&listener)).map(|claims| &claims.host).collect();
    domains.retain(|domain| domain.covers(name));
    let rank = |domain: &Domain| {
        let text = domain.as_str();
        let kind = if domain.is_any() { 0 } else { 1 + u8::from(!text.starts_with("**")) };
        let suffix = text.trim_start_matches('*').len();
        (!domain.is_wildcard(), !domain.is_any(), suffix, kind)
    };
    domains.into_iter().max_by_key(|domain| rank(domain)).cloned()
}

fn naive(world: &World, listener: ListenerName, asked: &Asked) -> Option<(FragmentName, usize)> {
    let domain = naive_domain(world, listener, &asked.name)?;
    let mut all: Vec<(&OrderKey, &FragmentName, usize, &Match)> = Vec::new();
    for (name, claims) in world.iter().filter(|(_, c)| c.host == domain && c.listeners.contains(&listener)) {
        all.extend(claims.matches.iter().enumerate().map(|(i, one)| (&one.key, name, i, one)));
    }
    all.sort_by_key(|(key, name, i, _)| (*key, *name, *i));
    all.into_iter().find(|(.., rule)| fits(rule, asked)).map(|(_, name, i, _)| (name.clone(), i))
}

fn quick(router: &Router<u32, ()>, listener: ListenerName, asked: &Asked) -> Option<(FragmentName, usize)> {
    let mut headers = HeaderMap::new();
    for (name, value) in &asked.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let query: Vec<String> = asked.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let table = router.find_host(listener, &asked.name)?;
    let found = table.route(asked.method, &asked.path, &headers, Some(&query.join("&"))).expect("no odd spelling");
    found.map(|found| (FragmentName::from_name(found.fragment.name()).expect("a fragment's name"), found.claim))
}

fn element() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "ab", "b", "A", "a.b", "%2A"])
}

fn path() -> impl Strategy<Value = String> {
    (prop::collection::vec(element(), 0..4), any::<bool>()).prop_map(|(elements, slash)| {
        let path = format!("/{}", elements.join("/"));
        if slash && path.len() > 1 { format!("{path}/") } else { path }
    })
}

fn path_match() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        path().prop_map(PathMatch::Exact),
        path().prop_map(|path| PathMatch::Prefix(if path == "/" {
            path
        } else {
            path.trim_end_matches('/').to_owned()
        })),
        prop::sample::select(vec![
            "/a",
            "/a|/b/a",
            "/[ab]+$",
            "(?i)/A/(.*)",
            "/a(/|$)(b?)",
            ".*",
            "^/ab?/",
            "/a\\.b/",
            "/%2A*",
            "/\\w+/b"
        ])
        .prop_map(|text| PathMatch::Regex(text.to_owned())),
    ]
}

fn value_match() -> impl Strategy<Value = ValueMatch> {
    prop_oneof![
        Just(ValueMatch::Present),
        prop::sample::select(vec!["x", "y"]).prop_map(|text| ValueMatch::Exact(text.to_owned())),
        prop::sample::select(vec!["x|xy", "."]).prop_map(|text| ValueMatch::Regex(text.to_owned())),
    ]
}

fn one_match() -> impl Strategy<Value = Match> {
    let header = prop::option::weighted(0.3, value_match())
        .prop_map(|value| value.map(|value| HeaderMatch { name: "x-a".to_owned(), value }).into_iter().collect());
    let query = prop::option::weighted(0.3, value_match())
        .prop_map(|value| value.map(|value| QueryMatch { name: "q".to_owned(), value }).into_iter().collect());
    let method = prop::option::weighted(0.2, prop::sample::select(vec!["GET", "PUT"]))
        .prop_map(|method| method.map(|method| Method(method.to_owned())));
    // Few different keys, so that ties of every depth occur.
    let key = (prop::collection::vec(0u32..3, 0..3), 0i64..2, 0u32..3).prop_map(|(rank, created, n)| OrderKey {
        rank,
        created,
        tie: ("demo".to_owned(), "o".to_owned(), n),
    });
    (path_match(), method, header, query, key).prop_map(|(path, method, headers, query, key)| Match {
        path,
        method,
        headers,
        query,
        key,
    })
}

const DOMAINS: [&str; 6] = ["a.x.io", "x.io", "*.x.io", "**.x.io", "**.io", "*"];

fn step() -> impl Strategy<Value = (FragmentName, Option<Claims>)> {
    let listeners = prop::sample::subsequence(vec![ListenerName::tcp(80), ListenerName::tcp(443)], 0..=2);
    let matches = prop::collection::vec(one_match(), 0..6);
    (0u8..5, prop::sample::select(DOMAINS.to_vec()), prop::option::weighted(0.8, (listeners, matches))).prop_map(
        |(object, domain, claims)| {
            let host: Domain = domain.parse().expect("a legal text");
            let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: format!("i{object}") };
            let claims = claims.map(|(listeners, matches)| Claims { listeners, host: host.clone(), matches });
            (FragmentName { source, domain: host }, claims)
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let value = || prop::option::of(prop::sample::select(vec!["x", "y", "xy"]));
    let names = vec!["a.x.io", "b.x.io", "c.b.x.io", "x.io", "y.io", "z.net"];
    (prop::sample::select(vec!["GET", "PUT", "POST"]), prop::sample::select(names), path(), value(), value()).prop_map(
        |(method, name, path, header, parameter)| Asked {
            method,
            name: name.to_owned(),
            path,
            headers: header.map(|value| ("x-a", value)).into_iter().collect(),
            query: parameter.map(|value| ("q", value)).into_iter().collect(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_first_match_in_the_order_of_keys_wins(
        batches in prop::collection::vec(prop::collection::vec(step(), 1..4), 1..6),
        requests in prop::collection::vec(asked(), 1..24),
    ) {
        let mut world = World::new();
        let mut router: Router<u32, ()> = Router::default();
        let mut versions = Vec::new();
        for (n, batch) in batches.into_iter().enumerate() {
            let mut changes = Vec::new();
            for (name, claims) in batch {
                match claims {
                    Some(claims) => {
                        world.insert(name.clone(), claims.clone());
                        changes.push(Change::Fragment(Fragment::new(name, claims, n as u32)));
                    }
                    None => {
                        world.remove(&name);
                        changes.push(Change::NoFragment(name));
                    }
                }
            }
            router = router.update(changes);
            versions.push((world.clone(), router.clone()));
        }
        // Older routers answer as they did: nothing that is shared was changed.
        for (world, router) in &versions {
            prop_assert_eq!(router.fragments(), world.len());
            for asked in &requests {
                for listener in [ListenerName::tcp(80), ListenerName::tcp(443)] {
                    let path = normalise(&asked.path).expect("generated paths are legal").into_owned();
                    let asked = Asked { path, ..asked.clone() };
                    prop_assert_eq!(quick(router, listener, &asked), naive(world, listener, &asked), "{:?}", asked);
                }
            }
        }
        // What grows by changes equals what is built at once.
        let rebuilt = Router::<u32, ()>::default()
            .update(world.iter().map(|(name, claims)| Change::Fragment(Fragment::new(name.clone(), claims.clone(), 0))));
        let names = |router: &Router<u32, ()>| {
            router.hosts().iter().map(|table| (table.name().clone(), table.fragments())).collect::<Vec<_>>()
        };
        prop_assert_eq!(names(&router), names(&rebuilt));
    }
}

#[test]
fn a_change_leaves_the_tables_of_other_hosts_as_they_are() {
    let claims = |domain: &str| Claims {
        listeners: vec![ListenerName::tcp(80)],
        host: domain.parse().expect("a legal text"),
        matches: vec![Match {
            path: PathMatch::Prefix("/".to_owned()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
            key: OrderKey { rank: vec![], created: 0, tie: (String::new(), String::new(), 0) },
        }],
    };
    let name = |domain: &str| FragmentName {
        source: ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: "i".into() },
        domain: domain.parse().expect("a legal text"),
    };
    let put = |domain: &str, n: u32| Change::Fragment(Fragment::new(name(domain), claims(domain), n));
    let before: Router<u32, ()> = Router::default().update([put("a.io", 1), put("b.io", 1)]);
    let after = before.update([put("a.io", 2)]);
    let table = |router: &Router<u32, ()>, domain: &str| {
        let host = HostName { listener: ListenerName::tcp(80), domain: domain.parse().expect("a legal text") };
        std::sync::Arc::clone(router.host(&host).expect("the host is there"))
    };
    assert!(std::sync::Arc::ptr_eq(&table(&before, "b.io"), &table(&after, "b.io")));
    assert!(!std::sync::Arc::ptr_eq(&table(&before, "a.io"), &table(&after, "a.io")));
    assert_eq!(*after.fragment(&name("a.io")).expect("legal in a test").payload(), 2);
    assert_eq!(*before.fragment(&name("a.io")).expect("legal in a test").payload(), 1);
}

#[test]
fn a_host_without_fragments_is_found_and_ends_with_its_resource() {
    let host = HostName { listener: ListenerName::tcp(443), domain: "shop.x.io".parse().expect("a legal text") };
    let wild = HostName { listener: ListenerName::tcp(443), domain: "*.x.io".parse().expect("a legal text") };
    let router: Router<(), String> =
        Router::default().update([Change::Host(host.clone(), "shop".into()), Change::Host(wild, "wild".into())]);
    let found = |router: &Router<(), String>| {
        router.find_host(host.listener, "SHOP.x.io").and_then(|table| table.host().map(|host| host.to_string()))
    };
    assert_eq!(found(&router), Some("shop".to_owned()));
    let router = router.update([Change::NoHost(host.clone())]);
    assert_eq!(found(&router), Some("wild".to_owned()));
    assert_eq!(router.hosts().len(), 1);
}

#[test]
fn a_prefix_covers_its_normal_form_whatever_its_spelling() {
    let host: Domain = "a.io".parse().expect("a domain");
    let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: "i".into() };
    let one = |path: PathMatch, n| Match {
        path,
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        key: OrderKey { rank: vec![], created: 0, tie: (String::new(), String::new(), n) },
    };
    let matches = vec![
        one(PathMatch::Prefix("/%7eme".to_owned()), 0),
        one(PathMatch::Prefix("/100%".to_owned()), 1),
        one(PathMatch::Exact("/exact".to_owned()), 2),
        one(PathMatch::Prefix("/a b/u@h".to_owned()), 3),
        one(PathMatch::Prefix("/".to_owned()), 4),
    ];
    let claims = Claims { listeners: vec![ListenerName::tcp(80)], host: host.clone(), matches };
    let fragment = Fragment::new(FragmentName { source, domain: host }, claims, 0);
    let router: Router<u32, ()> = Router::default().update([Change::Fragment(fragment)]);
    let table = router.find_host(ListenerName::tcp(80), "a.io").expect("the host");
    for (path, rest) in [
        ("/~me/b", "/b"),
        ("/100%25/b", "/b"),
        ("/100%25", ""),
        ("/exact", "/exact"),
        ("/a%20b/u%40h/%40x", "/%40x"),
        ("/a%20b/u@h/", "/"),
        ("/b", "/b"),
    ] {
        let found = table.route("GET", path, &HeaderMap::new(), None).expect("plain").expect("a route");
        assert_eq!(&path[found.covered..], rest, "{path}");
    }
}
