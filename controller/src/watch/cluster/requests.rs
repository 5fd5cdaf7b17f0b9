//! The requests to the API server, as paths and queries.

use std::fmt::Write;
use std::sync::Arc;

use super::kinds::Kind;
use super::talk::Request;

/// The form of answers: whole objects.
pub(super) const WHOLE: &str = "application/json";
/// The form of answers: metadata only.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A kind in the whole cluster or in one namespace, and which of its objects.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) kind: &'static Kind,
    /// None for the whole cluster.
    pub(super) namespace: Option<Arc<str>>,
    /// None for all objects.
    pub(super) selector: Option<Arc<str>>,
}

impl Scope {
    fn target(&self, api_version: &str, query: &[(&str, &str)]) -> String {
        let root = if self.kind.group.is_empty() { "/api" } else { "/apis" };
        let mut target = format!("{root}/{api_version}");
        if let Some(namespace) = &self.namespace {
            target.push_str("/namespaces/");
            encode(&mut target, namespace);
        }
        target.push('/');
        target.push_str(self.kind.plural);
        let selector = self.selector.iter().map(|selector| ("labelSelector", &**selector));
        for (at, (name, value)) in query.iter().copied().chain(selector).enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            encode(&mut target, value);
        }
        target
    }

    /// The path and query of a list or a watch. Lists are of this moment: what a cache of the server has may be older.
    pub(super) fn request(&self, api_version: &str, request: &Request) -> String {
        match request {
            Request::Page { limit, continues } => self.page(api_version, *limit, continues.as_deref()),
            Request::Follow { from, seconds } => {
                let (from, seconds) = (from.as_ref().map(ToString::to_string), seconds.to_string());
                let mut query = vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &*seconds)];
                match &from {
                    Some(from) => query.push(("resourceVersion", from)),
                    None => query.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]),
                }
                self.target(api_version, &query)
            }
        }
    }

    /// The path and query of a page of a list.
    pub(super) fn page(&self, api_version: &str, limit: u32, continues: Option<&str>) -> String {
        let limit = limit.to_string();
        let mut query = vec![("limit", &*limit)];
        query.extend(continues.map(|token| ("continue", token)));
        self.target(api_version, &query)
    }
}

/// Writes a part of a query so that it means itself (RFC 3986, 2.3).
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::KINDS;
    use super::super::version::Version;
    use super::*;

    #[test]
    fn requests_are_what_the_api_server_understands() {
        let scope = |name: &str, namespace: Option<&str>, selector: Option<&str>| Scope {
            kind: KINDS.iter().find(|kind| kind.name == name).unwrap(),
            namespace: namespace.map(Into::into),
            selector: selector.map(Into::into),
        };
        let page = scope("Secret", Some("shop"), Some("a in (b,c)")).page("v1", 250, Some("t=="));
        assert_eq!(
            page,
            "/api/v1/namespaces/shop/secrets?limit=250&continue=t%3D%3D&labelSelector=a%20in%20%28b%2Cc%29"
        );
        let ingresses = scope("Ingress", None, None);
        let follow = |from| ingresses.request("networking.k8s.io/v1", &Request::Follow { from, seconds: 9 });
        assert_eq!(
            follow(Some(Version::Number(7))),
            "/apis/networking.k8s.io/v1/ingresses?watch=true&allowWatchBookmarks=true&timeoutSeconds=9&resourceVersion=7"
        );
        assert!(follow(None).ends_with("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
    }
}
