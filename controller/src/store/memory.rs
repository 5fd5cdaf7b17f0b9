//! What the controller remembers of its last run, in `STATEDIR/status/last.json`: how much was in force.
//!
//! It counts only for the same run of the supervisor: with that, agents and what they serve are gone too.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::gate::Before;
use crate::files::replace;

/// The remembered figures and where they are kept.
#[derive(Clone, Debug)]
pub struct Memory {
    path: PathBuf,
    run: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The run of the supervisor: its runtime folder.
    run: String,
    /// How many objects were in force.
    objects: usize,
    /// How many of each kind. Earlier releases did not write it.
    #[serde(default)]
    kinds: BTreeMap<String, usize>,
}

impl Memory {
    /// Of a state directory, for one run of the supervisor.
    pub fn new(state: &Path, run: &Path) -> Memory {
        Memory { path: state.join("status").join("last.json"), run: run.to_string_lossy().into_owned() }
    }

    /// What was in force of a kind, or of everything when the kind is empty; nothing if this is another run of the supervisor.
    /// A file that cannot be read counts as nothing remembered, and is said.
    pub fn recall(&self) -> impl Fn(&str) -> Before + use<> {
        let record = self.read();
        move |kind| {
            let objects = record.as_ref().map(|record| match kind {
                "" => record.objects,
                kind => record.kinds.get(kind).copied().unwrap_or(0),
            });
            Before { objects: objects.unwrap_or(0) }
        }
    }

    fn read(&self) -> Option<Record> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot read what was in force before");
                return None;
            }
        };
        let record = serde_json::from_slice::<Record>(&bytes).inspect_err(|error| {
            tracing::warn!(path = %self.path.display(), %error, "cannot read what was in force before");
        });
        record.ok().filter(|record| record.run == self.run)
    }

    /// Remembers how many objects of each kind are in force.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note(&self, kinds: &BTreeMap<String, usize>) -> io::Result<()> {
        let record = Record { run: self.run.clone(), objects: kinds.values().sum(), kinds: kinds.clone() };
        replace(&self.path, &serde_json::to_vec(&record).map_err(io::Error::other)?, false)
    }
}
