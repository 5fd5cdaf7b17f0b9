//! The controller's side of the conversation with one agent, without sockets, clock or tokio.
//!
//! `step` takes what happened, `poll` gives the next message to write, built from what is desired at that moment: there
//! is no queue of updates. Both lanes take turns, so that neither blocks the other.

mod config_lane;
mod hello;
mod member_lane;
mod types;

use std::collections::BTreeSet;
use std::sync::Arc;

use journal::Digest;
use journal::mutants::{self, Mutant};
use proto::v1::agent_message::Message as FromAgent;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{
    AgentMessage, Applied, ControllerMessage, Heartbeat, HeartbeatReply, MemberSets, MembersRefused, NotLeader,
    Refused, RetryAfter, Standby, Superseded, Target, Unsure,
};

use crate::Version;
use crate::fleet::{Admitted, Fleet};
use crate::limits;
use crate::wire::{self, Broken};

use config_lane::{ConfigLane, Verdict};
use member_lane::MemberLane;
pub use types::*;

/// What the stream is at.
#[derive(Debug)]
enum Phase {
    /// Waits for Hello until this moment.
    Hello(u64),
    /// Hello came; the controller cannot serve yet. Whether the agent knows.
    Parked { told: bool },
    /// Waits until this moment for an epoch above the one that was reported.
    Epoch { reported: u64, until: u64 },
    /// Welcome is next.
    Welcome,
    /// Served.
    Live,
    /// One last message, then the end.
    Farewell(Box<ToAgent>, Close),
    /// Over.
    Closed(Close),
}

/// One stream as the controller sees it. Time is milliseconds of any clock that never goes back.
#[derive(Debug)]
pub struct ServerSession {
    agent: Agent,
    role: Role,
    phase: Phase,
    hello: Option<HelloFacts>,
    /// The highest protocol version that both ends speak.
    protocol: u32,
    /// Both exist from Hello on.
    lanes: Option<Lanes>,
    heard: u64,
    /// The interval of heartbeats.
    heartbeat_ms: u64,
    next_heartbeat: u64,
    /// The next lane to be asked first.
    members_first: bool,
    unsure_told: bool,
    /// Whether Welcome went out on this stream.
    welcomed: bool,
    /// A place for a transfer of everything, until the first verdict, or until it took too long.
    place: Option<Place>,
    events: Vec<Event>,
    /// See [`ServerSession::take_news`].
    news: bool,
}

/// A place for a transfer of everything. Whoever needs more time than a push has at first goes on without it: neither an
/// agent that never gives a verdict nor one on a slow link keeps others from being brought up.
#[derive(Debug)]
struct Place {
    _admitted: Admitted,
    until: u64,
    /// The first transfer of the stream began, and [`Place::until`] counts from there.
    used: bool,
}

#[derive(Debug)]
struct Lanes {
    config: ConfigLane,
    members: MemberLane,
    /// The member version that was reported last.
    reported: Option<u64>,
}

impl ServerSession {
    /// A session that begins now and waits for Hello.
    pub fn new(agent: Agent, role: Role, now: u64) -> ServerSession {
        ServerSession {
            agent,
            role,
            phase: Phase::Hello(now.saturating_add(limits::HELLO_MS)),
            hello: None,
            protocol: 0,
            lanes: None,
            heard: now,
            heartbeat_ms: limits::HEARTBEAT_MS,
            next_heartbeat: now.saturating_add(limits::HEARTBEAT_MS),
            members_first: true,
            unsure_told: false,
            welcomed: false,
            place: None,
            events: Vec::new(),
            news: true,
        }
    }

    /// Sends heartbeats in this interval, in milliseconds, instead of [`limits::HEARTBEAT_MS`]; kept within
    /// [`limits::HEARTBEAT_RANGE_MS`]. The agent hears of it in Standby and Welcome. To be called before the first step.
    pub fn with_heartbeat(mut self, ms: u64) -> ServerSession {
        let (shortest, longest) = limits::HEARTBEAT_RANGE_MS;
        self.heartbeat_ms = ms.clamp(shortest, longest);
        self.next_heartbeat = self.heard.saturating_add(self.heartbeat_ms);
        self
    }

