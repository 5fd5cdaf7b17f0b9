//! The push listener: one session per proven agent.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use futures_util::Stream;
use prost::Message as _;
use proto::v1::controller_message::Message;
use proto::v1::push_server::{Push, PushServer};
use proto::v1::{AgentMessage, ControllerMessage};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tower::Layer;

use super::accept::{Limits, Peer, Proven, accept};
use super::identity_layer::{Guarded, Method, Only};
use super::live::{DEADLINE, REVOKED, ROLE, Registered, SUPERSEDED, Sessions, WRITTEN};
use super::pace::Pace;
use super::shared::Listening;
use super::signal::Signal;
use super::tls::TlsSlot;
use super::{CONNECTION_WINDOW, HEADERS, PING, PING_TIMEOUT, STREAM_WINDOW, STREAMS, SharedFleet};
use crate::fleet::Fleet;
use crate::identity::AgentIdentity;
use crate::limits;
use crate::server_session::{Agent, Close, Event, Input, Role, ServerSession};

/// How long a closed session may take to write its last message before its connection is cut.
const GRACE: Duration = Duration::from_secs(2);

/// The least time between two ticks of a session.
const TICK: Duration = Duration::from_millis(50);

/// A proven agent that may be served.
#[derive(Clone, Debug)]
pub struct Welcome<P> {
    /// Its fleet.
    pub fleet: SharedFleet,
    /// The name to report it by.
    pub name: String,
    /// Where the owner of the fleets has it, handed back with each of its events.
    pub place: P,
}

/// What the owner of the fleets gives to the sessions and gets from them.
pub trait Hub: Send + Sync + 'static {
    /// Where it has an agent.
    type Place: Send + Sync + 'static;

    /// The fleet of a proven agent; `None` denies it (an unknown fleet, a pod that is gone).
    fn admit(&self, agent: &AgentIdentity) -> Option<Welcome<Self::Place>>;

    /// Whether a proven agent that was admitted may stay; asked for each live session every 2 s. False closes it.
    fn may_stay(&self, agent: &AgentIdentity) -> bool {
        let _ = agent;
        true
    }

    /// The controller's role, and every change of it.
    fn role(&self) -> watch::Receiver<Role>;

    /// Whether [`Role::Leading`] holds at this very moment. A process that was stopped for a while may wake up to serve before
    /// anything could tell it that its lead is over.
    fn still_leads(&self) -> bool {
        true
    }

    /// How often agents get a heartbeat, in milliseconds; asked for each new stream. Kept within
    /// [`limits::HEARTBEAT_RANGE_MS`]. A controller with a lease gives a third of its duration.
    fn heartbeat_ms(&self) -> u64 {
        limits::HEARTBEAT_MS
    }

    /// Something happened in this agent's session; `session` tells sessions of one agent apart. They come in order, and
    /// while that session is locked: this must not block. No fleet is locked.
    fn event(&self, agent: &AgentIdentity, place: &Self::Place, session: u64, event: Event);

    /// A message of so many bytes, before the framing of gRPC and TLS, goes to some agent. For counting; no lock is held.
    fn sent(&self, lane: Lane, bytes: usize) {
        let _ = (lane, bytes);
    }
}

/// What a message to an agent belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// A transfer of configuration, with the secrets it needs.
    Configuration,
    /// Member sets.
    Members,
    /// The conversation itself: welcomes, heartbeats, questions, that a transfer is off.
    Session,
}

impl Lane {
    fn of(message: &ControllerMessage) -> Lane {
        match message.message {
            // Abort carries none.
            Some(Message::Begin(_) | Message::Chunk(_) | Message::Commit(_)) => Lane::Configuration,
            Some(Message::Members(_) | Message::Drop(_)) => Lane::Members,
            _ => Lane::Session,
        }
    }
}

/// Why a listener stopped serving.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves agents until `shutdown`.
pub async fn serve<H: Hub>(
    listener: TcpListener,
    tls: TlsSlot,
    limits: Limits,
    hub: Arc<H>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let sessions = Arc::new(Sessions::default());
    let role = sessions.clone().follow(hub.role());
    let review = sessions.clone().review(Arc::clone(&hub));
    let service = Service { hub, sessions, clock: Clock(Instant::now()) };
    let service =
        PushServer::new(service).max_decoding_message_size(limits::MESSAGE).max_encoding_message_size(limits::MESSAGE);
    let routes = tonic::service::Routes::new(service);
    tokio::select! {
        served = serve_on(listener, tls, limits, Only(Method::Sync), None, routes, shutdown) => served,
        never = role => match never {},
        never = review => match never {},
    }
}

