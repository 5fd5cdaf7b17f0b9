//! One echo server: HTTP/1.1, HTTP/2 by prior knowledge and WebSocket on one address.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::endpoints::Endpoint;
use super::websocket;

/// How long to pause when the system has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// Who answers at an address now. It may change while the server is open.
#[derive(Clone, Debug)]
pub struct Owner(Arc<Mutex<Arc<Endpoint>>>);

impl Owner {
    /// Someone.
    pub fn new(endpoint: Endpoint) -> Owner {
        Owner(Arc::new(Mutex::new(Arc::new(endpoint))))
    }

    /// Someone else.
    pub fn set(&self, endpoint: Endpoint) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(endpoint);
    }

    fn now(&self) -> Arc<Endpoint> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Opens the address and answers there in the owner's name until the task is aborted.
///
/// # Errors
///
/// When the address cannot be opened.
pub async fn open(address: SocketAddr, owner: Owner) -> io::Result<JoinHandle<()>> {
    let listener = TcpListener::bind(address).await?;
    Ok(tokio::spawn(async move {
        // Aborting the task drops the set, which ends the connections.
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, owner.clone()));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }))
}

async fn converse(stream: TcpStream, owner: Owner) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let endpoint = owner.now();
        async move { Ok::<_, Infallible>(answer(request, &endpoint).await) }
    });
    // A client that goes away is no error here.
    let _ =
        auto::Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

async fn answer(mut request: Request<Incoming>, endpoint: &Endpoint) -> Response<Full<Bytes>> {
    if let Some(accept) = websocket_accept(&request) {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                let _ = websocket::echo(TokioIo::new(upgraded)).await;
            }
        });
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        return response;
    }
    let description = describe(&request, endpoint);
    // The body is read to its end, so that the connection can be used again; an error ends the connection anyway.
    let length = match request.into_body().collect().await {
        Ok(body) => body.to_bytes().len(),
        Err(_) => 0,
    };
    let mut text = json!({"body_bytes": length});
    if let (Value::Object(all), Value::Object(more)) = (&mut text, description) {
        all.extend(more);
    }
    let mut response = Response::new(Full::from(format!("{text:#}\n")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn describe(request: &Request<Incoming>, endpoint: &Endpoint) -> Value {
    let mut headers = Map::new();
    for name in request.headers().keys() {
        let values: Vec<String> = request
            .headers()
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect();
        headers.insert(name.as_str().to_owned(), values.join(", ").into());
    }
    let host = request.headers().get(HOST).and_then(|h| h.to_str().ok());
    json!({
        "service": endpoint.service,
        "pod": endpoint.pod,
        "method": request.method().as_str(),
        "path": request.uri().path_and_query().map(|p| p.as_str()),
        "host": request.uri().authority().map(|a| a.as_str()).or(host),
        "version": format!("{:?}", request.version()),
        "headers": headers,
    })
}

/// The answer to the client's key (RFC 6455, section 4.2.2), if this is a WebSocket handshake.
fn websocket_accept(request: &Request<Incoming>) -> Option<HeaderValue> {
    let upgrade = request.headers().get(UPGRADE)?.to_str().ok()?;
    if !upgrade.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let key = request.headers().get(SEC_WEBSOCKET_KEY)?;
    HeaderValue::from_str(&websocket::accept(key.as_bytes())).ok()
}
