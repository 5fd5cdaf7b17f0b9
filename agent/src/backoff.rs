//! How long to wait before the next attempt to reach a controller.

use std::time::Duration;

use rand::Rng;

/// The first wait after a stream that served well: a restarted controller is found at once, and not by all at once.
const FIRST_MS: (u64, u64) = (50, 200);
/// The shortest and the longest wait after that.
const NEXT_MS: (u64, u64) = (200, 10_000);

/// Full jitter: every wait is drawn between the shortest and a bound that doubles.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// A stream served well: start over.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next wait.
    pub fn next_wait(&mut self, rng: &mut impl Rng) -> Duration {
        let wait = wait_ms(self.failures, NEXT_MS.1, rng.random());
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(wait)
    }
}

/// The wait after so many failures, in milliseconds, not above `longest`; `dice` is any number.
pub fn wait_ms(failures: u32, longest: u64, dice: u64) -> u64 {
    let (low, high) = match failures {
        0 => FIRST_MS,
        n => (NEXT_MS.0, NEXT_MS.0.saturating_mul(1 << n.min(16)).min(longest)),
    };
    low + dice % (high.saturating_sub(low) + 1)
}

/// A wait that the controller asked for, in milliseconds, up to a fifth longer, so that not all come back at once.
pub fn asked_for_ms(ms: u64, dice: u64) -> u64 {
    let ms = ms.min(NEXT_MS.1 * 6);
    ms + dice % (ms / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn the_first_wait_is_short_and_later_ones_stay_within_their_bounds() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..200 {
            let mut backoff = Backoff::default();
            let first = backoff.next_wait(&mut rng);
            assert!((50..=200).contains(&first.as_millis()), "{first:?}");
            for n in 1..40u32 {
                let wait = backoff.next_wait(&mut rng).as_millis();
                let bound = (200u128 << n.min(16)).min(10_000);
                assert!((200..=bound).contains(&wait), "wait {n} is {wait} ms");
            }
            backoff.reset();
            assert!(backoff.next_wait(&mut rng).as_millis() <= 200);
        }
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept_and_bounded() {
        for ms in [0, 10, 1_000, u64::MAX] {
            for dice in [0, 1, 77, u64::MAX] {
                let (wait, asked) = (asked_for_ms(ms, dice), ms.min(60_000));
                assert!((asked..=asked * 6 / 5).contains(&wait), "{ms}: {wait}");
            }
        }
    }
}
