//! The agent's side of the conversation, without sockets, clock or tokio.
//!
//! The agent's volume core owns what is held and does the work; the session decides what may be done, and answers.

mod config;
mod members;
mod staging;
mod types;

use std::collections::BTreeMap;

use journal::Digest;
use journal::mutants::{self, Mutant};
use proto::v1::agent_message::Message as ToController;
use proto::v1::controller_message::Message as FromController;
use proto::v1::{
    ControllerMessage, Heartbeat, HeartbeatReply, Hello, MemberBuckets, MemberSet, MemberSets, MembersAck,
    MembersRefused, MembersResync, Refused, Welcome,
};

use crate::Version;
use crate::limits;
use crate::wire::{self, Broken};

use config::{ConfigLane, Stop};
use members::{MemberLane, Taken};
pub use types::*;

/// What the stream is at.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Not open.
    New,
    /// Hello was said; no Welcome yet.
    Waiting,
    /// Served.
    Live,
    /// Over.
    Closed,
}

/// One stream as the agent sees it. Time is milliseconds of any clock that never goes back. A new stream gets a new
/// session.
#[derive(Debug)]
pub struct AgentSession {
    phase: Phase,
    heard: u64,
    heartbeat_ms: u64,
    /// How long the first answer to Hello may take.
    answer_ms: u64,
    /// Whether anything came on this stream.
    answered: bool,
    config: ConfigLane,
    members: MemberLane,
    /// What Hello said; what is held may have changed since.
    hello_root: Option<Digest>,
}

/// The shortest and longest heartbeat interval that is believed, in milliseconds.
const HEARTBEAT_RANGE: (u64, u64) = (100, 60_000);

impl AgentSession {
    /// A session that stages at most so many bytes of one transfer (see [`crate::limits::STAGING`]).
    pub fn new(staging_limit: u64) -> AgentSession {
        AgentSession {
            phase: Phase::New,
            heard: 0,
            heartbeat_ms: limits::HEARTBEAT_MS,
            answer_ms: limits::MISSES * limits::HEARTBEAT_MS,
            answered: false,
            config: ConfigLane::new(staging_limit),
            members: MemberLane::default(),
            hello_root: None,
        }
    }

    /// Waits for the first answer to Hello only so long, in milliseconds, and not for three heartbeats: for an agent that
    /// knows of other controllers. What is stopped or overloaded takes connections, and answers nothing.
    pub fn with_answer_limit(mut self, ms: u64) -> AgentSession {
        self.answer_ms = ms.min(self.answer_ms);
        self
    }

