//! Forwarding: the request as the upstream gets it, tries, time limits, and the answer on its way back.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::{HOST, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;

use crate::body::{Progress, RequestBody, ResponseBody, Watch};
use crate::clock;
use crate::edge::Authority;
use crate::headers::{self, Changes, Origin};
use crate::member::{ConnectError, Load};
use crate::pool::{Pool, Protocol};
use crate::route::{Forward, rewrite};
use crate::service::fixed;
use crate::trace::Trace;
use crate::tunnel;

/// Where a request goes and how.
#[derive(Debug)]
pub struct Way<'a> {
    /// The route's action.
    pub forward: &'a Forward,
    /// The share that was chosen.
    pub pool: &'a Pool,
    /// The path in normal form.
    pub path: &'a str,
    /// How many bytes of it a prefix match covered, as the router says.
    pub covered: usize,
    /// The groups of the expression that matched.
    pub captures: Option<&'a router::Captures>,
    /// Changes to the answer's headers.
    pub response_headers: &'a Changes,
}

/// How one try ended.
enum Tried {
    /// With an answer. The connection is kept when the answer's body is over.
    Answered(Response<Incoming>, Option<http1::SendRequest<RequestBody>>),
    /// The request never reached the member, or may safely be repeated.
    Again(Request<RequestBody>, StatusCode, String),
    /// For good.
    Failed(StatusCode, String),
}

/// The time for a request is over.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// The client stopped sending its body.
    Client,
    /// The member said nothing.
    Member,
}

