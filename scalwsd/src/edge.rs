//! What an ambiguous request looks like, and that it is refused (RFC 9112 sections 3.2 and 6.1, RFC 9113 section 8.3).

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Scheme;
use http::{Method, StatusCode, Version};

use crate::head_guard::Fault;

/// The authority that a request is for; one value for routing, logging and forwarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// As the client wrote it, with its port.
    pub written: String,
    /// Lower case, without port and trailing dot. An IPv6 address keeps its brackets.
    pub host: String,
}

/// A request that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status that it is answered with.
    pub status: StatusCode,
    /// A sentence for people.
    pub why: &'static str,
}

fn bad(why: &'static str) -> Reject {
    Reject { status: StatusCode::BAD_REQUEST, why }
}

/// Checks the head of a request and gives what it is addressed to.
///
/// `fault` is what [`crate::head_guard`] found in its bytes; `tls` says what the connection really is.
///
/// # Errors
/// The answer for requests that could mean two things. The connection closes after it.
pub fn check(head: &Parts, fault: Option<Fault>, tls: bool) -> Result<Authority, Reject> {
    if let Some(fault) = fault {
        return Err(bad(fault.sentence()));
    }
    if head.method == Method::CONNECT {
        return Err(Reject { status: StatusCode::METHOD_NOT_ALLOWED, why: "CONNECT is not served here" });
    }
    let authority = if head.version == Version::HTTP_2 { authority_h2(head)? } else { authority_h1(head, tls)? };
    if !head.uri.path().starts_with('/') {
        return Err(bad("the request target is no path"));
    }
    Ok(authority)
}

fn authority_h1(head: &Parts, tls: bool) -> Result<Authority, Reject> {
    let mut encodings = head.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next()
        && (encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        // RFC 9112 section 6.1: a coding that is not understood is answered 501.
        return Err(Reject { status: StatusCode::NOT_IMPLEMENTED, why: "a transfer coding other than chunked" });
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next().ok_or_else(|| bad("no Host"))?;
    if hosts.next().is_some() {
        return Err(bad("two Host headers"));
    }
    let host = parse(host.as_bytes()).ok_or_else(|| bad("a Host that is no authority"))?;
    if let Some(target) = head.uri.authority() {
        // Absolute form (RFC 9112 section 3.2.2): it must say what Host and the connection say.
        let scheme = if tls { Scheme::HTTPS } else { Scheme::HTTP };
        if head.uri.scheme() != Some(&scheme) {
            return Err(bad("a target of another scheme"));
        }
        if parse(target.as_str().as_bytes()).is_none_or(|t| !t.written.eq_ignore_ascii_case(&host.written)) {
            return Err(bad("a target that differs from Host"));
        }
    }
    Ok(host)
}

fn authority_h2(head: &Parts) -> Result<Authority, Reject> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad("two Host headers"));
    }
    let host = match host {
        Some(host) => Some(parse(host.as_bytes()).ok_or_else(|| bad("a Host that is no authority"))?),
        None => None,
    };
    match (head.uri.authority(), host) {
        (None, None) => Err(bad("no :authority")),
        (None, Some(host)) => Ok(host),
        (Some(authority), host) => {
            let authority =
                parse(authority.as_str().as_bytes()).ok_or_else(|| bad("an :authority that is no authority"))?;
            if host.is_some_and(|h| !h.written.eq_ignore_ascii_case(&authority.written)) {
                return Err(bad(":authority that differs from Host"));
            }
            Ok(authority)
        }
    }
}

/// Reads `host[:port]` strictly.
fn parse(text: &[u8]) -> Option<Authority> {
    let written = std::str::from_utf8(text).ok()?;
    let (host, _) = router::authority(written).ok()?;
    Some(Authority { host: host.into_owned(), written: written.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn h1(target: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&head, None, false).map(|a| a.host).map_err(|r| r.status.as_u16())
    }

    fn h2(target: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
        let mut request = Request::builder().uri(target).version(Version::HTTP_2);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&head, None, true).map(|a| a.host).map_err(|r| r.status.as_u16())
    }

    #[test]
    fn hosts_are_read_in_their_normal_form() {
        for (host, wanted) in [
            ("a.example", "a.example"),
            ("A.Example:80", "a.example"),
            ("a.example.", "a.example"),
            ("a.example.:8080", "a.example"),
            ("under_score.example", "under_score.example"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(h1("/", &[("host", host)]), Ok(wanted.to_owned()), "{host}");
        }
    }

    #[test]
    fn hosts_that_could_mean_two_things_are_refused() {
        for host in [
            "", ".", "a b", "a/b", "user@a", "a:b", "a:80:80", "a:123456", "a%2eb", "a,b", "[::1", "[x]", "[::1]x",
            "a?b", "a#b", "a\\b", "*.a",
        ] {
            assert_eq!(h1("/", &[("host", host)]), Err(400), "{host}");
        }
    }

    #[test]
    fn http_1_requests_need_exactly_one_host_that_agrees_with_the_target() {
        assert_eq!(h1("/", &[]), Err(400));
        assert_eq!(h1("/", &[("host", "a"), ("host", "a")]), Err(400));
        assert_eq!(h1("http://a/x", &[("host", "a")]), Ok("a".to_owned()));
        assert_eq!(h1("http://A/x", &[("host", "a")]), Ok("a".to_owned()));
        assert_eq!(h1("http://b/x", &[("host", "a")]), Err(400));
        assert_eq!(h1("http://a:81/x", &[("host", "a")]), Err(400));
        assert_eq!(h1("https://a/x", &[("host", "a")]), Err(400));
        assert_eq!(h1("*", &[("host", "a")]), Err(400));
    }

    #[test]
    fn transfer_codings_other_than_one_chunked_are_not_implemented() {
        let with = |values: &[&'static str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(values.iter().map(|v| ("transfer-encoding", *v)));
            h1("/", &headers)
        };
        assert_eq!(with(&["chunked"]), Ok("a".to_owned()));
        assert_eq!(with(&["Chunked"]), Ok("a".to_owned()));
        for values in [&["gzip, chunked"][..], &["gzip"], &["chunked", "chunked"], &["identity"], &["chunked,"]] {
            assert_eq!(with(values), Err(501), "{values:?}");
        }
    }

    #[test]
    fn http_2_requests_need_an_authority_that_agrees_with_host() {
        assert_eq!(h2("https://a/", &[]), Ok("a".to_owned()));
        assert_eq!(h2("/", &[("host", "a")]), Ok("a".to_owned()));
        assert_eq!(h2("/", &[]), Err(400));
        assert_eq!(h2("https://a/", &[("host", "a")]), Ok("a".to_owned()));
        assert_eq!(h2("https://a/", &[("host", "b")]), Err(400));
        assert_eq!(h2("https://a/", &[("host", "a"), ("host", "a")]), Err(400));
        assert_eq!(h2("https://user@a/", &[]), Err(400));
    }

    #[test]
    fn connect_and_faults_in_the_bytes_are_refused() {
        let (head, ()) = Request::builder().method("CONNECT").uri("a:80").body(()).unwrap().into_parts();
        assert_eq!(check(&head, None, false).unwrap_err().status, 405);
        let (head, ()) = Request::builder().header("host", "a").body(()).unwrap().into_parts();
        assert_eq!(check(&head, Some(Fault::TwoLengths), false).unwrap_err().status, 400);
    }
}
