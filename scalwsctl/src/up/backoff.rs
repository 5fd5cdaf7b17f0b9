//! When to start a child again: at once the first time, then after a random pause that grows.

use std::time::Duration;

use rand::Rng as _;

/// The largest pause after the second death in a row.
const FIRST: Duration = Duration::from_millis(100);
/// The largest pause of all.
const LAST: Duration = Duration::from_secs(2);
/// A child that ran for so long counts as healthy.
const HEALTHY: Duration = Duration::from_secs(10);

/// Counts deaths in a row of one child.
#[derive(Debug, Default)]
pub struct Backoff {
    deaths: u32,
}

impl Backoff {
    /// The pause before the next start, for a child that ran for this long ("full jitter": evenly from 0 to a limit
    /// that doubles).
    pub fn after(&mut self, ran: Duration) -> Duration {
        let limit = self.limit(ran);
        rand::rng().random_range(Duration::ZERO..=limit)
    }

    fn limit(&mut self, ran: Duration) -> Duration {
        if ran >= HEALTHY {
            self.deaths = 0;
        }
        let before = self.deaths;
        self.deaths = self.deaths.saturating_add(1);
        match before {
            0 => Duration::ZERO,
            n => FIRST.saturating_mul(1 << (n - 1).min(10)).min(LAST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_is_at_once_and_later_ones_wait_longer_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let limits: Vec<u128> = (0..7).map(|_| backoff.limit(Duration::ZERO).as_millis()).collect();
        assert_eq!(limits, [0, 100, 200, 400, 800, 1600, 2000]);
        assert_eq!(backoff.limit(HEALTHY), Duration::ZERO);
        assert_eq!(backoff.limit(Duration::ZERO), FIRST);
        assert!(backoff.after(Duration::ZERO) <= LAST);
    }
}
