//! One agent of the swarm: the shipped session over the shipped client, with a volume in memory and no proxy.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent::backoff::Backoff;
use agent::link::Ended;
use anyhow::{Context, Result};
use journal::{Digest, MemberTree, digest};
use prost::Message;
use proto::v1::controller_message::Message as ToAgent;
use push::agent_session::{AgentSession, Effect, HelloFacts, Input, MembersChange, Timings, Transfer};
use push::grpc::client::{self, Credentials, Link};
use push::{Prefix, Version, limits};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;

use super::board::Board;
use super::controller::{Addresses, Supervisor};
use super::held::Held;
use super::metered::{Meter, Metered};
use super::{naive, world};

/// What an agent holds, and which serial each of its sets names.
#[derive(Default)]
struct Volume {
    held: Held,
    serials: HashMap<Arc<str>, u64>,
    applied: Option<(Version, Digest)>,
    highest_epoch: u64,
}

thread_local! {
    /// Member roots by the root before and the digest of the set that changed. All agents go through the same states, and
    /// 5,000 proxies on one machine must not cost what 5,000 machines would pay for themselves.
    static ROOTS: RefCell<HashMap<(Digest, Digest), Digest>> = RefCell::default();
}

/// Roots that are remembered.
const MOST_ROOTS: usize = 65_536;

impl Volume {
    fn apply(&mut self, transfer: Transfer) {
        self.applied = Some((transfer.version, transfer.root));
        self.held.apply(transfer);
    }

    /// Gives the serial that the set named before and the one that it names now; nothing when base or result are not as
    /// they were promised.
    fn change(&mut self, name: &Arc<str>, change: &MembersChange, digest: Prefix) -> Option<(u64, u64)> {
        if !self.held.change(name, change, digest) {
            return None;
        }
        let Some(set) = self.held.sets.get(name) else {
            self.serials.remove(name);
            return Some((0, 0));
        };
        let now = set.members.iter().filter_map(|member| world::serial_of(member)).max().unwrap_or(0);
        let was = self.serials.insert(Arc::clone(name), now).unwrap_or(0);
        Some((was, now))
    }

    fn member_root(&mut self, before: Digest, set: Digest) -> Digest {
        ROOTS.with_borrow_mut(|roots| {
            if roots.len() >= MOST_ROOTS {
                roots.clear();
            }
            *roots.entry((before, set)).or_insert_with(|| self.held.members.root())
        })
    }
}

/// See the module.
pub(crate) struct Member {
    number: usize,
    board: Arc<Board>,
    volume: Volume,
    member_root: Digest,
    /// What the board is told once the answers are on their way.
    notes: Vec<Note>,
}

enum Note {
    Applied(Version),
    Members { was: u64, now: u64, sets: usize },
}

/// A member of a swarm with one controller after the other, whose addresses the supervisor knows.
pub(super) struct Enrolled {
    member: Member,
    supervisor: Arc<Supervisor>,
    meter: Meter,
    credentials: Credentials,
}

impl Enrolled {
    /// Enrols.
    pub(super) async fn enrol(
        number: usize,
        supervisor: Arc<Supervisor>,
        board: Arc<Board>,
        meter: Meter,
    ) -> Result<Enrolled> {
        let at = supervisor.addresses().await;
        let (token, to) = (supervisor.token(number), at.enroll);
        // Not counted: enrolment is not the stream.
        let dial = move || Meter::default().dial(to, number);
        let trust = supervisor.trust();
        let credentials = client::enroll_with(&at.enroll.to_string(), trust, token, dial).await;
        let credentials = credentials.with_context(|| format!("agent {number}"))?;
        Ok(Enrolled { member: Member::new(number, board), supervisor, meter, credentials })
    }

    /// Connects and serves, again and again, waiting as the shipped agent does.
    pub(super) async fn run(mut self) {
        let mut rng = StdRng::seed_from_u64(self.member.number as u64);
        let mut backoff = Backoff::default();
        loop {
            let at = self.supervisor.addresses().await;
            let served = match self.connect(&at).await {
                Ok(link) => self.member.converse(link, &mut Alone).await.served,
                Err(_) => false,
            };
            if served {
                backoff.reset();
            }
            // sleep: what the shipped agent waits.
            tokio::time::sleep(backoff.next_wait(&mut rng)).await;
        }
    }

    /// Serves a naive server until the stream ends.
    pub(super) async fn run_naive(self) {
        let at = self.supervisor.addresses().await;
        if let Ok(link) = self.connect(&at).await {
            let Member { number, board, .. } = &self.member;
            naive::follow(link, |snapshot| board.members(*number, 0, snapshot, 1)).await;
        }
    }

    async fn connect(&self, at: &Addresses) -> Result<Link, client::ClientError> {
        let (meter, number, to) = (self.meter.clone(), self.member.number, at.push);
        let dial = move || -> std::pin::Pin<Box<dyn Future<Output = io::Result<Metered>> + Send>> {
            Box::pin(meter.clone().dial(to, number))
        };
        client::connect_with(&at.push.to_string(), &self.credentials, dial).await
    }
}

