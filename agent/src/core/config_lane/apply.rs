//! The way of one configuration: planned, journaled, tried, read back, accepted.

use std::collections::{BTreeMap, BTreeSet};

use journal::admin::{ConfigAnswer, ReloadAnswer};
use journal::mutants::{self, Mutant};
use journal::record::encode_transaction;
use journal::{Digest, Head, Key, Record, Stored};
use push::Version;
use push::agent_session::{Timings, Transfer};

use super::{ConfigLane, Phase, Work, leaves, pair, version_of};
use crate::core::compaction;
use crate::core::transfer::{TransferError, plan, plant};
use crate::core::types::{CallError, Effect, Report, refusals};

impl ConfigLane {
    pub(super) fn start(&mut self, transfer: Transfer, out: &mut Vec<Effect>) {
        let version = transfer.version;
        if let Some(fenced) = self.fence(version, transfer.root) {
            return self.refuse(version, transfer.root, refusals::FENCED, fenced, true, out);
        }
        let planned = plan(&transfer, &self.resources, &mut self.tree, &self.absent, &self.keys);
        let changes = match planned {
            Ok(changes) => changes,
            Err(e) => {
                let (code, transient) = match &e {
                    TransferError::Body(_) => (refusals::BODY, false),
                    TransferError::BaseLost | TransferError::SecretsMissing(_) => (refusals::BASE_LOST, true),
                };
                return self.refuse(version, transfer.root, code, e.to_string(), transient, out);
            }
        };
        let known: Vec<Digest> = leaves(&changes).filter(|leaf| self.condemned.contains(leaf)).collect();
        if !known.is_empty() {
            let message = "scalwsd died on it before".to_owned();
            let report = Report::Refused {
                version,
                root: transfer.root,
                code: refusals::CRASHED,
                message,
                leaves: known,
                transient: false,
            };
            return self.say(report, out);
        }
        self.cut_to(self.settled, out);
        let named: BTreeSet<Digest> = transfer.puts.iter().flat_map(|put| put.secrets.iter().copied()).collect();
        for (digest, bytes) in transfer.blobs {
            if named.contains(&digest) && self.keys.insert(digest) {
                out.push(Effect::WriteKey { digest, bytes });
            }
        }
        self.begin_work(version, transfer.root, changes, out);
    }

    /// Journals the changes and tries them.
    fn begin_work(
        &mut self,
        version: Version,
        root: Digest,
        changes: BTreeMap<Key, Option<Stored>>,
        out: &mut Vec<Effect>,
    ) {
        self.last_commit += 1;
        let head = Head { commit: self.last_commit, version: pair(version), root };
        let records = changes.iter().map(|(key, change)| match change {
            Some(stored) => {
                Record::Put { key: key.clone(), secrets: stored.secrets.clone(), body: stored.body.clone() }
            }
            None => Record::Remove { key: key.clone() },
        });
        let mut lines = Vec::new();
        encode_transaction(records, head.commit, head.version, head.root, &mut lines);
        self.append(lines, out);
        self.work = Some(Work {
            head,
            changes,
            tries: Vec::new(),
            checked_for: 0,
            dead: Vec::new(),
            end: self.len,
            timings: Timings::default(),
            stream: self.stream,
        });
        self.attempt(out);
    }

    /// Why a version must not be applied, if it must not.
    pub(super) fn fence(&self, version: Version, root: Digest) -> Option<String> {
        if mutants::active(Mutant::NoFence) {
            return None;
        }
        if version.epoch < self.highest_epoch {
            return Some(format!("epoch {} is below {}, which was seen", version.epoch, self.highest_epoch));
        }
        let head = self.head?;
        let applied = version_of(&head);
        if version < applied {
            return Some(format!("{version} is below {applied}, which was applied"));
        }
        (version == applied && root != head.root).then(|| format!("{version} was applied with another root"))
    }

    /// One try of the open commit.
    pub(super) fn attempt(&mut self, out: &mut Vec<Effect>) {
        let (Some(up), Some(work)) = (&self.up, &mut self.work) else { return };
        let start = up.start.clone();
        // One process is named once, however often it is asked: only its end says something.
        let new = !work.tries.contains(&start);
        if new {
            work.tries.push(start.clone());
        }
        let (commit, end) = (work.head.commit, work.end);
        self.cut_to(end, out);
        if new {
            let mut lines = Vec::new();
            Record::Try { commit, start }.encode_into(&mut lines);
            self.append(lines, out);
        }
        if let Some(work) = &mut self.work {
            work.end = self.len;
        }
        self.phase = Phase::Reloading;
        out.push(Effect::Reload { journal: self.journal.clone(), commit });
    }