impl Way<'_> {
    /// Forwards a request and gives the answer.
    pub async fn go(
        self,
        mut trace: Trace,
        mut head: Parts,
        body: Incoming,
        upgrade: OnUpgrade,
        authority: &Authority,
    ) -> Response<ResponseBody> {
        let Some(uri) = self.target(&head) else {
            trace.because("the rewritten path cannot be sent");
            return fixed(trace, StatusCode::BAD_REQUEST);
        };
        let websocket = tunnel::asked_for(&head);
        let (body, progress) = RequestBody::new(body);
        trace.progress.clone_from(&progress);
        if websocket.is_some() && (progress.is_some() || self.pool.protocol == Protocol::Http2) {
            trace.because("WebSocket with a body, or to members that speak HTTP/2");
            return fixed(trace, StatusCode::NOT_IMPLEMENTED);
        }
        let origin = Origin {
            client: trace.peer.client.ip().to_canonical(),
            tls: trace.peer.tls,
            port: trace.peer.listener.port,
            authority,
        };
        let te = self.pool.protocol == Protocol::Http2;
        trace.id = Some(headers::prepare_request(&mut head.headers, &origin, te));
        self.forward.request_headers.apply(&mut head.headers);
        let Some(mut request) = self.request(head, uri, body, authority) else {
            trace.because("the request cannot be written for the upstream");
            return fixed(trace, StatusCode::BAD_REQUEST);
        };
        if let Some(websocket) = &websocket {
            websocket.ask(request.headers_mut());
        }
        let limits = self.forward.limits;
        let deadline = (limits.request_ms > 0).then(|| Instant::now() + Duration::from_millis(limits.request_ms));
        let mut tried: Vec<SocketAddr> = Vec::new();
        loop {
            let Some(member) = self.pool.choose(&tried) else {
                trace.because("the pool has no member");
                return fixed(trace, StatusCode::SERVICE_UNAVAILABLE);
            };
            tried.push(member.address);
            trace.member = Some(member.address);
            trace.tries += 1;
            let load = member.take();
            let last = tried.len() > usize::from(self.forward.retries);
            match self.once(request, &load, progress.as_deref(), deadline, last).await {
                Tried::Answered(response, sender) => {
                    let flight = Flight { trace, load, sender };
                    return self.answer(flight, response, websocket, upgrade, deadline);
                }
                Tried::Again(next, ..) if !last => {
                    trace.proxy().metrics.retries.inc();
                    request = next;
                }
                Tried::Again(_, status, why) | Tried::Failed(status, why) => {
                    trace.because(why);
                    return fixed(trace, status);
                }
            }
        }
    }

    /// Path and query for the upstream: as the client wrote them, unless the route rewrites the path or dot segments were
    /// resolved. What was matched must be what is served.
    fn target(&self, head: &Parts) -> Option<http::uri::PathAndQuery> {
        let written = head.uri.path_and_query()?;
        let path = match &self.forward.path {
            Some(change) => rewrite(change, self.path, self.covered, self.captures).ok()?,
            None if has_dot_segment(written.path()) => self.path.to_owned(),
            None => return Some(written.clone()),
        };
        let text = match written.query() {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        text.try_into().ok()
    }

    fn request(
        &self,
        head: Parts,
        path: http::uri::PathAndQuery,
        body: RequestBody,
        authority: &Authority,
    ) -> Option<Request<RequestBody>> {
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        let mut headers = head.headers;
        match self.pool.protocol {
            Protocol::Http1 => {
                if let Some(host) = &self.forward.host {
                    headers.insert(HOST, HeaderValue::clone(host));
                } else if head.version == Version::HTTP_2 || !headers.contains_key(HOST) {
                    headers.insert(HOST, authority.written.as_str().try_into().ok()?);
                }
                *request.uri_mut() = Uri::from(path);
            }
            Protocol::Http2 => {
                headers.remove(HOST);
                let host = match &self.forward.host {
                    Some(host) => host.to_str().ok()?,
                    None => &authority.written,
                };
                let uri = Uri::builder().scheme("http").authority(host).path_and_query(path);
                *request.uri_mut() = uri.build().ok()?;
                *request.version_mut() = Version::HTTP_2;
            }
        }
        *request.headers_mut() = headers;
        Some(request)
    }

    async fn once(
        &self,
        request: Request<RequestBody>,
        load: &Load,
        progress: Option<&Progress>,
        deadline: Option<Instant>,
        last: bool,
    ) -> Tried {
        let member = load.member();
        let limits = self.forward.limits;
        let connect_ms = connect_limit(limits.connect_ms, deadline);
        // A request that does nothing and has no body may be sent twice (RFC 9110 section 9.2.2).
        let repeatable = !last && progress.is_none() && request.method().is_idempotent();
        let (result, copy, sender) = match self.pool.protocol {
            Protocol::Http1 => {
                let mut connection = match member.http1(connect_ms).await {
                    Ok(connection) => connection,
                    Err(error) => return self.unconnected(request, &error, load),
                };
                let copy = (repeatable && connection.reused).then(|| copy_of(&request));
                let sending = connection.sender.try_send_request(request);
                (within(sending, limits.idle_ms, progress, deadline).await, copy, Some(connection.sender))
            }
            Protocol::Http2 => {
                let mut connection = match member.http2(connect_ms).await {
                    Ok(connection) => connection,
                    Err(error) => return self.unconnected(request, &error, load),
                };
                let copy = (repeatable && connection.reused).then(|| copy_of(&request));
                let sending = connection.sender.try_send_request(request);
                let result = within(sending, limits.idle_ms, progress, deadline).await;
                if matches!(result, Ok(Ok(_))) {
                    member.answered();
                }
                (result, copy, None)
            }
        };
        match result {
            Ok(Ok(response)) => Tried::Answered(response, sender),
            Ok(Err(error)) => failed(error, copy, member.address),
            Err(Late::Client) => {
                Tried::Failed(StatusCode::REQUEST_TIMEOUT, "the client stopped sending its body".to_owned())
            }
            Err(Late::Member) => {
                Tried::Failed(StatusCode::GATEWAY_TIMEOUT, format!("no answer from {} in time", member.address))
            }
        }
    }

    fn unconnected(&self, request: Request<RequestBody>, error: &ConnectError, load: &Load) -> Tried {
        tracing::debug!(%error, load = load.member().load(), "a member cannot be reached");
        let status = match error {
            ConnectError::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
            ConnectError::Refused { .. } => StatusCode::BAD_GATEWAY,
        };
        Tried::Again(request, status, error.to_string())
    }

    fn answer(
        &self,
        mut flight: Flight,
        response: Response<Incoming>,
        websocket: Option<tunnel::Asked>,
        upgrade: OnUpgrade,
        deadline: Option<Instant>,
    ) -> Response<ResponseBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return match websocket {
                Some(asked) => tunnel::open(asked, flight, response, upgrade, self.forward.limits.idle_ms),
                None => {
                    flight.trace.because("the member switches protocols and was not asked to");
                    fixed(flight.trace, StatusCode::BAD_GATEWAY)
                }
            };
        }
        let (mut head, body) = response.into_parts();
        headers::remove_hop_by_hop(&mut head.headers);
        self.response_headers.apply(&mut head.headers);
        flight.trace.answered(head.status);
        let body = ResponseBody::upstream(body, self.forward.limits.idle_ms, deadline, Box::new(flight));
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }
}

