//! A backend that says what it was asked, in HTTP/1.1 and HTTP/2; and one that follows a script byte by byte.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

type Body = StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

pub(crate) struct Backend {
    pub(crate) address: String,
    pub(crate) requests: Arc<AtomicUsize>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Each permit lets one waiting answer go on.
    pub(crate) gate: Arc<Semaphore>,
}

impl Backend {
    pub(crate) async fn start(name: &'static str) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Backend {
            address: listener.local_addr().unwrap().to_string(),
            requests: Arc::default(),
            connections: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        };
        let (requests, connections, gate) =
            (backend.requests.clone(), backend.connections.clone(), backend.gate.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, gate) = (requests.clone(), gate.clone());
                let service = service_fn(move |request| {
                    requests.fetch_add(1, Ordering::SeqCst);
                    answer(name, request, gate.clone())
                });
                tokio::spawn(async move {
                    let io = TokioIo::new(stream);
                    let _ended = auto::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                });
            }
        });
        backend
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// `/hang` never answers, `/gate` answers when let, `/stream` sends one part at once and one when let, `/trailers` ends with
/// trailers; everything else is echoed, after the body was read.
async fn answer(name: &str, request: Request<Incoming>, gate: Arc<Semaphore>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let (send, receive) = mpsc::channel::<Frame<Bytes>>(8);
    let text = |text: String| Frame::data(Bytes::from(text));
    let headers: Vec<(String, String)> =
        head.headers.iter().map(|(n, v)| (n.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned())).collect();
    let mut response_headers = HeaderMap::new();
    match path.as_str() {
        "/hang" => std::future::pending().await,
        "/stream" => {
            send.send(text("first".to_owned())).await.unwrap();
            tokio::spawn(async move {
                gate.acquire().await.unwrap().forget();
                let _gone = send.send(text("second".to_owned())).await;
            });
        }
        "/hopby" => {
            for (name, value) in [("connection", "x-mine"), ("keep-alive", "9"), ("x-mine", "1"), ("x-kept", "1")] {
                response_headers.insert(name, HeaderValue::from_static(value));
            }
        }
        other => {
            if other == "/gate" {
                gate.acquire().await.unwrap().forget();
            }
            let collected = body.collect().await.unwrap();
            let trailers = collected.trailers().map(|t| format!("{t:?}"));
            let body = collected.to_bytes();
            let echo = serde_json::json!({
                "backend": name,
                "version": format!("{:?}", head.version),
                "method": head.method.as_str(),
                "target": head.uri.to_string(),
                "authority": head.uri.authority().map(ToString::to_string),
                "headers": headers,
                "body": String::from_utf8_lossy(&body),
                "trailers": trailers,
            });
            send.send(text(echo.to_string())).await.unwrap();
            if other == "/trailers" {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                send.send(Frame::trailers(trailers)).await.unwrap();
            }
        }
    }
    let frames = futures_util::stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|frame| (Ok(frame), receive))
    });
    let mut response = Response::new(StreamBody::new(Box::pin(frames) as _));
    response.headers_mut().extend(response_headers);
    response.headers_mut().insert("x-backend", HeaderValue::from_str(name).unwrap());
    Ok(response)
}

/// A backend that hands each connection, numbered from 0, to a script.
pub(crate) async fn scripted<F>(script: impl Fn(usize, TcpStream) -> F + Send + 'static) -> (String, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(script(counted.fetch_add(1, Ordering::SeqCst), stream));
        }
    });
    (address, count)
}

/// Reads a request head and gives it as text.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    use tokio::io::AsyncReadExt;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// An address that refuses connections: it was free a moment ago, and nothing else in these tests binds this range.
pub(crate) fn refusing() -> String {
    let listener = std::net::TcpListener::bind("127.77.77.77:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