/// What is beside a stream.
pub(crate) trait Beside {
    /// How long the first answer may take, in milliseconds, if that is limited.
    fn answer_ms(&self) -> Option<u64> {
        None
    }
    /// The leader at the other end is unsure to lead, or sure again.
    fn unsure(&mut self, _unsure: bool) {}
    /// Another stream takes the place of this one.
    fn replaced(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Nothing is.
struct Alone;

impl Beside for Alone {}

impl Member {
    /// One that holds nothing.
    pub(crate) fn new(number: usize, board: Arc<Board>) -> Member {
        let member_root = MemberTree::default().root();
        Member { number, board, volume: Volume::default(), member_root, notes: Vec::new() }
    }

    /// Until the stream ends, or another takes its place.
    pub(crate) async fn converse(&mut self, link: Link, beside: &mut impl Beside) -> Ended {
        let mut ended = Ended { served: false, answered: false, close: None };
        self.talk(link, beside, &mut ended).await;
        self.board.ended(self.number);
        ended
    }

    async fn talk(&mut self, mut link: Link, beside: &mut impl Beside, ended: &mut Ended) {
        let begun = Instant::now();
        let now = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut session = AgentSession::new(limits::STAGING);
        if let Some(answer_ms) = beside.answer_ms() {
            session = session.with_answer_limit(answer_ms);
        }
        let hello = HelloFacts {
            boot_id: format!("boot-{}", self.number),
            schema_version: 1,
            highest_epoch: self.volume.highest_epoch,
            applied: self.volume.applied.map(|(version, _)| version),
            condemned: Vec::new(),
            scalwsd_version: env!("CARGO_PKG_VERSION").to_owned(),
            scalwsd_state: "ready".to_owned(),
        };
        let mut input = Input::Connected(hello);
        loop {
            let mut inputs = vec![input];
            while let Some(input) = inputs.pop() {
                for effect in session.step(now(), input, &self.volume.held) {
                    match effect {
                        Effect::Send(message) => {
                            if link.send.send(message).await.is_err() {
                                return;
                            }
                        }
                        Effect::Close(close) => {
                            ended.close = Some(close);
                            return;
                        }
                        Effect::LookElsewhere => beside.unsure(true),
                        Effect::Welcomed { version, root } => {
                            ended.served = true;
                            beside.unsure(false);
                            self.board.welcomed(self.number, version);
                            if self.volume.applied == Some((version, root)) {
                                self.board.applied(self.number, version);
                            }
                        }
                        effect => inputs.extend(self.perform(effect)),
                    }
                }
            }
            for note in std::mem::take(&mut self.notes) {
                match note {
                    Note::Applied(version) => self.board.applied(self.number, version),
                    Note::Members { was, now, sets } => self.board.members(self.number, was, now, sets),
                }
            }
            if let Some((_, root)) = self.volume.applied {
                self.board.holds(self.number, root, self.member_root);
            }
            let wait = Duration::from_millis(session.deadline().unwrap_or(u64::MAX).saturating_sub(now()).min(60_000));
            let message = tokio::select! {
                message = tokio::time::timeout(wait, link.receive.message()) => message,
                () = beside.replaced() => return,
            };
            input = match message {
                Ok(Ok(Some(message))) => {
                    ended.answered = true;
                    match &message.message {
                        Some(ToAgent::Begin(_) | ToAgent::Chunk(_) | ToAgent::Commit(_) | ToAgent::Members(_)) => {
                            let length = message.encoded_len() as u64;
                            self.board.count(|counts| counts.payload += length);
                        }
                        // The session looks at the whole.
                        Some(ToAgent::Heartbeat(_)) => drop(self.volume.held.members.root()),
                        _ => {}
                    }
                    Input::Received(message)
                }
                Ok(Ok(None) | Err(_)) => return,
                Err(_) => Input::Tick,
            };
        }
    }

    /// Does an effect at once and gives what the session hears of it.
    fn perform(&mut self, effect: Effect) -> Vec<Input> {
        let applied =
            |version, root| Input::Applied { version, root, timings: Timings::default(), not_live: Vec::new() };
        match effect {
            Effect::Apply(transfer) => {
                let (version, root) = (transfer.version, transfer.root);
                self.volume.apply(*transfer);
                self.board.count(|counts| counts.transfers += 1);
                self.notes.push(Note::Applied(version));
                vec![applied(version, root)]
            }
            Effect::Adopt { version, root } => {
                self.volume.applied = Some((version, root));
                self.notes.push(Note::Applied(version));
                vec![applied(version, root)]
            }
            Effect::RecordEpoch(epoch) => {
                self.volume.highest_epoch = epoch;
                Vec::new()
            }
            Effect::Members { seq, set, change, digest } => {
                let Some((was, now)) = self.volume.change(&set, &change, digest) else {
                    // What is asked comes before what is acknowledged; the last one here is heard first.
                    let root = self.member_root;
                    return vec![Input::MembersApplied { seq, root }, Input::MembersBaseUnknown { set }];
                };
                let digest = self.volume.held.members.get(&set).unwrap_or_else(|| digest::members(&set, []));
                self.member_root = self.volume.member_root(self.member_root, digest);
                self.board.count(|counts| counts.members += 1);
                self.notes.push(Note::Members { was, now, sets: self.volume.held.sets.len() });
                vec![Input::MembersApplied { seq, root: self.member_root }]
            }
            Effect::Send(_) | Effect::Close(_) | Effect::Welcomed { .. } | Effect::LookElsewhere => Vec::new(),
        }
    }
}
