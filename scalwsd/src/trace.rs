//! What is remembered of a request until it is over: then it is counted and logged, whatever ended it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use config::Name;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, Version};

use crate::access_log::{Line, cut};
use crate::body::Progress;
use crate::clock::rfc3339;
use crate::connection::Peer;
use crate::edge::Authority;
use crate::proxy::Proxy;

/// The status in the log for a client that left before its answer (nginx's number).
const CLIENT_LEFT: u16 = 499;

/// One request. When it is dropped the request is over.
#[derive(Debug)]
pub struct Trace {
    proxy: Arc<Proxy>,
    /// Who asks.
    pub peer: Arc<Peer>,
    time: SystemTime,
    started: Instant,
    version: Version,
    method: Method,
    target: Uri,
    agent: Option<HeaderValue>,
    /// What it is addressed to.
    pub authority: Option<Authority>,
    /// The id that the upstream sees.
    pub id: Option<HeaderValue>,
    /// The fragment whose route it took.
    pub fragment: Option<Name>,
    /// The member that was tried last.
    pub member: Option<SocketAddr>,
    /// How often members were tried.
    pub tries: u32,
    /// How far its body is.
    pub progress: Option<Arc<Progress>>,
    why: Option<String>,
    status: Option<StatusCode>,
    bytes: u64,
    complete: bool,
}

impl Trace {
    /// A request that begins.
    pub fn new(proxy: Arc<Proxy>, peer: Arc<Peer>, head: &Parts) -> Trace {
        proxy.metrics.requests_active.inc();
        let agent = if proxy.log.is_on() { head.headers.get(USER_AGENT).cloned() } else { None };
        Trace {
            peer,
            time: SystemTime::now(),
            started: Instant::now(),
            version: head.version,
            method: head.method.clone(),
            target: head.uri.clone(),
            agent,
            authority: None,
            id: None,
            fragment: None,
            member: None,
            tries: 0,
            progress: None,
            why: None,
            status: None,
            bytes: 0,
            complete: true,
            proxy,
        }
    }

    /// What all connections share.
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The answer has this status.
    pub fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Why the proxy itself answers, or what went wrong. The last one counts.
    pub fn because(&mut self, why: impl Into<String>) {
        self.why = Some(why.into());
    }

    /// How the answer's body ended.
    pub fn sent(&mut self, bytes: u64, complete: bool) {
        self.bytes = bytes;
        self.complete = complete;
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let metrics = &self.proxy.metrics;
        let duration = self.started.elapsed();
        metrics.requests_active.dec();
        metrics.duration.observe(duration.as_secs_f64());
        metrics.bytes_sent.inc_by(self.bytes);
        let received = self.progress.as_ref().map_or(0, |p| p.bytes());
        metrics.bytes_received.inc_by(received);
        if let Some(status) = self.status {
            metrics.answered(status);
        }
        if !self.proxy.log.is_on() {
            return;
        }
        let text =
            |value: &Option<HeaderValue>| value.as_ref().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let (id, agent) = (text(&self.id).unwrap_or_default(), text(&self.agent).unwrap_or_default());
        let target = match self.target.path_and_query() {
            Some(path) if self.version == Version::HTTP_2 => path.to_string(),
            _ => self.target.to_string(),
        };
        self.proxy.log.log(&Line {
            time: rfc3339(self.time),
            client: self.peer.client.to_string(),
            port: self.peer.listener.port,
            protocol: if self.version == Version::HTTP_2 {
                "HTTP/2.0"
            } else if self.version == Version::HTTP_10 {
                "HTTP/1.0"
            } else {
                "HTTP/1.1"
            },
            tls: self.peer.tls,
            method: cut(self.method.as_str()),
            host: self.authority.as_ref().map_or("", |a| cut(&a.written)),
            target: cut(&target),
            status: self.status.map_or(CLIENT_LEFT, |s| s.as_u16()),
            bytes: self.bytes,
            request_bytes: received,
            duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
            id: &id,
            fragment: self.fragment.as_ref().map(ToString::to_string),
            member: self.member.map(|m| m.to_string()),
            tries: self.tries,
            why: self.why.as_deref(),
            complete: self.complete,
            agent: cut(&agent),
        });
    }
}
