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
    /// A controller dies or is replaced.
    pub(crate) failover: u64,
    /// The source lists, perhaps badly.
    pub(crate) list: u64,
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
            failover: rate(60),
            list: rate(20),
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
