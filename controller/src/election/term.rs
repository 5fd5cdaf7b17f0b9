//! Until when our lead holds, for everybody who acts in its name.
//!
//! The election tells of the end of a lead, but a process that was stopped may serve agents before the election runs again.
//! So whoever acts looks here first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The end of our lead, by a clock that never goes back and that goes on while the process is stopped.
#[derive(Debug)]
pub struct Term {
    began: Instant,
    /// In milliseconds of that clock.
    until: AtomicU64,
}

impl Term {
    /// A lead that has no end: there is no other controller.
    pub fn endless() -> Term {
        Term { began: Instant::now(), until: AtomicU64::new(u64::MAX) }
    }

    /// No lead yet.
    pub fn none() -> Term {
        Term { began: Instant::now(), until: AtomicU64::new(0) }
    }

    /// Its clock, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When its clock shows so many milliseconds.
    pub fn at(&self, ms: u64) -> Option<Instant> {
        self.began.checked_add(std::time::Duration::from_millis(ms))
    }

    /// The lead holds until then; none: there is none.
    pub fn set(&self, until_ms: Option<u64>) {
        // Read by others without a lock; the role that goes with it comes after, over a channel.
        self.until.store(until_ms.unwrap_or(0), Ordering::Release);
    }

    /// Whether it holds at this moment.
    pub fn holds(&self) -> bool {
        self.now_ms() < self.until.load(Ordering::Acquire)
    }
}