    /// Whether the controller serves this stream.
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// When [`Input::Tick`] is due at the latest.
    pub fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::New | Phase::Closed => None,
            Phase::Waiting | Phase::Live => {
                let silence = self.silent_at();
                Some(self.config.deadline().map_or(silence, |at| at.min(silence)))
            }
        }
    }

    fn silent_at(&self) -> u64 {
        if mutants::active(Mutant::SilenceIsIgnored) {
            return u64::MAX;
        }
        let limit = if self.answered { limits::MISSES * self.heartbeat_ms } else { self.answer_ms };
        self.heard.saturating_add(limit)
    }

    /// One step: what happened, what is held, what to do.
    pub fn step(&mut self, now: u64, input: Input, holdings: &dyn Holdings) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.phase == Phase::Closed {
            return out;
        }
        let stopped = match input {
            Input::Received(message) => {
                self.heard = now;
                self.answered = true;
                self.receive(now, message, holdings, &mut out)
            }
            input => {
                self.event(now, input, holdings, &mut out);
                Ok(())
            }
        };
        match stopped {
            Ok(()) => {}
            Err(Stop::Broken(Broken(what))) => self.close(Close::Protocol(what), &mut out),
            Err(Stop::Close(close)) => self.close(close, &mut out),
        }
        if self.phase == Phase::Live {
            self.config.proceed(now, self.members.applied(), holdings, &mut out);
        }
        out
    }

    fn close(&mut self, close: Close, out: &mut Vec<Effect>) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            out.push(Effect::Close(close));
        }
    }

    fn event(&mut self, now: u64, input: Input, holdings: &dyn Holdings, out: &mut Vec<Effect>) {
        match input {
            // Handled by the caller.
            Input::Received(_) => {}
            Input::Connected(facts) => self.connected(now, facts, holdings, out),
            Input::Applied { version, root, timings, not_live } => {
                self.config.done(version, root, timings, &not_live, out);
            }
            Input::Refused { version, root, code, message, leaves, transient } => {
                let leaves = leaves.iter().take(limits::CONDEMNED).map(wire::raw).collect();
                let (code, message) = (wire::cut(code, 64), wire::cut(message, limits::TEXT));
                let refused = Refused { code, message, leaves, transient, ..Refused::default() };
                self.config.refused(refused, version, root, out);
            }
            Input::MembersApplied { seq, root } => {
                let news = self.members.done(seq);
                self.acknowledge(news, root, holdings, out);
            }
            Input::MembersBaseUnknown { set } => {
                let set_name = set.to_string();
                send(ToController::MembersResync(MembersResync { set_name }), out);
            }
            Input::MembersRefused { seq, set, code, message } => {
                let (code, message) = (wire::cut(code, 64), wire::cut(message, limits::TEXT));
                send(
                    ToController::MembersRefused(MembersRefused { seq, set_name: set.to_string(), code, message }),
                    out,
                );
            }
            Input::NotLiveChanged(not_live) => self.config.say(&not_live, out),
            Input::HoldingsChanged if self.phase == Phase::Live => {
                self.config.compare(now, holdings);
                send_member_buckets(holdings, out);
            }
            Input::HoldingsChanged => {}
            Input::Tick => {
                if self.phase != Phase::New && now >= self.silent_at() {
                    self.close(Close::Silent, out);
                }
            }
        }
    }

    fn connected(&mut self, now: u64, facts: HelloFacts, holdings: &dyn Holdings, out: &mut Vec<Effect>) {
        if self.phase != Phase::New {
            return;
        }
        #[cfg(all(feature = "skew", debug_assertions))]
        let facts = crate::skew::facts(facts);
        self.phase = Phase::Waiting;
        self.heard = now;
        self.config.connected(facts.highest_epoch, facts.applied);
        let root = holdings.tree().root_after(&BTreeMap::new());
        self.hello_root = Some(root);
        send(
            ToController::Hello(Hello {
                protocol_min: limits::protocol().0,
                protocol_max: limits::protocol().1,
                schema_version: facts.schema_version,
                boot_id: facts.boot_id,
                highest_epoch: facts.highest_epoch,
                applied: facts.applied.map(Version::to_wire),
                applied_root: facts.applied.map(|_| wire::raw(&root)).unwrap_or_default(),
                member_root: wire::raw(&member_root(holdings)),
                condemned: facts.condemned.iter().take(limits::CONDEMNED).map(wire::raw).collect(),
                scalwsd_version: facts.scalwsd_version,
                scalwsd_state: facts.scalwsd_state,
            }),
            out,
        );
    }

    fn acknowledge(&mut self, news: Option<u64>, root: Digest, holdings: &dyn Holdings, out: &mut Vec<Effect>) {
        if let Some(seq) = news {
            send(ToController::MembersAck(MembersAck { seq }), out);
        }
        if self.members.differs(root) {
            send_member_buckets(holdings, out);
        }
    }

    fn receive(
        &mut self,
        now: u64,
        message: ControllerMessage,
        holdings: &dyn Holdings,
        out: &mut Vec<Effect>,
    ) -> Result<(), Stop> {
        if self.phase == Phase::New {
            return Err(Broken("a message before Hello").into());
        }
        let message = message.message.ok_or(Broken("an empty or unknown message"))?;
        let live = self.phase == Phase::Live;
        match message {
            FromController::Welcome(welcome) => self.welcome(now, &welcome, holdings, out),
            FromController::Standby(standby) => {
                self.phase = Phase::Waiting;
                if standby.heartbeat_ms != 0 {
                    self.follow_heartbeat(standby.heartbeat_ms);
                }
                Ok(())
            }
            FromController::NotLeader(to) => {
                let leader_address = Some(wire::cut(to.leader_address, 256)).filter(|address| !address.is_empty());
                Err(Stop::Close(Close::NotLeader { leader_address, retry_ms: u64::from(to.retry_ms) }))
            }
            FromController::Superseded(_) => Err(Stop::Close(Close::Superseded)),
            FromController::Unsupported(unsupported) if unsupported.what == "epoch" => {
                Err(Stop::Close(Close::EpochRejected))
            }
            FromController::Unsupported(unsupported) => {
                Err(Stop::Close(Close::Unsupported { what: wire::cut(unsupported.what, 256) }))
            }
            FromController::RetryAfter(retry) => Err(Stop::Close(Close::RetryAfter { ms: u64::from(retry.ms) })),
            FromController::Unsure(_) => {
                out.push(Effect::LookElsewhere);
                Ok(())
            }
            FromController::Heartbeat(heartbeat) => self.heartbeat(now, &heartbeat, holdings, out),
            _ if !live => Err(Broken("a push before Welcome").into()),
            FromController::Begin(begin) => self.config.begin(&begin, now, holdings, out),
            FromController::Chunk(chunk) => self.config.chunk(&chunk),
            FromController::Commit(commit) => self.config.commit(&commit, now, holdings, out),
            FromController::Abort(abort) => {
                self.config.abort(abort.transfer);
                Ok(())
            }
            FromController::Members(message) => {
                self.config.fence(message.epoch, out)?;
                let taken = self.members.take(message)?;
                self.taken(taken, holdings, out);
                Ok(())
            }
            FromController::Drop(message) => {
                self.config.fence(message.epoch, out)?;
                let taken = self.members.take_drop(&message)?;
                self.taken(taken, holdings, out);
                Ok(())
            }
            FromController::SendBuckets(_) => {
                self.config.send_buckets();
                Ok(())
            }
            FromController::SendMemberBuckets(_) => {
                send_member_buckets(holdings, out);
                Ok(())
            }
            FromController::SendMemberSets(question) => {
                send_member_sets(wire::bucket_numbers(&question.buckets)?, holdings, out);
                Ok(())
            }
        }
    }

    fn taken(&mut self, taken: Taken, holdings: &dyn Holdings, out: &mut Vec<Effect>) {
        match taken {
            Taken::Nothing => {}
            Taken::Change(members::Change { seq, set, change, digest }) => {
                out.push(Effect::Members { seq, set, change, digest })
            }
            Taken::Unusable { seq, set, why } => {
                let (code, message) = ("invalid".to_owned(), why.to_owned());
                send(
                    ToController::MembersRefused(MembersRefused { seq, set_name: set.to_string(), code, message }),
                    out,
                );
                let news = self.members.settle(seq);
                self.acknowledge(news, member_root(holdings), holdings, out);
            }
        }
    }

    fn welcome(
        &mut self,
        now: u64,
        welcome: &Welcome,
        holdings: &dyn Holdings,
        out: &mut Vec<Effect>,
    ) -> Result<(), Stop> {
        let target = welcome.target.as_ref().ok_or(Broken("Welcome without a target"))?;
        let root = wire::digest(&target.root)?;
        wire::digest(&welcome.member_root)?;
        let (lowest, highest) = limits::protocol();
        if !(lowest..=highest).contains(&welcome.protocol) {
            return Err(Broken("Welcome names a protocol that Hello did not offer").into());
        }
        self.config.fence(welcome.epoch, out)?;
        let version = Version::new(welcome.epoch, target.generation);
        let beyond = |applied: &Version| version < *applied && !mutants::active(Mutant::NoFence);
        if let Some(applied) = self.config.applied().filter(beyond) {
            return Err(Stop::Close(Close::Fenced { got: version, seen: applied }));
        }
        self.follow_heartbeat(welcome.heartbeat_ms);
        self.phase = Phase::Live;
        out.push(Effect::Welcomed { version, root });
        // The controller works from what Hello said.
        if self.hello_root.take().is_some_and(|hello| hello != holdings.tree().root_after(&BTreeMap::new())) {
            self.config.send_buckets();
        }
        self.config.target(version, root, true, now, holdings);
        Ok(())
    }

    fn follow_heartbeat(&mut self, ms: u32) {
        self.heartbeat_ms = u64::from(ms).clamp(HEARTBEAT_RANGE.0, HEARTBEAT_RANGE.1);
    }

    fn heartbeat(
        &mut self,
        now: u64,
        heartbeat: &Heartbeat,
        holdings: &dyn Holdings,
        out: &mut Vec<Effect>,
    ) -> Result<(), Stop> {
        if let Some(target) = heartbeat.target.as_ref().filter(|_| self.phase == Phase::Live) {
            self.config.fence(heartbeat.epoch, out)?;
            let root = wire::digest(&target.root)?;
            self.config.target(Version::new(heartbeat.epoch, target.generation), root, false, now, holdings);
            let expected =
                if heartbeat.member_root.is_empty() { None } else { Some(wire::digest(&heartbeat.member_root)?) };
            self.members.expect(heartbeat.member_seq, expected)?;
            if self.members.differs(member_root(holdings)) {
                send_member_buckets(holdings, out);
            }
        }
        let reply = HeartbeatReply {
            applied: self.config.applied().map(Version::to_wire),
            root: wire::raw(&holdings.tree().root_after(&BTreeMap::new())),
            member_seq: self.members.applied(),
            member_root: wire::raw(&member_root(holdings)),
        };
        send(ToController::HeartbeatReply(reply), out);
        Ok(())
    }
}

fn send(message: ToController, out: &mut Vec<Effect>) {
    out.push(Effect::Send(wire::to_controller(message)));
}

fn member_root(holdings: &dyn Holdings) -> Digest {
    holdings.members().root_after(&BTreeMap::new())
}

fn send_member_buckets(holdings: &dyn Holdings, out: &mut Vec<Effect>) {
    let digests = holdings.members().digests_after(&BTreeMap::new());
    send(ToController::MemberBuckets(MemberBuckets { bucket_digests: wire::raw_all(&digests) }), out);
}

/// Every set of these buckets, in messages of bounded length; the last one says so.
fn send_member_sets(buckets: &[u8], holdings: &dyn Holdings, out: &mut Vec<Effect>) {
    let sets = buckets.iter().flat_map(|number| holdings.members().bucket(*number));
    let mut sets =
        sets.map(|(name, digest)| MemberSet { name: name.to_string(), digest: wire::raw(digest) }).peekable();
    loop {
        let part: Vec<MemberSet> = sets.by_ref().take(limits::MEMBER_SETS).collect();
        let last = sets.peek().is_none();
        send(ToController::MemberSets(MemberSets { sets: part, last }), out);
        if last {
            break;
        }
    }
}
