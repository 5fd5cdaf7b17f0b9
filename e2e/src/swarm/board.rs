//! What the agents of a swarm have reached, and when the last of them reached it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use journal::Digest;
use push::Version;

/// What one agent holds.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    epoch: u64,
    generation: u64,
    /// What it was told to run.
    target: u64,
    sets: usize,
    live: bool,
    /// What it holds: the roots of its configuration and of its member sets.
    roots: Option<(Digest, Digest)>,
    /// The highest version that it ever ran.
    highest: Version,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The acknowledgement of a member set that holds this serial or a later one.
    Serial(u64),
    /// The verdict about a generation above this one.
    Above(u64),
}

#[derive(Debug, Default)]
struct State {
    agents: Vec<Reached>,
    mark: Option<Mark>,
    /// The agents that passed the mark.
    passed: Vec<bool>,
    count: usize,
    last: Option<Instant>,
    counts: Counts,
    staleness: Option<Staleness>,
    reached_at: Option<Instant>,
}

/// Messages since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Changes of member sets.
    pub members: u64,
    /// Configurations that came over the wire.
    pub transfers: u64,
    /// Their bytes, with those of the member messages.
    pub payload: u64,
    /// Streams that were served.
    pub welcomes: u64,
    /// Streams that ended.
    pub ends: u64,
    /// Times that an agent ran something lower than before, or was served in a lower epoch.
    pub back: u64,
}

/// How old the newest state was when an agent acknowledged it, one figure for each change and agent.
#[derive(Debug)]
struct Staleness {
    /// When each serial was written, from the first one on; the sets take turns, so many of them.
    first: u64,
    sets: u64,
    written: Vec<Instant>,
    /// Counts by 100 microseconds.
    buckets: Vec<u64>,
    samples: u64,
}

