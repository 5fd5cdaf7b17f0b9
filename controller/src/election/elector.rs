//! The elector, without sockets or clock: what it observes and the time go in; reads, writes and standings come out.
//!
//! Safety is the API server's compare-and-swap and, at the agents, the epoch. A Lease of somebody else counts as expired
//! only when it did not change for its whole duration by our own clock, and we looked all the time; no time that stands in it
//! is ever compared (as client-go does). A Lease that is not there, or says something of us that we did not write, is
//! waited for just so: it was deleted or restored, and whoever led then may still act in an epoch that we never saw. A leader
//! stops by itself when its last successful renewal, counted from when that was sent, is older than the renew deadline, which
//! is shorter than the lease.

use journal::mutants::{self, Mutant};
use push::limits;

use super::lease::{Observed, Record};
use super::settings::Settings;

/// A foreign Lease is waited for at most so many of our own lease durations, whatever duration it claims.
const MOST_LEASES: u64 = 10;
/// The longest time between two looks at a Lease of somebody else, in milliseconds: a release is seen that soon.
const LOOK_MS: u64 = 500;
/// So many looks within a lease duration at least: a renewal that is seen late is waited for that much longer.
const LOOKS: u64 = 12;

/// An epoch on the Lease that is further than this above every one that we know was written by hand, and is not counted up to: agents
/// go along with at most half of it ([`limits::EPOCH_JUMP`]), which a leader may be ahead of us by.
const EPOCH_JUMP: u64 = 2 * limits::EPOCH_JUMP;
/// Who knows of no epoch counts up to one as high as this: an election each millisecond for 30 years.
const FIRST_EPOCH: u64 = 1 << 40;

/// When something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Milliseconds of a clock that never goes back. The only one by which anything is judged.
    pub ms: u64,
    /// The time of day, in microseconds since 1970. Only written into the Lease.
    pub wall_us: i64,
}

/// A request without a usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failed;

/// Why a write gave no Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteFailed {
    /// 409: somebody wrote since we looked, or it is another object. Nothing was written.
    Conflict,
    /// No usable answer: it may have been written.
    Unknown,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time passed; due at [`Elector::deadline`].
    Tick,
    /// The answer to [`Effect::Read`]; none: there is no Lease.
    Read(Result<Option<Observed>, Failed>),
    /// The answer to [`Effect::Write`].
    Written(Result<Observed, WriteFailed>),
    /// A proven agent has seen this epoch, or a version beyond ours in it.
    EpochReported(u64),
    /// We lead and are of no use, since no agent reaches us: somebody else should, for one lease duration at least.
    StepDown,
    /// We end. The owner has ended everything that only a leader may do.
    Release,
}

/// What to do. One request at a time, and each is answered by an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the Lease, with a quorum.
    Read,
    /// Write the Lease. `over` names uid and resourceVersion of the Lease that is replaced; none: it is created.
    Write {
        /// What it is to say.
        record: Record,
        /// What it replaces.
        over: Option<(String, String)>,
    },
    /// We are this from now on.
    Become(Standing),
    /// The end: the Lease is free, or was never ours.
    Released,
}

/// What we are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// We follow.
    Following {
        /// Where the leader is; none while we know of none that renews.
        leader: Option<String>,
    },
    /// We lead, in this epoch.
    Leading {
        /// Above every epoch before.
        epoch: u64,
    },
    /// We led, and cannot say whether we still do.
    Unsure,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    Read {
        sent_ms: u64,
    },
    /// Also what a write may have left that was not answered.
    Write {
        sent_ms: u64,
        record: Record,
    },
    Release,
    /// As a release, but we go on as a candidate.
    StepDown,
}

/// The last look at the Lease, and when what its holder writes was last seen to change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    lease: Option<Observed>,
    changed_ms: u64,
    /// When that look was asked for.
    asked_ms: u64,
}

impl Seen {
    /// A planted bug: whether the times that stand in the Lease say that it is over, by the time of day.
    fn ended_by_its_own_words(&self, now: Moment) -> bool {
        self.lease.as_ref().is_none_or(|Observed { record, .. }| {
            let lease_us = i64::try_from(record.lease_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
            record.holder.is_empty() || record.renewed_us.saturating_add(lease_us) < now.wall_us
        })
    }
}

/// Our lead: what we wrote last, and how long it is good for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Term {
    record: Record,
    until_ms: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elector {
    settings: Settings,
    seen: Option<Seen>,
    request: Option<Request>,
    /// Somebody wrote the Lease since we looked.
    overtaken: bool,
    /// The Lease vanished while we led, and nobody else can have led since.
    deleted_in_office: bool,
    /// A write that may have happened.
    unknown: Option<(u64, Record)>,
    term: Option<Term>,
    standing: Standing,
    next_ms: u64,
    /// The highest epoch that we saw on any Lease or wrote.
    highest: u64,
    /// The highest epoch that an agent reported.
    reported: u64,
    releasing: bool,
    stepping_down: bool,
}

impl Elector {
    /// An elector that follows and knows nothing. It acts at its first tick.
    pub fn new(settings: Settings) -> Elector {
        Elector {
            settings,
            seen: None,
            request: None,
            overtaken: false,
            deleted_in_office: false,
            unknown: None,
            term: None,
            standing: Standing::Following { leader: None },
            next_ms: 0,
            highest: 0,
            reported: 0,
            releasing: false,
            stepping_down: false,
        }
    }

