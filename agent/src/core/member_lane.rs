//! Member sets, one after the other: `scalwsd` first, then the journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use journal::members::{MemberSet, MembersReplay};
use journal::{Digest, MemberTree, Record};
use push::agent_session::MembersChange;

use super::compaction;
use super::types::{CallError, Effect, File, MemberChange, Report, refusals};

/// A set on which `scalwsd` died so often is not tried again.
const DEATHS: u32 = 2;

/// What is being waited for.
#[derive(Debug)]
enum Busy {
    Idle,
    Listing,
    /// A change from the stream; `None` drops the set.
    Change(MemberChange, Option<MemberSet>),
    /// A set that `scalwsd` has otherwise, or should not have.
    Repair(Arc<str>, Option<MemberSet>),
    Compacting,
}

/// The member lane. See [`super::AgentCore`].
#[derive(Debug)]
pub struct MemberLane {
    boot_id: String,
    journals: u64,
    sets: BTreeMap<Arc<str>, MemberSet>,
    tree: MemberTree,
    len: u64,
    live: u64,
    compact_from: u64,
    /// A journal shorter than this is not written anew.
    pub(super) floor: u64,
    lens_before: Option<(u64, u64)>,
    /// The start id of the connected `scalwsd`.
    up: Option<Arc<str>>,
    /// Whether its sets were compared with ours.
    compared: bool,
    queue: VecDeque<MemberChange>,
    repairs: VecDeque<Arc<str>>,
    busy: Busy,
    /// The call that was under way when the connection dropped, and to which start of `scalwsd`.
    cut_off: Option<(Arc<str>, Digest)>,
    /// How often `scalwsd` died on a set with this digest.
    deaths: BTreeMap<Digest, u32>,
}

impl MemberLane {
    pub(super) fn open(text: &[u8], boot_id: &str, out: &mut Vec<Effect>) -> MemberLane {
        let replay = MembersReplay::of(text);
        let mut lane = MemberLane {
            boot_id: boot_id.to_owned(),
            journals: 0,
            live: replay.sets.iter().map(|(name, set)| compaction::set_len(name, set)).sum(),
            sets: replay.sets,
            tree: replay.tree,
            len: text.len() as u64,
            compact_from: 0,
            floor: compaction::FLOOR,
            lens_before: None,
            up: None,
            compared: false,
            queue: VecDeque::new(),
            repairs: VecDeque::new(),
            busy: Busy::Idle,
            cut_off: None,
            deaths: BTreeMap::new(),
        };
        lane.tree.root();
        if !replay.named || replay.corrupt.is_some() {
            lane.compact(out);
            lane.busy = Busy::Idle;
            lane.lens_before = None;
        } else if replay.settled != lane.len {
            lane.len = replay.settled;
            out.push(Effect::Cut { file: File::Members, len: lane.len });
        }
        lane
    }

    pub(super) fn tree(&mut self) -> &mut MemberTree {
        &mut self.tree
    }

    pub(super) fn held(&self) -> &MemberTree {
        &self.tree
    }

    pub(super) fn sets(&self) -> &BTreeMap<Arc<str>, MemberSet> {
        &self.sets
    }

    pub(super) fn change(&mut self, change: MemberChange, out: &mut Vec<Effect>) {
        self.queue.push_back(change);
        self.pump(out);
    }

    pub(super) fn stream_ended(&mut self) {
        // Numbers count one stream. A change under way is done and not acknowledged: the next Hello says the root.
        self.queue.clear();
        if let Busy::Change(change, result) = &self.busy {
            self.busy = Busy::Repair(change.set.clone(), result.clone());
        }
    }

    pub(super) fn up(&mut self, start: Arc<str>, out: &mut Vec<Effect>) {
        if let Some((before, digest)) = self.cut_off.take()
            && before != start
        {
            *self.deaths.entry(digest).or_default() += 1;
        }
        self.up = Some(start);
        self.compared = false;
        self.pump(out);
    }

    /// The connection of a call ended before its answer came.
    pub(super) fn cut_off(&mut self, loading: bool) {
        if matches!(self.busy, Busy::Change(..) | Busy::Repair(..)) {
            self.down(loading);
        }
    }

    /// A configuration that was `loading` is what a death is laid at, not the set.
    pub(super) fn down(&mut self, loading: bool) {
        let Some(start) = self.up.take() else { return };
        let cut_off = |result: Option<MemberSet>| result.filter(|_| !loading).map(|set| (start, set.digest));
        match std::mem::replace(&mut self.busy, Busy::Idle) {
            Busy::Change(change, result) => {
                self.cut_off = cut_off(result);
                self.queue.push_front(change);
            }
            Busy::Repair(_, result) => self.cut_off = cut_off(result),
            Busy::Compacting => self.busy = Busy::Compacting,
            Busy::Idle | Busy::Listing => {}
        }
        self.repairs.clear();
    }

