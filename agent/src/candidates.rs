//! Which controller is tried next, and when. No I/O, no clock, no randomness: time comes in as milliseconds of any clock that
//! never goes back, randomness as a number.
//!
//! A *round* is one attempt at each candidate. Within a round the next one follows at once; only a whole round without
//! success makes the wait before the next round longer.

use std::collections::VecDeque;

use crate::backoff::{asked_for_ms, wait_ms};
use crate::bootstrap::Addresses;

/// The most candidates that are kept. More is not a set of replicas.
pub const MOST: usize = 64;
/// So many attempts within a second at most, or one for each candidate where there are more.
pub const ATTEMPTS_PER_SECOND: usize = 10;
/// The longest pause between two candidates of one round, in milliseconds: not all agents come to the next one at once.
const JITTER_MS: u64 = 100;
/// The longest wait between two rounds, in milliseconds, while some replica answers: one of them is about to lead.
const LONGEST_ANSWERED_MS: u64 = 2_000;
/// The longest wait between two rounds otherwise.
const LONGEST_MS: u64 = 10_000;
/// A candidate that failed is not gone to by hint for so long, in milliseconds: who gave the hint has not noticed yet. One that was
/// silent has no turn either while another one answers: waiting for it keeps from those that are about to lead.
const RECENT_MS: u64 = 2_000;
/// An agent turns from a leader that is not sure at most so often, in milliseconds: another one may still send it back.
const TURN_MS: u64 = 1_000;
/// The shortest wait after an answer without a way to go on, in milliseconds.
const LEAST_RETRY_MS: u64 = 50;
/// How long to wait after a newer session of this identity took over, in milliseconds.
const SUPERSEDED_MS: u64 = 5_000;
/// So many times in a row an agent comes back to a candidate that asks for it.
const COME_BACK: u32 = 8;
/// The first limits of an attempt among several candidates, in milliseconds; they double with each round that failed.
const CONNECT_MS: u64 = 1_000;
const ANSWER_MS: u64 = 2_000;
/// The longest limits, and those of an only candidate.
const LONGEST_CONNECT_MS: u64 = 10_000;
const LONGEST_ANSWER_MS: u64 = 15_000;

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Whom to connect to.
    pub address: Addresses,
    /// How long TCP, TLS and the opening of the stream may take together, in milliseconds.
    pub connect_ms: u64,
    /// How long the first answer to Hello may take, in milliseconds.
    pub answer_ms: u64,
}

/// How an attempt, or the stream that came of it, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It could not be reached, or said nothing that can be used.
    Failed,
    /// It said nothing for as long as it may.
    Silent,
    /// It had answered, and then the stream was lost.
    Lost,
    /// It does not lead.
    NotLeader {
        /// Who does, if it knows.
        leader_address: Option<String>,
        /// How long it asks to wait, in milliseconds.
        retry_ms: u64,
    },
    /// It leads, and has no place at the moment.
    RetryAfter {
        /// How long it asks to wait, in milliseconds.
        ms: u64,
    },
    /// A newer session of this identity took over.
    Superseded,
}

#[derive(Debug)]
struct Candidate {
    address: Addresses,
    failed_at: Option<u64>,
    /// It failed by saying nothing.
    silent: bool,
    /// In this round.
    tried: bool,
    /// It sent the agent elsewhere, and no other kind of answer came since.
    hinted: bool,
}

