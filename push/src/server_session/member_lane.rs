//! The member lane of one stream: which sets the agent has, and the next message about them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use journal::Digest;
use journal::mutants::{self, Mutant};
use proto::v1::controller_message::Message;
use proto::v1::{Drop, Members, MembersDelta, MembersFull, SendMemberBuckets, SendMemberSets, members};

use crate::Prefix;
use crate::fleet::{Fleet, MemberSet};
use crate::limits;
use crate::wire::{self, Broken};

/// How long an answer about buckets or sets may take before it is asked for again, in milliseconds.
const ASK_AGAIN_MS: u64 = 10_000;
/// Sets that an agent may list in answer to one question.
const LISTED: usize = 262_144;
/// Sets whose last message is remembered since the stream was last up to date.
const RECENT: usize = 4_096;
/// Room for so many sets and messages is kept for the next time.
const FEW: usize = 16;

/// What is known about the sets that did not change on this stream.
#[derive(Debug)]
enum Baseline {
    /// They are as they were at the cursor.
    Known,
    /// To find out.
    AskBuckets,
    /// Asked; again at this moment.
    AskedBuckets(u64),
    /// These buckets differ: which sets are it?
    AskSets(Vec<u8>),
    /// Asked; what came so far; again at this moment.
    AskedSets(Vec<u8>, BTreeMap<Arc<str>, Digest>, u64),
}

/// A set that the agent is to drop once it runs a configuration without it.
#[derive(Debug)]
struct PendingDrop {
    /// The serial of the configuration.
    after: u64,
    /// What the agent holds of it, if that is known.
    digest: Option<Digest>,
}

/// See the module. What was sent is not kept per set: every set with a version up to the cursor was sent, or was there.
#[derive(Debug)]
pub(super) struct MemberLane {
    seq: u64,
    acked: u64,
    cursor: u64,
    /// The agent had no set when the stream began.
    began_empty: bool,
    baseline: Baseline,
    announced: Announced,
    /// The member version at which everything had been sent: what was not sent since is at the agent as it was then.
    /// `None` when more was sent since than is remembered.
    level: Option<u64>,
    /// By id, the version of what was sent since.
    recent: HashMap<u32, u64>,
    /// Sets that were sent before the cursor came to their last change, with the version that was sent.
    ahead: HashMap<u32, u64>,
    /// To be sent whole, whether they changed or not.
    resend: BTreeSet<Arc<str>>,
    /// Their base is not known: when the cursor comes to them, whole.
    whole: BTreeSet<Arc<str>>,
    drops: BTreeMap<Arc<str>, PendingDrop>,
    /// What the agent refused; not sent again until it changes.
    refused: BTreeMap<Arc<str>, Digest>,
    /// Sets that no message holds, to be reported.
    too_large: Vec<Arc<str>>,
    /// Unacknowledged messages, and the member version that is complete with each.
    in_flight: VecDeque<(u64, Option<u64>)>,
}

impl MemberLane {
    /// For an agent with this member root.
    pub(super) fn new(agent_root: Digest, fleet: &Fleet) -> MemberLane {
        let sets = fleet.members();
        let began_empty = agent_root == journal::MemberTree::default().root();
        let (cursor, baseline) = if agent_root == sets.root() || mutants::active(Mutant::NewLeaderKeepsItsBaseline) {
            (sets.version(), Baseline::Known)
        } else if began_empty {
            (0, Baseline::Known)
        } else {
            (sets.version(), Baseline::AskBuckets)
        };
        MemberLane {
            seq: 0,
            acked: 0,
            cursor,
            began_empty,
            baseline,
            announced: Announced::default(),
            level: Some(cursor),
            recent: HashMap::new(),
            ahead: HashMap::new(),
            resend: BTreeSet::new(),
            whole: BTreeSet::new(),
            drops: BTreeMap::new(),
            refused: BTreeMap::new(),
            too_large: Vec::new(),
            in_flight: VecDeque::new(),
        }
    }

    /// The newest message of this stream.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether everything up to this member version was sent.
    pub(super) fn sent_up_to(&self, version: u64) -> bool {
        matches!(self.baseline, Baseline::Known) && self.cursor >= version && self.resend.is_empty()
    }