    fn pump(&mut self, out: &mut Vec<Effect>) {
        while matches!(self.busy, Busy::Idle) {
            if self.up.is_none() {
                return;
            }
            if !self.compared {
                self.busy = Busy::Listing;
                out.push(Effect::ListUpstreams);
                return;
            }
            if let Some(name) = self.repairs.pop_front() {
                self.repair(name, out);
            } else if let Some(change) = self.queue.pop_front() {
                self.begin(change, out);
            } else if compaction::is_due(self.len, self.live, self.floor) && self.len >= self.compact_from {
                self.compact(out);
            } else {
                return;
            }
        }
    }

    fn is_deadly(&self, digest: &Digest) -> bool {
        self.deaths.get(digest).is_some_and(|n| *n >= DEATHS)
    }

    fn repair(&mut self, name: Arc<str>, out: &mut Vec<Effect>) {
        let set = self.sets.get(&name).cloned();
        match &set {
            // A set that it took once and dies on now: left as it is there.
            Some(set) if self.is_deadly(&set.digest) => return,
            Some(set) => out.push(Effect::PutMembers { set: name.clone(), members: set.members.clone() }),
            None => out.push(Effect::DeleteMembers { set: name.clone() }),
        }
        self.busy = Busy::Repair(name, set);
    }

    fn begin(&mut self, change: MemberChange, out: &mut Vec<Effect>) {
        let name = change.set.clone();
        if change.change == MembersChange::Drop {
            out.push(Effect::DeleteMembers { set: name });
            self.busy = Busy::Change(change, None);
            return;
        }
        let held = self.sets.get(&name);
        let result = change.change.result(&name, held).filter(|set| change.digest.fits(&set.digest));
        let Some(set) = result else { return self.base_unknown(&change, out) };
        if self.is_deadly(&set.digest) {
            let message = format!("scalwsd died {DEATHS} times while it took the set");
            return self.refused(change, refusals::CRASHED, message, out);
        }
        out.push(match (&change.change, held) {
            (MembersChange::Delta { add, remove, .. }, Some(held)) => {
                let removed = remove.iter().filter_map(|at| held.members.get(usize::try_from(*at).ok()?).cloned());
                Effect::PatchMembers { set: name, base: held.digest, add: add.clone(), remove: removed.collect() }
            }
            _ => Effect::PutMembers { set: name, members: set.members.clone() },
        });
        self.busy = Busy::Change(change, Some(set));
    }

