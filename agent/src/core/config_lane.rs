//! One configuration at a time: journal, reload, read-back, accepted; and what to do when that was cut short.

mod apply;
mod recovery;
mod reports;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use journal::admin::{ConfigAnswer, NotLive};
use journal::mutants::{self, Mutant};
use journal::{Digest, Head, Key, Record, Replay, Stored, Tree, digest};
use push::Version;
use push::agent_session::{Timings, Transfer};

use super::compaction;
use super::types::{Effect, ScalwsdState};

/// Leaves that are remembered as condemned.
const CONDEMNED: usize = 64;

/// A commit that is written and not accepted.
#[derive(Debug)]
struct Work {
    head: Head,
    changes: BTreeMap<Key, Option<Stored>>,
    /// Start ids of the `scalwsd`s that were asked to load it, in order.
    tries: Vec<String>,
    /// For how many deaths `scalwsd check` was asked already.
    checked_for: usize,
    /// What it said last.
    dead: Vec<Key>,
    /// Offset behind its last complete record.
    end: u64,
    timings: Timings,
    /// The stream that asked for it.
    stream: u64,
}

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Reloading,
    ReadingBack,
    Checking,
    /// The accepted state is being loaded again.
    Repairing,
    /// A read-back that nothing waits for.
    Polling,
    Compacting,
}

/// What `scalwsd` runs, as it said itself.
#[derive(Clone, Debug)]
struct Running {
    start: String,
    journal: Option<String>,
    commit: u64,
    root: Digest,
    /// The accepted state was loaded again and that did not help: wait for the next poll.
    repair_failed: bool,
}

/// The configuration lane. See [`super::AgentCore`].
#[derive(Debug)]
pub struct ConfigLane {
    boot_id: String,
    journals: u64,
    journal: Arc<str>,
    head: Option<Head>,
    resources: BTreeMap<Key, Stored>,
    /// Digests of the resources whose secrets are all there.
    tree: Tree,
    /// Resources in the journal that are not in the tree.
    absent: BTreeSet<Key>,
    keys: BTreeSet<Digest>,
    /// Leaves that proved deadly, the newest first.
    condemned: Vec<Digest>,
    /// They are not on the volume as they are here.
    condemned_unwritten: bool,
    highest_epoch: u64,
    recorded_epoch: u64,
    last_commit: u64,
    /// Everything behind this offset is leftovers, or belongs to `work`.
    settled: u64,
    len: u64,
    live: u64,
    /// Not before the journal is this long is it written anew; raised when that failed.
    compact_from: u64,
    /// A journal shorter than this is not written anew.
    pub(super) floor: u64,
    /// The journal that is being written.
    next_journal: Option<Arc<str>>,
    up: Option<Running>,
    phase: Phase,
    work: Option<Work>,
    waiting: Option<Transfer>,
    adoption: Option<(Version, Digest)>,
    not_live: Vec<NotLive>,
    /// Counts streams; 0 is what was before the first.
    stream: u64,
}

impl ConfigLane {
    pub(super) fn open(text: &[u8], keys: BTreeSet<Digest>, boot_id: &str, out: &mut Vec<Effect>) -> ConfigLane {
        let replay = Replay::of(text);
        let len = text.len() as u64;
        let mut lane = ConfigLane {
            boot_id: boot_id.to_owned(),
            journals: 0,
            journal: replay.journal.as_deref().unwrap_or_default().into(),
            head: replay.head,
            live: replay.resources.iter().map(|(key, stored)| compaction::put_len(key, stored)).sum(),
            resources: replay.resources,
            tree: replay.tree,
            absent: BTreeSet::new(),
            keys,
            condemned: replay.condemned.into_iter().collect(),
            condemned_unwritten: false,
            highest_epoch: replay.highest_epoch,
            recorded_epoch: replay.highest_epoch,
            last_commit: replay.head.map_or(0, |h| h.commit),
            settled: replay.settled,
            len,
            compact_from: 0,
            floor: compaction::FLOOR,
            next_journal: None,
            up: None,
            phase: Phase::Idle,
            work: None,
            waiting: None,
            adoption: None,
            not_live: Vec::new(),
            stream: 1,
        };
        if replay.journal.is_none() || replay.corrupt.is_some() {
            // Damage, or no journal yet: a new one that says what could be read.
            lane.compact(out);
        } else if let Some(open) = replay.open {
            let stored = |put: journal::Put| Stored { body: put.body(text), secrets: put.secrets };
            let changes = open.changes.into_iter().map(|c| (c.key, c.put.map(stored)));
            lane.last_commit = open.commit.id;
            lane.work = Some(Work {
                head: Head {
                    commit: open.commit.id,
                    version: (open.commit.epoch, open.commit.generation),
                    root: open.commit.root,
                },
                changes: changes.collect(),
                tries: open.tries,
                checked_for: 0,
                dead: Vec::new(),
                end: open.end,
                timings: Timings::default(),
                stream: 0,
            });
        }
        let all = lane.resources.iter().filter(|(_, stored)| !stored.secrets.is_empty());
        lane.find_absent(all.map(|(key, _)| key.clone()).collect());
        lane.unlink_unnamed(out);
        lane
    }

    /// Looks at these resources and at those that were absent: a leaf whose secret is missing counts as absent.
    fn find_absent(&mut self, changed: Vec<Key>) {
        for key in std::mem::take(&mut self.absent).into_iter().chain(changed) {
            let Some(stored) = self.resources.get(&key) else {
                self.tree.remove(&key);
                continue;
            };
            if stored.secrets.iter().all(|secret| self.keys.contains(secret)) {
                self.tree.insert(key.clone(), digest::leaf(&key, &stored.body));
            } else {
                self.tree.remove(&key);
                self.absent.insert(key);
            }
        }
    }

