//! What one agent refused: the same root is not sent to it again, or, if it was a passing fault, ever more slowly.

use std::collections::VecDeque;

use journal::Digest;
use journal::mutants::{self, Mutant};

/// Roots that are remembered for each agent.
const ROOTS: usize = 64;
/// The wait after the first passing refusal, in milliseconds; it doubles from there.
const FIRST_WAIT_MS: u64 = 250;
/// The longest wait, in milliseconds.
const LONGEST_WAIT_MS: u64 = 30_000;

/// When a root may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Now.
    Now,
    /// From this moment on, in milliseconds.
    At(u64),
    /// Not again.
    Never,
}

#[derive(Debug)]
struct Refused {
    root: Digest,
    retry: Retry,
    times: u32,
}

/// The refusals of one agent.
#[derive(Debug, Default)]
pub struct Refusals {
    scalwsd_version: String,
    refused: VecDeque<Refused>,
}

impl Refusals {
    /// Another `scalwsd` may accept what the last one refused.
    pub(super) fn of_version(&mut self, version: &str) {
        if self.scalwsd_version != version {
            self.scalwsd_version = version.to_owned();
            self.refused.clear();
        }
    }

    /// Takes note of a refusal at this moment.
    pub fn add(&mut self, root: Digest, transient: bool, now: u64) {
        let position = self.refused.iter().position(|refused| refused.root == root);
        let times = position.and_then(|at| self.refused.remove(at)).map_or(0, |refused| refused.times);
        let wait = FIRST_WAIT_MS.saturating_mul(1 << times.min(16)).min(LONGEST_WAIT_MS);
        let retry = if transient { Retry::At(now.saturating_add(wait)) } else { Retry::Never };
        if self.refused.len() >= ROOTS {
            self.refused.pop_front();
        }
        self.refused.push_back(Refused { root, retry, times: times.saturating_add(1) });
    }

    /// Forgets a root which the agent applied.
    pub fn applied(&mut self, root: &Digest) {
        self.refused.retain(|refused| refused.root != *root);
    }

    /// Whether and when this root may be sent.
    pub fn retry(&self, root: &Digest) -> Retry {
        let same = |refused: &&Refused| refused.root == *root || mutants::active(Mutant::NoRecoveryAfterTheFix);
        self.refused.iter().find(same).map_or(Retry::Now, |refused| refused.retry)
    }
}
