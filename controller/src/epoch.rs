//! The epoch: a counter that only grows, raised before anything is served: in the state directory, or on the Lease.
//!
//! In the state directory it is kept as one decimal number in `STATEDIR/epoch`, written under a lock, to the disk, by rename.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use journal::mutants::{self, Mutant};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::watch;

use crate::files::replace;

/// Why the epoch could not be raised.
#[derive(Debug, thiserror::Error)]
pub enum EpochError {
    /// The file is not one number.
    #[error(
        "{path} does not hold a number; write the highest epoch that any proxy has seen into it, or remove it if no proxy runs"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
    },
    /// The file or its lock cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The counter is at its end.
    #[error("{path}: the epoch cannot grow any more")]
    Exhausted {
        /// The file.
        path: PathBuf,
    },
}

/// The epoch after `old`, above what was reported too; nothing when there is none.
pub fn next(old: u64, reported: u64) -> Option<u64> {
    if mutants::active(Mutant::SameEpochAgain) {
        return Some(old.max(1));
    }
    old.max(reported).checked_add(1)
}

/// The counter file of a state directory.
#[derive(Clone, Debug)]
pub struct Counter {
    path: PathBuf,
    lock: PathBuf,
}

impl Counter {
    /// Of a state directory.
    pub fn new(state: &Path) -> Counter {
        Counter { path: state.join("epoch"), lock: state.join("epoch.lock") }
    }

    /// Raises the counter above its old value and above `reported`, and gives the new epoch.
    ///
    /// # Errors
    /// When the counter cannot be read or is not on the disk afterwards; nothing may be served then.
    pub fn raise(&self, reported: u64) -> Result<u64, EpochError> {
        let fail = |source: io::Error| EpochError::Io { path: self.path.clone(), source };
        let _lock = self.locked()?;
        let old = self.read()?;
        let new = next(old, reported).ok_or_else(|| EpochError::Exhausted { path: self.path.clone() })?;
        replace(&self.path, format!("{new}\n").as_bytes(), true).map_err(fail)?;
        Ok(new)
    }

    fn locked(&self) -> Result<File, EpochError> {
        let fail = |source: io::Error| EpochError::Io { path: self.lock.clone(), source };
        if let Some(folder) = self.lock.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.lock).map_err(fail)?;
        // Held for a few milliseconds by whoever raises the counter; freed when the file is closed.
        flock(&file, FlockOperation::LockExclusive).map_err(|error| fail(error.into()))?;
        Ok(file)
    }

    fn read(&self) -> Result<u64, EpochError> {
        let corrupt = || EpochError::Corrupt { path: self.path.clone() };
        match std::fs::read(&self.path) {
            Ok(bytes) => {
                let text = std::str::from_utf8(&bytes).map_err(|_| corrupt())?.trim_end_matches('\n');
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                if digits { text.parse().map_err(|_| corrupt()) } else { Err(corrupt()) }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(source) => Err(EpochError::Io { path: self.path.clone(), source }),
        }
    }
}

/// Where the counter is.
#[derive(Debug)]
pub enum Epochs {
    /// In the state directory: there is one controller.
    Counter(Counter),
    /// On the Lease, which the election writes; it is told the highest epoch that an agent has seen.
    Lease(watch::Sender<u64>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_raise_is_higher_than_all_before_and_than_what_was_reported() {
        let dir = tempfile::tempdir().unwrap();
        let counter = Counter::new(dir.path());
        assert_eq!(counter.raise(0).unwrap(), 1);
        assert_eq!(counter.raise(0).unwrap(), 2);
        assert_eq!(counter.raise(40).unwrap(), 41);
        assert_eq!(Counter::new(dir.path()).raise(3).unwrap(), 42);
    }

    #[test]
    fn a_corrupt_counter_is_an_error_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "abc", "-1", "1 2", "99999999999999999999999"] {
            std::fs::write(dir.path().join("epoch"), text).unwrap();
            let error = Counter::new(dir.path()).raise(0).unwrap_err();
            assert!(matches!(error, EpochError::Corrupt { .. }), "{text:?}: {error}");
            assert_eq!(std::fs::read_to_string(dir.path().join("epoch")).unwrap(), text);
        }
    }

    #[test]
    fn the_last_number_is_not_wrapped() {
        let dir = tempfile::tempdir().unwrap();
        let error = Counter::new(dir.path()).raise(u64::MAX).unwrap_err();
        assert!(matches!(error, EpochError::Exhausted { .. }));
    }

    #[test]
    fn two_at_once_never_get_the_same_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let raise = || {
            let counter = Counter::new(dir.path());
            (0..20).map(|_| counter.raise(0).unwrap()).collect::<Vec<_>>()
        };
        let mut all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(raise)).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=80).collect::<Vec<_>>());
    }
}
