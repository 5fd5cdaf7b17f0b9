//! Medians and percentiles of samples, and the CPU time of this thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Samples of one quantity, in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// Adds one.
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// The sample below which this share of all samples lies (nearest rank). Zero without samples.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "few samples"
        )]
        let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    /// The median.
    pub(crate) fn median(&self) -> Duration {
        self.percentile(0.5)
    }
}

/// The CPU time that this thread has used.
pub(crate) fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Microseconds with one digit.
pub(crate) fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

/// Milliseconds with two digits.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}
