//! The configuration lane as the agent sees it: fencing, staging, one application at a time, verdicts.

use std::collections::{BTreeMap, VecDeque};

use journal::Digest;
use journal::admin::NotLive;
use journal::mutants::{self, Mutant};
use prost::Message as _;
use proto::v1::agent_message::Message;
use proto::v1::{Applied, Begin, BlobRequest, Chunk, Commit, Refused, Resync};

use super::staging::{Outcome, Staging, Unusable};
use super::{Close, Effect, Holdings, Timings};
use crate::Version;
use crate::limits;
use crate::wire::{self, Broken};

/// Refused roots that a difference is not asked for again.
const REFUSED: usize = 64;

/// A secret that was asked for did not come.
const SECRET_MISSING: &str = "secret_missing";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ConfigLane {
    staging_limit: u64,
    /// The highest epoch seen.
    epoch: u64,
    /// What was applied, and its root if this stream saw it.
    applied: Option<(Version, Option<Digest>)>,
    /// The newest transfer that began.
    transfer: u64,
    staging: Option<Staging>,
    /// What `Apply` or `Adopt` is under way for.
    working: Option<(Version, Digest)>,
    /// To be adopted when nothing is under way.
    adopt: Option<(Version, Digest)>,
    /// The controller wants the digests; for this transfer, or 0.
    send_buckets: Option<u64>,
    /// What the controller wants, as it last said.
    target: Option<(Version, Digest)>,
    /// Since when that has differed while nothing was under way.
    differs_since: Option<u64>,
    refused: VecDeque<Digest>,
    verdict: Option<(Version, Digest, Timings)>,
}

/// A broken protocol, or a sender that is not to be followed any more.
pub(super) enum Stop {
    Broken(Broken),
    Close(Close),
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

fn root(holdings: &dyn Holdings) -> Digest {
    holdings.tree().root_after(&BTreeMap::new())
}

impl ConfigLane {
    pub(super) fn new(staging_limit: u64) -> ConfigLane {
        ConfigLane { staging_limit, ..ConfigLane::default() }
    }

    pub(super) fn connected(&mut self, highest_epoch: u64, applied: Option<Version>) {
        self.epoch = highest_epoch.max(applied.map_or(0, |version| version.epoch));
        self.applied = applied.map(|version| (version, None));
    }

    pub(super) fn applied(&self) -> Option<Version> {
        self.applied.map(|(version, _)| version)
    }

    /// An epoch below the highest seen is refused; a higher one is recorded before anything of it is done.
    pub(super) fn fence(&mut self, epoch: u64, out: &mut Vec<Effect>) -> Result<(), Stop> {
        if epoch < self.epoch && !mutants::active(Mutant::NoFence) {
            let seen = Version::new(self.epoch, self.applied().map_or(0, |version| version.generation));
            return Err(Stop::Close(Close::Fenced { got: Version::new(epoch, 0), seen }));
        }
        if epoch > self.epoch {
            self.epoch = epoch;
            out.push(Effect::RecordEpoch(epoch));
            // It was begun by a leader of the past.
            self.staging = None;
        }
        Ok(())
    }

    pub(super) fn begin(
        &mut self,
        begin: &Begin,
        now: u64,
        holdings: &dyn Holdings,
        out: &mut Vec<Effect>,
    ) -> Result<(), Stop> {
        // A second copy of what began before.
        if begin.transfer <= self.transfer {
            return Ok(());
        }
        let version = Version::from(begin.version.ok_or(Broken("Begin without a version"))?);
        self.fence(version.epoch, out)?;
        self.transfer = begin.transfer;
        let staging = match Staging::new(begin, self.staging_limit)? {
            Ok(staging) => staging,
            Err(unusable) => {
                self.refuse(version, wire::digest(&begin.root)?, unusable, out);
                return Ok(());
            }
        };
        self.staging = None;
        if let Some((applied, held)) = self.applied.filter(|_| !mutants::active(Mutant::NoFence)) {
            if version < applied || version == applied && held.is_some_and(|held| held != staging.root) {
                return Err(Stop::Close(Close::Fenced { got: version, seen: applied }));
            }
            if version == applied && self.working.is_none() && staging.root == root(holdings) {
                // Sent again: the same answer again.
                self.adopt = Some((version, staging.root));
                return Ok(());
            }
        }
        // What is held changes when the work under way is done; then Commit finds out.
        if self.working.is_none() && !staging.base_root.fits(&root(holdings)) {
            self.send_buckets = Some(staging.transfer);
            return Ok(());
        }
        self.staging = Some(staging);
        let Some(whole) = &begin.whole else { return Ok(()) };
        self.chunk(&Chunk { transfer: begin.transfer, data: whole.clone(), offset: 0 })?;
        self.commit(&Commit { transfer: begin.transfer }, now, holdings, out)
    }

