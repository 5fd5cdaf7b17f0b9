//! The texts of a request: normal forms are normal, and a route is only found for a path that it covers.

use config::{Claims, Domain, FragmentName, ListenerName, Match, ObjectRef, OrderKey, PathMatch, TypedName};
use router::{Change, Fragment, Router, authority, normalise};

const LISTENER: ListenerName = ListenerName { transport: config::Transport::Tcp, port: 80 };

/// A claim on a path, with a key that makes longer paths come first.
fn claim(path: PathMatch, length: usize, number: u32) -> Match {
    let rank = vec![u32::try_from(length).unwrap_or(u32::MAX)];
    let key = OrderKey { rank, created: 0, tie: ("demo".to_owned(), "shop".to_owned(), number) };
    Match { path, method: None, headers: Vec::new(), query: Vec::new(), key }
}

/// A router with these lines as paths, and its matches: `=` before an exact one, `~` before a regular expression, else a prefix.
fn router(lines: &[&str]) -> Option<(Router<(), ()>, Vec<Match>)> {
    let domain: Domain = "*".parse().ok()?;
    let matches = lines.iter().zip(0..).map(|(line, number)| match line.split_at_checked(1) {
        Some(("=", path)) => claim(PathMatch::Exact(path.to_owned()), line.len(), number),
        Some(("~", path)) => claim(PathMatch::Regex(path.to_owned()), line.len(), number),
        _ => claim(PathMatch::Prefix((*line).to_owned()), line.len(), number),
    });
    let claims = Claims { listeners: vec![LISTENER], host: domain.clone(), matches: matches.collect() };
    let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: "shop".into() };
    let name = FragmentName { source, domain };
    // What does not pass the check never reaches a router.
    config::check_claims(&claims).ok()?;
    assert!(TypedName::of(&config::ResourceId { kind: config::Kind::Fragment, name: (&name).into() }).is_ok());
    let matches = claims.matches.clone();
    Some((Router::default().update([Change::Fragment(Fragment::new(name, claims, ()))]), matches))
}

/// The first line is the host, the second the path, the others are claims.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let (Some(host), Some(path)) = (lines.next(), lines.next()) else { return };
    if let Ok((name, _port)) = authority(host) {
        let (again, port) = authority(&name).expect("a host in its one form is a host");
        assert_eq!((&*again, port), (&*name, None));
    }
    let Ok(normal) = normalise(path) else { return };
    assert!(normal.starts_with('/'));
    assert_eq!(normalise(&normal).as_deref(), Ok(&*normal), "the normal form of a normal form is itself");
    assert!(!normal.split('/').any(|segment| segment == "." || segment == ".."), "dots are resolved: {normal}");
    let lines: Vec<&str> = lines.take(16).collect();
    let Some((router, matches)) = router(&lines) else { return };
    let Some(table) = router.find_host(LISTENER, "shop.example.com") else { return };
    let Ok(Some(found)) = table.route("GET", &normal, &http::HeaderMap::new(), None) else { return };
    if !found.built {
        return;
    }
    let path = &matches[found.claim].path;
    let (PathMatch::Exact(claimed) | PathMatch::Prefix(claimed)) = path else { return };
    let (claimed, normal) = (config::compared(claimed), config::compared(&normal));
    assert!(config::check_spelling(&claimed).is_ok(), "{path:?} won {normal} and cannot be spelled");
    let trimmed = claimed.strip_suffix('/').unwrap_or(&claimed);
    let below = normal.strip_prefix(trimmed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let covers = if matches!(path, PathMatch::Exact(_)) { claimed == normal } else { below };
    assert!(covers, "{path:?} won {normal}");
}
