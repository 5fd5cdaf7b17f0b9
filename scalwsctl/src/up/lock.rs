//! One `up` per state directory: an advisory lock that the kernel gives back when the process ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::state;

/// Why the state directory is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another `up` has it.
    #[error(
        "another `scalwsctl up`{} uses the state directory {state}; stop that one, or give this one its own --state",
        holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Taken {
        /// The state directory.
        state: String,
        /// Its process id, if it could be read.
        holder: Option<u32>,
    },
    /// It cannot be made or written.
    #[error("the state directory {state} cannot be used: {why}")]
    Unusable {
        /// The state directory.
        state: String,
        /// What the system says.
        why: io::Error,
    },
}

/// The lock. Held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Makes the state directory if it is missing, and takes its lock (flock(2), close-on-exec).
    ///
    /// # Errors
    ///
    /// When another process has the lock, or the directory cannot be made or written.
    pub fn take(state: &Path) -> Result<StateLock, LockError> {
        let unusable = |why: io::Error| LockError::Unusable { state: state.display().to_string(), why };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(unusable)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state::lock_file(state))
            .map_err(unusable)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let holder = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(LockError::Taken { state: state.display().to_string(), holder });
            }
            Err(error) => return Err(unusable(error.into())),
        }
        file.set_len(0).map_err(unusable)?;
        file.rewind().map_err(unusable)?;
        writeln!(file, "{}", std::process::id()).map_err(unusable)?;
        Ok(StateLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_taker_is_told_who_has_it() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("deep/state");
        let first = StateLock::take(&state).unwrap();
        let error = StateLock::take(&state).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        StateLock::take(&state).unwrap();
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_said() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("file");
        std::fs::write(&state, "").unwrap();
        assert!(matches!(StateLock::take(&state), Err(LockError::Unusable { .. })));
    }
}
