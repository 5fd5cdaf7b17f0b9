//! Bodies on their way through: streamed, watched for standstill, and counted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::clock;

/// What a body can fail with.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The peer broke off or broke the protocol.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// Nothing came for too long, or the whole took too long.
    #[error("the time for this request is over")]
    Late,
}

/// How far a request's body is.
#[derive(Debug, Default)]
pub struct Progress {
    last_ms: AtomicU64,
    bytes: AtomicU64,
    done: AtomicBool,
}

impl Progress {
    /// When the last part was read, as [`clock::now_ms`] counts.
    pub fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Relaxed)
    }

    /// How many bytes were read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the whole body was read.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn note(&self, bytes: usize) {
        self.last_ms.store(clock::now_ms(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The body of a request to an upstream.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Option<Incoming>,
    progress: Option<Arc<Progress>>,
}

impl RequestBody {
    /// No body.
    pub fn empty() -> RequestBody {
        RequestBody { incoming: None, progress: None }
    }

    /// The client's body. Its progress is there unless there is no body.
    pub fn new(incoming: Incoming) -> (RequestBody, Option<Arc<Progress>>) {
        if incoming.is_end_stream() {
            return (RequestBody::empty(), None);
        }
        let progress = Arc::new(Progress::default());
        progress.note(0);
        (RequestBody { incoming: Some(incoming), progress: Some(Arc::clone(&progress)) }, Some(progress))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        let ended = frame.is_none() || incoming.is_end_stream();
        if let Some(progress) = &self.progress {
            progress.note(frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()).map_or(0, Bytes::len));
            if ended {
                progress.done.store(true, Ordering::Release);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

/// What wants to know how the body of an answer ended.
pub trait Watch: Send {
    /// Called once. `complete` says whether the upstream's whole body went through.
    fn ended(self: Box<Self>, bytes: u64, complete: bool);
}

/// The body of an answer to a client.
pub enum ResponseBody {
    /// A text of ours.
    Fixed(Option<Bytes>),
    /// The upstream's.
    Upstream(Box<UpstreamBody>),
}

/// A body that comes from an upstream.
pub struct UpstreamBody {
    incoming: Incoming,
    bytes: u64,
    /// Milliseconds between two frames; 0 is without limit.
    idle_ms: u64,
    /// When the whole must be over.
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    last_ms: u64,
    watch: Option<Box<dyn Watch>>,
}

impl ResponseBody {
    /// A text of ours.
    pub fn fixed(text: impl Into<Bytes>) -> ResponseBody {
        let text = text.into();
        ResponseBody::Fixed(Some(text).filter(|t| !t.is_empty()))
    }

    /// The upstream's body.
    pub fn upstream(
        incoming: Incoming,
        idle_ms: u64,
        deadline: Option<Instant>,
        watch: Box<dyn Watch>,
    ) -> ResponseBody {
        if incoming.is_end_stream() {
            watch.ended(0, true);
            return ResponseBody::Fixed(None);
        }
        ResponseBody::Upstream(Box::new(UpstreamBody {
            incoming,
            bytes: 0,
            idle_ms,
            deadline,
            timer: None,
            last_ms: clock::now_ms(),
            watch: Some(watch),
        }))
    }
}

impl UpstreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.bytes += data.len() as u64;
                }
                if self.idle_ms > 0 {
                    self.last_ms = clock::now_ms();
                }
                if self.incoming.is_end_stream() {
                    self.end(true);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.end(false);
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                self.end(true);
                Poll::Ready(None)
            }
            Poll::Pending => {
                if self.is_late(cx) {
                    self.end(false);
                    return Poll::Ready(Some(Err(BodyError::Late)));
                }
                Poll::Pending
            }
        }
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let idle = (self.idle_ms > 0).then(|| clock::instant_of(self.last_ms.saturating_add(self.idle_ms)));
            let Some(end) = [idle, self.deadline].into_iter().flatten().min() else { return false };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
            if timer.deadline() != end {
                timer.as_mut().reset(end);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if Instant::now() >= end {
                return true;
            }
        }
    }

    fn end(&mut self, complete: bool) {
        if let Some(watch) = self.watch.take() {
            watch.ended(self.bytes, complete);
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        let complete = self.incoming.is_end_stream();
        self.end(complete);
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            ResponseBody::Fixed(text) => Poll::Ready(text.take().map(|t| Ok(Frame::data(t)))),
            ResponseBody::Upstream(body) => body.poll_next(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Fixed(text) => text.is_none(),
            ResponseBody::Upstream(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Fixed(text) => SizeHint::with_exact(text.as_ref().map_or(0, |t| t.len() as u64)),
            ResponseBody::Upstream(body) => body.incoming.size_hint(),
        }
    }
}
