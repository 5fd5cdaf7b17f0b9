//! Where redirects lead (RFC 9110 section 10.2.2; Gateway API, HTTPRequestRedirectFilter).

use config::Redirect;
use http::Uri;

use crate::edge::Authority;
use crate::route::redirect_path;

/// Where a request is.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// What it is addressed to.
    pub authority: &'a Authority,
    /// Whether it came over TLS.
    pub tls: bool,
    /// The listener's port.
    pub port: u16,
    /// Its path in normal form.
    pub path: &'a str,
}

/// The same host, path and query on https. Port 443 is not written.
pub fn to_https(authority: &Authority, port: u16, target: &Uri) -> String {
    let path = target.path_and_query().map_or("/", |p| p.as_str());
    let host = &authority.host;
    if port == 443 { format!("https://{host}{path}") } else { format!("https://{host}:{port}{path}") }
}

/// The target of a redirect; what it does not change stays.
///
/// Without a port, a given scheme brings its well-known one, and otherwise the listener's stays (Gateway API,
/// HTTPRequestRedirectFilter.port).
pub fn location(change: &Redirect, at: &At<'_>, covered: usize, query: Option<&str>) -> String {
    let own = if at.tls { "https" } else { "http" };
    let scheme = change.scheme.as_deref().unwrap_or(own);
    let well_known = if scheme == "https" { 443 } else { 80 };
    let port = change.port.unwrap_or(if change.scheme.is_some() { well_known } else { at.port });
    let host = change.host.as_deref().unwrap_or(&at.authority.host);
    let path = redirect_path(change.path.as_ref(), at.path, covered);
    let mut out = format!("{scheme}://{host}");
    if port != well_known {
        out.push_str(&format!(":{port}"));
    }
    out.push_str(&path);
    if let Some(query) = query {
        out.push('?');
        out.push_str(query);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::RedirectPath;

    fn authority() -> Authority {
        Authority { written: "A.example:8080".to_owned(), host: "a.example".to_owned() }
    }

    fn led(change: &Redirect, covered: usize) -> String {
        let authority = authority();
        let at = At { authority: &authority, tls: false, port: 8080, path: "/foo/bar" };
        location(change, &at, covered, Some("q=1"))
    }

    fn plain() -> Redirect {
        Redirect { status: 302, scheme: None, host: None, port: None, path: None }
    }

    #[test]
    fn to_https_keeps_host_path_and_query_and_omits_the_usual_port() {
        let uri: Uri = "/a%2Fb?x=%20".parse().unwrap();
        assert_eq!(to_https(&authority(), 443, &uri), "https://a.example/a%2Fb?x=%20");
        assert_eq!(to_https(&authority(), 8443, &uri), "https://a.example:8443/a%2Fb?x=%20");
    }

    #[test]
    fn a_redirect_changes_what_it_names_and_keeps_the_rest() {
        assert_eq!(led(&plain(), 0), "http://a.example:8080/foo/bar?q=1");
        let scheme = Redirect { scheme: Some("https".to_owned()), ..plain() };
        assert_eq!(led(&scheme, 0), "https://a.example/foo/bar?q=1");
        let port = Redirect { port: Some(80), ..plain() };
        assert_eq!(led(&port, 0), "http://a.example/foo/bar?q=1");
        let host = Redirect { host: Some("b.example".to_owned()), port: Some(9000), ..plain() };
        assert_eq!(led(&host, 0), "http://b.example:9000/foo/bar?q=1");
        let full = Redirect { path: Some(RedirectPath::Full("/new".to_owned())), ..plain() };
        assert_eq!(led(&full, 0), "http://a.example:8080/new?q=1");
        let prefix = Redirect { path: Some(RedirectPath::Prefix("/x".to_owned())), ..plain() };
        assert_eq!(led(&prefix, 4), "http://a.example:8080/x/bar?q=1");
    }
}
