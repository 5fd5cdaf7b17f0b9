//! Proof that nothing was missed: a comparison with a list of uids and versions, beside the watch.

use super::super::comparison::Comparison;
use super::super::failure::{Class, Failure};
use super::super::held::Trace;
use super::super::talk::{Moment, Out, RequestId};
use super::super::version::Version;
use super::{KindWatch, Phase};

/// A comparison that is under way.
#[derive(Debug)]
pub(super) struct Looking {
    /// What it answers.
    pub(super) ticket: u64,
    pub(super) comparison: Comparison,
    /// The page that is wanted; none while none is.
    pub(super) page: Option<(RequestId, Option<String>)>,
    /// When the list is tried again.
    pub(super) again_ms: Option<u64>,
    /// When everything is listed anew.
    pub(super) deadline_ms: Option<u64>,
    pub(super) failures: u32,
}

impl KindWatch {
    /// Asks for proof that everything that the API server has now has come out. Tickets grow.
    pub fn compare(&mut self, moment: Moment, ticket: u64) {
        self.asked = self.asked.max(ticket);
        self.consider(moment);
    }

    /// Does what a ticket wants that is not answered.
    pub(super) fn consider(&mut self, moment: Moment) {
        if self.asked <= self.agreed || self.looking.is_some() {
            return;
        }
        if let Phase::Waiting { then, .. } = self.phase
            && self.hurried < self.asked
        {
            self.hurried = self.asked;
            self.go(moment, then);
        }
        // The end of a list answers it, or comes here again.
        if self.is_watching() {
            self.begin_looking();
        }
    }

    pub(super) fn begin_looking(&mut self) {
        self.last_id += 1;
        self.looking = Some(Looking {
            ticket: self.asked,
            comparison: Comparison::default(),
            page: Some((self.last_id, None)),
            again_ms: None,
            deadline_ms: None,
            failures: 0,
        });
    }

    /// A page of uids and versions came.
    pub fn looked(&mut self, moment: Moment, traces: Vec<Trace>, version: Version, continues: Option<String>) {
        let Some(looking) = &mut self.looking else { return };
        looking.comparison.page(traces, version);
        if continues.is_some() {
            self.last_id += 1;
            looking.page = Some((self.last_id, continues));
            return;
        }
        looking.page = None;
        looking.comparison.complete(&self.store);
        looking.deadline_ms = Some(moment.now_ms.saturating_add(self.pace.differ_ms));
        self.settle_looking(moment);
        self.consider(moment);
    }

    /// A page of uids and versions failed.
    pub fn look_failed(&mut self, moment: Moment, failure: &Failure) {
        let Some(looking) = &mut self.looking else { return };
        if failure.class == Class::NotServed {
            return self.list(moment);
        }
        let grown = self.pace.first_wait_ms.saturating_mul(1 << looking.failures.min(20));
        let wait = moment.spread(grown.min(self.pace.longest_wait_ms)).max(failure.retry_after_ms);
        looking.failures = looking.failures.saturating_add(1);
        looking.page = None;
        looking.comparison = Comparison::default();
        looking.again_ms = Some(moment.now_ms.saturating_add(wait));
    }

    /// Ends a comparison that agrees.
    pub(super) fn settle_looking(&mut self, moment: Moment) {
        if let Some(looking) = self.looking.take_if(|looking| looking.comparison.agrees()) {
            self.counts.agreements += 1;
            self.compare_at_ms = moment.now_ms.saturating_add(moment.spread(self.pace.compare_ms));
            self.outs.push(Out::Listed { changes: Vec::new(), objects: self.store.len(), missing: false });
            self.answer(looking.ticket);
        }
    }
}
