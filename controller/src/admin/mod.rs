//! The local API on a unix socket: wait, confirm, status, health, metrics, and read-only views. Health and metrics also on TCP, for
//! those who probe and scrape.

mod wait;

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::hub::Hub;
use crate::pipeline::{Debug, Scan, Stopped, WorkerHandle};
use crate::report::Stream;

pub use wait::{WaitAnswer, WaitRequest};

/// Connections at a time; more wait.
const CONNECTIONS: usize = 256;
/// The longest body of a request, in bytes.
const LONGEST_BODY: usize = 64 * 1024;
/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(10);

/// What the API speaks for.
#[derive(Clone, Debug)]
pub struct Api {
    /// The fleets and what is known of them.
    pub hub: Arc<Hub>,
    /// The thread that reads the source.
    pub worker: WorkerHandle,
    /// How to confirm a held world, for people.
    pub confirm_with: String,
}

/// Opens the socket, for its owner only. A socket file that was left behind is replaced.
///
/// # Errors
/// When the path cannot be bound (at most 107 bytes long).
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()) => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// What a listener lets its peers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// All there is: the socket is its owner's.
    Everything,
    /// Health and metrics: nobody is asked who they are.
    Probes,
}

/// Where connections come from.
trait Accept {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves everything, for ever.
pub async fn serve(listener: UnixListener, api: Api) {
    accept_all(listener, Reach::Everything, api).await;
}

/// Serves health and metrics, for ever.
pub async fn serve_probes(listener: TcpListener, api: Api) {
    accept_all(listener, Reach::Probes, api).await;
}

async fn accept_all(listener: impl Accept, reach: Reach, api: Api) {
    let api = Arc::new(api);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.next().await {
            Ok(stream) => {
                let api = Arc::clone(&api);
                tokio::spawn(async move {
                    connection(stream, reach, api).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, ?reach, "a connection could not be accepted");
                // Out of descriptors, most likely: give others a moment to end.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(stream: S, reach: Reach, api: Arc<Api>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let api = Arc::clone(&api);
        async move {
            Ok::<_, Infallible>(match reach {
                Reach::Everything => api.answer(request).await,
                Reach::Probes => api.probe(request.method(), request.uri().path()).unwrap_or_else(|| {
                    plain(StatusCode::NOT_FOUND, "GET /healthz, /readyz and /metrics are what there is\n")
                }),
            })
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}

type Answer = Response<Full<Bytes>>;

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}

fn plain(status: StatusCode, body: &'static str) -> Answer {
    text(status, "text/plain; charset=utf-8", body)
}

fn json<T: serde::Serialize>(status: StatusCode, value: &T) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => text(status, "application/json", bytes),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written\n")
        }
    }
}

fn stopping(_: Stopped) -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping\n")
}

impl Api {
    /// What anybody may ask.
    fn probe(&self, method: &Method, path: &str) -> Option<Answer> {
        match path {
            _ if method != Method::GET => None,
            "/healthz" => Some(plain(StatusCode::OK, "ok\n")),
            "/readyz" => Some(self.ready()),
            "/metrics" => {
                let text_of = self.hub.read(|report| self.hub.metrics().text(report));
                Some(text(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text_of))
            }
            _ => None,
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        if let Some(answer) = self.probe(&head.method, head.uri.path()) {
            return answer;
        }
        let get = head.method == Method::GET;
        let post = head.method == Method::POST;
        match head.uri.path() {
            "/v1/status" if get => {
                let hub = Arc::clone(&self.hub);
                match tokio::task::spawn_blocking(move || json(StatusCode::OK, &Stream(&hub))).await {
                    Ok(answer) => answer,
                    Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the status cannot be made\n"),
                }
            }
            "/v1/wait" if post => match Limited::new(body, LONGEST_BODY).collect().await {
                Ok(body) => self.wait(&body.to_bytes()).await,
                Err(_) => plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long or broke off\n"),
            },
            "/v1/confirm" if post => match self.worker.confirm().await {
                Ok(Scan::Published(_)) => json(StatusCode::OK, &json!({ "confirmed": true })),
                Ok(Scan::Held(message)) => json(StatusCode::CONFLICT, &self.held(&message)),
                Err(error) => stopping(error),
            },
            "/debug/world" if get => self.debug(Debug::World).await,
            "/debug/config" if get => self.debug(Debug::Config).await,
            "/debug/agents" if get => json(StatusCode::OK, &self.hub.read(agents)),
            "/healthz" | "/readyz" | "/metrics" | "/v1/status" | "/v1/wait" | "/v1/confirm" | "/debug/world"
            | "/debug/config" | "/debug/agents" => plain(StatusCode::METHOD_NOT_ALLOWED, "not this method\n"),
            _ => plain(StatusCode::NOT_FOUND, "there is nothing here\n"),
        }
    }

    /// Ready once the first world is published: from then on what is in force stays, whatever becomes of the source. What is
    /// wrong with it is told either way.
    fn ready(&self) -> Answer {
        let (status, first) = match self.hub.is_published() {
            true => (StatusCode::OK, "ready\n"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "the first world was not published yet\n"),
        };
        let held = self.hub.read(|report| report.held().map(|why| format!("held: {why}\n")));
        let troubles = self.hub.metrics().watch_states().troubles();
        text(status, "text/plain; charset=utf-8", format!("{first}{}{troubles}", held.unwrap_or_default()))
    }

    async fn debug(&self, view: Debug) -> Answer {
        match self.worker.debug(view).await {
            Ok(value) => json(StatusCode::OK, &value),
            Err(error) => stopping(error),
        }
    }

    async fn wait(&self, body: &[u8]) -> Answer {
        let request: WaitRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => return json(StatusCode::BAD_REQUEST, &json!({ "error": error.to_string() })),
        };
        match wait::wait(&self.hub, &self.worker, &request).await {
            WaitAnswer::Live { generations } => {
                json(StatusCode::OK, &json!({ "live": true, "generations": generations }))
            }
            WaitAnswer::Lagging(lagging) => {
                json(StatusCode::REQUEST_TIMEOUT, &json!({ "live": false, "lagging": lagging }))
            }
            WaitAnswer::Held(message) => json(StatusCode::CONFLICT, &self.held(&message)),
            WaitAnswer::Stopping => stopping(Stopped),
        }
    }

    fn held(&self, message: &str) -> Value {
        json!({ "held": { "message": format!("{message}; to publish it as it is: {}", self.confirm_with) } })
    }
}

/// Everything that is known of the agents.
fn agents(report: &crate::report::Report) -> Value {
    let fleets = report.fleets().iter().map(|(name, fleet)| {
        let agents = fleet.agents.iter().map(|(name, agent)| {
            json!({
                "name": name,
                "uid": agent.uid,
                "connected": agent.connected,
                "scalwsd": agent.scalwsd_version,
                "applied": agent.applied.map(|v| v.to_string()),
                "root": agent.root.map(|root| root.to_string()),
                "memberVersion": agent.member_version,
                "notLive": agent.not_live.values().collect::<Vec<_>>(),
                "refused": agent.refused.as_ref().map(|r| json!({
                    "version": r.version.to_string(), "code": r.code, "message": r.message, "transient": r.transient,
                })),
                "refusedSets": agent.refused_sets,
                "lastSeenUs": agent.last_seen_us,
                "lagUs": agent.lag_us,
            })
        });
        json!({ "fleet": name.to_string(), "version": fleet.version.to_string(), "agents": agents.collect::<Vec<_>>() })
    });
    json!({ "fleets": fleets.collect::<Vec<_>>() })
}
