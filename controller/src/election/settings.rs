//! Who takes part in the election, and how long things take.

/// Who we are, and how long things take. All times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Another for each start of the process.
    pub identity: String,
    /// Where agents reach us.
    pub address: String,
    /// How long others wait for us without a renewal. Whole seconds, since the Lease says it in seconds.
    pub lease_ms: u64,
    /// How long we lead without a renewal.
    pub renew_deadline_ms: u64,
    /// How often we renew.
    pub retry_ms: u64,
}

/// Settings with which two might lead, or nobody for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The Lease holds whole seconds.
    #[error("--lease-duration has to be whole seconds, at least 1s and at most 3600s")]
    Duration,
    /// A leader would still act when another may have taken over.
    #[error("--renew-deadline has to be shorter than --lease-duration; client-go's default is two thirds of it")]
    Deadline,
    /// One lost request would end the lead.
    #[error("--retry-period has to be at most half of --renew-deadline, and more than 0")]
    Retry,
}

impl Settings {
    /// Whether the three times fit together.
    ///
    /// # Errors
    /// Which does not.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.lease_ms == 0 || !self.lease_ms.is_multiple_of(1_000) || self.lease_ms > 3_600_000 {
            return Err(SettingsError::Duration);
        }
        if self.renew_deadline_ms >= self.lease_ms {
            return Err(SettingsError::Deadline);
        }
        if self.retry_ms == 0 || self.retry_ms * 2 > self.renew_deadline_ms {
            return Err(SettingsError::Retry);
        }
        Ok(())
    }
}