    /// The member version that the agent will have when it did all that was sent; `None` while anything is open.
    fn complete(&self, fleet: &Fleet) -> Option<u64> {
        let version = fleet.members().version();
        let settled = self.sent_up_to(version) && self.whole.is_empty() && self.drops.is_empty();
        settled.then_some(version)
    }

    /// The member version that the agent has now, if nothing at all is open.
    pub(super) fn current(&self, fleet: &Fleet) -> Option<u64> {
        if self.in_flight.is_empty() { self.complete(fleet) } else { None }
    }

    /// The root that the agent will have when it did all that was sent, if that can be told.
    pub(super) fn expected_root(&self, fleet: &Fleet) -> Option<Digest> {
        let sets = fleet.members();
        if !self.sent_up_to(sets.version()) || !self.whole.is_empty() || !self.refused.is_empty() {
            return None;
        }
        if self.drops.is_empty() {
            return Some(sets.root());
        }
        let extra = self.drops.iter().map(|(name, drop)| drop.digest.map(|digest| (Arc::clone(name), Some(digest))));
        Some(sets.tree().root_after(&extra.collect::<Option<BTreeMap<_, _>>>()?))
    }

    /// When the lane wants to be asked without anything having happened.
    pub(super) fn deadline(&self) -> Option<u64> {
        match self.baseline {
            Baseline::AskedBuckets(at) | Baseline::AskedSets(_, _, at) => Some(at),
            _ => None,
        }
    }

    /// The next message; `applied` is the serial of what the agent runs, or of what it may be loading if that is older.
    pub(super) fn poll(&mut self, now: u64, fleet: &Fleet, applied: Option<u64>) -> Option<Message> {
        if !fleet.members().remembers(self.cursor) {
            self.lose_track(fleet);
        }
        match &self.baseline {
            Baseline::AskBuckets => return Some(self.ask_buckets(now)),
            Baseline::AskedBuckets(at) if now >= *at => return Some(self.ask_buckets(now)),
            Baseline::AskSets(buckets) | Baseline::AskedSets(buckets, _, _) if !matches!(self.baseline, Baseline::AskedSets(_, _, at) if now < at) =>
            {
                let buckets = buckets.clone();
                let message = SendMemberSets { buckets: buckets.clone().into() };
                self.baseline = Baseline::AskedSets(buckets, BTreeMap::new(), now + ASK_AGAIN_MS);
                return Some(Message::SendMemberSets(message));
            }
            _ => {}
        }
        if self.is_full() {
            return None;
        }
        self.drop_next(fleet, applied).or_else(|| self.resend_next(fleet)).or_else(|| self.changed_next(fleet))
    }

    /// Whether no message may follow before an acknowledgement comes.
    pub(super) fn is_full(&self) -> bool {
        self.seq - self.acked >= limits::MEMBER_WINDOW
    }

    fn ask_buckets(&mut self, now: u64) -> Message {
        self.baseline = Baseline::AskedBuckets(now + ASK_AGAIN_MS);
        Message::SendMemberBuckets(SendMemberBuckets {})
    }

    /// What changed is not remembered that far back: the agent says what it has.
    fn lose_track(&mut self, fleet: &Fleet) {
        self.cursor = fleet.members().version();
        self.is_level();
        self.baseline = Baseline::AskBuckets;
        self.whole.clear();
        self.ahead.clear();
        self.began_empty = false;
    }

    fn drop_next(&mut self, fleet: &Fleet, applied: Option<u64>) -> Option<Message> {
        // A set that is there again is named again: the cursor comes to it and sends it whole.
        let back = |name: &str| fleet.members().get(name).is_some_and(|set| set.gone().is_none());
        let due = |(name, drop): &(&Arc<str>, &PendingDrop)| {
            let unnamed = applied.is_some_and(|applied| applied >= drop.after) && !back(name);
            unnamed || mutants::active(Mutant::BreakBeforeMake)
        };
        let name = Arc::clone(self.drops.iter().find(due)?.0);
        self.drops.remove(&name);
        self.seq += 1;
        let message = Drop { epoch: fleet.epoch(), seq: self.seq, set_name: name.to_string() };
        self.sent(fleet);
        Some(Message::Drop(message))
    }

