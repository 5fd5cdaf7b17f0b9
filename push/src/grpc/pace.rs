//! How fast an agent may talk: it answers what it is sent, and has a little news of its own.

use std::time::Duration;

use tokio::time::Instant;

/// Messages that may come at once.
const BURST: f64 = 2_048.0;
/// News of its own, a second.
const PER_SECOND: f64 = 100.0;
/// Answers to one message of ours: a verdict, or an acknowledgement after a refusal or a question.
const ANSWERS: f64 = 3.0;

/// What an agent may still say. Who says more is not read for a while: its messages wait in its own stream, where
/// flow control (RFC 9113 section 5.2) holds it up and nobody else.
#[derive(Debug)]
pub(super) struct Pace {
    left: f64,
    at: Instant,
    sent: u64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { left: BURST, at: now, sent: 0 }
    }

    /// A message came. `sent` counts what went to the agent so far.
    pub(super) fn heard(&mut self, now: Instant, sent: u64) {
        self.earn(now, sent);
        self.left -= 1.0;
    }

    /// When the next message may be read, if not now.
    pub(super) fn until(&mut self, now: Instant, sent: u64) -> Option<Instant> {
        self.earn(now, sent);
        (self.left < 1.0).then(|| now + Duration::from_secs_f64((1.0 - self.left) / PER_SECOND))
    }

    fn earn(&mut self, now: Instant, sent: u64) {
        let time = now.saturating_duration_since(self.at).as_secs_f64();
        // A stream never has as many messages as a double cannot count.
        #[allow(clippy::cast_precision_loss)]
        let answers = sent.saturating_sub(self.sent) as f64 * ANSWERS;
        self.left = (self.left + time * PER_SECOND + answers).min(BURST);
        (self.at, self.sent) = (now, sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_always_read_and_a_flood_is_not() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        for sent in 1..100_000 {
            for _ in 0..2 {
                assert_eq!(pace.until(began, sent), None, "an answer to message {sent} waits");
                pace.heard(began, sent);
            }
        }
        let mut pace = Pace::new(began);
        let mut read = 0;
        while pace.until(began, 0).is_none() {
            pace.heard(began, 0);
            read += 1;
        }
        assert_eq!(read, 2_048);
        let later = pace.until(began, 0).expect("it waits");
        assert!(later - began <= Duration::from_millis(11), "{:?}", later - began);
        assert_eq!(pace.until(later, 0), None);
        pace.heard(later, 0);
        assert!(pace.until(later, 0).is_some());
        // What it is sent meanwhile may be answered.
        assert_eq!(pace.until(later, 1), None);
    }
}
