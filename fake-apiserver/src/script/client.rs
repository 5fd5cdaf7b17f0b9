//! The script over HTTP: a client whose connections and whose way to forget changes are given, so that it reaches any server.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Api;
use crate::request::{Method, Request, Response};

/// Within this a server answers, and a watch says something that it has to say.
const SOON: Duration = Duration::from_secs(20);
/// Between two looks at a server that needs a moment.
const LOOK: Duration = Duration::from_millis(50);

/// A client of an API server.
#[derive(Debug)]
pub struct Client<C, F> {
    connect: C,
    forget: F,
    watches: BTreeMap<String, Stream>,
}

/// An open watch.
#[derive(Debug)]
pub struct Stream {
    body: Incoming,
    /// What came of the next line.
    read: BytesMut,
}

impl<C, F> Client<C, F> {
    /// `connect` opens a connection; `forget` makes the server forget its changes.
    pub fn new(connect: C, forget: F) -> Client<C, F> {
        Client { connect, forget, watches: BTreeMap::new() }
    }
}

impl<C, F, S, R> Client<C, F>
where
    C: Fn() -> R,
    R: Future<Output = Result<S, String>>,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    /// Sends a request on a new connection and gives the head and the stream of the answer.
    ///
    /// # Errors
    /// When there is no answer within some seconds.
    pub async fn send(&self, request: &Request) -> Result<http::Response<Incoming>, String> {
        let method = match request.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Put => http::Method::PUT,
            Method::Patch => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        };
        let builder = http::Request::builder().method(method).uri(&request.target).header(header::HOST, "localhost");
        let fields = [(header::ACCEPT, &request.accept), (header::CONTENT_TYPE, &request.content_type)];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let builder = fields.fold(builder, |builder, (name, value)| builder.header(name, value));
        let request = builder.body(Full::new(request.body.clone())).map_err(text)?;
        let exchange = async {
            let stream = (self.connect)().await?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
            // It lives as long as the body of the answer is read.
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(text)
        };
        tokio::time::timeout(SOON, exchange).await.map_err(|_| "no answer in time".to_owned())?
    }
}

impl<C, F, S, R> Api for Client<C, F>
where
    C: Fn() -> R,
    R: Future<Output = Result<S, String>>,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: FnMut() -> Result<(), String>,
{
    async fn ask(&mut self, request: &Request) -> Result<Response, String> {
        whole(self.send(request).await?).await
    }

    async fn watch(&mut self, name: &str, request: &Request) -> Result<Option<Response>, String> {
        let answer = self.send(request).await?;
        if !answer.status().is_success() {
            return whole(answer).await.map(Some);
        }
        self.watches.insert(name.to_owned(), Stream::new(answer.into_body()));
        Ok(None)
    }

    async fn event(&mut self, name: &str) -> Result<Option<Value>, String> {
        let stream = self.watches.get_mut(name).ok_or_else(|| format!("no watch {name}"))?;
        stream.event().await
    }

    fn close(&mut self, name: &str) {
        self.watches.remove(name);
    }

    async fn compact(&mut self) -> Result<(), String> {
        (self.forget)()
    }

    async fn pause(&mut self) {
        tokio::time::sleep(LOOK).await;
    }
}

impl Stream {
    /// The body of a watch.
    pub fn new(body: Incoming) -> Stream {
        Stream { body, read: BytesMut::new() }
    }

    /// The next event; None when the stream ends properly.
    ///
    /// # Errors
    /// When it breaks, ends in the middle of an event, or nothing comes within some seconds.
    pub async fn event(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return serde_json::from_slice(&line).map(Some).map_err(text);
            }
            let frame = tokio::time::timeout(SOON, self.body.frame()).await;
            match frame.map_err(|_| "no event in time".to_owned())? {
                Some(frame) => self.read.extend_from_slice(&frame.map_err(text)?.into_data().unwrap_or_default()),
                None if self.read.is_empty() => return Ok(None),
                None => return Err("the stream ends in the middle of an event".to_owned()),
            }
        }
    }
}

/// Reads an answer to its end.
///
/// # Errors
/// When it does not come to one.
pub async fn whole(answer: http::Response<Incoming>) -> Result<Response, String> {
    let (head, body) = answer.into_parts();
    let body: Bytes = body.collect().await.map_err(text)?.to_bytes();
    let field = |name| head.headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let json = field(header::CONTENT_TYPE).is_some_and(|media| media.starts_with("application/json"));
    let content_type = if json { "application/json" } else { "text/plain; charset=utf-8" };
    let retry_after = field(header::RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
    Ok(Response { code: head.status.as_u16(), content_type, retry_after, body })
}

fn text(error: impl Display) -> String {
    error.to_string()
}