    pub(super) fn chunk(&mut self, chunk: &Chunk) -> Result<(), Stop> {
        match &mut self.staging {
            Some(staging) if staging.transfer == chunk.transfer => Ok(staging.chunk(&chunk.data, chunk.offset)?),
            // The rest of a transfer that was answered already.
            _ => Ok(()),
        }
    }

    pub(super) fn commit(
        &mut self,
        commit: &Commit,
        now: u64,
        holdings: &dyn Holdings,
        out: &mut Vec<Effect>,
    ) -> Result<(), Stop> {
        let Some(staging) = self.staging.as_mut().filter(|staging| staging.transfer == commit.transfer) else {
            return Ok(());
        };
        if !staging.may_commit() {
            // A chunk is missing, or this is a second copy of a Commit: only the first of the two matters.
            return if staging.complete.is_some() || staging.asked {
                Ok(())
            } else {
                Err(Broken("a chunk is missing").into())
            };
        }
        let (version, root) = (staging.version, staging.root);
        let decoded = staging.decode();
        let missing = staging.missing(holdings);
        let unusable = match decoded {
            Err(unusable) => Some(unusable),
            Ok(()) if missing.is_empty() => {
                staging.complete = Some(now);
                None
            }
            Ok(()) if missing.len() > limits::BLOBS => {
                Some(Unusable("too_many_secrets", "it names too many new secrets"))
            }
            Ok(()) if staging.asked => Some(Unusable(SECRET_MISSING, "a secret did not come")),
            Ok(()) => {
                staging.asked = true;
                let digests = missing.iter().map(wire::raw).collect();
                let request = BlobRequest { transfer: staging.transfer, digests };
                out.push(Effect::Send(wire::to_controller(Message::BlobRequest(request))));
                None
            }
        };
        if let Some(unusable) = unusable {
            self.staging = None;
            self.refuse(version, root, unusable, out);
        }
        Ok(())
    }

    pub(super) fn abort(&mut self, transfer: u64) {
        self.staging.take_if(|staging| staging.transfer == transfer);
    }

    pub(super) fn send_buckets(&mut self) {
        self.send_buckets.get_or_insert(0);
    }

    /// What the controller wants. Welcome says it at the start: what is held already is adopted at once.
    pub(super) fn target(
        &mut self,
        version: Version,
        target: Digest,
        welcome: bool,
        now: u64,
        holdings: &dyn Holdings,
    ) {
        self.target = Some((version, target));
        if welcome && target == root(holdings) && self.applied().is_none_or(|applied| applied <= version) {
            self.adopt = Some((version, target));
        }
        self.watch(now, holdings);
    }

    /// Keeps an eye on how long what is held has differed from what is wanted.
    fn watch(&mut self, now: u64, holdings: &dyn Holdings) {
        let under_way = self.working.is_some() || self.staging.is_some() || self.adopt.is_some();
        let differs = match self.target {
            Some((version, target)) if !under_way && !self.refused.contains(&target) => {
                self.applied() != Some(version) || target != root(holdings)
            }
            _ => false,
        };
        self.differs_since = if differs { self.differs_since.or(Some(now)) } else { None };
    }

    /// What is held changed behind the session's back.
    pub(super) fn compare(&mut self, now: u64, holdings: &dyn Holdings) {
        if let Some((_, target)) = self.target
            && self.working.is_none()
            && self.staging.is_none()
            && target != root(holdings)
            && !self.refused.contains(&target)
        {
            self.send_buckets();
        }
        self.watch(now, holdings);
    }

    /// Starts whatever may start now. `members`: the member messages that are done.
    pub(super) fn proceed(&mut self, now: u64, members: u64, holdings: &dyn Holdings, out: &mut Vec<Effect>) {
        if self.working.is_some() {
            return;
        }
        if let Some((version, root)) = self.adopt.take() {
            self.work(version, root, Effect::Adopt { version, root }, out);
            return;
        }
        if let Some(staging) = self.staging.take_if(|staging| {
            let waited = |complete: u64| now >= complete.saturating_add(limits::MEMBER_WAIT_MS);
            staging.complete.is_some_and(|complete| members >= staging.member_seq || waited(complete))
        }) {
            self.conclude(staging, holdings, out);
        }
        if self.working.is_none()
            && let Some(transfer) = self.send_buckets.take()
        {
            let digests = holdings.tree().digests_after(&BTreeMap::new());
            let bucket_digests = if holdings.tree().is_empty() { bytes::Bytes::new() } else { wire::raw_all(&digests) };
            out.push(Effect::Send(wire::to_controller(Message::Resync(Resync { bucket_digests, transfer }))));
        }
        if let (Some(since), Some((version, target))) = (self.differs_since, self.target)
            && now >= since.saturating_add(limits::PUSH_MS)
            && self.working.is_none()
        {
            self.differs_since = Some(now);
            if target == root(holdings) && self.applied().is_none_or(|applied| applied <= version) {
                self.work(version, target, Effect::Adopt { version, root: target }, out);
            } else {
                self.send_buckets();
                self.proceed(now, members, holdings, out);
            }
        }
    }

