//! The agent without sockets, files or a clock: what was heard goes in, what must be done comes out.
//!
//! Two lanes that never wait for each other: [`ConfigLane`] takes one configuration at a time through the journal and
//! `scalwsd`, [`MemberLane`] takes member sets. Whoever drives the core does the effects in their order, each exactly
//! once, and hands the answers back in. It may die between any two of them: [`AgentCore::open`] finds the way on.

mod compaction;
mod config_lane;
mod member_lane;
mod transfer;
mod types;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use journal::admin::NotLive;
use journal::{Digest, Key, MemberTree, Tree};
use push::agent_session::Holdings;

pub use config_lane::ConfigLane;
pub use member_lane::MemberLane;
pub use transfer::{TransferError, plan};
pub use types::{CallError, Effect, Facts, File, Input, MemberChange, Report, ScalwsdState, VolumeImage, refusals};

/// The whole state of an agent.
#[derive(Debug)]
pub struct AgentCore {
    config: ConfigLane,
    members: MemberLane,
    /// The `scalwsd` that is not connected any more went while it was loading a configuration.
    went_loading: bool,
}

impl AgentCore {
    /// Starts from what a volume holds. `boot_id` must be random: journals that this agent starts are named after it.
    ///
    /// The effects put the volume in order; do them before anything else.
    pub fn open(image: VolumeImage, boot_id: &str) -> (AgentCore, Vec<Effect>) {
        let mut effects = Vec::new();
        let config = ConfigLane::open(&image.config, image.keys, boot_id, &mut effects);
        let members = MemberLane::open(&image.members, boot_id, &mut effects);
        (AgentCore { config, members, went_loading: false }, effects)
    }

    /// From how many bytes on a journal is written anew once it is twice what is live in it: for simulations, whose
    /// journals are small.
    pub fn set_journal_floor(&mut self, bytes: u64) {
        self.config.floor = bytes;
        self.members.floor = bytes;
    }

    /// Takes one input; gives what must be done, in order.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        let out = &mut effects;
        match input {
            Input::Transfer(transfer) => self.config.transfer(*transfer, out),
            Input::Adopt { version, root } => self.config.adopt(version, root, out),
            Input::Epoch(epoch) => self.config.epoch(epoch, out),
            Input::Members(change) => self.members.change(change, out),
            Input::StreamEnded => {
                self.config.stream_ended();
                self.members.stream_ended();
            }
            Input::Up(answer) => {
                let start: Arc<str> = answer.start.as_str().into();
                self.went_loading = false;
                self.config.up(answer, out);
                self.members.up(start, out);
            }
            Input::Down => {
                self.went_loading |= self.config.is_loading();
                self.config.down();
                self.members.down(self.went_loading);
            }
            Input::Poll => self.config.poll(out),
            Input::Compare => self.members.poll(out),
            Input::Reloaded { result, timings } => {
                self.went_loading |= self.config.is_loading() && matches!(result, Err(CallError::Gone));
                self.config.reloaded(result, timings, out);
            }
            Input::ReadBack { result, took_us } => self.config.read_back(result, took_us, out),
            Input::Checked { dead } => self.config.checked(&dead, out),
            // Each call has a connection of its own: which of them ends first says nothing.
            Input::MembersAnswered(Err(CallError::Gone)) => {
                self.members.cut_off(self.went_loading || self.config.is_loading());
            }
            Input::MembersAnswered(result) => self.members.answered(result, out),
            Input::Upstreams(result) => self.members.listed(result, out),
            Input::Replaced { file: File::Config, len } => self.config.replaced(len, out),
            Input::Replaced { file: File::Members, len } => self.members.replaced(len.is_some(), out),
            Input::VolumeFailed { file: File::Config, message } => self.config.volume_failed(&message, out),
            Input::VolumeFailed { file: File::Members, message } => self.members.volume_failed(&message, out),
        }
        // Whoever only looks at the trees finds their roots settled.
        self.config.tree().root();
        self.members.tree().root();
        effects
    }

    /// What a Hello says, from the volume and `scalwsd` as they are now.
    pub fn facts(&mut self) -> Facts {
        Facts {
            highest_epoch: self.config.highest_epoch(),
            applied: self.config.applied(),
            root: self.config.tree().root(),
            member_root: self.members.tree().root(),
            condemned: self.config.condemned().to_vec(),
            scalwsd: self.config.scalwsd_state(),
        }
    }

    /// Names and digests of the member sets that it holds.
    pub fn member_sets(&self) -> impl Iterator<Item = (&Arc<str>, Digest)> {
        self.members.sets().iter().map(|(name, set)| (name, set.digest))
    }

    /// The members of one set.
    pub fn member_set(&self, name: &str) -> Option<&journal::members::MemberSet> {
        self.members.sets().get(name)
    }

    /// The secrets whose files are on the volume.
    pub fn secrets(&self) -> &BTreeSet<Digest> {
        self.config.keys()
    }

    /// The configuration lane, to look at.
    pub fn config(&self) -> &ConfigLane {
        &self.config
    }

    /// What `scalwsd` last said is not live.
    pub fn not_live(&self) -> &[NotLive] {
        self.config.not_live()
    }

    /// Whether no configuration is between the volume and `scalwsd`: a good moment for a Hello.
    pub fn is_settled(&self) -> bool {
        self.config.is_settled()
    }
}

/// For the session, which only looks. Roots are settled after every step.
impl Holdings for AgentCore {
    fn tree(&self) -> &Tree {
        self.config.held()
    }

    fn members(&self) -> &MemberTree {
        self.members.held()
    }

    fn has_secret(&self, digest: &Digest) -> bool {
        self.config.keys().contains(digest)
    }

    fn body(&self, key: &Key) -> Option<Bytes> {
        self.config.resources().get(key).map(|stored| stored.body.clone())
    }
}
