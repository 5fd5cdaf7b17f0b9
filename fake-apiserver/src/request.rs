//! Requests and answers as values: what travels over HTTP, without HTTP.

use bytes::Bytes;
use serde_json::Value;

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Create.
    Post,
    /// Replace.
    Put,
    /// Change parts.
    Patch,
    /// Delete.
    Delete,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query: `/api/v1/secrets?limit=5`.
    pub target: String,
    /// The `Accept` header; empty means anything.
    pub accept: String,
    /// The `Content-Type` header; it chooses the form of a patch.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// A request without a body, for JSON.
    pub fn new(method: Method, target: &str) -> Request {
        let [accept, content_type] = ["application/json", ""].map(str::to_owned);
        Request { method, target: target.to_owned(), accept, content_type, body: Bytes::new() }
    }

    /// The same with an object as its body.
    pub fn with(mut self, content_type: &str, body: &Value) -> Request {
        self.content_type = content_type.to_owned();
        self.body = body.to_string().into();
        self
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// The `Content-Type` header.
    pub content_type: &'static str,
    /// The `Retry-After` header, in seconds.
    pub retry_after: Option<u32>,
    /// The body.
    pub body: Bytes,
}

impl Response {
    pub(crate) fn json(code: u16, object: &Value) -> Response {
        Response { code, content_type: "application/json", retry_after: None, body: object.to_string().into() }
    }

    pub(crate) fn text(code: u16, text: &'static str) -> Response {
        Response { code, content_type: "text/plain; charset=utf-8", retry_after: None, body: text.into() }
    }

    /// The body as JSON; null when it is none.
    pub fn object(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What a request is about. Faults and counts go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object is read.
    Get,
    /// Many are read.
    List,
    /// Changes are followed.
    Watch,
    /// `POST`.
    Create,
    /// `PUT`.
    Replace,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// Versions, health, discovery, and paths that lead nowhere.
    Other,
}
