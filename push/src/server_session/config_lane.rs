//! The configuration lane of one stream: three cursors (desired, sent, applied), one generation in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use journal::Digest;
use journal::mutants::{self, Mutant};
use proto::v1::controller_message::Message;
use proto::v1::{Abort, Begin, Chunk, Commit, SendBuckets};

use crate::Version;
use crate::fleet::{Fleet, Frames, Retry};
use crate::limits;
use crate::wire::{self, Broken};

/// How long the answer to `SendBuckets` may take before it is asked for again, in milliseconds.
const ASK_AGAIN_MS: u64 = 10_000;

/// A transfer that is being sent, or waits for its verdict.
#[derive(Debug)]
struct Flight {
    transfer: u64,
    version: Version,
    frames: Arc<Frames>,
    next_chunk: usize,
    committed: bool,
    began: u64,
    /// When the connection took a part of it last.
    went_on: u64,
    /// How long it may be from there to the next one or to the verdict, in milliseconds.
    patience: u64,
    /// Blobs that the agent asked for, and how many bytes were sent before them.
    blobs: VecDeque<Bytes>,
    sent: u64,
    asked: bool,
    _held: mutants::Held,
}

/// What is under way.
#[derive(Debug)]
enum State {
    Idle,
    /// Welcome named what the agent holds already; its verdict is due at this moment.
    Adopting(Version, u64),
    /// The agent's digests are needed.
    AskBuckets,
    /// Asked; again at this moment.
    AskedBuckets(u64),
    Flying(Box<Flight>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct ConfigLane {
    agent: Arc<str>,
    scalwsd_version: String,
    /// What the agent says that it runs. Nothing but its own word changes this.
    applied: Option<(Version, Digest)>,
    /// The root that a difference may start from: the agent's word too.
    base: Option<Digest>,
    /// The agent's digests, when it lacks a base: the next transfer replaces whole buckets.
    buckets: Option<Vec<Digest>>,
    state: State,
    transfers: u64,
    /// To be told that a transfer is off, and why.
    abort: Option<(u64, &'static str)>,
    /// Since when a transfer has been held up by the member lane.
    waiting_for_members: Option<u64>,
    /// When a refused root may be tried again.
    retry_at: Option<u64>,
    /// Pushes in a row that were overdue: the link may be slow.
    overdue: u32,
    /// Until when nothing need be heard after the last of them.
    quiet_until: u64,
    /// Nothing starts for this root: the agent asked for a secret that nobody gave.
    impossible: Option<Digest>,
}

/// What a verdict means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To be reported.
    Report,
    /// It was of no consequence.
    Ignore,
}

impl ConfigLane {
    /// For an agent that runs this.
    pub(super) fn new(
        agent: Arc<str>,
        scalwsd_version: String,
        applied: Option<(Version, Digest)>,
        base: Digest,
    ) -> ConfigLane {
        ConfigLane {
            agent,
            scalwsd_version,
            applied,
            base: Some(base),
            buckets: None,
            state: State::Idle,
            transfers: 0,
            abort: None,
            waiting_for_members: None,
            retry_at: None,
            overdue: 0,
            quiet_until: 0,
            impossible: None,
        }
    }

    /// What the agent says that it runs.
    pub(super) fn applied(&self) -> Option<(Version, Digest)> {
        self.applied
    }

    /// The serial of what the agent runs, or of what it may be loading now if that is older; nothing while that is not
    /// known. A member set that went by then is named by neither.
    pub(super) fn serial_in_use(&self, fleet: &Fleet) -> Option<u64> {
        let runs = fleet.serial_of(&self.applied?.1)?;
        match &self.state {
            State::Idle | State::Adopting(..) => Some(runs),
            State::Flying(flight) => Some(runs.min(fleet.serial_of(&flight.frames.root())?)),
            // A push that was given up may still be applied.
            State::AskBuckets | State::AskedBuckets(_) => None,
        }
    }

    /// Whether a transfer waits for its end or its verdict.
    pub(super) fn is_flying(&self) -> bool {
        matches!(self.state, State::Flying(_))
    }

    /// Until when the agent may be silent, because what it would answer to waits behind a transfer on a slow link.
    pub(super) fn silent_until(&self) -> u64 {
        match &self.state {
            State::Flying(flight) => flight.arrives().max(self.quiet_until),
            _ => self.quiet_until,
        }
    }

    /// The root that a difference may start from.
    pub(super) fn base(&self) -> Option<Digest> {
        self.base
    }

    /// Whether a difference to the present root can be made without asking the agent.
    pub(super) fn base_is_known(&self, fleet: &Fleet) -> bool {
        self.base
            .is_some_and(|base| base == fleet.root() || base == fleet.empty_root() || fleet.serial_of(&base).is_some())
    }

    /// Welcome named this, and the agent holds it: a verdict comes without a transfer.
    pub(super) fn adopting(&mut self, version: Version, now: u64) {
        self.state = State::Adopting(version, now + limits::PUSH_MS);
    }

    /// When the lane wants to be asked without anything having happened.
    pub(super) fn deadline(&self) -> Option<u64> {
        let state = match &self.state {
            State::Idle => self.retry_at,
            State::Adopting(_, at) | State::AskedBuckets(at) => Some(*at),
            State::AskBuckets => None,
            State::Flying(flight) => Some(flight.deadline()),
        };
        let waiting = self.waiting_for_members.filter(|_| matches!(self.state, State::Idle));
        let members = waiting.map(|since| since.saturating_add(limits::MEMBER_WAIT_MS));
        [state, members].into_iter().flatten().min()
    }

    /// Ends what took too long; gives the version of an overdue push.
    pub(super) fn tick(&mut self, now: u64) -> Option<Version> {
        match &self.state {
            State::Adopting(_, at) if now >= *at => {
                self.state = State::Idle;
                None
            }
            State::AskedBuckets(at) if now >= *at => {
                self.state = State::AskBuckets;
                None
            }
            State::Flying(flight) if now >= flight.deadline() => {
                let version = flight.version;
                self.abort = Some((flight.transfer, "overdue"));
                // What was sent may still arrive, and only then the agent answers.
                self.quiet_until = flight.arrives();
                self.overdue = self.overdue.saturating_add(1);
                self.lose_base();
                Some(version)
            }
            _ => None,
        }
    }

    fn lose_base(&mut self) {
        self.base = None;
        self.buckets = None;
        self.state = State::AskBuckets;
    }

    /// The next message. `members_ready`: whether the member lane sent every set that the present root may name;
    /// `member_seq`: its newest message.
    pub(super) fn poll(
        &mut self,
        now: u64,
        fleet: &mut Fleet,
        members_ready: bool,
        member_seq: u64,
    ) -> Option<Message> {
        if let State::Flying(flight) = &self.state
            && flight.version.epoch != fleet.epoch()
            && !flight.committed
        {
            self.abort = Some((flight.transfer, "a new epoch began"));
            self.state = State::Idle;
        }
        if let Some((transfer, reason)) = self.abort.take() {
            return Some(Message::Abort(Abort { transfer, reason: reason.to_owned() }));
        }
        match &mut self.state {
            State::Flying(flight) if flight.committed && mutants::active(Mutant::NoBackPressure) => {
                self.begin(now, fleet, members_ready, member_seq)
            }
            State::Flying(flight) => flight.next(now),
            State::AskBuckets => {
                self.state = State::AskedBuckets(now + ASK_AGAIN_MS);
                Some(Message::SendBuckets(SendBuckets {}))
            }
            State::Idle => self.begin(now, fleet, members_ready, member_seq),
            State::Adopting(..) | State::AskedBuckets(_) => None,
        }
    }

    /// Whether there is something that may be sent to this agent now.
    fn wanted(&mut self, now: u64, fleet: &mut Fleet) -> bool {
        let (version, root) = (fleet.version(), fleet.root());
        self.retry_at = None;
        if self.applied == Some((version, root)) && self.buckets.is_none() || self.impossible == Some(root) {
            return false;
        }
        // What runs already only gets a new version: that is no push of condemned leaves.
        if !(fleet.may_push() || fleet.is_published() && self.base == Some(root)) {
            return false;
        }
        match fleet.refusals(&self.agent, &self.scalwsd_version).retry(&root) {
            Retry::Now => true,
            Retry::At(at) if at <= now => true,
            Retry::At(at) => {
                self.retry_at = Some(at);
                false
            }
            Retry::Never => mutants::active(Mutant::RefusedIsSentAgain),
        }
    }

    fn begin(&mut self, now: u64, fleet: &mut Fleet, members_ready: bool, member_seq: u64) -> Option<Message> {
        if !self.wanted(now, fleet) {
            self.waiting_for_members = None;
            return None;
        }
        if !members_ready && self.base != Some(fleet.root()) {
            let since = *self.waiting_for_members.get_or_insert(now);
            if now < since.saturating_add(limits::MEMBER_WAIT_MS) {
                if mutants::active(Mutant::UnansweredIsForgotten) {
                    self.impossible = Some(fleet.root());
                }
                return None;
            }
        }
        self.waiting_for_members = None;
        let held = mutants::hold(Mutant::LockedUntilAnswered)?;
        let frames = match (self.buckets.take(), self.base) {
            (Some(buckets), _) => fleet.replacement(&buckets),
            (None, Some(base)) => match fleet.delta(&base) {
                Some(frames) => frames,
                None => return self.ask_buckets(now),
            },
            (None, None) => return self.ask_buckets(now),
        };
        self.transfers += 1;
        let whole = frames.whole();
        let patience = limits::push_deadline_ms(frames.len()) << self.overdue.min(limits::PATIENCE);
        let flight = Flight {
            transfer: self.transfers,
            version: fleet.version(),
            next_chunk: whole.as_ref().map_or(0, |_| frames.chunks()),
            committed: whole.is_some(),
            began: now,
            went_on: now,
            patience,
            blobs: VecDeque::new(),
            sent: whole.as_ref().map_or(0, |whole| whole.len() as u64),
            asked: false,
            _held: held,
            frames,
        };
        let begin = Begin {
            version: Some(flight.version.to_wire()),
            base_root: wire::beginning(&flight.frames.base()),
            root: wire::raw(&flight.frames.root()),
            bytes: flight.frames.len(),
            member_seq,
            replaced_buckets: Bytes::copy_from_slice(flight.frames.replaced()),
            transfer: flight.transfer,
            whole,
        };
        self.state = State::Flying(Box::new(flight));
        Some(Message::Begin(begin))
    }

    fn ask_buckets(&mut self, now: u64) -> Option<Message> {
        self.state = State::AskedBuckets(now + ASK_AGAIN_MS);
        Some(Message::SendBuckets(SendBuckets {}))
    }

    /// The agent's digests: asked for, or because it lacks the base of this transfer, or saw a difference (0).
    pub(super) fn resync(&mut self, buckets: Vec<Digest>, transfer: u64, fleet: &Fleet) {
        let base = journal::digest::root_of(&buckets);
        if let State::Flying(flight) = &self.state
            && flight.transfer != transfer
        {
            if flight.frames.base() == base {
                // It crossed a transfer that fits.
                return;
            }
            self.abort = Some((flight.transfer, "the base is not there"));
        }
        self.state = State::Idle;
        self.base = Some(base);
        if self.applied.is_some_and(|(_, root)| root != base) {
            self.applied = None;
        }
        self.buckets = (base != fleet.root()).then_some(buckets);
    }

    /// The agent runs this.
    pub(super) fn agent_applied(
        &mut self,
        version: Version,
        root: Digest,
        fleet: &mut Fleet,
    ) -> Result<Verdict, Broken> {
        if version > fleet.version() {
            return Err(Broken("a version is reported that was never published"));
        }
        if self.applied.is_some_and(|(applied, _)| version < applied) {
            return Ok(Verdict::Ignore);
        }
        match &self.state {
            State::Flying(flight) if flight.version == version && flight.frames.root() == root => {
                self.state = State::Idle
            }
            State::Adopting(adopting, _) if *adopting <= version => self.state = State::Idle,
            // Late, but it is the agent's word. If the digests were asked for, they come and are as good.
            _ => {}
        }
        self.applied = Some((version, root));
        self.base = Some(root);
        self.overdue = 0;
        fleet.refusals(&self.agent, &self.scalwsd_version).applied(&root);
        Ok(Verdict::Report)
    }

    /// The agent could use nothing of this. What it ran before is still the base.
    pub(super) fn agent_refused(
        &mut self,
        version: Version,
        root: Digest,
        transient: bool,
        now: u64,
        fleet: &mut Fleet,
    ) -> Result<(), Broken> {
        if version > fleet.version() {
            return Err(Broken("a version is refused that was never published"));
        }
        match &self.state {
            State::Flying(flight) if flight.version == version => self.state = State::Idle,
            State::Adopting(adopting, _) if *adopting == version => self.state = State::Idle,
            _ => {}
        }
        if mutants::active(Mutant::SentIsApplied) {
            (self.applied, self.base) = (Some((version, root)), Some(root));
            return Ok(());
        }
        fleet.refusals(&self.agent, &self.scalwsd_version).add(root, transient, now);
        Ok(())
    }

    /// The agent asks for secrets of the transfer in flight.
    pub(super) fn blob_request(&mut self, transfer: u64, digests: &[Digest]) -> Result<(), Broken> {
        let State::Flying(flight) = &mut self.state else { return Ok(()) };
        if flight.transfer != transfer {
            return Ok(());
        }
        if flight.asked || !flight.committed {
            return Err(Broken("secrets are asked for twice, or before Commit"));
        }
        match flight.frames.blobs(digests) {
            Ok(blobs) => {
                flight.asked = true;
                flight.committed = false;
                flight.blobs = blobs.into_iter().flat_map(split).collect();
            }
            Err(_) => {
                // Named by no body of this transfer, or nobody gave it: either way nothing is sent.
                self.impossible = Some(flight.frames.root());
                self.abort = Some((transfer, "a secret is not known"));
                self.state = State::Idle;
            }
        }
        Ok(())
    }

    /// What a heartbeat's answer says: an agent that holds something else than it said needs a resync.
    pub(super) fn compare(&mut self, root: Digest) {
        if matches!(self.state, State::Idle)
            && self.base.is_some_and(|base| base != root)
            && !mutants::active(Mutant::SentIsApplied)
        {
            self.lose_base();
        }
    }
}

fn split(blob: Bytes) -> Vec<Bytes> {
    (0..blob.len())
        .step_by(limits::SENT_CHUNK)
        .map(|at| blob.slice(at..(at + limits::SENT_CHUNK).min(blob.len())))
        .collect()
}

impl Flight {
    /// When what was sent of it is there at the latest, on a link of the lowest rate.
    fn arrives(&self) -> u64 {
        let late = self.sent.min(limits::UNDER_WAY) * 1_000 / limits::PUSH_BYTES_PER_S;
        self.went_on.saturating_add(late)
    }

    /// When it is given up: it stands still, or is slower than the lowest rate. Without the second an agent that takes a
    /// chunk now and then would hold it for as long as it likes.
    fn deadline(&self) -> u64 {
        let earned = self.sent.saturating_mul(1_000) / limits::PUSH_BYTES_PER_S;
        self.went_on.min(self.began.saturating_add(earned)).saturating_add(self.patience)
    }

    fn next(&mut self, now: u64) -> Option<Message> {
        if self.committed {
            return None;
        }
        // The connection takes more only when what came before went out: it goes on.
        self.went_on = now;
        let data = match self.frames.chunk(self.next_chunk) {
            Some(chunk) => {
                self.next_chunk += 1;
                Some(chunk)
            }
            None => self.blobs.pop_front(),
        };
        let Some(data) = data else {
            self.committed = true;
            return Some(Message::Commit(Commit { transfer: self.transfer }));
        };
        let offset = self.sent;
        self.sent += data.len() as u64;
        Some(Message::Chunk(Chunk { transfer: self.transfer, data, offset }))
    }
}
