//! What an agent says about itself: `/healthz`, `/readyz` and `/metrics`, on a unix socket or on TCP.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// Connections at a time; more wait.
const CONNECTIONS: usize = 64;
/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(10);

/// Figures and readiness. Cheap to update.
#[derive(Debug)]
pub struct Status {
    ready: AtomicBool,
    /// 1 while a controller serves the stream.
    pub connected: Gauge,
    /// 1 while there is a connection to `scalwsd`.
    pub scalwsd_up: Gauge,
    /// The highest epoch seen.
    pub epoch: Gauge,
    /// The generation applied last.
    pub generation: Gauge,
    /// Resources that are not live.
    pub not_live: Gauge,
    /// Configurations applied.
    pub applied: Counter,
    /// Configurations refused.
    pub refused: Counter,
    /// Member changes done.
    pub members: Counter,
    /// Streams opened.
    pub streams: Counter,
    /// When the newest certificate ends, in seconds since 1970; 0 without one.
    pub certificate_ends: Gauge,
    /// From the transfer to the verdict, in seconds.
    pub apply_seconds: Histogram,
    registry: Mutex<Registry>,
}

impl Default for Status {
    fn default() -> Status {
        let mut status = Status {
            ready: AtomicBool::new(false),
            connected: Gauge::default(),
            scalwsd_up: Gauge::default(),
            epoch: Gauge::default(),
            generation: Gauge::default(),
            not_live: Gauge::default(),
            applied: Counter::default(),
            refused: Counter::default(),
            members: Counter::default(),
            streams: Counter::default(),
            certificate_ends: Gauge::default(),
            apply_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            registry: Mutex::default(),
        };
        let mut registry = Registry::with_prefix("scalws_agent");
        registry.register("connected", "1 while a controller serves the stream", status.connected.clone());
        registry.register("scalwsd_up", "1 while scalwsd answers", status.scalwsd_up.clone());
        registry.register("epoch", "Highest epoch seen", status.epoch.clone());
        registry.register("generation", "Generation applied last", status.generation.clone());
        registry.register("not_live_resources", "Resources that are not live", status.not_live.clone());
        registry.register("applied", "Configurations applied", status.applied.clone());
        registry.register("refused", "Configurations refused", status.refused.clone());
        registry.register("member_changes", "Member changes done", status.members.clone());
        registry.register("streams", "Streams opened", status.streams.clone());
        registry.register(
            "certificate_expiration_timestamp_seconds",
            "When the newest certificate of the agent ends, since 1970; 0 without one",
            status.certificate_ends.clone(),
        );
        registry.register_with_unit(
            "apply",
            "From the complete transfer to the verdict",
            Unit::Seconds,
            status.apply_seconds.clone(),
        );
        status.registry = Mutex::new(registry);
        status
    }
}

impl Status {
    /// Says whether the proxy may get traffic.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Whether it may.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn answer(&self, path: &str) -> (StatusCode, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        match path {
            "/healthz" => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" if self.is_ready() => (StatusCode::OK, TEXT, "ready\n".to_owned()),
            "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, TEXT, "not ready\n".to_owned()),
            "/metrics" => {
                let mut text = String::new();
                match encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner)) {
                    Ok(()) => (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                    Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, "cannot write the metrics\n".to_owned()),
                }
            }
            _ => (StatusCode::NOT_FOUND, TEXT, "there are /healthz, /readyz and /metrics\n".to_owned()),
        }
    }
}

/// Serves the status on a unix socket with mode 0600.
///
/// # Errors
/// When the socket cannot be made.
pub fn serve(path: &Path, status: Arc<Status>) -> io::Result<JoinHandle<()>> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(connection(stream, status.clone(), place));
        }
    }))
}

/// Serves the status to whoever connects here: probes and Prometheus.
pub fn serve_on(listener: TcpListener, status: Arc<Status>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(connection(stream, status.clone(), place))),
                Err(error) => {
                    tracing::warn!(%error, "a probe could not be accepted");
                    // Out of descriptors, most likely: give others a moment to end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    })
}

async fn connection<S>(stream: S, status: Arc<Status>, _place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (code, kind, text) = status.answer(request.uri().path());
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // A peer that breaks off is its own business.
    let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn over_tcp_it_says_whether_it_is_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::new(Status::default());
        let serving = serve_on(listener, Arc::clone(&status));
        let ask = async |path: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        assert!(ask("/readyz").await.starts_with("HTTP/1.1 503 "));
        status.set_ready(true);
        assert!(ask("/readyz").await.starts_with("HTTP/1.1 200 "));
        let metrics = ask("/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.contains("scalws_agent_connected 0"), "{metrics}");
        assert!(ask("/debug").await.starts_with("HTTP/1.1 404 "));
        serving.abort();
    }
}
