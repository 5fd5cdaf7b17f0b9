//! The client of `scalwsd`'s admin API: one kept connection on a unix socket.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::admin::{
    ConfigAnswer, ErrorAnswer, MembersAnswer, PatchMembers, PutMembers, ReloadAnswer, ReloadRequest, UpstreamAnswer,
    UpstreamsAnswer,
};
use crate::{Digest, MemberTree};

/// The longest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 256 << 20;

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no connection, or it dropped: `scalwsd` is down, or restarted during the call.
    #[error("no answer from scalwsd at {path}: {why}")]
    Gone {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It refused, and nothing changed.
    #[error("scalwsd refused {call} with {status}: {}", errors.join("; "))]
    Refused {
        /// Method and path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        errors: Vec<String>,
    },
    /// The base of a change is not what `scalwsd` has.
    #[error("the member set has another digest: {digest}")]
    Conflict {
        /// What it has.
        digest: Digest,
    },
    /// The answer cannot be read.
    #[error("scalwsd answered {call} with something else: {why}")]
    Answer {
        /// Method and path.
        call: String,
        /// What is wrong.
        why: String,
    },
}

/// One connection to a running `scalwsd`. When it drops, `scalwsd` has restarted; connect again and look at
/// [`ConfigAnswer::start`].
#[derive(Debug)]
pub struct AdminClient {
    path: PathBuf,
    sender: SendRequest<Full<Bytes>>,
    closed: watch::Receiver<bool>,
}

