//! Deaths on purpose: with the feature `faults`, `SCALWS_FAULT` says before which effect the process ends.

#[cfg(feature = "faults")]
use std::path::PathBuf;

/// Counts effects.
#[derive(Debug, Default)]
pub struct Faults {
    #[cfg(feature = "faults")]
    effects: u64,
    #[cfg(feature = "faults")]
    kill_at: Option<u64>,
    #[cfg(feature = "faults")]
    order: Option<PathBuf>,
}

impl Faults {
    /// Reads the environment. Without the feature there is nothing to read.
    ///
    /// `kill@N` ends the process before its N-th effect. `kill-by@PATH` waits for an order: when the file appears, its
    /// number is counted down from there, and the file is taken away by the process that dies, so that it dies once.
    pub fn from_environment() -> Faults {
        #[cfg(feature = "faults")]
        {
            let text = std::env::var("SCALWS_FAULT").unwrap_or_default();
            let kill_at = text.strip_prefix("kill@").and_then(|n| n.parse().ok());
            Faults { effects: 0, kill_at, order: text.strip_prefix("kill-by@").map(PathBuf::from) }
        }
        #[cfg(not(feature = "faults"))]
        Faults::default()
    }

    /// To be called before each effect.
    pub fn before_effect(&mut self) {
        #[cfg(feature = "faults")]
        {
            if let (None, Some(order)) = (self.kill_at, &self.order) {
                let steps = std::fs::read_to_string(order).ok().and_then(|text| text.trim().parse::<u64>().ok());
                self.kill_at = steps.map(|steps| self.effects + steps);
            }
            self.effects += 1;
            if Some(self.effects) == self.kill_at {
                let taken = self.order.as_ref().map(std::fs::remove_file);
                // Another agent that got the same order died of it already.
                if taken.is_none_or(|taken| taken.is_ok()) {
                    std::process::abort();
                }
                self.kill_at = None;
            }
        }
    }
}