    /// Who is at the other end.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// What the agent says that it runs.
    pub fn applied(&self) -> Option<(Version, Digest)> {
        self.lanes.as_ref().and_then(|lanes| lanes.config.applied())
    }

    /// Why it is over, if it is: close the stream once [`ServerSession::poll`] gives nothing more.
    pub fn closed(&self) -> Option<&Close> {
        match &self.phase {
            Phase::Closed(close) => Some(close),
            _ => None,
        }
    }

    /// Events of polls since the last step; a step gives them too.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether a step since the last call may have made something to write: [`ServerSession::poll`] is worth it.
    pub fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.news, false)
    }

    /// When [`Input::Tick`] is due at the latest, and [`ServerSession::poll`] after it.
    pub fn deadline(&self) -> Option<u64> {
        let silence = self.silent_at();
        let phase = match &self.phase {
            Phase::Closed(_) => return None,
            Phase::Hello(until) => return Some(*until),
            Phase::Epoch { until, .. } => Some(*until),
            _ => None,
        };
        let lanes = self.lanes.as_ref().filter(|_| matches!(self.phase, Phase::Live));
        let lanes =
            lanes.and_then(|lanes| [lanes.config.deadline(), lanes.members.deadline()].into_iter().flatten().min());
        let place = self.place.as_ref().map(|place| place.until);
        [Some(silence), Some(self.next_heartbeat), phase, lanes, place].into_iter().flatten().min()
    }

    /// One step: what happened, and what the owner should know.
    pub fn step(&mut self, now: u64, input: Input, fleet: &mut Fleet) -> Vec<Event> {
        let before = std::mem::replace(&mut self.news, true);
        if !matches!(self.phase, Phase::Closed(_)) {
            match input {
                Input::Received(message) => {
                    self.heard = now;
                    if let Err(Broken(what)) = self.receive(now, message, fleet) {
                        self.close(Close::Protocol(what));
                    }
                }
                Input::FleetChanged => {}
                Input::Role(role) => self.turn(now, role),
                Input::Supersede => self.farewell(ToAgent::Superseded(Superseded {}), "superseded"),
                Input::Ended(close) => self.close(close),
                Input::Tick => self.tick(now),
            }
            self.advance(now, fleet);
        }
        // A newer session of the same agent says what it runs.
        if let Phase::Closed(close) = &self.phase
            && *close != Close::Farewell("superseded")
        {
            fleet.agent_left(&self.agent.uid);
        }
        self.news |= before;
        self.take_events()
    }

    fn close(&mut self, close: Close) {
        self.phase = Phase::Closed(close.clone());
        self.place = None;
        self.events.push(Event::Closed(close));
    }

    fn farewell(&mut self, message: ToAgent, word: &'static str) {
        if !matches!(self.phase, Phase::Farewell(..)) {
            self.phase = Phase::Farewell(Box::new(message), Close::Farewell(word));
        }
    }

    /// Three heartbeats after its last word, or when the transfer that holds them up is given up.
    fn silent_at(&self) -> u64 {
        let transfer = self.lanes.as_ref().map_or(0, |lanes| lanes.config.silent_until());
        self.heard.saturating_add(limits::MISSES * self.heartbeat_ms).max(transfer)
    }

    fn tick(&mut self, now: u64) {
        self.place.take_if(|place| now >= place.until);
        if now >= self.silent_at()
            && !mutants::active(Mutant::SilenceIsIgnored)
            && !matches!(self.phase, Phase::Hello(_))
        {
            return self.close(Close::Silent);
        }
        match &self.phase {
            Phase::Hello(until) if now >= *until => self.close(Close::NoHello),
            Phase::Epoch { until, .. } if now >= *until => {
                self.farewell(ToAgent::RetryAfter(RetryAfter { ms: 1_000 }), "retry_after");
            }
            Phase::Live => {
                if let Some(lanes) = &mut self.lanes
                    && let Some(version) = lanes.config.tick(now)
                {
                    self.events.push(Event::Overdue { version });
                }
            }
            _ => {}
        }
    }

    fn turn(&mut self, now: u64, role: Role) {
        let served = matches!(self.phase, Phase::Welcome | Phase::Live | Phase::Epoch { .. });
        match &role {
            Role::Leading => self.unsure_told = false,
            Role::Standby if served => self.phase = Phase::Parked { told: false },
            // Nothing more is pushed; the stream stays.
            Role::Unsure if served => self.phase = Phase::Parked { told: true },
            Role::NotLeader { leader_address, retry_ms } if self.hello.is_some() => {
                let leader_address = leader_address.clone().unwrap_or_default();
                self.farewell(ToAgent::NotLeader(NotLeader { leader_address, retry_ms: *retry_ms }), "not_leader");
            }
            Role::Standby | Role::Unsure | Role::NotLeader { .. } => {}
        }
        self.next_heartbeat = self.next_heartbeat.min(now.saturating_add(self.heartbeat_ms));
        self.role = role;
    }

    /// Leaves a waiting phase when what it waits for is there.
    fn advance(&mut self, now: u64, fleet: &mut Fleet) {
        if fleet.is_ended() && !matches!(self.phase, Phase::Hello(_) | Phase::Farewell(..) | Phase::Closed(_)) {
            // It may come back under the same name, as another one.
            return self.farewell(ToAgent::RetryAfter(RetryAfter { ms: ENDED_MS }), FLEET_ENDED);
        }
        match self.phase {
            Phase::Parked { .. } if self.role == Role::Leading && fleet.is_published() => self.judge(now, fleet),
            Phase::Epoch { reported, .. } if fleet.epoch() > reported => self.judge(now, fleet),
            _ => {}
        }
    }

    fn receive(&mut self, now: u64, message: AgentMessage, fleet: &mut Fleet) -> Result<(), Broken> {
        let message = message.message.ok_or(Broken("an empty or unknown message"))?;
        if let FromAgent::Hello(hello) = message {
            return self.hello(now, hello, fleet);
        }
        let Some(lanes) = &mut self.lanes else { return Err(Broken("the first message is not Hello")) };
        match message {
            FromAgent::Hello(_) => Ok(()),
            FromAgent::Applied(applied) => self.applied_message(applied, fleet),
            FromAgent::Refused(refused) => self.refused_message(now, refused, fleet),
            FromAgent::Resync(resync) => {
                let empty;
                let digests = if resync.bucket_digests.is_empty() {
                    empty = journal::Tree::default().bucket_digests().to_vec();
                    empty
                } else {
                    wire::buckets(&resync.bucket_digests)?
                };
                lanes.config.resync(digests, resync.transfer, fleet);
                Ok(())
            }
            FromAgent::BlobRequest(request) => {
                lanes.config.blob_request(request.transfer, &wire::digests(&request.digests, limits::BLOBS)?)
            }
            FromAgent::MembersAck(ack) => {
                let full = lanes.members.is_full();
                let complete = lanes.members.acknowledge(ack.seq)?;
                // Nothing waited for this acknowledgement: there is nothing to write because of it.
                self.news = full || complete.is_none();
                self.report_members(complete);
                Ok(())
            }
            FromAgent::MembersResync(resync) => lanes.members.resync(&resync.set_name),
            FromAgent::MembersRefused(refused) => {
                lanes.members.refuse(&refused.set_name, fleet)?;
                let MembersRefused { set_name: set, code, message, .. } = refused;
                let (code, message) = (wire::cut(code, 64), wire::cut(message, limits::TEXT));
                self.events.push(Event::MembersRefused { set, code, message });
                Ok(())
            }
            FromAgent::HeartbeatReply(reply) => self.reply(&reply),
            FromAgent::MemberBuckets(buckets) => {
                lanes.members.buckets(&wire::buckets(&buckets.bucket_digests)?, fleet);
                Ok(())
            }
            FromAgent::MemberSets(sets) => {
                let MemberSets { sets, last } = sets;
                if sets.len() > limits::MEMBER_SETS {
                    return Err(Broken("too many member sets in one message"));
                }
                let set = |set: proto::v1::MemberSet| {
                    wire::name(&set.name, limits::SET_NAME)?;
                    Ok((Arc::from(set.name), wire::digest(&set.digest)?))
                };
                lanes.members.sets(sets.into_iter().map(set).collect::<Result<_, _>>()?, last, fleet)
            }
        }
    }

    fn report_members(&mut self, version: Option<u64>) {
        if let (Some(lanes), Some(member_version)) = (&mut self.lanes, version)
            && lanes.reported.is_none_or(|reported| reported < member_version)
        {
            lanes.reported = Some(member_version);
            self.events.push(Event::MembersCurrent { member_version });
        }
    }

    fn applied_message(&mut self, applied: Applied, fleet: &mut Fleet) -> Result<(), Broken> {
        let Some(lanes) = &mut self.lanes else { return Ok(()) };
        let version = Version::from(applied.version.ok_or(Broken("a verdict without a version"))?);
        let root = wire::digest(&applied.root)?;
        let not_live = wire::not_live(applied.not_live)?;
        if lanes.config.agent_applied(version, root, fleet)? == Verdict::Report {
            self.place = None;
            fleet.agent_runs(&self.agent.uid, &root, not_live.iter().map(|entry| entry.resource.clone()));
            let timings = applied.timings.unwrap_or_default();
            self.events.push(Event::Applied { version, root, timings, not_live });
        }
        Ok(())
    }

    fn refused_message(&mut self, now: u64, refused: Refused, fleet: &mut Fleet) -> Result<(), Broken> {
        let Some(lanes) = &mut self.lanes else { return Ok(()) };
        let version = Version::from(refused.version.ok_or(Broken("a verdict without a version"))?);
        let root = wire::digest(&refused.root)?;
        let leaves = wire::digests(&refused.leaves, limits::CONDEMNED)?;
        let code = wire::cut(refused.code, 64);
        let mut message = wire::cut(refused.message, limits::TEXT);
        let mut transient = refused.transient && code != CRASHED;
        let spared = if code == CRASHED { fleet.live_elsewhere(&self.agent.uid, &leaves) } else { BTreeSet::new() };
        let blamed: Vec<Digest> = leaves.iter().copied().filter(|leaf| !spared.contains(leaf)).collect();
        if !spared.is_empty() && blamed.is_empty() {
            // Nothing of it is taken from the others, so only this agent can come to another end, with time.
            transient = true;
            message = format!("{message}; other proxies have it live, so it stays, and is tried here again");
        }
        lanes.config.agent_refused(version, root, transient, now, fleet)?;
        self.place = None;
        if code == CRASHED {
            self.condemn(&blamed, fleet);
        }
        self.events.push(Event::Refused { version, root, code, message, leaves, transient });
        Ok(())
    }

    /// Condemns what no other agent has live.
    fn condemn(&mut self, leaves: &[Digest], fleet: &mut Fleet) {
        let spared = fleet.live_elsewhere(&self.agent.uid, leaves);
        let leaves: Vec<Digest> = leaves.iter().copied().filter(|leaf| !spared.contains(leaf)).collect();
        if leaves.is_empty() {
            return;
        }
        let keys = fleet.condemn(&leaves);
        if !keys.is_empty() {
            self.events.push(Event::Condemned { leaves, keys });
        }
    }

    fn reply(&mut self, reply: &HeartbeatReply) -> Result<(), Broken> {
        let root = wire::digest(&reply.root)?;
        wire::digest(&reply.member_root)?;
        if let (Phase::Live, Some(lanes)) = (&self.phase, &mut self.lanes) {
            lanes.config.compare(root);
        }
        Ok(())
    }

    /// The next message to write, built from what is desired at this moment. Ask again until there is none.
    pub fn poll(&mut self, now: u64, fleet: &mut Fleet) -> Option<ControllerMessage> {
        self.advance(now, fleet);
        let message = match &mut self.phase {
            Phase::Hello(_) | Phase::Closed(_) => None,
            Phase::Farewell(message, close) => {
                let (message, close) = ((**message).clone(), close.clone());
                self.close(close);
                Some(message)
            }
            Phase::Parked { told } if !*told => {
                *told = true;
                Some(ToAgent::Standby(Standby { heartbeat_ms: self.heartbeat_on_the_wire() }))
            }
            Phase::Parked { .. } if self.role == Role::Unsure && !self.unsure_told => {
                self.unsure_told = true;
                Some(ToAgent::Unsure(Unsure {}))
            }
            Phase::Parked { .. } | Phase::Epoch { .. } => self.heartbeat(now, None),
            Phase::Welcome => Some(self.welcome(now, fleet)),
            Phase::Live => self.poll_lanes(now, fleet),
        };
        message.map(wire::to_agent)
    }

    fn poll_lanes(&mut self, now: u64, fleet: &mut Fleet) -> Option<ToAgent> {
        // A fifth of the interval late at most: by then members were sent that make the roots comparable.
        if now >= self.next_heartbeat.saturating_add(self.heartbeat_ms / 5) {
            return self.heartbeat(now, Some(fleet));
        }
        let lanes = self.lanes.as_mut()?;
        for _ in 0..2 {
            self.members_first = !self.members_first;
            if mutants::active(Mutant::MembersWaitForConfiguration) && lanes.config.is_flying() {
                self.members_first = true;
            }
            let message = if self.members_first {
                let ready = lanes.members.sent_up_to(fleet.member_version_at_root())
                    || mutants::active(Mutant::RoutesBeforeMembers);
                let message = lanes.config.poll(now, fleet, ready, lanes.members.seq());
                if let (Some(ToAgent::Begin(begin)), Some(place)) = (&message, &mut self.place)
                    && !place.used
                {
                    (place.used, place.until) = (true, now.saturating_add(limits::push_deadline_ms(begin.bytes)));
                }
                message
            } else {
                let message = lanes.members.poll(now, fleet, lanes.config.serial_in_use(fleet));
                for set in lanes.members.take_too_large() {
                    let (code, message) = ("too_large".to_owned(), "the set has more members than are sent".to_owned());
                    self.events.push(Event::MembersRefused { set: set.to_string(), code, message });
                }
                message
            };
            if message.is_some() {
                return message;
            }
        }
        let current = lanes.members.current(fleet);
        self.report_members(current);
        self.heartbeat(now, Some(fleet))
    }

    fn heartbeat_on_the_wire(&self) -> u32 {
        u32::try_from(self.heartbeat_ms).unwrap_or(u32::MAX)
    }

    fn heartbeat(&mut self, now: u64, fleet: Option<&mut Fleet>) -> Option<ToAgent> {
        if now < self.next_heartbeat {
            return None;
        }
        self.next_heartbeat = now.saturating_add(self.heartbeat_ms);
        let (Some(fleet), Some(lanes)) = (fleet, &self.lanes) else {
            return Some(ToAgent::Heartbeat(Heartbeat::default()));
        };
        Some(ToAgent::Heartbeat(Heartbeat {
            epoch: fleet.epoch(),
            target: Some(target(fleet)),
            member_seq: lanes.members.seq(),
            member_root: lanes.members.expected_root(fleet).map(|root| wire::raw(&root)).unwrap_or_default(),
        }))
    }
}

/// The word of a farewell to the agents of a fleet that ended.
pub const FLEET_ENDED: &str = "that its fleet is none any more";

/// When they may look whether it is one again, in milliseconds.
const ENDED_MS: u32 = 1_000;

/// The code of a death during a reload; never transient.
pub const CRASHED: &str = "crashed";

fn target(fleet: &Fleet) -> Target {
    Target { generation: fleet.version().generation, root: wire::raw(&fleet.root()) }
}
