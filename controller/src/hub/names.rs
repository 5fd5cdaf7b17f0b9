//! The names of pods by their UIDs, for people. A certificate proves a UID only; the name comes at enrolment.
//!
//! They are kept in `STATEDIR/status/agents.json`, since a certificate outlives the controller.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::files::replace;

/// The most pods that are remembered.
const MOST: usize = 65_536;

/// The table.
#[derive(Debug)]
pub struct Names {
    path: PathBuf,
    names: Mutex<BTreeMap<String, String>>,
}

impl Names {
    /// Reads the table; one that cannot be read counts as empty, and is said.
    pub fn load(path: PathBuf) -> Names {
        let names = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "cannot read the names of agents");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the names of agents");
                BTreeMap::new()
            }
        };
        Names { path, names: Mutex::new(names) }
    }

    /// The name of a pod; its UID if the name is not known.
    pub fn of(&self, uid: &str) -> String {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }

    /// Learns a name.
    pub fn learn(&self, uid: &str, pod: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.get(uid).is_some_and(|known| known == pod) {
            return;
        }
        // A pod that was replaced under its name has another UID; the old one is gone.
        names.retain(|_, known| known != pod);
        while names.len() >= MOST {
            names.pop_first();
        }
        names.insert(uid.to_owned(), pod.to_owned());
        let written = serde_json::to_vec(&*names).map_err(std::io::Error::other);
        if let Err(error) = written.and_then(|bytes| replace(&self.path, &bytes, false)) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remember the names of agents");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_after_a_restart_and_a_replaced_pod_forgets_its_old_uid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status").join("agents.json");
        let names = Names::load(path.clone());
        assert_eq!(names.of("u1"), "u1");
        names.learn("u1", "replica-0");
        names.learn("u2", "replica-1");
        names.learn("u3", "replica-0");
        let names = Names::load(path);
        assert_eq!(
            (names.of("u1"), names.of("u2"), names.of("u3")),
            ("u1".into(), "replica-1".into(), "replica-0".into())
        );
    }
}
