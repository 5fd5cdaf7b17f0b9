//! Header rules of a proxy: what ends at this hop, and what tells the upstream where a request came from.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap,
    HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE,
};

use journal::mutants::{self, Mutant};

use crate::edge::Authority;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
/// What CGI programs take for the variable HTTP_PROXY (CVE-2016-5385).
const PROXY: HeaderName = HeaderName::from_static("proxy");

/// `X-Forwarded-For`
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// `X-Forwarded-Host`
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// `X-Forwarded-Port`
pub const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
/// `X-Forwarded-Proto`
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// `X-Forwarded-Scheme`
pub const X_FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-scheme");
/// `X-Scheme`
pub const X_SCHEME: HeaderName = HeaderName::from_static("x-scheme");
/// `X-Real-IP`
pub const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// `X-Request-ID`
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers that concern one connection only (RFC 9110 section 7.6.1), whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 8] =
    [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE];

/// Headers that `Connection` cannot take away: they are meant for the other end, or are set here.
fn is_protected(name: &HeaderName) -> bool {
    [AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, FORWARDED, HOST, SET_COOKIE].contains(name)
        || name.as_str().starts_with("x-forwarded-")
        || [X_REAL_IP, X_REQUEST_ID, X_SCHEME].contains(name)
}

/// Removes what ends at this hop.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let mut named = Vec::new();
    for value in headers.get_all(CONNECTION) {
        for token in value.as_bytes().split(|b| *b == b',') {
            if let Ok(name) = HeaderName::from_bytes(token.trim_ascii())
                && !HOP_BY_HOP.contains(&name)
                && (!is_protected(&name) || mutants::active(Mutant::ConnectionTakesOurHeaders))
            {
                named.push(name);
            }
        }
    }
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Whether a comma-separated list in any line of this header holds the token, whatever its case.
pub fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let tokens = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    tokens.map(<[u8]>::trim_ascii).any(|t| t.eq_ignore_ascii_case(token.as_bytes()))
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// Whether the connection has TLS.
    pub tls: bool,
    /// The port that the client connected to.
    pub port: u16,
    /// What the request is addressed to.
    pub authority: &'a Authority,
}

/// Prepares the headers of a request for the upstream; gives the request's id.
///
/// What the client says about itself in `Forwarded`, `X-Forwarded-*` and `X-Real-IP` is replaced: no client is trusted.
/// Names with `_` are dropped, because many programs cannot tell them from names with `-`.
pub fn prepare_request(headers: &mut HeaderMap, origin: &Origin<'_>, keep_te: bool) -> HeaderValue {
    // Before ours are set, so that no client can name ours in Connection.
    let trailers = keep_te && has_token(headers, &TE, "trailers");
    remove_hop_by_hop(headers);
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("x-forwarded-") || name.contains('_')
        })
        .cloned()
        .collect();
    // Expect is answered by this proxy itself when the upstream starts to read (RFC 9110 section 10.1.1).
    for name in dropped.iter().chain(&[FORWARDED, PROXY, HTTP2_SETTINGS, EXPECT, X_REAL_IP, X_SCHEME]) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let client = text(origin.client.to_string());
    let scheme = HeaderValue::from_static(if origin.tls { "https" } else { "http" });
    headers.insert(X_FORWARDED_FOR, client.clone());
    headers.insert(X_REAL_IP, client);
    headers.insert(X_FORWARDED_HOST, text(origin.authority.written.clone()));
    headers.insert(X_FORWARDED_PORT, HeaderValue::from(origin.port));
    headers.insert(X_FORWARDED_PROTO, scheme.clone());
    headers.insert(X_FORWARDED_SCHEME, scheme.clone());
    headers.insert(X_SCHEME, scheme);
    let id = match headers.get(X_REQUEST_ID) {
        Some(id) if !id.is_empty() && id.len() <= 128 && id.as_bytes().iter().all(u8::is_ascii_graphic) => id.clone(),
        _ => new_request_id(),
    };
    headers.insert(X_REQUEST_ID, id.clone());
    if mutants::active(Mutant::ConnectionTakesOurHeaders) {
        remove_hop_by_hop(headers);
    }
    id
}

fn text(text: String) -> HeaderValue {
    // An address or an authority that was checked: both are plain ASCII.
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
}

/// A random id of 32 hexadecimal digits.
pub fn new_request_id() -> HeaderValue {
    text(format!("{:032x}", rand::random::<u128>()))
}

/// Changes to headers, read once.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    remove: Box<[HeaderName]>,
    set: Box<[(HeaderName, HeaderValue)]>,
    add: Box<[(HeaderName, HeaderValue)]>,
}

