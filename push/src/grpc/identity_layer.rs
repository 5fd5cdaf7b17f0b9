//! The layer around a whole server: it lets through one method, for callers who proved who they are, and nothing else.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use futures_util::future::Either;
use http::{Request, Response};
use journal::mutants::{self, Mutant};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::accept::{Peer, Proven};

/// A method that a server lets through, and what the caller must have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `Push/Sync`, for a proven agent whose certificate has not ended.
    Sync,
    /// `Enrolment/Enroll`, for anyone; the token is checked inside.
    Enroll,
}

impl Method {
    /// The path of its requests.
    pub fn path(self) -> &'static str {
        match self {
            Method::Sync => "/scalws.push.v1.Push/Sync",
            Method::Enroll => "/scalws.push.v1.Enrolment/Enroll",
        }
    }
}

/// Denies everything but one method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Only(pub(super) Method);

impl<S> Layer<S> for Only {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, method: self.0 }
    }
}

/// A server behind [`Only`].
#[derive(Clone, Debug)]
pub(super) struct Guarded<S> {
    inner: S,
    method: Method,
}

/// The answers are fixed strings: a stranger learns nothing from them.
fn check(method: Method, request: &mut Request<Body>, now: SystemTime) -> Result<(), Status> {
    if mutants::active(Mutant::OneMethodIsGuarded) && request.uri().path() != Method::Sync.path() {
        return Ok(());
    }
    let peer = request.extensions().get::<Peer>().ok_or_else(|| Status::unauthenticated("no credentials"))?;
    match method {
        Method::Enroll => {}
        Method::Sync => {
            let proven: Proven = peer.proven.clone().ok_or_else(|| Status::unauthenticated("no credentials"))?;
            if proven.not_after <= now {
                return Err(Status::unauthenticated("the certificate has ended"));
            }
            request.extensions_mut().insert(proven);
        }
    }
    if request.uri().path() != method.path() {
        return Err(Status::permission_denied("not permitted"));
    }
    Ok(())
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<Pin<Box<S::Future>>, Ready<Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        match check(self.method, &mut request, SystemTime::now()) {
            Ok(()) => Either::Left(Box::pin(self.inner.call(request))),
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}