    fn conclude(&mut self, staging: Staging, holdings: &dyn Holdings, out: &mut Vec<Effect>) {
        let (version, root, transfer, replaces) = (staging.version, staging.root, staging.transfer, staging.replaces());
        match staging.conclude(holdings) {
            Ok(Outcome::Apply(update)) => self.work(version, root, Effect::Apply(update), out),
            Ok(Outcome::Held) => self.work(version, root, Effect::Adopt { version, root }, out),
            Ok(Outcome::NoBase) => self.send_buckets = Some(transfer),
            // Whatever went wrong with the difference, whole buckets put it right.
            Err(Unusable("root_mismatch", _)) if !replaces => self.send_buckets = Some(transfer),
            Err(unusable) => self.refuse(version, root, unusable, out),
        }
    }

    fn work(&mut self, version: Version, root: Digest, effect: Effect, out: &mut Vec<Effect>) {
        self.working = Some((version, root));
        self.differs_since = None;
        out.push(effect);
    }

    fn refuse(&mut self, version: Version, root: Digest, Unusable(code, message): Unusable, out: &mut Vec<Effect>) {
        let message = message.to_owned();
        // A controller that does not have it ends the transfer. So it got lost, and may come the next time.
        let transient = code == SECRET_MISSING;
        self.refused(Refused { code: code.to_owned(), message, transient, ..Refused::default() }, version, root, out);
    }

    /// The agent could use nothing of it.
    pub(super) fn refused(&mut self, refused: Refused, version: Version, root: Digest, out: &mut Vec<Effect>) {
        self.working.take_if(|(working, _)| *working == version);
        if !self.refused.contains(&root) {
            if self.refused.len() >= REFUSED {
                self.refused.pop_front();
            }
            self.refused.push_back(root);
        }
        let refused = Refused { version: Some(version.to_wire()), root: wire::raw(&root), ..refused };
        out.push(Effect::Send(wire::to_controller(Message::Refused(refused))));
    }

    /// The agent runs it.
    pub(super) fn done(
        &mut self,
        version: Version,
        root: Digest,
        timings: Timings,
        not_live: &[NotLive],
        out: &mut Vec<Effect>,
    ) {
        self.working.take_if(|(working, _)| *working == version);
        if self.applied().is_none_or(|applied| applied <= version) {
            self.applied = Some((version, Some(root)));
        }
        self.refused.retain(|refused| *refused != root);
        self.verdict = Some((version, root, timings));
        self.say(not_live, out);
    }

    /// Says the verdict, or says it again with another list.
    pub(super) fn say(&self, not_live: &[NotLive], out: &mut Vec<Effect>) {
        let Some((version, root, timings)) = &self.verdict else { return };
        let entry = |entry: &NotLive| proto::v1::NotLive {
            resource: wire::cut(entry.resource.clone(), 2 * limits::NAME),
            code: wire::cut(entry.code.clone(), 64),
            message: wire::cut(entry.message.clone(), limits::TEXT),
        };
        // What does not fit into one message is left out: the verdict itself must arrive.
        let mut room = limits::CONTENT;
        let fits = |entry: &proto::v1::NotLive| {
            let length = entry.encoded_len() + 8;
            let fits = length <= room;
            room = room.saturating_sub(length);
            fits
        };
        let applied = Applied {
            version: Some(version.to_wire()),
            root: wire::raw(root),
            timings: Some(*timings),
            not_live: not_live.iter().take(limits::NOT_LIVE).map(entry).take_while(fits).collect(),
        };
        out.push(Effect::Send(wire::to_controller(Message::Applied(applied))));
    }

    /// When the lane wants to be asked without anything having happened.
    pub(super) fn deadline(&self) -> Option<u64> {
        let swap = self
            .staging
            .as_ref()
            .and_then(|staging| staging.complete)
            .map(|complete| complete.saturating_add(limits::MEMBER_WAIT_MS));
        let swap = swap.filter(|_| self.working.is_none());
        let difference = self.differs_since.map(|since| since.saturating_add(limits::PUSH_MS));
        [swap, difference].into_iter().flatten().min()
    }
}