impl Candidate {
    fn failed_lately(&self, now: u64) -> bool {
        self.failed_at.is_some_and(|at| now.saturating_sub(at) < RECENT_MS)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Candidates {
    list: Vec<Candidate>,
    /// The one that was tried last.
    current: usize,
    /// The one that is next, and the earliest time for it.
    planned: usize,
    due: u64,
    /// Rounds that failed since the last service.
    rounds: u32,
    /// Whether any candidate answered in this round.
    answered: bool,
    came_back: u32,
    /// Its stream stays while another candidate is looked for, so it is not tried meanwhile.
    beside: Option<usize>,
    /// When it last turned from a leader that was not sure.
    turned_at: Option<u64>,
    /// The times of the last attempts.
    recent: VecDeque<u64>,
}

impl Candidates {
    /// Takes these instead of those before; what is known of the ones that stay is kept. The first of all is drawn, so that
    /// agents that start together do not all come to one controller.
    pub fn replace(&mut self, addresses: Vec<Addresses>, dice: u64) {
        if addresses.len() == self.list.len() && self.list.iter().zip(&addresses).all(|(old, new)| old.address == *new)
        {
            return;
        }
        let place = |list: &[Candidate], at: usize| list.get(at).map(|candidate| candidate.address.clone());
        let (current, planned) = (place(&self.list, self.current), place(&self.list, self.planned));
        let mut old = std::mem::take(&mut self.list);
        for address in addresses.into_iter().take(MOST) {
            if self.list.iter().any(|known| known.address == address) {
                continue;
            }
            let known = old.iter().position(|known| known.address == address).map(|at| old.swap_remove(at));
            self.list.push(known.unwrap_or(Candidate {
                address,
                failed_at: None,
                silent: false,
                tried: false,
                hinted: false,
            }));
        }
        let find =
            |wanted: Option<Addresses>| self.list.iter().position(|known| Some(&known.address) == wanted.as_ref());
        let anyone = usize::try_from(dice % self.list.len().max(1) as u64).unwrap_or(0);
        let fresh = self.list.iter().position(|known| !known.tried).unwrap_or(anyone);
        let first = planned.is_none();
        let planned = find(planned).unwrap_or(if first { anyone } else { fresh });
        (self.current, self.planned) = (find(current).unwrap_or(planned), planned);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a whole round just failed: it is time to look whether the names stand for other addresses now.
    pub fn all_failed(&self) -> bool {
        self.rounds > 0 && self.list.iter().all(|candidate| !candidate.tried)
    }

    /// The one that was tried last.
    pub fn current(&self) -> Option<&Addresses> {
        self.list.get(self.current).map(|candidate| &candidate.address)
    }

    /// The earliest time for [`Candidates::next`].
    pub fn due(&self) -> u64 {
        let most = ATTEMPTS_PER_SECOND.max(self.list.len());
        let pace = self.recent.len().checked_sub(most).and_then(|at| self.recent.get(at));
        self.due.max(pace.map_or(0, |at| at.saturating_add(1_000)))
    }

    /// Begins the next attempt; none without candidates. Its end has to be told to [`Candidates::ended`].
    pub fn next(&mut self, now: u64) -> Option<Attempt> {
        let candidate = self.list.get(self.planned)?;
        self.current = self.planned;
        self.recent.push_back(now);
        if self.recent.len() > ATTEMPTS_PER_SECOND.max(self.list.len()) {
            self.recent.pop_front();
        }
        let several = self.list.len() > 1;
        let limit = |first: u64, longest: u64| {
            if several { first.saturating_mul(1 << self.rounds.min(16)).min(longest) } else { longest }
        };
        Some(Attempt {
            address: candidate.address.clone(),
            connect_ms: limit(CONNECT_MS, LONGEST_CONNECT_MS),
            answer_ms: limit(ANSWER_MS, LONGEST_ANSWER_MS),
        })
    }

    /// The attempt, or the stream that came of it, is over. `served`: the candidate had served this agent.
    pub fn ended(&mut self, now: u64, dice: u64, served: bool, answer: &Answer) {
        self.beside = None;
        self.settle(now, dice, served, answer);
    }

    fn settle(&mut self, now: u64, dice: u64, served: bool, answer: &Answer) {
        if served {
            self.begin_round();
            self.rounds = 0;
        }
        let Some(candidate) = self.list.get_mut(self.current) else { return };
        candidate.tried = true;
        let failed = matches!(answer, Answer::Failed | Answer::Silent | Answer::Lost);
        candidate.failed_at = failed.then_some(now);
        candidate.silent = *answer == Answer::Silent;
        self.answered |= !matches!(answer, Answer::Failed | Answer::Silent);
        if !matches!(answer, Answer::NotLeader { .. }) {
            self.list.iter_mut().for_each(|candidate| candidate.hinted = false);
        }
        match answer {
            Answer::Failed | Answer::Silent | Answer::Lost => self.go_on(now, dice, 0),
            Answer::NotLeader { leader_address, retry_ms } => {
                if let Some(leader) = leader_address.as_deref().and_then(|hint| self.leader(hint, now)) {
                    self.list[self.current].hinted = true;
                    self.plan(leader, now, dice % (JITTER_MS + 1));
                } else {
                    self.list.iter_mut().for_each(|candidate| candidate.hinted = false);
                    let wait = asked_for_ms((*retry_ms).clamp(LEAST_RETRY_MS, LONGEST_ANSWERED_MS), dice);
                    self.go_on(now, dice, wait);
                }
            }
            Answer::RetryAfter { ms } => self.come_back(now, dice, asked_for_ms(*ms, dice)),
            Answer::Superseded => self.come_back(now, dice, asked_for_ms(SUPERSEDED_MS, dice)),
        }
    }

    /// The candidate that serves, or served, is not sure to lead: plans an attempt at another one. False when there is none.
    /// Its stream stays until another candidate can be reached.
    pub fn turn_from_current(&mut self, now: u64, dice: u64) -> bool {
        if self.list.len() < 2 {
            return false;
        }
        self.begin_round();
        self.rounds = 0;
        (self.answered, self.beside) = (true, Some(self.current));
        self.list[self.current].tried = true;
        // Nobody may be sure for a while: the agent does not run in circles meanwhile.
        let wait = self.turned_at.map_or(0, |at| at.saturating_add(TURN_MS).saturating_sub(now));
        self.turned_at = Some(now.saturating_add(wait));
        self.go_on(now, dice, wait);
        true
    }

    /// A candidate could not be reached while another one's stream, which is not sure, stays.
    pub fn ended_beside(&mut self, now: u64, dice: u64, answer: &Answer) {
        self.settle(now, dice, false, answer);
    }

    /// The look around is over: this candidate's stream is what the next end is about.
    pub fn stay_with(&mut self, address: &Addresses) {
        if let Some(at) = self.list.iter().position(|known| known.address == *address) {
            self.current = at;
        }
        self.beside = None;
    }

    fn begin_round(&mut self) {
        self.list.iter_mut().for_each(|candidate| candidate.tried = false);
        self.answered = false;
    }

    fn plan(&mut self, next: usize, now: u64, wait: u64) {
        (self.planned, self.due) = (next, now.saturating_add(wait));
        self.came_back = 0;
    }

    /// To the same one again, unless it has asked for that too often.
    fn come_back(&mut self, now: u64, dice: u64, wait: u64) {
        let came_back = self.came_back + 1;
        if came_back > COME_BACK && self.list.len() > 1 {
            return self.go_on(now, dice, wait);
        }
        self.plan(self.current, now, wait);
        self.came_back = came_back;
    }

    /// To the next one of this round, or to the next round.
    fn go_on(&mut self, now: u64, dice: u64, wait: u64) {
        let count = self.list.len();
        let following = || (1..=count).map(|step| (self.current + step) % count).filter(|at| Some(*at) != self.beside);
        let is_shunned = |at: &usize| self.answered && self.list[*at].silent && self.list[*at].failed_lately(now);
        if let Some(next) = following().find(|at| !self.list[*at].tried && !is_shunned(at)) {
            return self.plan(next, now, wait.max(dice % (JITTER_MS + 1)));
        }
        let first = following().find(|at| !is_shunned(at)).or_else(|| following().next()).unwrap_or(self.current);
        let longest = if self.answered { LONGEST_ANSWERED_MS } else { LONGEST_MS };
        let pause = wait_ms(self.rounds, longest, dice);
        self.begin_round();
        // While a stream stays, a replica is there, and one of them is about to be sure.
        self.answered = self.beside.is_some();
        self.rounds = self.rounds.saturating_add(1);
        self.plan(first, now, wait.max(pause));
    }

    /// The candidate that a hint means, if it is one to go to now.
    fn leader(&self, hint: &str, now: u64) -> Option<usize> {
        let exact = self.list.iter().position(|known| known.address.push == hint);
        let host = host_of(hint);
        let named =
            || self.list.iter().position(|known| host_of(&known.address.push) == host || known.address.host == host);
        let leader = exact.or_else(named).filter(|at| *at != self.current)?;
        let candidate = &self.list[leader];
        (!candidate.hinted && !candidate.failed_lately(now)).then_some(leader)
    }
}

/// The host of `host:port`, `[v6]:port`, or of an address without a port.
pub fn host_of(address: &str) -> &str {
    let address = address.trim();
    if let Some((host, _)) = address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    match address.rsplit_once(':') {
        Some((host, _)) if !host.contains(':') => host,
        _ => address,
    }
}

#[cfg(test)]
mod tests;
