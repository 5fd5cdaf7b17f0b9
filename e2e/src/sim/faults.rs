//! How often what goes wrong: one in so many times; 0 is never.

use std::collections::VecDeque;

use super::dice::Dice;

/// The faults of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A message is lost.
    pub lose: u64,
    /// A message comes twice.
    pub double: u64,
    /// A message overtakes the one before it.
    pub swap: u64,
    /// A stream is cut.
    pub cut: u64,
    /// A stream is cut without anybody being told.
    pub dead_link: u64,
    /// An agent stops reading for a while.
    pub slow: u64,
    /// An agent dies before an effect.
    pub die_at_effect: u64,
    /// A proxy dies.
    pub proxy: u64,
    /// A controller dies or is replaced.
    pub failover: u64,
    /// The source lists, perhaps badly.
    pub list: u64,
    /// A volume is full for a while.
    pub full: u64,
    /// A reload takes very long.
    pub stuck: u64,
}

impl Faults {
    /// A mixture that differs from seed to seed: some faults are often, some are not there at all.
    pub fn of(dice: &mut Dice) -> Faults {
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
    pub fn carry<T: Clone>(self, dice: &mut Dice, way: &mut VecDeque<T>, message: T) {
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

    pub fn only(name: Option<String>, all: Faults) -> Faults {
        let Some(name) = name else { return all };
        let mut f = Faults::default();
        for n in name.split(',') {
        match n {
            "lose" => f.lose = 60, "double" => f.double = 60, "swap" => f.swap = 60, "cut" => f.cut = 60, "dead" => f.dead_link = 200,
            "slow" => f.slow = 100, "die" => f.die_at_effect = 60, "proxy" => f.proxy = 100, "failover" => f.failover = 60, "list" => f.list = 20,
            "full" => f.full = 150, "stuck" => f.stuck = 100, _ => {} }
        }
        f
    }
}
