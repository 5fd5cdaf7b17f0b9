//! Sends one request to the API server and gives what comes of it, piece by piece; dropping it gives the request up.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{Request as HttpRequest, Response, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::failure::{Class, Failure};
use super::held::{Item, Trace};
use super::parse::{self, Form, Page};
use super::requests::{METADATA, Scope, WHOLE};
use super::talk::{Event, Request};

/// How long the head of an answer may take.
const HEAD: Duration = Duration::from_secs(30);
/// How long nothing may come of a page, or of what is there at the beginning of a watch.
const QUIET: Duration = Duration::from_secs(30);
/// A watch may be silent for so much longer than it is to last: its connection is dead then.
const BEYOND: Duration = Duration::from_secs(15);
/// The longest line of a watch, in bytes. The API server takes no object above 3 MiB.
const LONGEST_LINE: usize = 16 * 1024 * 1024;
/// The longest page of a list, in bytes.
const LONGEST_PAGE: usize = 512 * 1024 * 1024;
/// The longest answer that tells of a failure.
const LONGEST_FAILURE: usize = 64 * 1024;

/// What comes of a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// The server has begun to answer a watch.
    Opened,
    /// Events.
    Events(Vec<Event>),
    /// A page of objects.
    Items(Page<Item>),
    /// A page of uids and versions.
    Traces(Page<Trace>),
    /// A watch ended properly.
    Ended,
    /// It failed.
    Failed(Failure),
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Lane {
    answers: Receiver<Answer>,
    task: JoinHandle<()>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Lane {
    /// Sends a list or a watch.
    pub(super) fn request(client: Client, scope: &Scope, api_version: String, request: &Request) -> Lane {
        let target = scope.request(&api_version, request);
        let form = Form { kind: scope.kind.name, api_version };
        let seconds = match request {
            Request::Page { .. } => None,
            Request::Follow { from, seconds } => Some((from.is_none(), *seconds)),
        };
        Lane::start(|sender| async move {
            let end = match seconds {
                None => {
                    page(&client, &target, WHOLE).await.and_then(|body| parse::items(&form, &body)).map(Answer::Items)
                }
                Some((initial, seconds)) => {
                    let silence = Duration::from_secs(seconds.into()) + BEYOND;
                    follow(&client, &target, &form, initial, silence, &sender).await.map(|()| Answer::Ended)
                }
            };
            // Whoever asked may have given it up.
            let _ = sender.send(end.unwrap_or_else(Answer::Failed)).await;
        })
    }

    /// Sends for a page of uids and versions.
    pub(super) fn look(client: Client, scope: &Scope, api_version: &str, limit: u32, continues: Option<&str>) -> Lane {
        let target = scope.page(api_version, limit, continues);
        Lane::start(|sender| async move {
            let end = page(&client, &target, METADATA).await.and_then(|body| parse::traces(&body)).map(Answer::Traces);
            let _ = sender.send(end.unwrap_or_else(Answer::Failed)).await;
        })
    }

    fn start<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(Sender<Answer>) -> F) -> Lane {
        let (sender, answers) = mpsc::channel(2);
        Lane { answers, task: tokio::spawn(run(sender)) }
    }

    /// The next piece. Nothing is lost when it is not waited for to the end.
    pub(super) async fn next(&mut self) -> Answer {
        let broken = || Answer::Failed(Failure::new(Class::Broken, "the request ended without an answer"));
        self.answers.recv().await.unwrap_or_else(broken)
    }
}

/// The chain of reasons of an error.
fn unreachable(error: &kube::Error) -> Failure {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        // Many repeat what is below them.
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        source = error.source();
    }
    Failure::new(Class::Unreachable, text)
}

async fn send(client: &Client, target: &str, accept: &'static str) -> Result<Response<Body>, Failure> {
    let request = HttpRequest::get(target).header(header::ACCEPT, accept).body(Body::empty());
    let request = request.map_err(|error| Failure::new(Class::Unreachable, error.to_string()))?;
    let silent = |_| Failure::new(Class::Silent, format!("no answer within {} s", HEAD.as_secs()));
    let answer = timeout(HEAD, client.send(request)).await.map_err(silent)?.map_err(|error| unreachable(&error))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    // Without its body the status code says enough.
    let body = whole(answer.into_body(), LONGEST_FAILURE).await.unwrap_or_default();
    Err(parse::failure(code, retry_after, &body))
}

/// The next piece of a body; none at its end.
async fn piece(body: &mut Body, limit: Duration) -> Result<Option<Bytes>, Failure> {
    loop {
        let silent = |_| Failure::new(Class::Silent, format!("nothing came for {} s", limit.as_secs()));
        match timeout(limit, body.frame()).await.map_err(silent)? {
            None => return Ok(None),
            Some(Err(error)) => return Err(Failure::new(Class::Broken, format!("the answer broke off: {error}"))),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

/// A whole body. It is wiped afterwards, since it may hold Secrets.
async fn whole(mut body: Body, longest: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut read = Zeroizing::new(Vec::new());
    while let Some(bytes) = piece(&mut body, QUIET).await? {
        if read.len() + bytes.len() > longest {
            return Err(Failure::new(Class::Broken, format!("an answer of more than {longest} bytes")));
        }
        read.extend_from_slice(&bytes);
    }
    Ok(read)
}

async fn page(client: &Client, target: &str, accept: &'static str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    whole(send(client, target, accept).await?.into_body(), LONGEST_PAGE).await
}

/// Reads a watch to its end.
async fn follow(
    client: &Client,
    target: &str,
    form: &Form,
    mut initial: bool,
    silence: Duration,
    sender: &Sender<Answer>,
) -> Result<(), Failure> {
    let mut body = send(client, target, WHOLE).await?.into_body();
    let gone = |_| Failure::new(Class::Broken, "nobody listens");
    sender.send(Answer::Opened).await.map_err(gone)?;
    let mut read = Zeroizing::new(Vec::new());
    // Up to here there is no end of a line.
    let mut looked = 0;
    while let Some(bytes) = piece(&mut body, if initial { QUIET } else { silence }).await? {
        read.extend_from_slice(&bytes);
        let mut events = Vec::new();
        let mut begin = 0;
        let mut failure = None;
        while let Some(length) = read[looked..].iter().position(|byte| *byte == b'\n') {
            let end = looked + length;
            match parse::event(form, &read[begin..end]) {
                Ok(event) => {
                    initial &= !matches!(event, Event::Bookmark { initial_end: true, .. });
                    events.push(event);
                }
                Err(why) => {
                    failure = Some(why);
                    break;
                }
            }
            begin = end + 1;
            looked = begin;
        }
        read.drain(..begin);
        looked = read.len();
        if !events.is_empty() {
            sender.send(Answer::Events(events)).await.map_err(gone)?;
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if read.len() > LONGEST_LINE {
            return Err(Failure::new(Class::Broken, format!("an event of more than {LONGEST_LINE} bytes")));
        }
    }
    match read.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Class::Broken, "the stream ended in the middle of an event")),
    }
}