/// What both listeners share. The layer is around everything that is registered. Connections may be given an end.
pub(super) async fn serve_on(
    listener: TcpListener,
    tls: TlsSlot,
    limits: Limits,
    only: Only,
    longest_connection: Option<Duration>,
    routes: tonic::service::Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError>
where
    Only: Layer<tonic::service::Routes, Service = Guarded<tonic::service::Routes>>,
{
    let (ready, connections) = mpsc::channel(64);
    let mut server = tonic::transport::Server::builder();
    if let Some(longest) = longest_connection {
        server = server.max_connection_age(longest).max_connection_age_grace(longest);
    }
    let server = server
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .http2_max_header_list_size(HEADERS)
        .layer(only)
        .add_routes(routes)
        .serve_with_incoming(ReceiverStream::new(connections));
    tokio::select! {
        served = server => Ok(served?),
        () = accept(listener, tls, limits, ready) => Ok(()),
        () = shutdown => Ok(()),
    }
}

/// Milliseconds since the server started.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn at(self, ms: u64) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.0 + Duration::from_millis(ms))
    }
}

/// What a session's writer is told: there is something to look at.
const WRITE: u8 = 1;

struct Service<H> {
    hub: Arc<H>,
    sessions: Arc<Sessions>,
    clock: Clock,
}

/// What reader and writer of one session share. The session's lock is taken before the fleet's.
struct Shared<H: Hub> {
    hub: Arc<H>,
    agent: AgentIdentity,
    place: H::Place,
    number: u64,
    fleet: SharedFleet,
    seat: Mutex<Seat>,
    clock: Clock,
    /// Messages that went to the agent.
    sent: AtomicU64,
    writer: Arc<Signal>,
    reader: Arc<Signal>,
    /// When the reader looks by itself, in milliseconds of the clock. Written and read while the session is locked.
    armed: AtomicU64,
}

/// A session, and the role that it was told.
struct Seat {
    session: ServerSession,
    role: watch::Receiver<Role>,
    told: Role,
}

impl Seat {
    /// Tells the session what we are now. To be called with the fleet locked: whoever raises its epoch changes the role before,
    /// so that nothing of the new epoch goes out in the old role.
    fn tell_role(&mut self, still_leads: bool, now: u64, fleet: &mut Fleet) -> Vec<Event> {
        let role = role_now(&self.role, still_leads);
        if role == self.told {
            return Vec::new();
        }
        self.told = role.clone();
        self.session.step(now, Input::Role(role), fleet)
    }
}

/// A lead that is over by the clock is one no more, whatever was said last.
fn role_now(role: &watch::Receiver<Role>, still_leads: bool) -> Role {
    let role = role.borrow();
    if *role == Role::Leading && !still_leads { Role::Unsure } else { role.clone() }
}

impl<H: Hub> Shared<H> {
    /// Events are reported before the session's lock is given back, so that they come in order.
    fn step(&self, input: Input) {
        let mut seat = self.lock();
        let events = self.fleet.with(|fleet| {
            let now = self.clock.now();
            let mut events = seat.tell_role(self.hub.still_leads(), now, fleet);
            events.extend(seat.session.step(now, input, fleet));
            events
        });
        self.report(events);
        let wake = seat.session.take_news();
        drop(seat);
        if wake {
            self.writer.tell(WRITE);
        }
    }

    fn poll(&self) -> (Option<ControllerMessage>, bool) {
        let mut seat = self.lock();
        let (events, message) = self.fleet.with(|fleet| {
            let now = self.clock.now();
            let events = seat.tell_role(self.hub.still_leads(), now, fleet);
            (events, seat.session.poll(now, fleet))
        });
        self.report(events);
        let session = &mut seat.session;
        self.report(session.take_events());
        // With thousands of agents every wake counts: a later deadline is seen when the earlier one comes.
        if session.deadline().is_none_or(|at| at < self.armed.load(Ordering::Relaxed)) {
            self.reader.tell(DEADLINE);
        }
        let closed = session.closed().is_some();
        drop(seat);
        if let Some(message) = &message {
            self.sent.fetch_add(1, Ordering::Relaxed);
            self.hub.sent(Lane::of(message), message.encoded_len());
        }
        (message, closed)
    }

    /// When the session wants to be asked; the reader looks again by then. None once the session is over.
    fn arm(&self) -> Option<u64> {
        let seat = self.lock();
        let deadline = seat.session.deadline();
        self.armed.store(deadline.unwrap_or(u64::MAX), Ordering::Relaxed);
        deadline
    }

