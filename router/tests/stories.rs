//! Runs the stories in `stories/`: routes in the order in which they are tried, requests, and what answers them.

use std::collections::BTreeMap;
use std::path::Path;

use config::{
    Claims, FragmentName, HeaderMatch, ListenerName, Match, Method, ObjectRef, OrderKey, PathMatch, ValueMatch,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use router::{Change, Fragment, Router, authority, normalise};
use serde::Deserialize;

/// One story.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Story {
    story: String,
    routes: Vec<Route>,
    /// `METHOD authority/path?query` and the name of the route that answers, `NAME unbuilt`, or a status.
    requests: BTreeMap<String, String>,
    /// Headers of all requests.
    #[serde(default)]
    headers: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    name: String,
    #[serde(default = "default_host")]
    host: String,
    exact: Option<String>,
    prefix: Option<String>,
    regex: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    query: BTreeMap<String, String>,
}

fn default_host() -> String {
    "x.io".to_owned()
}

fn value(text: &str) -> ValueMatch {
    match text.strip_prefix('~') {
        Some(pattern) => ValueMatch::Regex(pattern.to_owned()),
        None if text == "*" => ValueMatch::Present,
        None => ValueMatch::Exact(text.to_owned()),
    }
}

fn fragment(place: usize, route: &Route) -> Fragment<String> {
    let path = match (&route.exact, &route.prefix, &route.regex) {
        (Some(path), None, None) => PathMatch::Exact(path.clone()),
        (None, Some(path), None) => PathMatch::Prefix(path.clone()),
        (None, None, Some(text)) => PathMatch::Regex(text.clone()),
        _ => panic!("route {} needs exactly one path", route.name),
    };
    let header = |(name, text): (&String, &String)| HeaderMatch { name: name.clone(), value: value(text) };
    let parameter = |(name, text): (&String, &String)| config::QueryMatch { name: name.clone(), value: value(text) };
    let one = Match {
        path,
        method: route.method.clone().map(Method),
        headers: route.headers.iter().map(header).collect(),
        query: route.query.iter().map(parameter).collect(),
        key: OrderKey {
            rank: Vec::new(),
            created: 0,
            tie: (String::new(), String::new(), u32::try_from(place).expect("legal in a test")),
        },
    };
    config::check_match(&one).unwrap_or_else(|why| panic!("route {}: {why}", route.name));
    let host: config::Domain = route.host.parse().expect("a legal text");
    let source =
        ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: format!("{}-{place}", route.name) };
    let claims = Claims { listeners: vec![ListenerName::tcp(80)], host: host.clone(), matches: vec![one] };
    Fragment::new(FragmentName { source, domain: host }, claims, route.name.clone())
}

/// What a proxy would do with the request.
fn answer(router: &Router<String, ()>, request: &str, headers: &HeaderMap) -> String {
    let (method, target) = request.split_once(' ').expect("METHOD target");
    let (host, rest) = target.split_at(target.find('/').expect("a path"));
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let (Ok((name, _)), Ok(path)) = (authority(host), normalise(path)) else { return "400".to_owned() };
    let Some(table) = router.find_host(ListenerName::tcp(80), &name) else { return "404".to_owned() };
    match table.route(method, &path, headers, query) {
        Err(_) => "400".to_owned(),
        Ok(None) => "404".to_owned(),
        Ok(Some(found)) if !found.built => format!("{} unbuilt", found.fragment.payload()),
        Ok(Some(found)) => match &found.captures {
            Some(captures) if !captures.text(&path, 1).is_empty() => {
                format!("{} $1={}", found.fragment.payload(), captures.text(&path, 1))
            }
            _ => found.fragment.payload().clone(),
        },
    }
}

fn run(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories").join(file);
    let text = std::fs::read_to_string(&path).expect("legal in a test");
    let stories: Vec<Story> = serde_saphyr::from_str(&text).expect("legal in a test");
    let mut wrong = Vec::new();
    for story in &stories {
        let changes = story.routes.iter().enumerate().map(|(i, route)| Change::Fragment(fragment(i, route)));
        let router: Router<String, ()> = Router::default().update(changes);
        let mut headers = HeaderMap::new();
        for (name, value) in &story.headers {
            headers.append(
                HeaderName::try_from(name).expect("legal in a test"),
                HeaderValue::from_str(value).expect("legal in a test"),
            );
        }
        for (request, wanted) in &story.requests {
            let seen = answer(&router, request, &headers);
            if seen != *wanted {
                wrong.push(format!("{}: {request}: wanted {wanted}, seen {seen}", story.story));
            }
        }
    }
    assert!(!stories.is_empty() && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn hosts() {
    run("hosts.yaml");
}

#[test]
fn paths() {
    run("paths.yaml");
}

#[test]
fn spellings() {
    run("spellings.yaml");
}

#[test]
fn conditions() {
    run("conditions.yaml");
}

#[test]
fn patterns() {
    run("patterns.yaml");
}
