//! Who acted in which epoch, and what must hold of all controllers together.

use std::collections::BTreeMap;

/// The ledger, and what was counted on the way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    acted: BTreeMap<u64, u64>,
    last: Option<u64>,
    /// A leader began with a part of its world held back.
    pub(crate) blind: bool,
    /// Another controller acted than the one before.
    pub(crate) changes: u64,
    /// Views that were not as new as the API server when their controller was to lead.
    pub(crate) held_back: u64,
    /// How often a leader heard of an agent that is beyond it.
    pub(crate) overtaken: u64,
    /// Leaders that found that they could not renew in time.
    pub(crate) unsure: u64,
    /// Times at which a controller was in office, or thought so, while another one was.
    pub(crate) overlaps: u64,
}

impl Ledger {
    /// A controller sends something that only a leader may send. `forgot`: the counter of epochs was lost.
    pub(crate) fn acts(&mut self, controller: u64, epoch: u64, forgot: bool) {
        let first = *self.acted.entry(epoch).or_insert(controller);
        assert!(first == controller || forgot, "controllers {first} and {controller} both act in epoch {epoch}");
        self.changes += u64::from(self.last.replace(controller).is_some_and(|last| last != controller));
    }

    /// These controllers act at this moment, each as far as its own clock says. `alike`: no two clocks differ by more than the
    /// lease duration does from the renew deadline.
    pub(crate) fn in_office(&mut self, leaders: &[u64], alike: bool, forgot: bool) {
        assert!(
            leaders.len() < 2 || !alike || forgot,
            "controllers {leaders:?} lead at one time, and their clocks are alike"
        );
        self.overlaps += u64::from(leaders.len() > 1);
    }
}
