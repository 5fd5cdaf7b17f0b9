//! Drives one [`KindWatch`]: sends what it wants, tells it what came, and passes on what that led to.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::{mpsc, watch};

use super::failure::{Class, Failure};
use super::kind::KindWatch;
use super::requests::Scope;
use super::state::{Place, WatchStates};
use super::stream::{Answer, Lane};
use super::talk::{Moment, Out, Pace, RequestId, Standing};

/// What one watch tells the source.
#[derive(Debug)]
pub(super) struct News {
    /// Which watch.
    pub(super) scope: usize,
    /// What came, in order.
    pub(super) outs: Vec<Out>,
}

/// What one watch needs.
pub(super) struct Follower {
    pub(super) number: usize,
    pub(super) client: Client,
    pub(super) scope: Scope,
    pub(super) pace: Pace,
    /// The newest ticket.
    pub(super) asked: watch::Receiver<u64>,
    pub(super) news: mpsc::Sender<News>,
    /// Wakes the pipeline.
    pub(super) wake: Arc<OwnedFd>,
    pub(super) states: Arc<WatchStates>,
    pub(super) began: Instant,
}

/// A request that was sent, with its number.
type Sent = Option<(RequestId, Lane)>;

/// The next piece of a request; never when there is none.
async fn next(lane: &mut Sent) -> Answer {
    match lane {
        Some((_, lane)) => lane.next().await,
        None => std::future::pending().await,
    }
}

impl Follower {
    fn moment(&self) -> Moment {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Moment { now_ms, chance: rand::random() }
    }

    /// What it follows.
    pub(super) fn place(&self) -> Place {
        (self.scope.kind.name, self.scope.namespace.as_deref().unwrap_or_default().to_owned())
    }

    /// Follows until the pipeline is gone.
    pub(super) async fn run(mut self) {
        let mut kind = KindWatch::new(self.scope.kind, self.pace, self.moment());
        let place = self.place();
        let mut heard = Instant::now();
        let mut told: Option<(Standing, Option<Class>)> = None;
        let (mut lane, mut look): (Sent, Sent) = (None, None);
        loop {
            let outs = kind.take();
            if !outs.is_empty() {
                if self.news.send(News { scope: self.number, outs }).await.is_err() {
                    return;
                }
                // It fails only when the pipeline is gone.
                let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            }
            self.states.set(&place, &kind, heard);
            self.log(&kind, &mut told);
            self.send(&kind, &mut lane, &mut look);
            let wake_at = kind.wake_at().map(|ms| self.began + Duration::from_millis(ms));
            let sleep = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = next(&mut lane) => {
                    if !matches!(answer, Answer::Failed(_)) {
                        heard = Instant::now();
                    }
                    self.take(&mut kind, answer, &mut lane);
                }
                answer = next(&mut look) => {
                    look = None;
                    let moment = self.moment();
                    match answer {
                        Answer::Traces(page) => kind.looked(moment, page.objects, page.version, page.continues),
                        Answer::Failed(failure) => kind.look_failed(moment, &failure),
                        Answer::Opened | Answer::Events(_) | Answer::Items(_) | Answer::Ended => {}
                    }
                }
                () = sleep => kind.tick(self.moment()),
                changed = self.asked.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let ticket = *self.asked.borrow_and_update();
                    kind.compare(self.moment(), ticket);
                }
            }
        }
    }

    /// Gives up what is wanted no more and sends what is.
    fn send(&self, kind: &KindWatch, lane: &mut Sent, look: &mut Sent) {
        match kind.request() {
            Some((id, _)) if lane.as_ref().is_some_and(|(sent, _)| *sent == id) => {}
            Some((id, request)) => {
                *lane = Some((id, Lane::request(self.client.clone(), &self.scope, kind.api_version(), request)));
            }
            None => *lane = None,
        }
        match kind.look() {
            Some((id, _)) if look.as_ref().is_some_and(|(sent, _)| *sent == id) => {}
            Some((id, continues)) => {
                let version = kind.api_version();
                let limit = self.pace.page.saturating_mul(2);
                *look = Some((id, Lane::look(self.client.clone(), &self.scope, &version, limit, continues)));
            }
            None => *look = None,
        }
    }

    fn take(&self, kind: &mut KindWatch, answer: Answer, lane: &mut Sent) {
        let moment = self.moment();
        match answer {
            Answer::Opened => kind.opened(),
            Answer::Events(events) => kind.events(moment, events),
            Answer::Items(page) => {
                *lane = None;
                kind.page(moment, page.objects, page.version, page.continues);
            }
            Answer::Ended => {
                *lane = None;
                kind.ended(moment);
            }
            Answer::Failed(failure) => {
                *lane = None;
                kind.failed(moment, failure);
            }
            Answer::Traces(_) => {}
        }
    }

    /// Says what is new of where it stands; not every try of the same.
    fn log(&self, kind: &KindWatch, told: &mut Option<(Standing, Option<Class>)>) {
        let standing = kind.standing();
        let trouble = kind.trouble();
        let now = (standing, trouble.map(|failure| failure.class));
        let (name, namespace) = (self.scope.kind.name, self.scope.namespace.as_deref().unwrap_or("all"));
        match standing {
            // On the way to one of the others.
            Standing::Listing => return,
            Standing::Watching if trouble.is_some() => return,
            _ if *told == Some(now) => return,
            Standing::Watching => {
                tracing::info!(kind = name, namespace, objects = kind.objects(), "the kind is followed");
            }
            Standing::Absent => {
                tracing::info!(
                    kind = name,
                    namespace,
                    "the API server does not serve this kind; it is looked for again"
                );
            }
            Standing::Waiting => {
                let why = trouble.map(Failure::to_string).unwrap_or_default();
                let stays = if kind.has_listed() { "what was known stays in force" } else { "it was not listed yet" };
                tracing::warn!(kind = name, namespace, why, "the kind is not followed; {stays}");
            }
        }
        *told = Some(now);
    }
}
