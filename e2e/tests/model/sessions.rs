//! What a session does, as far as the model of leaders needs it. `conformance.rs` holds the shipped sessions against this.

use std::cmp::Ordering;

/// How many objects there are.
pub const OBJECTS: usize = 3;

/// The version of each object.
pub type Versions = [u8; OBJECTS];

/// A generation of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// Of the leader.
    pub epoch: u8,
    /// Counts within the epoch.
    pub generation: u8,
    /// The objects that it was made from.
    pub content: Versions,
}

impl Push {
    /// What is compared.
    pub fn version(&self) -> (u8, u8) {
        (self.epoch, self.generation)
    }
}

/// What an agent has on its volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Agent {
    /// The highest epoch that it has seen.
    pub seen: u8,
    /// What it runs.
    pub applied: Option<Push>,
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is of a leader of the past, or of a past of this leader.
    Refused,
    /// It runs already.
    Same,
    /// It runs now.
    Applied,
}

impl Agent {
    /// A push arrives. `fence`: whether the agent compares it with what it knows.
    pub fn take(&mut self, push: Push, fence: bool) -> Taken {
        let below = self.applied.is_some_and(|applied| push.version() < applied.version());
        if fence && (push.epoch < self.seen || below) {
            return Taken::Refused;
        }
        self.seen = self.seen.max(push.epoch);
        if self.applied.replace(push) == Some(push) { Taken::Same } else { Taken::Applied }
    }

    /// Only its beginning arrives: the epoch is noted.
    pub fn hear(&mut self, push: Push, fence: bool) {
        if !fence || push.epoch >= self.seen {
            self.seen = self.seen.max(push.epoch);
        }
    }

    /// What a leader whose newest generation is this makes of the agent's Hello: the epoch that it has to go above, or
    /// nothing when the agent can be served.
    pub fn reports(&self, newest: Push) -> Option<u8> {
        let beyond = self.applied.is_some_and(|applied| match applied.version().cmp(&newest.version()) {
            Ordering::Greater => true,
            Ordering::Equal => applied.content != newest.content,
            Ordering::Less => false,
        });
        (self.seen > newest.epoch || beyond).then_some(self.seen)
    }
}
