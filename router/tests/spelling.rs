//! Properties of path spellings: one normal form, and no spelling that a backend reads as a guarded path goes around the guard.

use config::{Claims, FragmentName, ListenerName, Match, ObjectRef, OrderKey, PathMatch};
use http::HeaderMap;
use proptest::prelude::*;
use router::{Change, Fragment, Router, authority, normalise};

/// Pieces that servers are known to read differently.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "/", "/", "x", "admin", "ad", "min", ".", "..", "%2e", "%2E", "%2f", "%2F", "%5c", "%5C", "\\", ";", ";v=1",
        "%61", "%61dmin", "%78", "%25", "%252f", "%3b", "%", "%0a", "%00", "~", "%7e", "ü", "%c3%bc", "?", "#", "A",
    ])
}

fn odd_path() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..9).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// `/x/admin` with pieces put in between and separators spelled otherwise.
fn disguised_path() -> impl Strategy<Value = String> {
    let gap = || prop_oneof![3 => Just(""), 2 => piece()];
    let separator = || prop::sample::select(vec!["/", "/", "//", "%2F", "%5c", "\\", "/./", "/y/../", "/;/"]);
    let admin = prop::sample::select(vec!["admin", "%61dmin"]);
    let start = prop::sample::select(vec!["/", "//", "/./", "/y/../", "/;/", "/y;/../"]);
    (start, gap(), gap(), separator(), gap(), admin, gap(), gap())
        .prop_map(|(start, a, b, separator, c, admin, d, e)| format!("{start}{a}x{b}{separator}{c}{admin}{d}{e}"))
}

/// How a backend may read the path that it is sent.
#[derive(Clone, Copy, Debug)]
struct Backend {
    decodes_before_splitting: bool,
    backslash_separates: bool,
    cuts_parameters: bool,
    merges_slashes: bool,
}

fn backends() -> impl Iterator<Item = Backend> {
    (0..16u8).map(|bits| Backend {
        decodes_before_splitting: bits & 1 != 0,
        backslash_separates: bits & 2 != 0,
        cuts_parameters: bits & 4 != 0,
        merges_slashes: bits & 8 != 0,
    })
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let escaped = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped.filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Backend {
    fn elements(self, path: &str) -> Vec<String> {
        let path = if self.decodes_before_splitting { decode(path) } else { path.to_owned() };
        let separates = |c: char| c == '/' || (c == '\\' && self.backslash_separates);
        let mut out: Vec<String> = Vec::new();
        for element in path.split(separates).skip(1) {
            let element = if self.cuts_parameters { element.split(';').next().unwrap_or("") } else { element };
            let element = if self.decodes_before_splitting { element.to_owned() } else { decode(element) };
            match element.as_str() {
                "." => {}
                ".." => {
                    out.pop();
                }
                "" if self.merges_slashes => {}
                _ => out.push(element),
            }
        }
        out
    }

    fn serves(self, handler: &[String], path: &str) -> bool {
        self.elements(path).starts_with(handler)
    }
}

/// The handler that a guard is for: its elements, decoded once.
fn handler(guard: &str) -> Vec<String> {
    guard.split('/').skip(1).map(decode).collect()
}

/// Elements with every character that RFC 3986 reserves and a path may hold, as it is and escaped.
fn reserved_element() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "g;v", "g%3Bv", ";g", "g;", "g:v", "g%3av", "g@v", "g%40v", "$g", "g&v", "g%26v", "g=v", "g+v", "g%2Bv", "g,v",
        "g!v", "g'v", "(g)", "g*v", "g;v=1,2", "g%2Fv", "g%5Cv", "g%3Fv", "g%25v", "g v", "\u{fc}", "g",
    ])
}

fn guard() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof![3 => reserved_element(), 1 => Just("admin")], 1..4)
        .prop_map(|elements| format!("/{}", elements.join("/")))
}

/// One character of a guard as somebody may spell it who wants to go around it.
fn spelled(character: char, choice: u8) -> String {
    let escaped: String = character.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    match (character, choice) {
        ('/', 0) => "//".to_owned(),
        ('/', 1) => "%2F".to_owned(),
        ('/', 2) => "%5c".to_owned(),
        ('/', 3) => "/;/".to_owned(),
        ('/', 4) => ";p/".to_owned(),
        ('/', 5) => "%3Bp/".to_owned(),
        ('/', 6) => "/./".to_owned(),
        ('/', 7) => "/y/../".to_owned(),
        ('/', 8) => "/y%2Fy/../".to_owned(),
        // What stands behind the `%` of a guard's own escape is spelled as it is, and so is what a path cannot hold.
        ('%', _) | ('/', _) => character.to_string(),
        (_, 0..4) => escaped,
        (_, 4) => escaped.to_lowercase(),
        _ => character.to_string(),
    }
}