    fn resend_next(&mut self, fleet: &Fleet) -> Option<Message> {
        while let Some(name) = self.resend.pop_first() {
            match fleet.members().get(&name) {
                Some(set) if set.gone().is_some() => {}
                // The cursor comes to it anyway.
                Some(set) if set.version() > self.cursor => {
                    self.whole.insert(name);
                }
                Some(set) if self.refused.get(&name) == Some(&set.digest()) => {}
                Some(set) => {
                    if let Some(message) = self.send(fleet, &name, set, false) {
                        return Some(message);
                    }
                }
                None => {}
            }
        }
        None
    }

    fn changed_next(&mut self, fleet: &Fleet) -> Option<Message> {
        while let Some((version, name)) = fleet.members().next_after(self.cursor) {
            let before = std::mem::replace(&mut self.cursor, version);
            let Some(set) = fleet.members().get(name) else { continue };
            if let Some(gone) = set.gone() {
                self.whole.remove(name);
                self.resend.remove(name);
                self.refused.remove(name);
                let never_had = self.began_empty && !self.announced.contains(set.id());
                if !never_had {
                    let known = matches!(self.baseline, Baseline::Known) && gone.last_version <= before;
                    let digest = known.then_some(gone.last_digest);
                    self.drops.insert(Arc::clone(name), PendingDrop { after: gone.after, digest });
                }
                continue;
            }
            if version < set.version() {
                self.ahead.insert(set.id(), set.version());
            } else if self.ahead.remove(&set.id()) == Some(version)
                && !self.whole.contains(name)
                && !self.resend.contains(name)
            {
                continue;
            }
            let dropped = self.drops.remove(name).is_some();
            let whole = self.whole.remove(name) | self.resend.remove(name) | self.refused.remove(name).is_some();
            let based = matches!(self.baseline, Baseline::Known) && !whole && !dropped;
            if let Some(message) = self.send(fleet, name, set, based) {
                return Some(message);
            }
        }
        self.is_level();
        None
    }

    /// Everything up to the cursor, which is at the newest version, was sent.
    fn is_level(&mut self) {
        self.level = Some(self.cursor);
        if self.recent.capacity() > FEW {
            self.recent = HashMap::new();
        }
        self.recent.clear();
    }

    /// Notes the version of a set that is sent now. Gives the one that the agent has of it, if that is known.
    fn note(&mut self, id: u32, version: u64) -> Option<u64> {
        if self.level == Some(0) {
            // It began with nothing: until it has all, sets are sent whole, and need not be remembered.
            return None;
        }
        let before = self.recent.get(&id).copied().or(self.level);
        if self.recent.len() >= RECENT && !self.recent.contains_key(&id) {
            self.level = None;
        } else {
            self.recent.insert(id, version);
        }
        before
    }

