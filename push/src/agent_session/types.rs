//! What goes in and out of an agent's session.

use std::sync::Arc;

use bytes::Bytes;
use journal::admin::NotLive;
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use proto::v1::{AgentMessage, ControllerMessage};

use crate::secret::Secret;
use crate::{Prefix, Version};

/// What the agent holds at this moment. The agent's volume core owns all of it; the session only looks.
///
/// While an [`Effect::Apply`] or [`Effect::Adopt`] is under way it may show either state; the session asks again after
/// the answer.
pub trait Holdings {
    /// The digests of the accepted configuration. A leaf whose key file is missing or wrong counts as absent.
    fn tree(&self) -> &Tree;
    /// The digests of the member sets, as `scalwsd` last confirmed them.
    fn members(&self) -> &MemberTree;
    /// Whether this secret's file is on the volume and right.
    fn has_secret(&self, digest: &Digest) -> bool;
    /// The body of a resource of the tree. Without it, a difference from it is answered as a lost base.
    fn body(&self, key: &Key) -> Option<Bytes>;
}

/// What the volume and `scalwsd` said just before the stream opened.
#[derive(Clone, Debug, Default)]
pub struct HelloFacts {
    /// Random for each start of the agent.
    pub boot_id: String,
    /// The highest schema version that `scalwsd` knows.
    pub schema_version: u32,
    /// The highest epoch on the volume.
    pub highest_epoch: u64,
    /// Version of the last accepted transaction, if there is one.
    pub applied: Option<Version>,
    /// Leaves on which `scalwsd` died.
    pub condemned: Vec<Digest>,
    /// The version of `scalwsd`.
    pub scalwsd_version: String,
    /// `starting`, `ready` or `down`.
    pub scalwsd_state: String,
}

/// How long the steps of an application took, in microseconds.
pub use proto::v1::Timings;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The stream is open: say Hello.
    Connected(HelloFacts),
    /// A message came.
    Received(ControllerMessage),
    /// The answer to [`Effect::Apply`] or [`Effect::Adopt`]: accepted, loaded, read back.
    Applied {
        /// Its version.
        version: Version,
        /// The root that `scalwsd` runs.
        root: Digest,
        /// How long it took.
        timings: Timings,
        /// Every resource that is not live.
        not_live: Vec<NotLive>,
    },
    /// The other answer to [`Effect::Apply`] or [`Effect::Adopt`]: nothing of it was used.
    Refused {
        /// Its version.
        version: Version,
        /// The root that was refused.
        root: Digest,
        /// A stable word, such as `crashed`.
        code: String,
        /// A sentence for people.
        message: String,
        /// The leaves to blame, if known.
        leaves: Vec<Digest>,
        /// Whether the same root may work later.
        transient: bool,
    },
    /// Member messages up to this one are done (applied, refused or asked for anew) and the member root is now this.
    MembersApplied {
        /// The `seq` of [`Effect::Members`].
        seq: u64,
        /// The member root of what `scalwsd` confirmed.
        root: Digest,
    },
    /// The base of a delta was not there, or `scalwsd` has another digest: the whole set is needed. Comes before
    /// [`Input::MembersApplied`] for the same message.
    MembersBaseUnknown {
        /// The set.
        set: Arc<str>,
    },
    /// `scalwsd` cannot take this set; the old one stays. Comes before [`Input::MembersApplied`] for the same message.
    MembersRefused {
        /// The `seq` of [`Effect::Members`].
        seq: u64,
        /// The set.
        set: Arc<str>,
        /// A stable word.
        code: String,
        /// A sentence for people.
        message: String,
    },
    /// The list of what is not live changed without a reload.
    NotLiveChanged(Vec<NotLive>),
    /// What is held changed behind the session's back: `scalwsd` restarted, or a key file turned out to be bad. The
    /// session compares anew.
    HoldingsChanged,
    /// Time passed; due at [`super::AgentSession::deadline`].
    Tick,
}

/// A verified configuration transfer, ready to be journalled.
#[derive(Clone, PartialEq, Eq)]
pub struct Transfer {
    /// What it will be.
    pub version: Version,
    /// The root it applies on: that of the agent's tree now.
    pub base_root: Digest,
    /// The root afterwards; the session recomputed it.
    pub root: Digest,
    /// Resources to put that are not held already, by key, each once.
    pub puts: Vec<TransferPut>,
    /// Resources to remove, by key; all of them are there. What a replaced bucket does not name is among them.
    pub removes: Vec<Key>,
    /// Secrets to write before, each verified against its digest.
    pub blobs: Vec<(Digest, Secret)>,
}