/// What a request holds until its answer is over.
#[derive(Debug)]
pub struct Flight {
    /// Its trace.
    pub trace: Trace,
    /// Its share of the member's load.
    pub load: Load,
    /// The connection, to be kept.
    pub sender: Option<http1::SendRequest<RequestBody>>,
}

impl Watch for Flight {
    fn ended(self: Box<Self>, bytes: u64, complete: bool) {
        let Flight { mut trace, load, sender } = *self;
        trace.sent(bytes, complete);
        if !complete {
            trace.proxy().metrics.answers_cut.inc();
            trace.because("the answer did not go through whole");
        }
        // A connection whose request is still being written cannot take another one.
        let whole = complete && trace.progress.as_ref().is_none_or(|p| p.is_done());
        if let Some(sender) = sender.filter(|_| whole) {
            load.member().keep(sender);
        }
    }
}

/// The limit for a connection that is within the one for the whole request; 0 is without limit.
fn connect_limit(connect_ms: u64, deadline: Option<Instant>) -> u64 {
    let Some(deadline) = deadline else { return connect_ms };
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    let left = u64::try_from(left).unwrap_or(u64::MAX).max(1);
    if connect_ms == 0 { left } else { left.min(connect_ms) }
}

/// The same request without its body, which it does not have.
fn copy_of(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = HeaderMap::clone(request.headers());
    copy
}

fn failed(
    mut error: TrySendError<Request<RequestBody>>,
    copy: Option<Request<RequestBody>>,
    address: SocketAddr,
) -> Tried {
    let why = format!("{address}: {}", error.error());
    match error.take_message().or(copy) {
        Some(request) => Tried::Again(request, StatusCode::BAD_GATEWAY, why),
        None => Tried::Failed(StatusCode::BAD_GATEWAY, why),
    }
}

/// Waits for an answer. The time between two signs of life is limited, and so is the whole; while the request's body is
/// read, each part of it is a sign.
async fn within<F: Future>(
    future: F,
    idle_ms: u64,
    progress: Option<&Progress>,
    deadline: Option<Instant>,
) -> Result<F::Output, Late> {
    let mut future = std::pin::pin!(future);
    let began = clock::now_ms();
    let end = |progress: Option<&Progress>| {
        let last = progress.map_or(began, |p| p.last_ms().max(began));
        let idle = (idle_ms > 0).then(|| clock::instant_of(last.saturating_add(idle_ms)));
        [idle, deadline].into_iter().flatten().min()
    };
    let Some(mut until) = end(progress) else { return Ok(future.await) };
    loop {
        if let Ok(output) = tokio::time::timeout_at(until, future.as_mut()).await {
            return Ok(output);
        }
        match end(progress) {
            Some(later) if later > Instant::now() => until = later,
            _ if progress.is_some_and(|p| !p.is_done()) => return Err(Late::Client),
            _ => return Err(Late::Member),
        }
    }
}

/// Whether a path has a segment that means "here" or "above" (RFC 3986 section 5.2.4), in any spelling.
fn has_dot_segment(path: &str) -> bool {
    let dots = |segment: &str| {
        let mut rest = segment;
        let mut count = 0;
        while !rest.is_empty() {
            let shorter =
                rest.strip_prefix('.').or_else(|| rest.strip_prefix("%2e")).or_else(|| rest.strip_prefix("%2E"));
            let Some(shorter) = shorter else { return false };
            rest = shorter;
            count += 1;
        }
        count == 1 || count == 2
    };
    path.split('/').any(dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_seen_in_every_spelling() {
        for path in ["/.", "/..", "/a/../b", "/a/%2e/b", "/%2E%2e/", "/.%2e"] {
            assert!(has_dot_segment(path), "{path}");
        }
        for path in ["/", "/...", "/a.b/..c", "/%2e%2e%2e", "//", "/.well-known/x"] {
            assert!(!has_dot_segment(path), "{path}");
        }
    }

    #[tokio::test]
    async fn waiting_ends_when_there_is_no_sign_of_life_or_at_the_deadline() {
        let never = std::future::pending::<()>;
        assert!(matches!(within(never(), 10, None, None).await, Err(Late::Member)));
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(matches!(within(never(), 0, None, Some(soon)).await, Err(Late::Member)));
        assert!(matches!(within(never(), 10, Some(&Progress::default()), None).await, Err(Late::Client)));
        assert!(within(async { 1 }, 50, None, None).await.is_ok());
    }
}
