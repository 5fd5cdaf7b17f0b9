//! Admission control: how many agents may be brought up from an unknown base at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use journal::mutants::{self, Mutant};

/// Counts transfers of whole buckets under way, over all fleets of one controller. Empty agents come first: a share of
/// the places is kept for them.
#[derive(Debug)]
pub struct Admission {
    busy: AtomicUsize,
    places: usize,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission::new(64)
    }
}

impl Admission {
    /// So many places; at least two.
    pub fn new(places: usize) -> Admission {
        Admission { busy: AtomicUsize::new(0), places: places.max(2) }
    }

    /// A place until the answer is dropped; `None` when all are taken. `cold`: the agent has nothing at all.
    pub fn admit(self: &Arc<Admission>, cold: bool) -> Option<Admitted> {
        let limit = if cold { self.places } else { self.places / 2 };
        let more = |busy| (busy < limit || mutants::active(Mutant::HerdIsLetIn)).then_some(busy + 1);
        self.busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Admitted(Arc::clone(self)))
    }
}

/// A place, given back when dropped.
#[derive(Debug)]
pub struct Admitted(Arc<Admission>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}
