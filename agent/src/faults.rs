//! Deaths on purpose: with the feature `faults`, `SCALWS_FAULT=kill@N` ends the process before its N-th effect.

/// Counts effects.
#[derive(Debug, Default)]
pub struct Faults {
    #[cfg(feature = "faults")]
    effects: u64,
    #[cfg(feature = "faults")]
    kill_at: Option<u64>,
}

impl Faults {
    /// Reads the environment. Without the feature there is nothing to read.
    pub fn from_environment() -> Faults {
        #[cfg(feature = "faults")]
        {
            let kill_at = std::env::var("SCALWS_FAULT").ok();
            let kill_at = kill_at.and_then(|text| text.strip_prefix("kill@").and_then(|n| n.parse().ok()));
            Faults { effects: 0, kill_at }
        }
        #[cfg(not(feature = "faults"))]
        Faults::default()
    }

    /// To be called before each effect.
    pub fn before_effect(&mut self) {
        #[cfg(feature = "faults")]
        {
            self.effects += 1;
            if Some(self.effects) == self.kill_at {
                std::process::abort();
            }
        }
    }
}
