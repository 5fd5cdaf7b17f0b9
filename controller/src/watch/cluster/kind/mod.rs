//! How one kind is followed, in the whole cluster or in one namespace: list, watch, wait, and begin again. Pure.
//!
//! Whoever drives it sends what [`KindWatch::request`] and [`KindWatch::look`] want, tells what came of it, and calls
//! [`KindWatch::tick`] when [`KindWatch::wake_at`] is reached. What comes of a request that is wanted no more is not told.

mod looking;

use translate::Change;

use super::failure::{Class, Failure};
use super::held::{Item, Store};
use super::kinds::Kind;
use super::talk::{Counts, Event, Moment, Out, Pace, Request, RequestId, Standing};
use super::version::Version;

use looking::Looking;

/// A watch that lasted so long, in milliseconds, was no failure.
const LASTED_MS: u64 = 5_000;
/// After so many refusals in a row of a server that answers, the version to watch from is taken for one that it does not
/// know, as after a backup was restored; everything is listed anew.
const REFUSALS: u32 = 3;
/// For a server that answers again, waits begin as if so many requests had failed: it has not failed as often as nobody answered.
const FAILURES_OF_A_RETURN: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streaming {
    /// Lists come as streams.
    Yes,
    /// The last one failed: the next is in pages.
    NotNow,
    /// The server does not know them.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    List,
    Watch,
}

#[derive(Debug)]
enum Phase {
    Listing { streaming: bool },
    Watching { since_ms: u64, heard: bool },
    Waiting { until_ms: u64, then: Then, absent: bool },
}

/// One kind in one place.
#[derive(Debug)]
pub struct KindWatch {
    kind: &'static Kind,
    pace: Pace,
    phase: Phase,
    store: Store,
    /// Which of the kind's versions is asked for.
    served: usize,
    streaming: Streaming,
    /// What is wanted, with its name.
    wanted: Option<(RequestId, Request)>,
    last_id: RequestId,
    /// From where to watch.
    version: Version,
    listed: bool,
    failures: u32,
    refusals: u32,
    /// No server answered the last time.
    away: bool,
    /// Everything was listed anew at once since a watch last did well.
    relisted: bool,
    /// Why it waits.
    trouble: Option<Failure>,
    /// The newest ticket, the newest that was answered, and the newest when the present list began.
    asked: u64,
    agreed: u64,
    list_answers: u64,
    /// The newest ticket for which a wait was cut short.
    hurried: u64,
    looking: Option<Looking>,
    compare_at_ms: u64,
    counts: Counts,
    outs: Vec<Out>,
}

impl KindWatch {
    /// Of a kind that nothing is known of. It wants a list at once.
    pub fn new(kind: &'static Kind, pace: Pace, moment: Moment) -> KindWatch {
        let mut watch = KindWatch {
            kind,
            pace,
            phase: Phase::Listing { streaming: true },
            store: Store::new(kind.name),
            served: 0,
            streaming: Streaming::Yes,
            wanted: None,
            last_id: 0,
            version: Version::default(),
            listed: false,
            failures: 0,
            refusals: 0,
            away: false,
            relisted: false,
            trouble: None,
            asked: 0,
            agreed: 0,
            list_answers: 0,
            hurried: 0,
            looking: None,
            compare_at_ms: u64::MAX,
            counts: Counts::default(),
            outs: Vec::new(),
        };
        watch.list(moment);
        watch
    }

    /// The version of the API that is asked for.
    pub fn api_version(&self) -> String {
        self.kind.api_version(self.kind.versions.get(self.served).copied().unwrap_or_default())
    }

    /// The list or watch that is wanted, with its number.
    pub fn request(&self) -> Option<(RequestId, &Request)> {
        self.wanted.as_ref().map(|(id, request)| (*id, request))
    }

    /// The page of uids and versions that is wanted beside it: its number, and where it goes on.
    pub fn look(&self) -> Option<(RequestId, Option<&str>)> {
        let (id, continues) = self.looking.as_ref()?.page.as_ref()?;
        Some((*id, continues.as_deref()))
    }

    /// When [`KindWatch::tick`] has something to do.
    pub fn wake_at(&self) -> Option<u64> {
        let wait = match &self.phase {
            Phase::Waiting { until_ms, .. } => Some(*until_ms),
            _ => None,
        };
        let looking = self.looking.as_ref();
        let again = looking.and_then(|looking| looking.again_ms);
        let deadline = looking.and_then(|looking| looking.deadline_ms);
        let compare = (self.is_watching() && looking.is_none()).then_some(self.compare_at_ms);
        [wait, again, deadline, compare].into_iter().flatten().min()
    }