    fn report(&self, events: Vec<Event>) {
        for event in events {
            self.hub.event(&self.agent, &self.place, self.number, event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<ControllerMessage, Status>> + Send>>;

#[tonic::async_trait]
impl<H: Hub> Push for Service<H> {
    type SyncStream = Messages;

    async fn sync(&self, request: Request<Streaming<AgentMessage>>) -> Result<Response<Messages>, Status> {
        let denied = || Status::permission_denied("not permitted");
        let (_, extensions, inbound) = request.into_parts();
        // The layer put both there; without them nobody was let through.
        let proven = extensions.get::<Proven>().cloned().ok_or_else(denied)?;
        let peer = extensions.get::<Peer>().cloned().ok_or_else(denied)?;
        let agent = proven.identity.clone();
        let Welcome { fleet, name, place } = self.hub.admit(&agent).ok_or_else(denied)?;
        // From here on it is told of a new role.
        let registered = self.sessions.begin(&agent);
        let role = self.hub.role();
        let proven_agent = Agent { uid: agent.uid.as_str().into(), name };
        let now = self.clock.now();
        let told = role_now(&role, self.hub.still_leads());
        let session = ServerSession::new(proven_agent, told.clone(), now).with_heartbeat(self.hub.heartbeat_ms());
        let shared = Arc::new(Shared {
            hub: Arc::clone(&self.hub),
            agent,
            place,
            number: registered.number,
            fleet,
            seat: Mutex::new(Seat { session, role, told }),
            clock: self.clock,
            sent: AtomicU64::new(0),
            writer: Arc::default(),
            reader: Arc::clone(&registered.reader),
            armed: AtomicU64::new(u64::MAX),
        });
        let listening = shared.fleet.listen(&shared.writer, WRITE);
        let outbound: Messages =
            Box::pin(Outbound { shared: Arc::clone(&shared), quiet: false, _listening: listening });
        tokio::spawn(read(shared, inbound, registered, peer, proven.not_after));
        Ok(Response::new(outbound))
    }
}

/// The stream of messages to the agent: each is built at the moment when the connection can take it.
struct Outbound<H: Hub> {
    shared: Arc<Shared<H>>,
    /// Nothing was to be written when it last looked.
    quiet: bool,
    _listening: Listening,
}

impl<H: Hub> Stream for Outbound<H> {
    type Item = Result<ControllerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The connection asks several times for each message; whoever makes news says so.
        let told = self.shared.writer.poll_take(context).is_ready();
        if self.quiet && !told {
            return Poll::Pending;
        }
        let (message, closed) = self.shared.poll();
        self.quiet = message.is_none();
        match message {
            Some(message) => Poll::Ready(Some(Ok(message))),
            None if closed => Poll::Ready(None),
            // What it is told from here on wakes it.
            None => Poll::Pending,
        }
    }
}

impl<H: Hub> Drop for Outbound<H> {
    fn drop(&mut self) {
        self.shared.reader.tell(WRITTEN);
    }
}

/// Reads the agent's messages and keeps the session's time. Never waits for the writer.
async fn read<H: Hub>(
    shared: Arc<Shared<H>>,
    mut inbound: Streaming<AgentMessage>,
    registered: Registered,
    peer: Peer,
    not_after: SystemTime,
) {
    // A stream must not outlive the certificate that opened it.
    let expiry = tokio::time::sleep(not_after.duration_since(SystemTime::now()).unwrap_or_default());
    tokio::pin!(expiry);
    // What is due is done by the writer. While the peer does not take it, it stays due: that must not spin.
    let mut not_before = tokio::time::Instant::now();
    let timer = tokio::time::sleep_until(not_before);
    tokio::pin!(timer);
    let mut pace = Pace::new(not_before);
    let why = loop {
        // A session that is over has no deadline.
        let Some(deadline) = shared.arm() else { break None };
        let tick = shared.clock.at(deadline).max(not_before);
        if timer.deadline() != tick || timer.is_elapsed() {
            timer.as_mut().reset(tick);
        }
        let sent = || shared.sent.load(Ordering::Relaxed);
        let flood = pace.until(tokio::time::Instant::now(), sent());
        tokio::select! {
            message = inbound.message(), if flood.is_none() => match message {
                Ok(Some(message)) => {
                    pace.heard(tokio::time::Instant::now(), sent());
                    shared.step(Input::Received(message));
                }
                Ok(None) | Err(_) => break Some(Close::Gone),
            },
            () = &mut timer => {
                not_before = tokio::time::Instant::now() + TICK;
                shared.step(Input::Tick);
            }
            // A block, so that the timer is made when it is needed.
            () = async { tokio::time::sleep_until(flood.unwrap_or(not_before)).await }, if flood.is_some() => {}
            told = shared.reader.take() => {
                if told & ROLE != 0 {
                    // Every step looks at the role first.
                    shared.step(Input::FleetChanged);
                }
                if told & SUPERSEDED != 0 {
                    shared.step(Input::Supersede);
                }
                if told & REVOKED != 0 {
                    break Some(Close::Revoked);
                }
                if told & WRITTEN != 0 {
                    break Some(Close::Gone);
                }
            }
            () = &mut expiry => break Some(Close::Expired),
        }
    };
    drop(registered);
    if let Some(why) = why {
        shared.step(Input::Ended(why));
    }
    // The last message goes out if the peer takes it, and the peer closes; then the connection goes, whatever it does.
    let _ = tokio::time::timeout(GRACE, peer.gone.cancelled()).await;
    peer.cut.cut();
}
