//! The admin API on a unix socket (architecture, "scalwsd's admin API"): what the agent asks, and what people look at.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use journal::admin::{
    ErrorAnswer, MembersAnswer, PatchMembers, PutMembers, ReloadRequest, UpstreamAnswer, UpstreamsAnswer,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;

use crate::loader::Loader;
use crate::members::{Members, MembersError};
use crate::proxy::Proxy;

/// The largest request body, in bytes: a set of 100,000 members fits.
const BODY_MAX: usize = 16 << 20;

/// What the admin API needs.
#[derive(Clone)]
pub struct Admin {
    /// Reloads.
    pub loader: Arc<Loader>,
    /// Member sets.
    pub members: Arc<Members>,
    /// Counters.
    pub proxy: Arc<Proxy>,
}

type Answer = Response<Full<Bytes>>;

/// Opens the socket. A stale one of a dead process is replaced; only this user may connect.
///
/// # Errors
/// When a living process listens there, or the folder cannot be written.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let why = format!("another process answers on {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Admin {
    /// Answers until the future is dropped.
    pub async fn serve(self, listener: UnixListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "an admin connection cannot be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let admin = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let admin = admin.clone();
                    async move { Ok::<_, Infallible>(admin.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%error, "an admin connection ended");
                }
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if let Some(set) = path.strip_prefix("/v1/upstreams/") {
            let Some(set) = decode(set) else {
                return error(StatusCode::BAD_REQUEST, "the set's name is not percent-encoded UTF-8");
            };
            return self.upstream(&head.method, &set, body).await;
        }
        match (&head.method, path) {
            (&Method::POST, "/v1/reload") => match read::<ReloadRequest>(body).await {
                Ok(request) => match self.loader.reload(&request).await {
                    Ok(answer) => json(StatusCode::OK, &answer),
                    Err(unusable) => json(StatusCode::UNPROCESSABLE_ENTITY, &ErrorAnswer { errors: unusable.0 }),
                },
                Err(answer) => answer,
            },
            (&Method::POST, "/v1/drain") => {
                self.loader.drain().await;
                text(StatusCode::ACCEPTED, format!("draining; {} connections are open\n", self.proxy.open()))
            }
            (&Method::GET, "/v1/config") => json(StatusCode::OK, &self.loader.config()),
            (&Method::GET, "/v1/upstreams") => {
                let (root, sets) = self.members.digests();
                json(StatusCode::OK, &UpstreamsAnswer { root: Some(root), sets })
            }
            (&Method::GET, "/healthz") => text(StatusCode::OK, "ok\n"),
            (&Method::GET, "/readyz") => {
                if self.loader.is_ready() {
                    text(StatusCode::OK, "ok\n")
                } else if self.loader.is_draining() {
                    text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
                } else {
                    text(StatusCode::SERVICE_UNAVAILABLE, "nothing is loaded yet\n")
                }
            }
            (&Method::GET, "/metrics") => {
                let mut answer = text(StatusCode::OK, self.proxy.metrics.text());
                let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                answer.headers_mut().insert(CONTENT_TYPE, kind);
                answer
            }
            (_, "/v1/reload" | "/v1/drain" | "/v1/config" | "/v1/upstreams" | "/healthz" | "/readyz" | "/metrics") => {
                error(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
            }
            _ => error(StatusCode::NOT_FOUND, "there is no such call"),
        }
    }

    async fn upstream(&self, method: &Method, set: &str, body: Incoming) -> Answer {
        let shared = |texts: Vec<String>| texts.into_iter().map(Arc::from).collect::<Vec<Arc<str>>>();
        let result = match *method {
            Method::GET => {
                return match self.members.get(set) {
                    Some(found) => {
                        let members = found.members.iter().map(ToString::to_string).collect();
                        json(StatusCode::OK, &UpstreamAnswer { digest: found.digest, members })
                    }
                    None => error(StatusCode::NOT_FOUND, "there is no such set"),
                };
            }
            Method::PUT => match read::<PutMembers>(body).await {
                Ok(put) => self.members.put(set, shared(put.members)),
                Err(answer) => return answer,
            },
            Method::PATCH => match read::<PatchMembers>(body).await {
                Ok(patch) => self.members.patch(set, patch.base, &shared(patch.add), &shared(patch.remove)),
                Err(answer) => return answer,
            },
            Method::DELETE => {
                return if self.members.drop_set(set) {
                    text(StatusCode::OK, "gone\n")
                } else {
                    error(StatusCode::NOT_FOUND, "there is no such set")
                };
            }
            _ => return error(StatusCode::METHOD_NOT_ALLOWED, "not with this method"),
        };
        self.proxy.metrics.member_updates.inc();
        match result {
            Ok(digest) => json(StatusCode::OK, &MembersAnswer { digest }),
            Err(MembersError::Base(digest)) => json(StatusCode::CONFLICT, &MembersAnswer { digest }),
            Err(refused) => error(StatusCode::BAD_REQUEST, &refused.to_string()),
        }
    }
}

async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Answer> {
    let bytes = match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(why) => return Err(error(StatusCode::PAYLOAD_TOO_LARGE, &why.to_string())),
    };
    // `curl -X POST` without a body means the same as an empty object.
    let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
    serde_json::from_slice(&bytes).map_err(|e| error(StatusCode::BAD_REQUEST, &e.to_string()))
}

fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    let Ok(bytes) = serde_json::to_vec(body) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written\n");
    };
    let mut answer = Response::new(Full::new(bytes.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn error(status: StatusCode, why: &str) -> Answer {
    json(status, &ErrorAnswer { errors: vec![why.to_owned()] })
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// Decodes one path segment. A `/` would begin another one.
fn decode(segment: &str) -> Option<String> {
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'/' => return None,
            b'%' => {
                let digits = std::str::from_utf8(bytes.get(at..at + 2)?).ok()?;
                if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                out.push(u8::from_str_radix(digits, 16).ok()?);
                at += 2;
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_names_are_one_percent_encoded_segment() {
        for name in ["demo/web%3A80/tcp", "ü/..:", ""] {
            let path = journal::client::upstream_path(name);
            assert_eq!(decode(path.strip_prefix("/v1/upstreams/").unwrap()).as_deref(), Some(name));
        }
        for bad in ["a/b", "%", "%2", "%zz", "%ff", "%+1"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