    /// Sets that are too large for a message since it was last asked; the agent keeps what it has of them.
    pub(super) fn take_too_large(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.too_large)
    }

    /// `based`: the agent has what it was last told of the set. `None`: no message holds the set.
    fn send(&mut self, fleet: &Fleet, name: &Arc<str>, set: &MemberSet, based: bool) -> Option<Message> {
        if !set.fits() {
            self.refused.insert(Arc::clone(name), set.digest());
            self.too_large.push(Arc::clone(name));
            return None;
        }
        self.seq += 1;
        let strings = |members: &[Arc<str>]| members.iter().map(|member| member.to_string()).collect();
        let first = self.announced.insert(set.id());
        let before = self.note(set.id(), set.version()).filter(|_| based);
        // The stream's first message about a set has to name the base; later ones go on from the one before.
        let named = if first { Prefix::LEN + 2 } else { 0 };
        let delta = before.and_then(|before| set.delta_from(before)).filter(|delta| delta.saves > named);
        let content = match delta {
            Some(delta) => members::Content::Delta(MembersDelta {
                base: if first { wire::beginning(&delta.base) } else { bytes::Bytes::new() },
                add: strings(&delta.add),
                remove: delta.remove.clone(),
            }),
            None => members::Content::Full(MembersFull { members: strings(set.members()) }),
        };
        let set_name = if first { name.to_string() } else { String::new() };
        let message = Members {
            epoch: fleet.epoch(),
            seq: self.seq,
            set_id: set.id(),
            set_name,
            content: Some(content),
            digest: wire::beginning(&set.digest()),
        };
        self.sent(fleet);
        Some(Message::Members(message))
    }

    fn sent(&mut self, fleet: &Fleet) {
        let complete = self.complete(fleet);
        self.in_flight.push_back((self.seq, complete));
    }

    /// A cumulative acknowledgement; gives the member version that the agent has now, if it has one completely.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Result<Option<u64>, Broken> {
        if seq > self.seq {
            return Err(Broken("a member message is acknowledged that was not sent"));
        }
        let mut complete = None;
        while let Some((number, version)) = self.in_flight.front()
            && *number <= seq
        {
            complete = version.or(complete);
            self.in_flight.pop_front();
        }
        if self.in_flight.is_empty() && self.in_flight.capacity() > FEW {
            self.in_flight = VecDeque::new();
        }
        self.acked = self.acked.max(seq);
        Ok(complete)
    }

    /// The agent lacks the base: the whole set.
    pub(super) fn resync(&mut self, name: &str) -> Result<(), Broken> {
        wire::name(name, limits::SET_NAME)?;
        self.resend.insert(name.into());
        Ok(())
    }

    /// The agent keeps the old members.
    pub(super) fn refuse(&mut self, name: &str, fleet: &Fleet) -> Result<(), Broken> {
        wire::name(name, limits::SET_NAME)?;
        // A set that changed since is sent anyway.
        if let Some(set) = fleet.members().get(name).filter(|set| set.version() <= self.cursor && set.gone().is_none())
        {
            self.refused.insert(name.into(), set.digest());
        }
        Ok(())
    }

    /// The digests of the agent's buckets: asked for, or because it saw a difference.
    pub(super) fn buckets(&mut self, agent: &[Digest], fleet: &mut Fleet) {
        let ours = fleet.member_bucket_digests();
        let differing: Vec<u8> =
            (0..=u8::MAX).filter(|number| agent.get(usize::from(*number)) != ours.get(usize::from(*number))).collect();
        self.baseline = if differing.is_empty() { Baseline::Known } else { Baseline::AskSets(differing) };
    }

    /// A part of the answer to `SendMemberSets`.
    pub(super) fn sets(&mut self, sets: Vec<(Arc<str>, Digest)>, last: bool, fleet: &Fleet) -> Result<(), Broken> {
        // An answer to a question that was withdrawn.
        let Baseline::AskedSets(buckets, got, _) = &mut self.baseline else { return Ok(()) };
        got.extend(sets);
        if got.len() > LISTED {
            return Err(Broken("too many member sets"));
        }
        if !last {
            return Ok(());
        }
        let (buckets, got) = (std::mem::take(buckets), std::mem::take(got));
        self.baseline = Baseline::Known;
        let sets = fleet.members();
        for number in buckets {
            for (name, digest) in sets.tree().bucket(number) {
                if got.get(name) != Some(digest) {
                    self.resend.insert(Arc::clone(name));
                }
            }
        }
        for (name, digest) in got {
            if sets.tree().get(&name).is_none() && !mutants::active(Mutant::RemovalWhileAwayIsLost) {
                // One that nobody remembers may be named by what the agent runs: it waits for the present root.
                let after = sets.get(&name).and_then(MemberSet::gone).map_or(fleet.serial(), |gone| gone.after);
                self.drops.insert(name, PendingDrop { after, digest: Some(digest) });
            }
        }
        Ok(())
    }
}

/// The ids whose names this stream knows, one bit each.
#[derive(Debug, Default)]
struct Announced(Vec<u64>);

impl Announced {
    fn contains(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Whether it was not there yet.
    fn insert(&mut self, id: u32) -> bool {
        let new = !self.contains(id);
        let at = id as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (id % 64);
        new
    }
}