    pub(in crate::core) fn reloaded(
        &mut self,
        result: Result<ReloadAnswer, CallError>,
        timings: Timings,
        out: &mut Vec<Effect>,
    ) {
        match self.phase {
            Phase::Reloading => {}
            Phase::Repairing => return self.repaired(result, out),
            _ => return,
        }
        let Some(work) = &mut self.work else { return };
        match result {
            Ok(answer) if answer.root == work.head.root => {
                work.timings = timings;
                self.phase = Phase::ReadingBack;
                out.push(Effect::ReadBack);
            }
            Ok(answer) => {
                let message = format!("scalwsd loaded root {} instead of {}", answer.root, work.head.root);
                if let Some(up) = &mut self.up {
                    up.root = answer.root;
                }
                self.abandon(refusals::READ_BACK, message, Vec::new(), false, out);
            }
            Err(CallError::Refused(_)) if mutants::active(Mutant::RefusedByTheProxyIsApplied) => self.accept(out),
            Err(CallError::Refused(message)) => self.abandon(refusals::UNUSABLE, message, Vec::new(), false, out),
            Err(CallError::Gone | CallError::Conflict(_)) => self.down(),
        }
    }

    pub(in crate::core) fn read_back(
        &mut self,
        result: Result<ConfigAnswer, CallError>,
        took_us: u64,
        out: &mut Vec<Effect>,
    ) {
        let waited = match self.phase {
            Phase::ReadingBack => true,
            Phase::Polling => false,
            _ => return,
        };
        match result {
            Ok(answer) => {
                self.phase = Phase::Idle;
                let same = self.up.as_ref().is_some_and(|up| up.start == answer.start);
                self.heard(&answer);
                if waited
                    && same
                    && let Some(work) = &mut self.work
                {
                    work.timings.read_back_us = took_us;
                    self.not_live = answer.not_live;
                    let refuse = mutants::active(Mutant::OneBadRefusesAll) && !self.not_live.is_empty();
                    if answer.root == work.head.root && answer.commit == work.head.commit && !refuse {
                        return self.accept(out);
                    }
                    let message = format!("scalwsd runs root {} instead of {}", answer.root, work.head.root);
                    return self.abandon(refusals::READ_BACK, message, Vec::new(), false, out);
                }
                self.take_not_live(answer.not_live, out);
                self.pump(out);
            }
            Err(CallError::Gone) => self.down(),
            Err(CallError::Refused(message)) if waited => {
                self.abandon(refusals::READ_BACK, message, Vec::new(), false, out);
            }
            Err(_) => {
                self.phase = Phase::Idle;
                self.pump(out);
            }
        }
    }

    /// The open commit runs: it becomes the accepted state.
    pub(super) fn accept(&mut self, out: &mut Vec<Effect>) {
        let Some(work) = self.work.take() else { return };
        self.cut_to(work.end, out);
        let mut lines = Vec::new();
        Record::Accepted { id: work.head.commit }.encode_into(&mut lines);
        self.append(lines, out);
        self.settled = self.len;
        plant(&mut self.tree, &work.changes);
        let mut released = BTreeSet::new();
        let changed: Vec<Key> = work.changes.keys().cloned().collect();
        for (key, change) in work.changes {
            self.live += change.as_ref().map_or(0, |new| compaction::put_len(&key, new));
            let old = match change {
                Some(stored) => self.resources.insert(key.clone(), stored),
                None => self.resources.remove(&key),
            };
            if let Some(old) = old {
                self.live = self.live.saturating_sub(compaction::put_len(&key, &old));
                released.extend(old.secrets.iter().copied());
            }
        }
        self.find_absent(changed);
        self.head = Some(work.head);
        self.saw_epoch(work.head.version.0);
        self.phase = Phase::Idle;
        if work.stream == self.stream {
            self.applied_report(work.timings, out);
        } else {
            self.say(Report::HoldingsChanged, out);
        }
        if !released.is_empty() {
            self.unlink_unnamed(out);
        }
        self.pump(out);
    }

    pub(super) fn saw_epoch(&mut self, epoch: u64) {
        self.highest_epoch = self.highest_epoch.max(epoch);
        self.recorded_epoch = self.recorded_epoch.max(epoch);
    }

    pub(super) fn do_adopt(&mut self, version: Version, root: Digest, out: &mut Vec<Effect>) {
        if let Some(fenced) = self.fence(version, root) {
            return self.refuse(version, root, refusals::FENCED, fenced, true, out);
        }
        if self.head.is_none() && self.tree.root() == root {
            // An empty configuration on an empty volume: loaded once, so that scalwsd has accepted something.
            self.cut_to(self.settled, out);
            return self.begin_work(version, root, BTreeMap::new(), out);
        }
        let Some(head) = self.head.filter(|head| head.root == root && self.absent.is_empty()) else {
            let message = "another root is held".to_owned();
            return self.refuse(version, root, refusals::BASE_LOST, message, true, out);
        };
        if version_of(&head) != version {
            self.cut_to(self.settled, out);
            self.last_commit += 1;
            let new = Head { commit: self.last_commit, version: pair(version), root };
            let mut lines = Vec::new();
            encode_transaction([], new.commit, new.version, root, &mut lines);
            Record::Accepted { id: new.commit }.encode_into(&mut lines);
            self.append(lines, out);
            self.settled = self.len;
            self.head = Some(new);
            self.saw_epoch(version.epoch);
        }
        self.applied_report(Timings::default(), out);
    }
}
