//! The pair that orders everything an agent may run.

use std::fmt;

/// `(epoch, generation)`: compared from the left, only as a pair. Generations count one fleet's roots within one epoch,
/// from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The leader's epoch.
    pub epoch: u64,
    /// The fleet's generation within the epoch.
    pub generation: u64,
}

impl Version {
    /// Of these two.
    pub fn new(epoch: u64, generation: u64) -> Version {
        Version { epoch, generation }
    }

    /// As it travels.
    pub fn to_wire(self) -> proto::v1::Version {
        proto::v1::Version { epoch: self.epoch, generation: self.generation }
    }
}

impl From<proto::v1::Version> for Version {
    fn from(wire: proto::v1::Version) -> Version {
        Version { epoch: wire.epoch, generation: wire.generation }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.generation)
    }
}
