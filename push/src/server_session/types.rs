//! What goes in and out of a controller's session with one agent.

use std::sync::Arc;

use journal::admin::NotLive;
use journal::{Digest, Key};
use proto::v1::{AgentMessage, Timings};

use crate::Version;

/// Who is at the other end, as its certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The key under which the controller remembers it: the pod's UID.
    pub uid: Arc<str>,
    /// The name for people.
    pub name: String,
}

/// What this controller is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads: agents are served.
    Leading,
    /// It follows and knows no leader: proven streams stay parked.
    Standby,
    /// It follows: agents go elsewhere.
    NotLeader {
        /// Where, if known.
        leader_address: Option<String>,
        /// After so many milliseconds.
        retry_ms: u32,
    },
    /// It led and could not renew: agents keep the stream, nothing is pushed.
    Unsure,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A message of the agent.
    Received(AgentMessage),
    /// The fleet changed, or its epoch was raised.
    FleetChanged,
    /// The controller's role changed.
    Role(Role),
    /// A newer session of the same identity took over.
    Supersede,
    /// The stream is no more: [`Close::Gone`], [`Close::Expired`] or [`Close::Revoked`].
    Ended(Close),
    /// Time passed; due at [`super::ServerSession::deadline`].
    Tick,
}

/// What Hello said, without what decides identity: that is never in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloFacts {
    /// Random for each start of the agent.
    pub boot_id: String,
    /// The highest schema version that its `scalwsd` knows.
    pub schema_version: u32,
    /// The highest epoch that it has seen.
    pub highest_epoch: u64,
    /// What it runs, if anything.
    pub applied: Option<(Version, Digest)>,
    /// Its member root.
    pub member_root: Digest,
    /// Leaves on which its `scalwsd` died.
    pub condemned: Vec<Digest>,
    /// The version of its `scalwsd`.
    pub scalwsd_version: String,
    /// `starting`, `ready` or `down`.
    pub scalwsd_state: String,
}

/// What the owner of the session should know.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The agent said Hello.
    Hello(Box<HelloFacts>),
    /// The agent has seen this epoch, or a version beyond ours in our own epoch. The owner raises the epoch above it
    /// (counter first), calls `Fleet::raise_epoch` and wakes the session, or loses its lead.
    EpochReported(u64),
    /// The agent reported an epoch that is not to be believed; it was told so.
    EpochAlarm(u64),
    /// The stream is served from now on.
    Welcomed,
    /// These leaves killed a `scalwsd`; these resources of the desired configuration hold them. No push starts until
    /// the owner publishes claims only in their place.
    Condemned {
        /// The leaves.
        leaves: Vec<Digest>,
        /// The resources.
        keys: Vec<Key>,
    },
    /// The agent runs this. Comes again with the same version when `not_live` changed.
    Applied {
        /// The version.
        version: Version,
        /// Its root.
        root: Digest,
        /// How long its steps took.
        timings: Timings,
        /// Every resource that is not live.
        not_live: Vec<NotLive>,
    },
    /// The agent could use nothing of this.
    Refused {
        /// The version.
        version: Version,
        /// Its root.
        root: Digest,
        /// A stable word.
        code: String,
        /// A sentence for people.
        message: String,
        /// The leaves to blame.
        leaves: Vec<Digest>,
        /// Whether it will be sent again.
        transient: bool,
    },
    /// No verdict came in time; a resync follows.
    Overdue {
        /// The version that was pushed.
        version: Version,
    },
    /// The agent has every member set as of this member version, refused ones aside.
    MembersCurrent {
        /// See `Published::member_version`.
        member_version: u64,
    },
    /// The agent keeps the old members of a set.
    MembersRefused {
        /// The set.
        set: String,
        /// A stable word.
        code: String,
        /// A sentence for people.
        message: String,
    },
    /// The session is over. Comes last.
    Closed(Close),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// It said farewell with a typed answer: `NotLeader`, `RetryAfter`, `Unsupported` or `Superseded`.
    Farewell(&'static str),
    /// The stream ended.
    Gone,
    /// The certificate ended.
    Expired,
    /// The agent is no proxy of its fleet any more: its pod is gone, or nobody declares the fleet.
    Revoked,
    /// No Hello came in time.
    NoHello,
    /// Three heartbeats without an answer.
    Silent,
    /// The peer broke the protocol.
    Protocol(&'static str),
}
