//! From a request to its answer: the edge's checks, host, route, action.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::body::ResponseBody;
use crate::connection::Peer;
use crate::edge;
use crate::forward;
use crate::headers::Changes;
use crate::proxy::Proxy;
use crate::redirect;
use crate::route::{Action, Target};
use crate::snapshot::Host;
use crate::tls::Handshake;
use crate::trace::Trace;

/// Answers a request.
pub async fn handle(proxy: Arc<Proxy>, peer: Arc<Peer>, mut request: Request<Incoming>) -> Response<ResponseBody> {
    // Asked for before the request is taken apart; it does nothing unless the upstream agrees.
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let mut trace = Trace::new(Arc::clone(&proxy), Arc::clone(&peer), &head);
    let authority = match edge::check(&head, peer.next_fault(), peer.tls) {
        Ok(authority) => authority,
        Err(reject) => {
            proxy.metrics.rejected.inc();
            trace.because(reject.why);
            return closing(fixed(trace, reject.status), head.version);
        }
    };
    trace.authority = Some(authority.clone());
    // Everything below looks at this one picture, whatever is loaded meanwhile.
    let snapshot = proxy.snapshot.load_full();
    let path = match router::normalise(head.uri.path()) {
        Ok(path) => path.into_owned(),
        Err(error) => {
            proxy.metrics.rejected.inc();
            trace.because(error.to_string());
            return fixed(trace, StatusCode::BAD_REQUEST);
        }
    };
    let Some(table) = snapshot.router.find_host(peer.listener, &authority.host) else {
        trace.because("no such host");
        return fixed(trace, StatusCode::NOT_FOUND);
    };
    match table.host().map(|host| &**host) {
        Some(Host::Live(Some(Handshake::Serve(_) | Handshake::Default))) => {}
        Some(Host::Live(_)) if !peer.tls => {}
        _ if peer.tls => {
            // A handshake for this host would have been refused: this connection was made for another one.
            trace.because("the host takes no handshakes");
            return closing(fixed(trace, StatusCode::MISDIRECTED_REQUEST), head.version);
        }
        _ => {
            trace.because("the host is not live");
            return fixed(trace, StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    let found = match table.route(head.method.as_str(), &path, &head.headers, head.uri.query()) {
        Ok(Some(found)) => found,
        Ok(None) => {
            trace.because("no such route");
            return fixed(trace, StatusCode::NOT_FOUND);
        }
        Err(ambiguous) => {
            proxy.metrics.rejected.inc();
            trace.because(ambiguous.to_string());
            return fixed(trace, StatusCode::BAD_REQUEST);
        }
    };
    let fragment = Arc::clone(found.fragment);
    if proxy.log.is_on() {
        trace.fragment = Some(fragment.name().clone());
    }
    let route = match fragment.payload() {
        Some(routes) if found.built => routes.get(found.claim),
        _ => None,
    };
    let Some(route) = route else {
        trace.because("the route is not live");
        return fixed(trace, StatusCode::SERVICE_UNAVAILABLE);
    };
    if let Some(to) = route.to_https.filter(|_| !peer.tls) {
        let location = redirect::to_https(&authority, to.port, &head.uri);
        return redirected(trace, to.status, location, &route.response_headers);
    }
    match &route.action {
        Action::Unavailable => {
            trace.because("a policy of the route is not live");
            fixed(trace, StatusCode::SERVICE_UNAVAILABLE)
        }
        Action::Respond(status) => changed(fixed(trace, *status), &route.response_headers),
        Action::Redirect { redirect: change, status } => {
            let at = redirect::At { authority: &authority, tls: peer.tls, port: peer.listener.port, path: &path };
            let location = redirect::location(change, &at, found.covered, head.uri.query());
            redirected(trace, *status, location, &route.response_headers)
        }
        Action::Forward(forward) => match forward.choose() {
            Target::Status(status) => {
                trace.because("the share of the route answers by itself");
                changed(fixed(trace, status), &route.response_headers)
            }
            Target::Pool(pool) => {
                let way = forward::Way {
                    forward,
                    pool: &pool,
                    path: &path,
                    covered: found.covered,
                    captures: found.captures.as_ref(),
                    response_headers: &route.response_headers,
                };
                way.go(trace, head, body, upgrade, &authority).await
            }
        },
    }
}

/// An answer of the proxy's own: its status, and its reason as text.
pub fn fixed(mut trace: Trace, status: StatusCode) -> Response<ResponseBody> {
    trace.answered(status);
    let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let text = match status.canonical_reason() {
        _ if bodiless => Bytes::new(),
        Some(reason) => Bytes::from(format!("{} {reason}\n", status.as_u16())),
        None => Bytes::from(format!("{}\n", status.as_u16())),
    };
    trace.sent(if *trace.method() == http::Method::HEAD { 0 } else { text.len() as u64 }, true);
    let mut response = Response::new(ResponseBody::fixed(text));
    *response.status_mut() = status;
    if !bodiless {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    response
}

/// The connection ends after this answer. HTTP/2 has no header for it; there, other requests on it go on.
fn closing(mut response: Response<ResponseBody>, version: Version) -> Response<ResponseBody> {
    if version != Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn changed(mut response: Response<ResponseBody>, changes: &Changes) -> Response<ResponseBody> {
    changes.apply(response.headers_mut());
    response
}

fn redirected(mut trace: Trace, status: StatusCode, location: String, changes: &Changes) -> Response<ResponseBody> {
    // Host and path were checked; should a value not be sendable all the same, nothing is redirected.
    let Ok(location) = HeaderValue::try_from(location) else {
        trace.because("the redirect cannot be written");
        return fixed(trace, StatusCode::BAD_REQUEST);
    };
    let mut response = fixed(trace, status);
    response.headers_mut().insert(LOCATION, location);
    changed(response, changes)
}
