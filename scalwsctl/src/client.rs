//! The controller's local API as seen from outside: HTTP/1.1 over the unix socket that `up.json` names.

use std::io;
use std::path::Path;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::state::UpFile;

/// The longest answer that is read: a status of 50,000 objects is about 40 MiB.
const ANSWER_LIMIT: usize = 1 << 30;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing to connect to.
    #[error("no live `scalwsctl up` on {state}: {why}")]
    NotUp {
        /// The state directory.
        state: String,
        /// What was found there.
        why: String,
    },
    /// Nobody listens on a socket.
    #[error("the controller's socket {socket} does not answer ({why})")]
    NoController {
        /// The socket.
        socket: String,
        /// Why.
        why: io::Error,
    },
    /// Connected, but the answer did not come.
    #[error("the controller did not answer: {0}")]
    Broken(String),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The whole body.
    pub body: Bytes,
}

/// The body of `POST /v1/wait`.
#[derive(Clone, Debug, Serialize)]
pub struct WaitRequest {
    /// How many agents must be current.
    pub replicas: u16,
    /// Their names.
    pub agents: Vec<String>,
    /// How long the controller may wait, in milliseconds.
    pub timeout_ms: u64,
}

/// The body of the answers to `POST /v1/wait`, whatever their status code.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WaitAnswer {
    /// Whether everything is live.
    pub live: bool,
    /// Who is not there yet.
    pub lagging: Vec<Lagging>,
    /// Why nothing is published.
    pub held: Option<Held>,
}

/// One agent that is not there yet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lagging {
    /// Its name.
    pub agent: String,
    /// What is missing.
    pub why: String,
}

/// A world that the shrink guard holds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Why, and how to confirm.
    pub message: String,
}

/// Finds the running `up` of a state directory.
///
/// # Errors
///
/// When there is none, or it left the file behind when it was killed.
pub fn find(state: &Path) -> Result<UpFile, ClientError> {
    let not_up = |why: String| ClientError::NotUp { state: state.display().to_string(), why };
    match UpFile::read(state) {
        Ok(Some(file)) => Ok(file),
        Ok(None) if !state.exists() => Err(not_up("there is no such directory".to_owned())),
        Ok(None) => Err(not_up("nothing runs there".to_owned())),
        Err(error) => Err(not_up(format!("up.json cannot be read: {error}"))),
    }
}

/// Sends one request to the controller of a running `up`.
///
/// # Errors
///
/// When nobody listens, or the connection breaks before the answer is complete.
pub async fn call(state: &Path, up: &UpFile, method: Method, path: &str, body: Vec<u8>) -> Result<Answer, ClientError> {
    ask(&up.controller_socket, method, path, body).await.map_err(|error| match error {
        ClientError::NoController { .. } => {
            ClientError::NotUp { state: state.display().to_string(), why: error.to_string() }
        }
        error => error,
    })
}

/// Sends one request to the controller that listens on a socket.
///
/// # Errors
///
/// When nobody listens, or the connection breaks before the answer is complete.
pub async fn ask(socket: &Path, method: Method, path: &str, body: Vec<u8>) -> Result<Answer, ClientError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|why| ClientError::NoController { socket: socket.display().to_string(), why })?;
    let broken = |error: &dyn std::fmt::Display| ClientError::Broken(error.to_string());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "controller")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| broken(&e))?;
    let answer = sender.send_request(request).await.map_err(|e| broken(&e))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await.map_err(|e| broken(&e))?.to_bytes();
    connection.abort();
    Ok(Answer { status, body })
}

/// `POST /v1/wait` once.
///
/// # Errors
///
/// As [`call`]; also when the answer is none of those that are defined.
pub async fn wait_once(state: &Path, up: &UpFile, limit: Duration) -> Result<(StatusCode, WaitAnswer), ClientError> {
    let request = WaitRequest {
        replicas: up.replicas,
        agents: up.agents.clone(),
        timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    };
    let body = serde_json::to_vec(&request).map_err(|e| ClientError::Broken(e.to_string()))?;
    let answer = call(state, up, Method::POST, "/v1/wait", body).await?;
    let parsed = serde_json::from_slice(&answer.body).map_err(|e| {
        ClientError::Broken(format!("{} with a body that is not understood: {e}", answer.status.as_u16()))
    })?;
    Ok((answer.status, parsed))
}