    /// What came of it since the last call, in order.
    pub fn take(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.outs)
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        match self.phase {
            Phase::Listing { .. } => Standing::Listing,
            Phase::Watching { .. } => Standing::Watching,
            Phase::Waiting { absent: true, .. } => Standing::Absent,
            Phase::Waiting { .. } => Standing::Waiting,
        }
    }

    /// What failed last, while nothing has succeeded since.
    pub fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref()
    }

    /// Whether a list was read to its end.
    pub fn has_listed(&self) -> bool {
        self.listed
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.store.len()
    }

    /// What is counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watching { .. })
    }

    fn want(&mut self, request: Request) {
        self.last_id += 1;
        self.wanted = Some((self.last_id, request));
    }

    fn list(&mut self, moment: Moment) {
        let streaming = self.streaming == Streaming::Yes;
        self.phase = Phase::Listing { streaming };
        self.looking = None;
        self.list_answers = self.asked;
        self.store.begin_list();
        self.want(match streaming {
            true => Request::Follow { from: None, seconds: self.seconds(moment) },
            false => Request::Page { limit: self.pace.page, continues: None },
        });
    }

    fn watch(&mut self, moment: Moment) {
        self.phase = Phase::Watching { since_ms: moment.now_ms, heard: false };
        self.want(Request::Follow { from: Some(self.version.clone()), seconds: self.seconds(moment) });
    }

    fn seconds(&self, moment: Moment) -> u32 {
        let seconds = moment.spread(u64::from(self.pace.watch_s) * 1000) / 1000;
        u32::try_from(seconds).unwrap_or(self.pace.watch_s).max(1)
    }

    fn wait(&mut self, moment: Moment, then: Then, at_least_ms: u64) {
        let longest = if self.away { self.pace.longest_away_ms } else { self.pace.longest_wait_ms };
        let grown = self.pace.first_wait_ms.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let wait = moment.spread(grown.min(longest)).max(at_least_ms);
        self.wanted = None;
        self.phase = Phase::Waiting { until_ms: moment.now_ms.saturating_add(wait), then, absent: false };
    }

    /// The server has begun to answer a watch.
    pub fn opened(&mut self) {
        self.trouble = None;
        self.answered();
    }

    /// Whatever fails from now on has nothing to do with what failed before.
    fn did_well(&mut self) {
        (self.failures, self.relisted) = (0, false);
    }

    /// There is a server, whatever it says.
    fn answered(&mut self) {
        if std::mem::take(&mut self.away) {
            self.failures = self.failures.min(FAILURES_OF_A_RETURN);
        }
    }

    /// A page of a list came. `continues` is where the next one begins.
    pub fn page(&mut self, moment: Moment, items: Vec<Item>, version: Version, continues: Option<String>) {
        let Phase::Listing { streaming: false } = self.phase else { return };
        items.into_iter().for_each(|item| self.store.list_put(item));
        match continues {
            Some(_) => self.want(Request::Page { limit: self.pace.page, continues }),
            None => {
                self.listed(moment, version);
                self.watch(moment);
            }
        }
        self.consider(moment);
    }

    /// Events of a watch came.
    pub fn events(&mut self, moment: Moment, events: Vec<Event>) {
        for event in events {
            match &mut self.phase {
                Phase::Listing { streaming: true } => self.initial(moment, event),
                Phase::Watching { heard, .. } => {
                    *heard = true;
                    self.refusals = 0;
                    self.did_well();
                    self.event(event);
                }
                _ => {}
            }
        }
        self.flush();
        self.settle_looking(moment);
        self.consider(moment);
    }

    /// An event of a list that comes as a stream.
    fn initial(&mut self, moment: Moment, event: Event) {
        match event {
            Event::Put(item) => self.store.list_put(item),
            Event::Gone(end) => self.store.list_gone(&end),
            Event::Bookmark { version, initial_end: true } => {
                self.listed(moment, version);
                // The stream goes on as a watch.
                self.phase = Phase::Watching { since_ms: moment.now_ms, heard: false };
            }
            Event::Bookmark { .. } => {}
        }
    }

    fn event(&mut self, event: Event) {
        let (key, version) = match event {
            Event::Put(item) => {
                let (key, version) = (item.key.clone(), item.version.clone());
                self.store.put(item);
                (Some(key), version)
            }
            Event::Gone(end) => {
                let (key, version) = (end.key.clone(), end.version.clone());
                self.store.gone(end);
                (Some(key), version)
            }
            Event::Bookmark { version, .. } => {
                // A comparison needs to know what ended while it goes on.
                if self.looking.is_none() {
                    self.store.raise_floor(&version);
                }
                (None, version)
            }
        };
        if version.supersedes(&self.version) {
            self.version = version;
        }
        if let (Some(looking), Some(key)) = (&mut self.looking, key) {
            looking.comparison.touched(&key, &self.store);
        }
    }

    /// A list is complete.
    fn listed(&mut self, moment: Moment, version: Version) {
        let changes = self.store.end_list(&version);
        self.version = version;
        self.counts.lists += 1;
        if self.streaming == Streaming::NotNow {
            self.streaming = Streaming::Yes;
        }
        self.arrived(moment, changes, false);
    }

    /// All that there is, is known.
    fn arrived(&mut self, moment: Moment, changes: Vec<Change>, missing: bool) {
        self.listed = true;
        self.trouble = None;
        self.compare_at_ms = moment.now_ms.saturating_add(moment.spread(self.pace.compare_ms));
        self.outs.push(Out::Listed { changes, objects: self.store.len(), missing });
        self.flush();
        self.answer(self.list_answers);
    }

    fn answer(&mut self, ticket: u64) {
        if ticket > self.agreed {
            self.agreed = ticket;
            self.outs.push(Out::Agreed(ticket));
        }
    }

    fn flush(&mut self) {
        let changes = self.store.take_changes();
        if !changes.is_empty() {
            self.outs.push(Out::Observed(changes));
        }
        let findings = self.store.take_findings();
        if !findings.is_empty() {
            self.outs.push(Out::Findings(findings));
        }
    }

    /// A watch ended properly.
    pub fn ended(&mut self, moment: Moment) {
        match self.phase {
            Phase::Watching { since_ms, heard } => {
                *self.counts.restarts.entry("ended").or_default() += 1;
                if heard || moment.now_ms >= since_ms.saturating_add(LASTED_MS) {
                    self.did_well();
                    self.watch(moment);
                } else {
                    self.wait(moment, Then::Watch, 0);
                }
                self.consider(moment);
            }
            Phase::Listing { .. } => self.failed(moment, Failure::new(Class::Broken, "the list ended before its end")),
            Phase::Waiting { .. } => {}
        }
    }

    /// A list or a watch failed.
    pub fn failed(&mut self, moment: Moment, failure: Failure) {
        *self.counts.restarts.entry(failure.class.as_str()).or_default() += 1;
        match failure.class {
            Class::Unreachable => self.away = true,
            _ => self.answered(),
        }
        match self.phase {
            Phase::Listing { streaming } => self.list_failed(moment, failure, streaming),
            Phase::Watching { since_ms, .. } => {
                if moment.now_ms >= since_ms.saturating_add(LASTED_MS) {
                    self.did_well();
                }
                self.watch_failed(moment, failure);
            }
            Phase::Waiting { .. } => {}
        }
        self.consider(moment);
    }

    fn list_failed(&mut self, moment: Moment, failure: Failure, streaming: bool) {
        self.store.begin_list();
        match failure.class {
            // Of a version that is not served another one may be.
            Class::NotServed if self.served + 1 < self.kind.versions.len() => {
                self.served += 1;
                return self.list(moment);
            }
            Class::NotServed => {
                self.served = 0;
                if self.kind.is_optional() {
                    return self.absent(moment);
                }
            }
            Class::Refused(400 | 405 | 406 | 415 | 422) if streaming => {
                self.streaming = Streaming::Never;
                return self.list(moment);
            }
            Class::Refused(_) | Class::Broken | Class::Silent if streaming => self.streaming = Streaming::NotNow,
            _ => {}
        }
        let at_least = failure.retry_after_ms;
        self.trouble = Some(failure);
        self.wait(moment, Then::List, at_least);
    }

    fn watch_failed(&mut self, moment: Moment, failure: Failure) {
        let answered = matches!(failure.class, Class::Refused(_));
        self.refusals = if answered { self.refusals + 1 } else { 0 };
        let then = match failure.class {
            Class::Expired | Class::NotServed => Then::List,
            _ if self.refusals >= REFUSALS => Then::List,
            _ => Then::Watch,
        };
        if failure.class == Class::NotServed {
            self.served = 0;
        }
        let at_least = failure.retry_after_ms;
        // Once, so that a server whose lists are too old for its own watches is not asked without a pause.
        if then == Then::List && at_least == 0 && !std::mem::replace(&mut self.relisted, true) {
            return self.list(moment);
        }
        self.trouble = Some(failure);
        self.wait(moment, then, at_least);
    }

    /// The server serves no version of the kind: there are no objects of it.
    fn absent(&mut self, moment: Moment) {
        self.failures = 0;
        let news = !self.listed || !self.store.is_empty() || self.list_answers > self.agreed;
        if news {
            let changes = self.store.end_list(&Version::default());
            self.arrived(moment, changes, true);
        }
        self.trouble = None;
        self.wanted = None;
        let until_ms = moment.now_ms.saturating_add(moment.spread(self.pace.absent_ms));
        self.phase = Phase::Waiting { until_ms, then: Then::List, absent: true };
    }

    fn go(&mut self, moment: Moment, then: Then) {
        match then {
            Then::List => self.list(moment),
            Then::Watch => self.watch(moment),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, moment: Moment) {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= moment.now_ms);
        if let Phase::Waiting { until_ms, then, .. } = self.phase
            && until_ms <= moment.now_ms
        {
            self.go(moment, then);
        }
        if let Some(looking) = &mut self.looking {
            if due(looking.deadline_ms) {
                *self.counts.restarts.entry("differs").or_default() += 1;
                self.list(moment);
            } else if due(looking.again_ms) {
                self.last_id += 1;
                looking.again_ms = None;
                looking.page = Some((self.last_id, None));
            }
        } else if self.is_watching() && self.compare_at_ms <= moment.now_ms {
            self.begin_looking();
        }
        self.consider(moment);
    }
}

#[cfg(test)]
mod tests;