    fn base_unknown(&mut self, change: &MemberChange, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Report::MembersBaseUnknown { set: change.set.clone() }));
        self.done(change.seq, out);
    }

    fn refused(&mut self, change: MemberChange, code: &'static str, message: String, out: &mut Vec<Effect>) {
        let MemberChange { seq, set, .. } = change;
        out.push(Effect::Report(Report::MembersRefused { seq, set, code, message }));
        self.done(seq, out);
    }

    fn done(&mut self, seq: u64, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Report::MembersApplied { seq, root: self.tree.root() }));
    }

    pub(super) fn answered(&mut self, result: Result<Option<Digest>, CallError>, out: &mut Vec<Effect>) {
        match std::mem::replace(&mut self.busy, Busy::Idle) {
            Busy::Change(change, wanted) => self.change_answered(change, wanted, result, out),
            Busy::Repair(name, wanted) => self.repair_answered(name, wanted, result, out),
            other => self.busy = other,
        }
        self.pump(out);
    }

    fn change_answered(
        &mut self,
        change: MemberChange,
        wanted: Option<MemberSet>,
        result: Result<Option<Digest>, CallError>,
        out: &mut Vec<Effect>,
    ) {
        match (result, wanted) {
            (Ok(_), None) => {
                self.record(&change.set, None, out);
                self.done(change.seq, out);
            }
            (Ok(Some(digest)), Some(set)) if digest == set.digest => {
                self.deaths.remove(&digest);
                self.record(&change.set, Some(set), out);
                self.done(change.seq, out);
            }
            (Ok(_), Some(_)) => {
                let message = "scalwsd has another digest after it took the set".to_owned();
                // It may have changed there: compared and put right before the next change.
                self.compared = false;
                self.refused(change, refusals::READ_BACK, message, out);
            }
            (Err(CallError::Conflict(_)), Some(set)) => {
                out.push(Effect::PutMembers { set: change.set.clone(), members: set.members.clone() });
                self.busy = Busy::Change(change, Some(set));
            }
            (Err(CallError::Refused(message)), _) => self.refused(change, refusals::UNUSABLE, message, out),
            (Err(CallError::Conflict(_)), None) => {
                self.refused(change, refusals::READ_BACK, "scalwsd did not drop the set".to_owned(), out);
            }
            // See [`MemberLane::cut_off`].
            (Err(CallError::Gone), _) => {}
        }
    }

    fn repair_answered(
        &mut self,
        name: Arc<str>,
        wanted: Option<MemberSet>,
        result: Result<Option<Digest>, CallError>,
        out: &mut Vec<Effect>,
    ) {
        match result {
            Ok(_) => {
                // A change whose stream ended is recorded here, too.
                if self.sets.get(&name) != wanted.as_ref() {
                    self.record(&name, wanted, out);
                    out.push(Effect::Report(Report::HoldingsChanged));
                }
            }
            // What cannot be put right now is found again by the next comparison.
            Err(CallError::Refused(_) | CallError::Conflict(_) | CallError::Gone) => {}
        }
    }

    pub(super) fn listed(&mut self, result: Result<Vec<(Arc<str>, Digest)>, CallError>, out: &mut Vec<Effect>) {
        if !matches!(self.busy, Busy::Listing) {
            return;
        }
        self.busy = Busy::Idle;
        match result {
            Ok(theirs) => {
                self.compared = true;
                let theirs: BTreeMap<Arc<str>, Digest> = theirs.into_iter().collect();
                let mut differ: BTreeSet<Arc<str>> =
                    theirs.keys().filter(|name| !self.sets.contains_key(*name)).cloned().collect();
                let wrong = self.sets.iter().filter(|(name, set)| theirs.get(*name) != Some(&set.digest));
                differ.extend(wrong.map(|(name, _)| name.clone()));
                self.repairs = differ.into_iter().collect();
            }
            Err(CallError::Gone) => self.down(false),
            // An older scalwsd without the call: what the journal says is what it read.
            Err(CallError::Refused(_) | CallError::Conflict(_)) => self.compared = true,
        }
        self.pump(out);
    }

    /// Asks for a comparison with what `scalwsd` has, when nothing else is to do.
    pub(super) fn poll(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.busy, Busy::Idle) && self.queue.is_empty() {
            self.compared = false;
            self.pump(out);
        }
    }

    fn record(&mut self, name: &Arc<str>, set: Option<MemberSet>, out: &mut Vec<Effect>) {
        let mut lines = Vec::new();
        let old = match set {
            Some(set) => {
                set.record(name).encode_into(&mut lines);
                self.tree.insert(name.clone(), set.digest);
                self.live += compaction::set_len(name, &set);
                self.sets.insert(name.clone(), set)
            }
            None => {
                self.tree.remove(name);
                let old = self.sets.remove(name);
                if old.is_some() {
                    Record::Drop { name: name.clone() }.encode_into(&mut lines);
                }
                old
            }
        };
        self.live = self.live.saturating_sub(old.map_or(0, |old| compaction::set_len(name, &old)));
        self.tree.root();
        if !lines.is_empty() {
            self.len += lines.len() as u64;
            out.push(Effect::Append { file: File::Members, lines: Bytes::from(lines) });
        }
    }

    fn compact(&mut self, out: &mut Vec<Effect>) {
        self.journals += 1;
        let content = compaction::members_journal(&format!("{}-{}", self.boot_id, self.journals), &self.sets);
        self.lens_before = Some((self.len, self.live));
        self.len = content.len() as u64;
        self.live = self.len;
        self.busy = Busy::Compacting;
        out.push(Effect::Replace { file: File::Members, content: content.into() });
    }

    pub(super) fn replaced(&mut self, done: bool, out: &mut Vec<Effect>) {
        if !matches!(self.busy, Busy::Compacting) {
            return;
        }
        self.busy = Busy::Idle;
        if let Some((len, live)) = self.lens_before.take()
            && !done
        {
            (self.len, self.live) = (len, live);
            self.compact_from = len.saturating_mul(2);
        }
        self.pump(out);
    }

    pub(super) fn volume_failed(&mut self, message: &str, out: &mut Vec<Effect>) {
        // scalwsd has the set and the journal has not: a new start compares both again.
        out.push(Effect::Fatal(format!("cannot write the members journal: {message}")));
    }
}