/// A resource to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferPut {
    /// Kind and name.
    pub key: Key,
    /// The body: valid JSON without bytes below 0x20.
    pub body: Bytes,
    /// Its leaf.
    pub leaf: Digest,
    /// Secrets that it names; all of them are on the volume or in `blobs`.
    pub secrets: Vec<Digest>,
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (puts, removes) = (self.puts.len(), self.removes.len());
        write!(f, "Transfer({} {:?} to {:?}, {puts} puts, {removes} removes)", self.version, self.base_root, self.root)
    }
}

/// How a member set changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembersChange {
    /// These are all its members, sorted, each once.
    Full(Vec<Arc<str>>),
    /// On this base. The agent checks base and result; either being wrong is [`Input::MembersBaseUnknown`].
    Delta {
        /// The beginning of the digest before.
        base: Prefix,
        /// To add, sorted.
        add: Vec<Arc<str>>,
        /// To remove: positions in the members before, ascending.
        remove: Vec<u32>,
    },
    /// The set goes.
    Drop,
}

impl MembersChange {
    /// The set of this name afterwards, from what is held of it: without members for a drop. `None` when that is not the
    /// base, or has no such members. Whether the digest is the promised one is for the caller to check.
    pub fn result(&self, name: &str, held: Option<&MemberSet>) -> Option<MemberSet> {
        Some(match self {
            MembersChange::Full(members) => MemberSet::new(name, members.clone()),
            MembersChange::Drop => MemberSet::new(name, Vec::new()),
            MembersChange::Delta { base, add, remove } => {
                let held = held.filter(|held| base.fits(&held.digest))?;
                let (mut members, mut next) = (Vec::with_capacity(held.members.len() + add.len()), 0);
                for at in remove {
                    let at = usize::try_from(*at).ok()?;
                    members.extend_from_slice(held.members.get(next..at)?);
                    next = at + 1;
                }
                members.extend_from_slice(held.members.get(next..)?);
                members.extend_from_slice(add);
                MemberSet::new(name, members)
            }
        })
    }
}

/// What the agent has to do, in this order.
#[derive(Debug)]
pub enum Effect {
    /// Write this message to the stream.
    Send(AgentMessage),
    /// Journal it, reload, read back; answer with [`Input::Applied`] or [`Input::Refused`]. Never a second one before
    /// the answer.
    Apply(Box<Transfer>),
    /// The agent holds this root already: journal an empty accepted transaction if the version is new, read back what
    /// is not live, answer as for `Apply`.
    Adopt {
        /// The version.
        version: Version,
        /// The root, which the agent holds.
        root: Digest,
    },
    /// Write this epoch to the journal before anything else of it is done.
    RecordEpoch(u64),
    /// Change a member set, in order of `seq`; answer with [`Input::MembersApplied`] (one answer may cover several).
    Members {
        /// Its number on this stream.
        seq: u64,
        /// The set.
        set: Arc<str>,
        /// How it changes.
        change: MembersChange,
        /// The beginning of the digest afterwards; of an empty set's for a drop.
        digest: Prefix,
    },
    /// The controller serves this agent: what it wants is this. An empty volume is ready to be judged from here on.
    Welcomed {
        /// The version wanted.
        version: Version,
        /// Its root.
        root: Digest,
    },
    /// The leader is not sure to lead: keep the stream and what runs, and look for another replica.
    LookElsewhere,
    /// Close the stream. Nothing follows.
    Close(Close),
}

/// Why an agent closes its stream, and what then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The controller leads no longer; another one may.
    NotLeader {
        /// Where to go, if known.
        leader_address: Option<String>,
        /// How long to wait, in milliseconds.
        retry_ms: u64,
    },
    /// Come again after so many milliseconds.
    RetryAfter {
        /// The wait.
        ms: u64,
    },
    /// A newer session of the same identity serves.
    Superseded,
    /// The controller does not believe the epoch on this volume: start again with what is there, of no epoch.
    EpochRejected,
    /// The controller does not work with this agent.
    Unsupported {
        /// What it does not support.
        what: String,
    },
    /// An epoch or version below what was seen: a deposed leader.
    Fenced {
        /// What it sent.
        got: Version,
        /// What this agent has seen.
        seen: Version,
    },
    /// Three heartbeats are missing.
    Silent,
    /// The peer broke the protocol.
    Protocol(&'static str),
}