impl AdminClient {
    /// Connects.
    ///
    /// # Errors
    /// [`AdminError::Gone`] when nobody listens there.
    pub async fn connect(path: &Path) -> Result<AdminClient, AdminError> {
        let gone = |why: String| AdminError::Gone { path: path.to_owned(), why };
        let stream = UnixStream::connect(path).await.map_err(|e| gone(e.to_string()))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| gone(e.to_string()))?;
        let (close, closed) = watch::channel(false);
        tokio::spawn(async move {
            // Whoever waits for an answer gets the error itself.
            let _ended = connection.await;
            close.send_replace(true);
        });
        Ok(AdminClient { path: path.to_owned(), sender, closed })
    }

    /// Becomes true when the connection drops. Does not borrow the client.
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.closed.clone()
    }

    /// Whether the connection dropped.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow() || self.sender.is_closed()
    }

    /// `POST /v1/reload`.
    ///
    /// # Errors
    /// [`AdminError::Refused`] with 422 when the whole is unusable.
    pub async fn reload(&mut self, request: &ReloadRequest) -> Result<ReloadAnswer, AdminError> {
        self.json(Method::POST, "/v1/reload", Some(request)).await
    }

    /// `PUT /v1/upstreams/{set}`: gives the digest that it has then.
    ///
    /// # Errors
    /// When it is refused or `scalwsd` is gone.
    pub async fn put_members(&mut self, set: &str, members: Vec<String>) -> Result<Digest, AdminError> {
        let answer: MembersAnswer = self.json(Method::PUT, &upstream_path(set), Some(&PutMembers { members })).await?;
        Ok(answer.digest)
    }

    /// `PATCH /v1/upstreams/{set}`: gives the digest that it has then.
    ///
    /// # Errors
    /// [`AdminError::Conflict`] when it has another base.
    pub async fn patch_members(&mut self, set: &str, patch: &PatchMembers) -> Result<Digest, AdminError> {
        let answer: MembersAnswer = self.json(Method::PATCH, &upstream_path(set), Some(patch)).await?;
        Ok(answer.digest)
    }

    /// `DELETE /v1/upstreams/{set}`: the set is gone. A set that is not there is no error.
    ///
    /// # Errors
    /// When it is refused or `scalwsd` is gone.
    pub async fn delete_members(&mut self, set: &str) -> Result<(), AdminError> {
        let path = upstream_path(set);
        match self.call(Method::DELETE, &path, None::<&()>).await? {
            (status, _) if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            (status, body) => Err(refused(&format!("DELETE {path}"), status, &body)),
        }
    }

    /// `GET /v1/config`: what really runs.
    ///
    /// # Errors
    /// When `scalwsd` is gone.
    pub async fn config(&mut self) -> Result<ConfigAnswer, AdminError> {
        self.json(Method::GET, "/v1/config", None::<&()>).await
    }

    /// `GET /v1/upstreams`: the digest of every set. The root is recomputed where the answer has none.
    ///
    /// # Errors
    /// When `scalwsd` is gone.
    pub async fn upstreams(&mut self) -> Result<UpstreamsAnswer, AdminError> {
        let mut answer: UpstreamsAnswer = self.json(Method::GET, "/v1/upstreams", None::<&()>).await?;
        if answer.root.is_none() {
            let mut tree = MemberTree::default();
            for (name, digest) in &answer.sets {
                tree.insert(name.as_str().into(), *digest);
            }
            answer.root = Some(tree.root());
        }
        Ok(answer)
    }

    /// `GET /v1/upstreams/{set}`; `None` when it has no such set.
    ///
    /// # Errors
    /// When `scalwsd` is gone.
    pub async fn upstream(&mut self, set: &str) -> Result<Option<UpstreamAnswer>, AdminError> {
        match self.json(Method::GET, &upstream_path(set), None::<&()>).await {
            Ok(answer) => Ok(Some(answer)),
            Err(AdminError::Refused { status: 404, .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// `POST /v1/drain`: stops accepting and finishes what is under way.
    ///
    /// # Errors
    /// When `scalwsd` is gone.
    pub async fn drain(&mut self) -> Result<(), AdminError> {
        match self.call(Method::POST, "/v1/drain", None::<&()>).await? {
            (status, _) if status.is_success() => Ok(()),
            (status, body) => Err(refused("POST /v1/drain", status, &body)),
        }
    }

    /// `GET /readyz`: whether it serves.
    ///
    /// # Errors
    /// When `scalwsd` is gone.
    pub async fn ready(&mut self) -> Result<bool, AdminError> {
        Ok(self.call(Method::GET, "/readyz", None::<&()>).await?.0.is_success())
    }

    async fn json<B: Serialize, A: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, AdminError> {
        let call = format!("{method} {path}");
        let (status, answer) = self.call(method, path, body).await?;
        if status == StatusCode::CONFLICT
            && let Ok(MembersAnswer { digest }) = serde_json::from_slice(&answer)
        {
            return Err(AdminError::Conflict { digest });
        }
        if !status.is_success() {
            return Err(refused(&call, status, &answer));
        }
        serde_json::from_slice(&answer).map_err(|e| AdminError::Answer { call, why: e.to_string() })
    }

    async fn call<B: Serialize>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<(StatusCode, Bytes), AdminError> {
        let call = format!("{method} {path}");
        let bytes = match body {
            Some(body) => serde_json::to_vec(body)
                .map_err(|e| AdminError::Answer { call: call.clone(), why: e.to_string() })?
                .into(),
            None => Bytes::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "scalwsd")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(bytes))
            .map_err(|e| AdminError::Answer { call: call.clone(), why: e.to_string() })?;
        let path = self.path.clone();
        let gone = |why: String| AdminError::Gone { path: path.clone(), why };
        self.sender.ready().await.map_err(|e| gone(e.to_string()))?;
        let answer = self.sender.send_request(request).await.map_err(|e| gone(e.to_string()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_LIMIT).collect().await.map_err(|e| gone(e.to_string()))?.to_bytes();
        Ok((head.status, body))
    }
}

fn refused(call: &str, status: StatusCode, body: &[u8]) -> AdminError {
    let errors = match serde_json::from_slice::<ErrorAnswer>(body) {
        Ok(answer) => answer.errors,
        Err(_) => vec![String::from_utf8_lossy(body).trim().to_owned()],
    };
    AdminError::Refused { call: call.to_owned(), status: status.as_u16(), errors }
}

/// The path of a set: its name percent-encoded as one segment, so that it can hold any text.
pub fn upstream_path(set: &str) -> String {
    use std::fmt::Write;
    let mut path = String::from("/v1/upstreams/");
    for byte in set.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _infallible = write!(path, "%{byte:02X}");
        }
    }
    path
}