    pub(super) fn highest_epoch(&self) -> u64 {
        self.highest_epoch
    }

    pub(super) fn applied(&self) -> Option<(Version, Digest)> {
        self.head.map(|head| (version_of(&head), head.root))
    }

    pub(super) fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Digests of what is held: a leaf whose key file is missing is not in it.
    pub(super) fn held(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn condemned(&self) -> &[Digest] {
        &self.condemned
    }

    pub(super) fn keys(&self) -> &BTreeSet<Digest> {
        &self.keys
    }

    pub(super) fn not_live(&self) -> &[NotLive] {
        &self.not_live
    }

    pub(super) fn is_settled(&self) -> bool {
        self.work.is_none() && self.waiting.is_none()
    }

    /// Every resource that was accepted.
    pub fn resources(&self) -> &BTreeMap<Key, Stored> {
        &self.resources
    }

    /// Whether `scalwsd` runs what was accepted.
    pub(super) fn scalwsd_state(&self) -> ScalwsdState {
        match (&self.up, self.head) {
            (None, _) => ScalwsdState::Down,
            (Some(_), None) if mutants::active(Mutant::ReadyWhileEmpty) => ScalwsdState::Ready,
            (Some(_), None) => ScalwsdState::Starting,
            (Some(up), Some(head)) if up.root == head.root => ScalwsdState::Ready,
            (Some(_), Some(_)) => ScalwsdState::Starting,
        }
    }

    fn scalwsd_runs_head(&self) -> bool {
        self.up.as_ref().zip(self.head).is_some_and(|(up, head)| up.root == head.root)
    }

    pub(super) fn transfer(&mut self, transfer: Transfer, out: &mut Vec<Effect>) {
        self.waiting = Some(transfer);
        self.adoption = None;
        self.pump(out);
    }

    pub(super) fn adopt(&mut self, version: Version, root: Digest, out: &mut Vec<Effect>) {
        self.waiting = None;
        self.adoption = Some((version, root));
        self.pump(out);
    }

    pub(super) fn epoch(&mut self, epoch: u64, out: &mut Vec<Effect>) {
        self.highest_epoch = self.highest_epoch.max(epoch);
        self.pump(out);
    }

    pub(super) fn stream_ended(&mut self) {
        // What is journaled goes on: the next stream's Hello says how it ended.
        self.waiting = None;
        self.adoption = None;
        self.stream += 1;
    }

    pub(super) fn up(&mut self, answer: ConfigAnswer, out: &mut Vec<Effect>) {
        self.forget_calls();
        self.heard(&answer);
        self.take_not_live(answer.not_live, out);
        self.pump(out);
    }

    /// Whether `scalwsd` is loading something now: then that may be what it dies on.
    pub(super) fn is_loading(&self) -> bool {
        matches!(self.phase, Phase::Reloading | Phase::Repairing)
    }

    pub(super) fn down(&mut self) {
        self.up = None;
        self.forget_calls();
    }

    /// Answers of a connection that dropped do not come. What goes on without it does.
    fn forget_calls(&mut self) {
        if !matches!(self.phase, Phase::Checking | Phase::Compacting) {
            self.phase = Phase::Idle;
        }
    }

    pub(super) fn poll(&mut self, out: &mut Vec<Effect>) {
        if self.phase == Phase::Idle && self.up.is_some() {
            self.phase = Phase::Polling;
            out.push(Effect::ReadBack);
        }
    }

    fn heard(&mut self, answer: &ConfigAnswer) {
        self.up = Some(Running {
            start: answer.start.clone(),
            journal: answer.journal.clone(),
            commit: answer.commit,
            root: answer.root,
            repair_failed: false,
        });
    }

    /// Starts the next thing when nothing is under way.
    fn pump(&mut self, out: &mut Vec<Effect>) {
        let ignored = self.phase == Phase::Compacting && mutants::active(Mutant::RewriteForgetsWhatCame);
        if self.phase != Phase::Idle && !ignored {
            return;
        }
        if self.work.is_some() {
            return self.settle(out);
        }
        if self.recorded_epoch < self.highest_epoch {
            self.recorded_epoch = self.highest_epoch;
            self.append_settled(&[Record::Epoch { highest: self.highest_epoch }], out);
        }
        let Some(up) = &self.up else { return };
        if let Some(head) = self.head
            && up.root != head.root
            && !up.repair_failed
            && self.waiting.is_none()
        {
            self.phase = Phase::Repairing;
            out.push(Effect::Reload { journal: self.journal.clone(), commit: head.commit });
            return;
        }
        if (self.head.is_none() || self.scalwsd_runs_head())
            && let Some((version, root)) = self.adoption.take()
        {
            self.do_adopt(version, root, out);
            if self.phase != Phase::Idle {
                return;
            }
        }
        if let Some(transfer) = self.waiting.take() {
            return self.start(transfer, out);
        }
        let due = compaction::is_due(self.len, self.live, self.floor) && self.len >= self.compact_from;
        if due && self.next_journal.is_none() {
            self.compact(out);
        }
    }
}

/// The leaves of everything that is put.
fn leaves(changes: &BTreeMap<Key, Option<Stored>>) -> impl Iterator<Item = Digest> {
    changes.iter().filter_map(|(key, change)| change.as_ref().map(|stored| digest::leaf(key, &stored.body)))
}

fn pair(version: Version) -> (u64, u64) {
    (version.epoch, version.generation)
}

fn version_of(head: &Head) -> Version {
    Version::new(head.version.0, head.version.1)
}
