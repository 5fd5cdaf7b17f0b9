//! The server on a port of the loopback interface: plain HTTP/1.1, with the clock of the machine.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::faults::Admission;
use crate::request::{Method, Request, Response};
use crate::server::{Reply, Server};
use crate::watch::{Next, WatchId};

/// The longest body of a request, in bytes; as the real one has it.
const LONGEST_BODY: usize = 3 * 1024 * 1024;
/// A wait without an end, as a time that a timer takes.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The body of an answer: whole, or a stream of events.
pub type Body = UnsyncBoxBody<Bytes, Broken>;

/// The connection ends here, as a fault wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was broken on purpose")
    }
}

impl std::error::Error for Broken {}

/// A server that many use: its connections and the test that holds it.
#[derive(Clone, Debug)]
pub struct Shared {
    server: Arc<Mutex<Server>>,
    /// Wakes requests that are held and watches that wait.
    changed: watch::Sender<()>,
}

impl Shared {
    /// Begins to share a server.
    pub fn new(server: Server) -> Shared {
        Shared { server: Arc::new(Mutex::new(server)), changed: watch::Sender::new(()) }
    }

    /// Does something with the server, and lets all that wait look again.
    pub fn with<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let result = self.look(act);
        self.changed.send_replace(());
        result
    }

    fn look<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        act(&mut self.server.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers a request; also for clients that need no socket.
    ///
    /// # Errors
    /// When the connection is to end without an answer.
    pub async fn serve<B>(&self, request: http::Request<B>) -> Result<http::Response<Body>, Broken>
    where
        B: hyper::body::Body<Data: Send> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Some(request) = read(request).await else {
            return Ok(plain(StatusCode::BAD_REQUEST, "this request cannot be read"));
        };
        let mut changes = self.changed.subscribe();
        let mut call = self.look(|server| server.arrive(request));
        loop {
            changes.mark_unchanged();
            match self.look(|server| server.admit(&mut call)) {
                Admission::Go => break,
                Admission::After(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
                // The sender is in `self`.
                Admission::Hold => changes.changed().await.map_err(|_| Broken)?,
            }
        }
        match self.with(|server| server.answer(now(), call)) {
            Reply::Answer(response) => Ok(answer(response)),
            Reply::Watch(id) => Ok(self.watch(id)),
            Reply::Lost => Err(Broken),
        }
    }

    /// The stream of a watch.
    fn watch(&self, id: WatchId) -> http::Response<Body> {
        let open = Open { shared: self.clone(), changes: self.changed.subscribe(), id, broken: false };
        let frames = stream::unfold(open, |mut open| async move {
            let frame = open.frame().await?;
            Some((frame, open))
        });
        let mut response = http::Response::new(StreamBody::new(frames).boxed_unsync());
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        response
    }
}

/// A watch with a client at its other end. Dropping it says that the client is gone.
struct Open {
    shared: Shared,
    changes: watch::Receiver<()>,
    id: WatchId,
    broken: bool,
}

impl Open {
    /// The next piece; None at the end.
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Broken>> {
        if self.broken {
            return None;
        }
        loop {
            self.changes.mark_unchanged();
            let now = now();
            match self.shared.look(|server| server.next(now, self.id)) {
                Next::Bytes(bytes) => return Some(Ok(Frame::data(bytes))),
                Next::End => return None,
                Next::Cut => {
                    self.broken = true;
                    // What was written before goes out first.
                    tokio::task::yield_now().await;
                    return Some(Err(Broken));
                }
                Next::Wait(until) => {
                    let wait = Duration::from_millis(until.saturating_sub(now)).min(LONGEST_WAIT);
                    tokio::select! {
                        changed = self.changes.changed() => changed.ok()?,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.with(|server| server.close(self.id));
    }
}

/// A server on a port. Dropping it ends it with all its connections.
#[derive(Debug)]
pub struct Running {
    shared: Shared,
    address: SocketAddr,
    serving: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it on a free port of the loopback interface.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start(server: Server) -> io::Result<Running> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Shared::new(server);
        let serving = Some(tokio::spawn(accept(listener, shared.clone())));
        Ok(Running { shared, address, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same for a kubeconfig.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The server itself, for those who answer requests without a socket.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Does something with the server: sets faults, changes objects, reads counts.
    pub fn with<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        self.shared.with(act)
    }

    /// Goes away: no port, no connections. What it holds stays.
    pub async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // It ends as cancelled; then the port is free.
            let _cancelled = serving.await;
        }
    }

    /// Comes back on the same port.
    ///
    /// # Errors
    /// When somebody else took it.
    pub async fn start_again(&mut self) -> io::Result<()> {
        if self.serving.is_none() {
            let listener = TcpListener::bind(self.address).await?;
            self.serving = Some(tokio::spawn(accept(listener, self.shared.clone())));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Shared) {
    // With this task all its connections end.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, shared.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Shared) {
    // Without this an event waits for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| shared.serve(request));
    // A connection ends when its client or a fault ends it; there is nobody to tell.
    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// None when the body does not come, is too long, or the method is none of ours.
async fn read<B>(request: http::Request<B>) -> Option<Request>
where
    B: hyper::body::Body<Data: Send> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let method = match head.method {
        http::Method::GET => Method::Get,
        http::Method::POST => Method::Post,
        http::Method::PUT => Method::Put,
        http::Method::PATCH => Method::Patch,
        http::Method::DELETE => Method::Delete,
        _ => return None,
    };
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (accept, content_type) = (text(header::ACCEPT), text(header::CONTENT_TYPE));
    let body = Limited::new(body, LONGEST_BODY).collect().await.ok()?.to_bytes();
    Some(Request { method, target, accept, content_type, body })
}

fn answer(response: Response) -> http::Response<Body> {
    let status = StatusCode::from_u16(response.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = http::Response::new(Full::new(response.body).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(response.content_type));
    if let Some(seconds) = response.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn plain(status: StatusCode, text: &'static str) -> http::Response<Body> {
    answer(Response { code: status.as_u16(), content_type: "text/plain", retry_after: None, body: text.into() })
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