impl Changes {
    /// Reads them.
    ///
    /// # Errors
    /// Names what is no header name or value.
    pub fn compile(changes: &config::HeaderChanges) -> Result<Changes, String> {
        let name =
            |text: &String| HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no header name"));
        let pair = |(n, v): &(String, String)| {
            let value = HeaderValue::from_str(v).map_err(|_| format!("the value of header {n:?} cannot be sent"))?;
            Ok::<_, String>((name(n)?, value))
        };
        Ok(Changes {
            remove: changes.remove.iter().map(name).collect::<Result<_, _>>()?,
            set: changes.set.iter().map(pair).collect::<Result<_, _>>()?,
            add: changes.add.iter().map(pair).collect::<Result<_, _>>()?,
        })
    }

    /// Applies them: remove, set, add.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn prepared(pairs: &[(&str, &str)]) -> HeaderMap {
        let authority = Authority { written: "a.example:8080".to_owned(), host: "a.example".to_owned() };
        let client = "192.0.2.7".parse().unwrap();
        let mut headers = map(pairs);
        prepare_request(&mut headers, &Origin { client, tls: true, port: 8443, authority: &authority }, true);
        headers
    }

    #[test]
    fn what_ends_at_this_hop_does_not_reach_the_upstream() {
        let headers = prepared(&[
            ("connection", "close, X-Mine"),
            ("connection", "x-more"),
            ("keep-alive", "1"),
            ("proxy-connection", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "foo"),
            ("http2-settings", "x"),
            ("proxy", "evil"),
            ("expect", "100-continue"),
            ("x-mine", "1"),
            ("x-more", "1"),
            ("kept", "1"),
        ]);
        assert!(headers.contains_key("kept"));
        for gone in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        for gone in ["x-mine", "x-more", "proxy", "expect"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn a_client_cannot_take_away_or_invent_what_the_proxy_says() {
        let headers = prepared(&[
            ("connection", "x-forwarded-for, x-real-ip, host, authorization, cookie"),
            ("host", "a.example:8080"),
            ("authorization", "Basic x"),
            ("cookie", "a=b"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-prefix", "/evil"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x-real_ip", "6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("forwarded", "for=6.6.6.6"),
            ("x-scheme", "ftp"),
        ]);
        let get = |name: &str| headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(get("x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(get("x-real-ip"), ["192.0.2.7"]);
        assert_eq!(get("x-forwarded-host"), ["a.example:8080"]);
        assert_eq!(get("x-forwarded-port"), ["8443"]);
        assert_eq!(get("x-forwarded-proto"), ["https"]);
        assert_eq!(get("x-scheme"), ["https"]);
        assert_eq!(
            (get("host"), get("authorization"), get("cookie")),
            (vec!["a.example:8080"], vec!["Basic x"], vec!["a=b"])
        );
        for gone in ["forwarded", "x_forwarded_for", "x-real_ip", "x-forwarded-prefix"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn te_is_kept_only_as_trailers_and_only_where_it_is_asked_for() {
        assert_eq!(prepared(&[("te", "gzip, trailers;q=1, Trailers")]).get("te").unwrap(), "trailers");
        assert!(!prepared(&[("te", "gzip")]).contains_key("te"));
        let authority = Authority { written: "a".to_owned(), host: "a".to_owned() };
        let origin = Origin { client: "::1".parse().unwrap(), tls: false, port: 80, authority: &authority };
        let mut headers = map(&[("te", "trailers")]);
        prepare_request(&mut headers, &origin, false);
        assert!(!headers.contains_key("te"));
    }

    #[test]
    fn a_request_id_is_kept_if_it_is_harmless_and_made_otherwise() {
        assert_eq!(prepared(&[("x-request-id", "abc-1")]).get(X_REQUEST_ID).unwrap(), "abc-1");
        for made in [&[][..], &[("x-request-id", "")], &[("x-request-id", "a b")]] {
            assert_eq!(prepared(made).get(X_REQUEST_ID).unwrap().len(), 32);
        }
    }

    #[test]
    fn changes_remove_then_set_then_add() {
        let pair = |n: &str, v: &str| (n.to_owned(), v.to_owned());
        let changes = config::HeaderChanges {
            remove: vec!["a".to_owned(), "b".to_owned()],
            set: vec![pair("b", "1"), pair("c", "2")],
            add: vec![pair("c", "3")],
        };
        let mut headers = map(&[("a", "x"), ("b", "x"), ("c", "x"), ("c", "y")]);
        Changes::compile(&changes).unwrap().apply(&mut headers);
        let mut all: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        // The order of names means nothing, that of the values of one name does.
        all.sort_by_key(|(name, _)| *name);
        assert_eq!(all, [("b", "1"), ("c", "2"), ("c", "3")]);
        assert!(
            Changes::compile(&config::HeaderChanges { remove: vec!["a b".to_owned()], ..Default::default() }).is_err()
        );
        let evil = config::HeaderChanges { set: vec![pair("a", "x\r\ny: z")], ..Default::default() };
        assert!(Changes::compile(&evil).is_err());
    }
}
