//! What a watch of a kind wants, hears and gives, and the times it keeps.

use std::collections::BTreeMap;

use translate::{Change, NamespacedName};

use super::held::{Item, Trace};
use super::version::Version;

/// The times of a watch, in milliseconds unless said otherwise. Each is spread, so that kinds and replicas do not come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How many objects a page of a list may have.
    pub page: u32,
    /// The first wait after a failure; each further one is twice as long, ...
    pub first_wait_ms: u64,
    /// ... up to this, ...
    pub longest_wait_ms: u64,
    /// ... and up to this while no server answers at all: asking costs nobody anything then, and everything waits for its return.
    pub longest_away_ms: u64,
    /// How often a kind is looked for that is not served.
    pub absent_ms: u64,
    /// How often what is held is compared with the server.
    pub compare_ms: u64,
    /// How long a difference may last before everything is listed anew.
    pub differ_ms: u64,
    /// How long a watch is asked to last, in seconds.
    pub watch_s: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            page: 250,
            first_wait_ms: 200,
            longest_wait_ms: 10_000,
            longest_away_ms: 4_000,
            absent_ms: 30_000,
            compare_ms: 600_000,
            differ_ms: 500,
            watch_s: 180,
        }
    }
}

/// When something happens, and how it falls: no clock and no randomness in here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Milliseconds of a clock that never goes back.
    pub now_ms: u64,
    /// Anything: what times are spread by.
    pub chance: u16,
}

impl Moment {
    /// Between the half and the whole of a time.
    pub(super) fn spread(self, ms: u64) -> u64 {
        ms / 2 + ms / 2 * u64::from(self.chance) / u64::from(u16::MAX)
    }
}

/// Names a request. What is wanted is another one when its number is.
pub type RequestId = u64;

/// What is wanted of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A page of a list.
    Page {
        /// How many objects it may have.
        limit: u32,
        /// Where it goes on; none at the beginning.
        continues: Option<String>,
    },
    /// A watch.
    Follow {
        /// From where; none to begin with everything that there is, and a bookmark at the end of that.
        from: Option<Version>,
        /// How long it is to last, in seconds.
        seconds: u32,
    },
}

/// What comes of all this.
#[derive(Debug)]
pub enum Out {
    /// Changes that were seen to happen.
    Observed(Vec<Change>),
    /// What a list showed to be different.
    Listed {
        /// The differences.
        changes: Vec<Change>,
        /// How many objects there are.
        objects: usize,
        /// The server does not serve the kind at all.
        missing: bool,
    },
    /// Objects that cannot be read, and why; without a reason it is over.
    Findings(Vec<(NamespacedName, Option<String>)>),
    /// Everything that the API server had when this was asked for has come out before.
    Agreed(u64),
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object was made or is another now.
    Put(Item),
    /// An object is gone.
    Gone(Trace),
    /// Everything up to here has been told.
    Bookmark {
        /// The version.
        version: Version,
        /// What was there at the beginning has been told.
        initial_end: bool,
    },
}

/// Where it stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// A list is being read.
    Listing,
    /// Events come as they happen.
    Watching,
    /// Something failed, and is tried again.
    Waiting,
    /// The server does not serve the kind, which is looked for again.
    Absent,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 4] = [Standing::Listing, Standing::Watching, Standing::Waiting, Standing::Absent];

    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Listing => "listing",
            Standing::Watching => "watching",
            Standing::Waiting => "waiting",
            Standing::Absent => "absent",
        }
    }
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists that were read to their end.
    pub lists: u64,
    /// Comparisons with a list of the server that ended equal.
    pub agreements: u64,
    /// Watches and lists that ended, by why.
    pub restarts: BTreeMap<&'static str, u64>,
}
