//! How often what goes wrong: one in so many times; 0 is never.

use std::collections::VecDeque;

use super::dice::Dice;

/// The faults of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// A message is lost.
    pub(crate) lose: u64,
    /// A message comes twice.
    pub(crate) double: u64,
    /// A message overtakes the one before it.
    pub(crate) swap: u64,
    /// A stream is cut.
    pub(crate) cut: u64,
    /// A stream is cut without anybody being told.
    pub(crate) dead_link: u64,
    /// An agent stops reading for a while.
    pub(crate) slow: u64,
    /// An agent dies before an effect.
    pub(crate) die_at_effect: u64,
    /// A proxy dies.
    pub(crate) proxy: u64,
    /// A watch of a controller is too old, and the list after it shows too little.
    pub(crate) list: u64,
    /// A watch of a controller breaks.
    pub(crate) watch: u64,
    /// A controller dies.
    pub(crate) kill: u64,
    /// A controller stops for a while.
    pub(crate) pause: u64,
    /// A controller gives the Lease back and ends.
    pub(crate) release: u64,
    /// A leader lets others lead.
    pub(crate) step_down: u64,
    /// The clocks of a controller go at another rate, and perhaps show another time of day.
    pub(crate) clock: u64,
    /// The Lease is out of reach of one controller for a while.
    pub(crate) unreachable: u64,
    /// A request about the Lease is lost, or its answer.
    pub(crate) lose_api: u64,
    /// A request about the Lease takes long, or its answer.
    pub(crate) slow_api: u64,
    /// Somebody else holds the Lease for a while.
    pub(crate) stranger: u64,
    /// Somebody writes on the Lease what changes nothing.
    pub(crate) annotate: u64,
    /// The Lease is deleted, or restored from a copy.
    pub(crate) forget: u64,
    /// A volume is full for a while.
    pub(crate) full: u64,
    /// A reload takes very long.
    pub(crate) stuck: u64,
}

impl Faults {
    /// A mixture that differs from seed to seed: some faults are often, some are not there at all.
    pub(crate) fn of(dice: &mut Dice) -> Faults {
        let mut rate = |often: u64| if dice.one_in(3) { 0 } else { often * (1 + dice.below(8)) };
        Faults {
            lose: rate(40),
            double: rate(40),
            swap: rate(40),
            cut: rate(40),
            dead_link: rate(150),
            slow: rate(100),
            die_at_effect: rate(60),
            proxy: rate(100),
            list: rate(60),
            watch: rate(60),
            kill: rate(80),
            pause: rate(80),
            release: rate(150),
            step_down: rate(150),
            clock: rate(40),
            unreachable: rate(100),
            lose_api: rate(8),
            slow_api: rate(8),
            stranger: rate(300),
            annotate: rate(60),
            forget: rate(200),
            full: rate(150),
            stuck: rate(150),
        }
    }

    /// Puts a message on its way.
    pub(crate) fn carry<T: Clone>(self, dice: &mut Dice, way: &mut VecDeque<T>, message: T) {
        if dice.one_in(self.lose) {
            return;
        }
        if dice.one_in(self.double) {
            way.push_back(message.clone());
        }
        way.push_back(message);
        if dice.one_in(self.swap) && way.len() > 1 {
            let last = way.len() - 1;
            way.swap(last, last - 1);
        }
    }
}