/// A guard and a path that may lead around it.
fn attack() -> impl Strategy<Value = (String, String)> {
    (guard(), prop::collection::vec(0u8..14, 40), piece()).prop_map(|(guard, choices, end)| {
        let mut escape = 0u8;
        let path: String = guard
            .chars()
            .zip(choices.iter().cycle())
            .map(|(character, choice)| {
                let inside = escape > 0;
                escape = if character == '%' { 2 } else { escape.saturating_sub(1) };
                if inside { character.to_string() } else { spelled(character, *choice) }
            })
            .collect();
        let end = if choices[0] % 2 == 0 { end } else { "" };
        (guard, format!("/{}{end}", path.strip_prefix('/').unwrap_or(&path)))
    })
}

fn guarded(guard: &str) -> Router<&'static str, ()> {
    let fragment = |name: &'static str, prefix: &str, place: u32| {
        let host = config::Domain::any();
        let path = PathMatch::Prefix(prefix.to_owned());
        let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: name.into() };
        let key = OrderKey { rank: vec![], created: 0, tie: (String::new(), String::new(), place) };
        let one = Match { path, method: None, headers: vec![], query: vec![], key };
        let claims = Claims { listeners: vec![ListenerName::tcp(80)], host: host.clone(), matches: vec![one] };
        Change::Fragment(Fragment::new(FragmentName { source, domain: host }, claims, name))
    };
    let below = guard.rfind('/').filter(|at| *at > 0).map_or("/", |at| &guard[..at]);
    Router::default().update([fragment("guarded", guard, 0), fragment("open", below, 1), fragment("open2", "/", 2)])
}

/// That a path does not reach the handler of a guard on the terms of an open route.
fn check(guard: &str, path: &str) -> Result<(), TestCaseError> {
    let router = guarded(guard);
    let table = router.find_host(ListenerName::tcp(80), "a.io").expect("the catch-all");
    let Ok(normal) = normalise(path) else { return Ok(()) };
    let Ok(Some(found)) = table.route("GET", &normal, &HeaderMap::new(), None) else { return Ok(()) };
    if found.fragment.payload().starts_with("open") {
        let handler = handler(guard);
        for backend in backends() {
            prop_assert!(!backend.serves(&handler, path), "{} around {} by {:?}", path, guard, backend);
            prop_assert!(!backend.serves(&handler, &normal), "{} around {} by {:?}", normal, guard, backend);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spelling_reaches_a_guarded_handler_through_an_open_route(path in prop_oneof![odd_path(), disguised_path(), disguised_path()]) {
        check("/x/admin", &path)?;
    }

    #[test]
    fn no_spelling_reaches_a_handler_with_reserved_characters_through_an_open_route((guard, path) in attack()) {
        check(&guard, &path)?;
    }

    #[test]
    fn a_guard_takes_every_path_that_only_escapes_what_a_path_may_hold(guard in guard(), picks in any::<u64>()) {
        let mut escape = 0u8;
        let path: String = guard.chars().enumerate().map(|(i, character)| {
            let inside = escape > 0;
            escape = if character == '%' { 2 } else { escape.saturating_sub(1) };
            let escapes = !inside && !"/%".contains(character) && picks >> (i % 64) & 1 == 1;
            if escapes { spelled(character, 1) } else { character.to_string() }
        }).collect();
        // A written space is no path; everything else that a guard holds is.
        let path = path.replace(' ', "%20");
        let router = guarded(&guard);
        let table = router.find_host(ListenerName::tcp(80), "a.io").expect("the catch-all");
        let normal = normalise(&path).expect("nothing in it is refused");
        let found = table.route("GET", &normal, &HeaderMap::new(), None).expect("not ambiguous").expect("a route");
        prop_assert_eq!(*found.fragment.payload(), "guarded", "{} for {}", path, guard);
        prop_assert_eq!(found.covered, normal.len(), "all of {} is the prefix", normal);
    }

    #[test]
    fn a_normal_form_is_its_own_normal_form(path in prop_oneof![odd_path(), any::<String>(), "/\\PC*"]) {
        if let Ok(normal) = normalise(&path) {
            prop_assert_eq!(normalise(&normal).map(String::from), Ok(normal.to_string()));
            prop_assert!(normal.starts_with('/') && normal.is_ascii());
            prop_assert!(!normal.split('/').any(|element| matches!(element, "." | "..")));
        }
    }

    #[test]
    fn escaping_what_needs_no_escape_changes_nothing(plain in "(/[a-zA-Z0-9_~-]{1,4}){1,4}", picks in any::<u64>()) {
        let spelled: String = plain.bytes().enumerate().map(|(i, byte)| {
            let escape = byte != b'/' && picks >> (i % 64) & 1 == 1;
            if escape { format!("%{byte:02x}") } else { char::from(byte).to_string() }
        }).collect();
        prop_assert_eq!(normalise(&spelled).map(String::from), Ok(plain.clone()));
    }

    #[test]
    fn authorities_are_read_into_one_form_or_refused(text in prop_oneof![any::<String>(), "[a-zA-Z0-9.:_\\[\\]@-]{0,20}"]) {
        if let Ok((host, port)) = authority(&text) {
            prop_assert_eq!(authority(&host).map(|(host, port)| (host.into_owned(), port)), Ok((host.to_string(), None)));
            prop_assert!(!host.is_empty() && host.len() <= 253 && !host.bytes().any(|b| b.is_ascii_uppercase()));
            prop_assert!(port != Some(0));
        }
    }
}
