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

    fn serves_admin(self, path: &str) -> bool {
        let elements = self.elements(path);
        elements.len() >= 2 && elements[0] == "x" && elements[1] == "admin"
    }
}

fn guarded() -> Router<&'static str, ()> {
    let fragment = |name: &'static str, prefix: &str, place: u32| {
        let host = config::Domain::any();
        let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: name.into() };
        let key = OrderKey { rank: vec![], created: 0, tie: (String::new(), String::new(), place) };
        let path = PathMatch::Prefix(prefix.to_owned());
        let one = Match { path, method: None, headers: vec![], query: vec![], key };
        let claims = Claims { listeners: vec![ListenerName::tcp(80)], host: host.clone(), matches: vec![one] };
        Change::Fragment(Fragment::new(FragmentName { source, domain: host }, claims, name))
    };
    Router::default().update([fragment("guarded", "/x/admin", 0), fragment("open", "/x", 1), fragment("open2", "/", 2)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spelling_reaches_a_guarded_handler_through_an_open_route(path in prop_oneof![odd_path(), disguised_path(), disguised_path()]) {
        let router = guarded();
        let table = router.find_host(ListenerName::tcp(80), "a.io").expect("the catch-all");
        let Ok(normal) = normalise(&path) else { return Ok(()) };
        let Ok(Some(found)) = table.route("GET", &normal, &HeaderMap::new(), None) else { return Ok(()) };
        if found.fragment.payload().starts_with("open") {
            for backend in backends() {
                prop_assert!(!backend.serves_admin(&path), "{} as {} by {:?}", path, normal, backend);
                prop_assert!(!backend.serves_admin(&normal), "{} by {:?}", normal, backend);
            }
        }
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
