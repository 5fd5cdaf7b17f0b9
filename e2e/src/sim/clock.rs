//! The clocks of one machine: one that never goes back and has a rate of its own, and a time of day that jumps.

use controller::election::Moment;

use super::dice::Dice;

/// An hour, in microseconds.
const HOUR_US: u64 = 3_600_000_000;
/// When the simulation takes place: microseconds since 1970 at its beginning.
const EPOCH_US: i64 = 1_764_500_000_000_000;

/// Both clocks.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The virtual millisecond up to which `own_us` counts.
    real: u64,
    own_us: u64,
    /// Percent of virtual time.
    rate: u64,
    wall_off_us: i64,
}

impl Clock {
    /// A clock that goes as virtual time does.
    pub(crate) fn new(real: u64) -> Clock {
        Clock { real, own_us: 0, rate: 100, wall_off_us: 0 }
    }

    fn own_us(&self, now: u64) -> u64 {
        self.own_us + now.saturating_sub(self.real) * self.rate * 10
    }

    /// What both show.
    pub(crate) fn moment(&self, now: u64) -> Moment {
        let real_us = i64::try_from(now * 1_000).unwrap_or(i64::MAX);
        Moment { ms: self.own_us(now) / 1_000, wall_us: EPOCH_US + real_us + self.wall_off_us }
    }

    /// The virtual millisecond at which the first of them shows this.
    pub(crate) fn when(&self, own_ms: u64) -> u64 {
        let left_us = (own_ms.saturating_mul(1_000)).saturating_sub(self.own_us);
        self.real.saturating_add(left_us.div_ceil(self.rate.max(1) * 10))
    }

    /// It goes at another rate from now on, in percent of virtual time.
    pub(crate) fn set_rate(&mut self, now: u64, percent: u64) {
        (self.own_us, self.real, self.rate) = (self.own_us(now), now, percent);
    }

    /// A rate within these, and perhaps another time of day.
    pub(crate) fn disturb(&mut self, now: u64, dice: &mut Dice, (slowest, fastest): (u64, u64)) {
        let rate = slowest + dice.below(fastest - slowest + 1);
        self.set_rate(now, rate);
        if dice.one_in(2) {
            let jump = i64::try_from(dice.below(2 * HOUR_US)).unwrap_or_default();
            self.wall_off_us = jump - i64::try_from(HOUR_US).unwrap_or_default();
        }
    }

    /// Somebody sets it right.
    pub(crate) fn set_right(&mut self, now: u64) {
        self.set_rate(now, 100);
        self.wall_off_us = 0;
    }
}