/// How often [`Board::wait_current`] looks.
const LOOK: Duration = Duration::from_millis(5);
const BUCKET: Duration = Duration::from_micros(100);
const BUCKETS: usize = 100_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_agent(&self, agent: usize, change: impl FnOnce(&mut State, usize)) {
        let mut state = self.lock();
        if state.agents.len() <= agent {
            state.agents.resize(agent + 1, Reached::default());
            state.passed.resize(agent + 1, false);
        }
        change(&mut state, agent);
        drop(state);
    }

    fn pass(&self, state: &mut State, agent: usize) {
        if !std::mem::replace(&mut state.passed[agent], true) {
            state.count += 1;
            state.last = Some(Instant::now());
            self.changed.notify_all();
        }
    }

    /// A controller serves this agent and wants this generation of it.
    pub fn welcomed(&self, agent: usize, target: Version) {
        self.with_agent(agent, |state, agent| {
            state.counts.welcomes += 1;
            let entry = &mut state.agents[agent];
            entry.live = true;
            let back = target.epoch < entry.highest.epoch;
            (entry.epoch, entry.target) = (target.epoch, target.generation);
            entry.generation = 0;
            state.counts.back += u64::from(back);
            self.changed.notify_all();
        });
    }

    /// The stream of this agent ended.
    pub fn ended(&self, agent: usize) {
        self.with_agent(agent, |state, agent| {
            state.counts.ends += u64::from(state.agents[agent].live);
            state.agents[agent].live = false;
        });
    }

    /// This agent runs a version and said so.
    pub fn applied(&self, agent: usize, version: Version) {
        self.with_agent(agent, |state, agent| {
            let entry = &mut state.agents[agent];
            (entry.epoch, entry.generation) = (version.epoch, version.generation);
            entry.target = entry.target.max(version.generation);
            let back = version < entry.highest;
            entry.highest = entry.highest.max(version);
            state.counts.back += u64::from(back);
            state.reached_at = Some(Instant::now());
            if matches!(state.mark, Some(Mark::Above(above)) if version.generation > above) {
                self.pass(state, agent);
            }
            self.changed.notify_all();
        });
    }

    /// This agent acknowledged a member set; `was` and `now` are the serials that the set named before and names now.
    pub fn members(&self, agent: usize, was: u64, now: u64, sets: usize) {
        self.with_agent(agent, |state, agent| {
            let grew = std::mem::replace(&mut state.agents[agent].sets, sets) != sets;
            if matches!(state.mark, Some(Mark::Serial(serial)) if now >= serial) {
                self.pass(state, agent);
            }
            if let Some(staleness) = &mut state.staleness {
                staleness.sample(was, now);
            }
            if grew {
                state.reached_at = Some(Instant::now());
                self.changed.notify_all();
            }
        });
    }

    /// What this agent holds now: the roots of its configuration and of its member sets.
    pub fn holds(&self, agent: usize, root: Digest, member_root: Digest) {
        self.with_agent(agent, |state, agent| state.agents[agent].roots = Some((root, member_root)));
    }

    /// How many agents have a stream that is served and hold this.
    pub fn holding(&self, roots: (Digest, Digest)) -> usize {
        self.lock().agents.iter().filter(|agent| agent.live && agent.roots == Some(roots)).count()
    }

    /// How many agents are served in this epoch or a later one.
    pub fn served(&self, epoch: u64) -> usize {
        self.lock().agents.iter().filter(|agent| agent.live && agent.epoch >= epoch).count()
    }

    /// The highest epoch that an agent is served in.
    pub fn epoch(&self) -> u64 {
        self.lock().agents.iter().map(|agent| agent.epoch).max().unwrap_or(0)
    }

    /// Counts a message.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.lock().counts);
    }

    /// The messages so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// The highest generation that an agent runs.
    pub fn generation(&self) -> u64 {
        self.lock().agents.iter().map(|agent| agent.generation).max().unwrap_or(0)
    }

    /// Begins to wait for a mark. Call it before the change.
    pub fn expect(&self, mark: Mark) {
        let mut state = self.lock();
        state.mark = Some(mark);
        state.passed.fill(false);
        (state.count, state.last) = (0, None);
    }

    /// Waits until so many agents passed the mark; gives when the last one did.
    pub fn wait_passed(&self, agents: usize, limit: Duration) -> Option<Instant> {
        let state = self.lock();
        let (state, timeout) = self
            .changed
            .wait_timeout_while(state, limit, |state| state.count < agents)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { None } else { state.last }
    }

    /// Waits until so many agents run what they were told, in this epoch or a later one, with so many member sets. Looks
    /// now and then only, so that waiting takes little from what is measured; [`Board::reached_at`] is exact.
    pub fn wait_current(&self, epoch: u64, sets: usize, agents: usize, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let state = self.lock();
            let target = state.agents.iter().map(|agent| (agent.epoch, agent.target)).max().unwrap_or_default();
            let current = |agent: &&Reached| {
                agent.live && agent.epoch >= epoch && (agent.epoch, agent.generation) >= target && agent.sets >= sets
            };
            if state.agents.iter().filter(current).count() >= agents {
                return true;
            }
            drop(state);
            if Instant::now() > end {
                return false;
            }
            // sleep: looks again until it holds, within the limit.
            std::thread::sleep(LOOK);
        }
    }

    /// When an agent last reached a configuration or a further member set.
    pub fn reached_at(&self) -> Option<Instant> {
        self.lock().reached_at
    }

    /// Where the agents are, for people.
    pub fn describe(&self) -> String {
        let state = self.lock();
        let live = state.agents.iter().filter(|agent| agent.live).count();
        let least = state.agents.iter().map(|agent| (agent.epoch, agent.generation, agent.sets)).min();
        format!("{live} live, the least has (epoch, generation, sets) {least:?}, {:?}", state.counts)
    }

    /// Begins to measure staleness, for serials from this one on, which so many sets take in turn.
    pub fn measure_staleness(&self, first: u64, sets: u64) {
        let (written, buckets) = (Vec::new(), vec![0; BUCKETS]);
        self.lock().staleness = Some(Staleness { first, sets, written, buckets, samples: 0 });
    }

    /// The next serial is written now.
    pub fn written(&self) {
        if let Some(staleness) = &mut self.lock().staleness {
            staleness.written.push(Instant::now());
        }
    }

    /// How many figures there are.
    pub fn samples(&self) -> u64 {
        self.lock().staleness.as_ref().map_or(0, |staleness| staleness.samples)
    }

    /// The percentiles of staleness (shares of 1), to 0.1 ms.
    pub fn staleness(&self, shares: &[f64]) -> Vec<Duration> {
        let state = self.lock();
        let Some(staleness) = &state.staleness else { return Vec::new() };
        shares.iter().map(|share| staleness.percentile(*share)).collect()
    }
}

impl Staleness {
    /// With this acknowledgement the serials of a set above `was`, up to `now`, came to be current. What was shown before
    /// was as old as the first of them.
    fn sample(&mut self, was: u64, now: u64) {
        if now <= was || now < self.first {
            return;
        }
        let oldest = if was >= self.first { was + self.sets } else { self.first + (now - self.first) % self.sets };
        let index = usize::try_from(oldest - self.first).unwrap_or(usize::MAX);
        let Some(written) = self.written.get(index) else { return };
        let age = written.elapsed();
        let bucket = usize::try_from(age.as_nanos() / BUCKET.as_nanos()).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.samples += 1;
    }

    fn percentile(&self, share: f64) -> Duration {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among counted samples"
        )]
        let rank = (self.samples as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return BUCKET * u32::try_from(bucket + 1).unwrap_or(u32::MAX);
            }
        }
        Duration::ZERO
    }
}
