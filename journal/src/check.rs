//! What `scalwsd check --volume DIR --journal ID --commit N` prints: one JSON line before each put that it loads, and one
//! at the end. The last put before a death is the one it died on. `--skip KIND/NAME` leaves a resource out.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckLine {
    /// It is about to load this resource.
    Put {
        /// The kind.
        kind: String,
        /// The encoded name.
        name: String,
    },
    /// It loaded everything and lives.
    Done {
        /// How many resources were loaded.
        loaded: usize,
    },
}