    /// What we are.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Who holds the Lease, as far as we saw.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.lease.as_ref().map(|lease| lease.record.holder.as_str())
    }

    /// While we lead: until when, in milliseconds, without another renewal.
    pub fn leads_until(&self) -> Option<u64> {
        self.term.as_ref().filter(|_| self.leads()).map(|term| term.until_ms)
    }

    /// When [`Input::Tick`] is due at the latest, in milliseconds; none when there is nothing to wait for.
    pub fn deadline(&self) -> Option<u64> {
        let act = (self.request.is_none() && !self.releasing).then_some(self.next_ms);
        let stop = self.leads_until();
        let doubt = matches!(self.standing, Standing::Following { leader: Some(_) }).then(|| self.doubt_ms());
        [act, stop, doubt].into_iter().flatten().min()
    }

    /// One step.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Tick => {}
            Input::Read(answer) => self.read(now, answer, &mut effects),
            Input::Written(answer) => self.written(now, answer, &mut effects),
            Input::EpochReported(epoch) => {
                self.reported = self.reported.max(epoch);
                if self.behind_agents() {
                    self.next_ms = now.ms;
                }
            }
            Input::StepDown => {
                self.stepping_down = self.leads();
                self.next_ms = if self.stepping_down { now.ms } else { self.next_ms };
            }
            Input::Release => self.release(&mut effects),
        }
        self.judge(now, &mut effects);
        if self.request.is_none() && now.ms >= self.next_ms && !self.releasing {
            self.act(now, &mut effects);
        }
        effects
    }

    fn leads(&self) -> bool {
        matches!(self.standing, Standing::Leading { .. })
    }

    fn become_(&mut self, standing: Standing, effects: &mut Vec<Effect>) {
        if self.standing != standing {
            self.standing = standing.clone();
            effects.push(Effect::Become(standing));
        }
    }

    /// Whether agents have seen more than our epoch.
    fn behind_agents(&self) -> bool {
        matches!(self.standing, Standing::Leading { epoch } if self.reported >= epoch)
    }

    /// From here on a leader that was seen to renew is doubted: by its own clock it leads no more, if its deadline is ours.
    fn doubt_ms(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.changed_ms.saturating_add(self.settings.renew_deadline_ms))
    }

    /// What time alone changes.
    fn judge(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.leads_until().is_some_and(|until| now.ms >= until) && !mutants::active(Mutant::LeadsPastItsDeadline) {
            self.become_(Standing::Unsure, effects);
        }
        if matches!(self.standing, Standing::Following { leader: Some(_) }) && now.ms >= self.doubt_ms() {
            self.become_(Standing::Following { leader: None }, effects);
        }
    }

    fn read(&mut self, now: Moment, answer: Result<Option<Observed>, Failed>, effects: &mut Vec<Effect>) {
        let Some(Request::Read { sent_ms }) = self.request.take_if(|request| matches!(request, Request::Read { .. }))
        else {
            return;
        };
        match answer {
            Ok(lease) => {
                self.observe(now, sent_ms, lease, effects);
                self.decide(now, sent_ms, effects);
            }
            // Whether there is something to give back is not known: it is left to be taken.
            Err(Failed) if self.releasing => effects.push(Effect::Released),
            Err(Failed) => self.next_ms = now.ms.saturating_add(self.look_ms()),
        }
    }

    fn written(&mut self, now: Moment, answer: Result<Observed, WriteFailed>, effects: &mut Vec<Effect>) {
        match self.request.take_if(|request| !matches!(request, Request::Read { .. })) {
            Some(Request::Release) => effects.push(Effect::Released),
            Some(Request::StepDown) if self.releasing => effects.push(Effect::Released),
            // Whatever came of it: others have this long to take it.
            Some(Request::StepDown) => self.next_ms = now.ms.saturating_add(self.settings.lease_ms),
            Some(Request::Write { sent_ms, record }) => match answer {
                Ok(lease) => {
                    self.seen = Some(Seen { lease: Some(lease), changed_ms: now.ms, asked_ms: sent_ms });
                    self.unknown = None;
                    self.won(now, sent_ms, record, effects);
                }
                Err(_) if self.releasing => effects.push(Effect::Released),
                Err(WriteFailed::Conflict) => {
                    self.unknown = None;
                    self.overtaken = true;
                    self.next_ms = now.ms;
                }
                Err(WriteFailed::Unknown) => {
                    self.unknown = Some((sent_ms, record));
                    self.next_ms = now.ms.saturating_add(self.look_ms());
                }
            },
            Some(Request::Read { .. }) | None => {}
        }
    }

    /// What was written holds, and counts from when it was sent.
    fn won(&mut self, now: Moment, sent_ms: u64, record: Record, effects: &mut Vec<Effect>) {
        let until_ms = sent_ms.saturating_add(self.settings.renew_deadline_ms);
        let epoch = record.epoch;
        self.highest = self.highest.max(epoch);
        self.term = Some(Term { record, until_ms });
        self.deleted_in_office = false;
        self.next_ms = sent_ms.saturating_add(self.settings.retry_ms).max(now.ms);
        if self.releasing {
            return self.give_back(effects);
        }
        // An answer that came too late proves nothing about now.
        if now.ms < until_ms {
            self.become_(Standing::Leading { epoch }, effects);
        }
        if self.behind_agents() {
            self.next_ms = now.ms;
        }
    }

    fn observe(&mut self, now: Moment, asked_ms: u64, lease: Option<Observed>, effects: &mut Vec<Effect>) {
        if let Some(lease) = &lease {
            self.count_up_to(lease.record.epoch);
        }
        self.overtaken = false;
        let record = lease.as_ref().map(|lease| lease.record.clone());
        // A Lease that came and went between two looks leaves no trace; one that is there does.
        let Settings { retry_ms, renew_deadline_ms, .. } = self.settings;
        let blind_ms = if lease.is_none() { retry_ms.max(2 * self.look_ms()) } else { renew_deadline_ms };
        let same = self.seen.as_ref().is_some_and(|seen| {
            let watched = now.ms.saturating_sub(seen.asked_ms) <= blind_ms;
            watched && is_unrenewed(seen.lease.as_ref(), lease.as_ref())
        });
        let changed_ms = self.seen.as_ref().filter(|_| same).map_or(now.ms, |seen| seen.changed_ms);
        self.seen = Some(Seen { lease, changed_ms, asked_ms });
        // Until a later write is answered, it may still come to be.
        if let Some((sent_ms, written)) = self.unknown.take_if(|(_, written)| record.as_ref() == Some(written)) {
            return self.won(now, sent_ms, written, effects);
        }
        // The Lease says something else than we wrote: taken over, deleted, or restored from a copy.
        if let Some(term) = self.term.take_if(|term| record.as_ref() != Some(&term.record)) {
            // Who was in office until it was deleted is the one who knows the highest epoch.
            self.deleted_in_office = record.is_none() && self.leads() && now.ms < term.until_ms;
        }
    }

    /// Takes note of an epoch on the Lease, unless nobody can have come to it by counting.
    fn count_up_to(&mut self, epoch: u64) {
        let most = match self.highest.max(self.reported) {
            0 => FIRST_EPOCH,
            known => known.saturating_add(EPOCH_JUMP),
        };
        if epoch <= most {
            self.highest = self.highest.max(epoch);
        }
    }

    /// After a look: take the Lease, renew it, or wait.
    /// What was seen may be as old as the question.
    fn decide(&mut self, now: Moment, asked_ms: u64, effects: &mut Vec<Effect>) {
        if self.releasing {
            return if self.term.is_some() { self.give_back(effects) } else { effects.push(Effect::Released) };
        }
        if self.term.is_some() {
            // What we wrote stands: nobody wrote in between, so the epoch is still ours.
            return self.write(now, false, effects);
        }
        let free_at = self.free_at();
        let is_free = match &self.seen {
            Some(seen) if mutants::active(Mutant::LeaseByWallClock) => seen.ended_by_its_own_words(now),
            _ => asked_ms >= free_at,
        };
        if is_free {
            self.become_(Standing::Following { leader: None }, effects);
            return self.write(now, true, effects);
        }
        let leader = self.seen.as_ref().and_then(|seen| seen.lease.as_ref()).map(|lease| &lease.record.address);
        let leader = leader.filter(|address| !address.is_empty() && now.ms < self.doubt_ms()).cloned();
        self.become_(Standing::Following { leader }, effects);
        self.next_ms = free_at.min(now.ms.saturating_add(self.look_ms())).max(now.ms);
    }

    /// When the Lease may be taken, by our clock.
    fn free_at(&self) -> u64 {
        let Some(Seen { lease, changed_ms, .. }) = &self.seen else { return u64::MAX };
        let lease_ms = match lease {
            None if self.deleted_in_office => return 0,
            Some(Observed { record, .. }) if record.holder.is_empty() => return 0,
            None => self.settings.lease_ms,
            Some(Observed { record, .. }) => {
                record.lease_ms.max(self.settings.lease_ms).min(self.settings.lease_ms * MOST_LEASES)
            }
        };
        changed_ms.saturating_add(lease_ms)
    }

    fn look_ms(&self) -> u64 {
        self.settings.retry_ms.min(LOOK_MS).min((self.settings.lease_ms / LOOKS).max(1))
    }

    /// What is due.
    fn act(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.stepping_down) && self.leads() && !self.overtaken && self.still_as_written() {
            self.become_(Standing::Following { leader: None }, effects);
            return self.free(Request::StepDown, effects);
        }
        let known = !self.overtaken && self.unknown.is_none() && self.still_as_written();
        if self.leads() && known {
            return self.write(now, false, effects);
        }
        self.request = Some(Request::Read { sent_ms: now.ms });
        effects.push(Effect::Read);
    }

    /// Whether the last thing that we know of the Lease is our own write.
    fn still_as_written(&self) -> bool {
        let lease = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        lease.zip(self.term.as_ref()).is_some_and(|(lease, term)| lease.record == term.record)
    }

    /// Writes the Lease as ours: anew in a higher epoch, or renewed.
    fn write(&mut self, now: Moment, anew: bool, effects: &mut Vec<Effect>) {
        let lease = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        let before = self.term.as_ref().map(|term| &term.record).or(lease.map(|lease| &lease.record));
        let held = before.cloned().unwrap_or_default();
        let raise = anew || self.reported >= held.epoch;
        let epoch = if raise { crate::epoch::next(self.highest, self.reported) } else { Some(held.epoch) };
        let Some(epoch) = epoch else {
            // Nobody can go above it, so nobody leads until the annotation is mended. Counting does not come to such numbers.
            self.next_ms = now.ms.saturating_add(self.settings.lease_ms);
            return;
        };
        let same_holder = held.holder == self.settings.identity;
        let record = Record {
            holder: self.settings.identity.clone(),
            address: self.settings.address.clone(),
            lease_ms: self.settings.lease_ms,
            transitions: if same_holder { held.transitions } else { held.transitions.saturating_add(1) },
            epoch,
            acquired_us: if same_holder && !anew { held.acquired_us } else { now.wall_us },
            // Another one each time, whatever the clock of the day does: that is how others see a renewal.
            renewed_us: if now.wall_us == held.renewed_us { held.renewed_us.wrapping_add(1) } else { now.wall_us },
        };
        let mut over = lease.map(|lease| (lease.uid.clone(), lease.version.clone()));
        if mutants::active(Mutant::LeaseWithoutVersion) {
            over.iter_mut().for_each(|(_, version)| version.clear());
        }
        self.request = Some(Request::Write { sent_ms: now.ms, record: record.clone() });
        effects.push(Effect::Write { record, over });
    }

    fn release(&mut self, effects: &mut Vec<Effect>) {
        self.releasing = true;
        self.become_(Standing::Following { leader: None }, effects);
        match &self.request {
            // Its answer tells whether there is something to give back.
            Some(_) => {}
            None if self.still_as_written() => self.give_back(effects),
            None => effects.push(Effect::Released),
        }
    }

    fn give_back(&mut self, effects: &mut Vec<Effect>) {
        self.free(Request::Release, effects);
        if self.request.is_none() {
            effects.push(Effect::Released);
        }
    }

    /// Frees the Lease for whoever looks next. The epoch stays on it.
    fn free(&mut self, request: Request, effects: &mut Vec<Effect>) {
        let lease = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        let Some((term, lease)) = self.term.take().zip(lease) else { return };
        let record = Record { holder: String::new(), address: String::new(), ..term.record };
        self.request = Some(request);
        effects.push(Effect::Write { record, over: Some((lease.uid.clone(), lease.version.clone())) });
    }
}

/// Whether nobody who holds the Lease wrote it between these two looks. Whoever annotates it renews nothing; an older
/// version of it, or another object of its name, is a renewal by somebody we did not see.
fn is_unrenewed(before: Option<&Observed>, after: Option<&Observed>) -> bool {
    let (before, after) = match (before, after) {
        (None, None) => return true,
        (Some(before), Some(after)) => (before, after),
        _ => return false,
    };
    let number = |lease: &Observed| lease.version.parse::<u64>().ok();
    before.uid == after.uid && before.record == after.record && number(before) <= number(after)
}
