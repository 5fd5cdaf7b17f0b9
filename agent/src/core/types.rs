//! What goes into the core and what comes out of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use journal::admin::{ConfigAnswer, NotLive, ReloadAnswer};
use journal::{Digest, Key};
use push::agent_session::{MembersChange, Timings, Transfer};
use push::{Prefix, Secret, Version};

/// What a volume held when the agent started.
#[derive(Debug, Default)]
pub struct VolumeImage {
    /// The bytes of `config.jsonl`; empty when there is none.
    pub config: Vec<u8>,
    /// The bytes of `members.jsonl`; empty when there is none.
    pub members: Vec<u8>,
    /// The secret files whose content has the digest that their name says.
    pub keys: BTreeSet<Digest>,
}

/// A change of one member set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// Its number on the stream.
    pub seq: u64,
    /// The set.
    pub set: Arc<str>,
    /// What changes.
    pub change: MembersChange,
    /// The beginning of the digest afterwards; not looked at for a drop.
    pub digest: Prefix,
}

/// Why a call to `scalwsd` gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The connection dropped: it may have been done or not.
    Gone,
    /// It was refused and nothing changed.
    Refused(String),
    /// A member set has another digest there.
    Conflict(Digest),
}

/// A journal of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// `config.jsonl`, with the key files.
    Config,
    /// `members.jsonl`.
    Members,
}

/// What the core hears.
#[derive(Debug)]
pub enum Input {
    /// A transfer is complete.
    Transfer(Box<Transfer>),
    /// The root that is held is also that of another version.
    Adopt {
        /// That version.
        version: Version,
        /// The root.
        root: Digest,
    },
    /// A leader of this epoch was heard.
    Epoch(u64),
    /// A member set changes.
    Members(MemberChange),
    /// The stream that the last transfers and member changes came on is gone.
    StreamEnded,
    /// A connection to `scalwsd` stands, and this is what it runs.
    Up(ConfigAnswer),
    /// The connection dropped.
    Down,
    /// Time to read back what `scalwsd` runs.
    Poll,
    /// Time to compare the member sets with those of `scalwsd`.
    Compare,
    /// The answer to [`Effect::Reload`].
    Reloaded {
        /// What it said.
        result: Result<ReloadAnswer, CallError>,
        /// `journal_us` and `reload_us` are filled in.
        timings: Timings,
    },
    /// The answer to [`Effect::ReadBack`].
    ReadBack {
        /// What it runs.
        result: Result<ConfigAnswer, CallError>,
        /// Microseconds.
        took_us: u64,
    },
    /// The answer to [`Effect::Check`]: resources that proved deadly.
    Checked {
        /// Empty when no child died by its own fault, or none could be started.
        dead: Vec<Key>,
    },
    /// The answer to [`Effect::PutMembers`] and the other member calls: the digest that the set has then.
    MembersAnswered(Result<Option<Digest>, CallError>),
    /// The answer to [`Effect::ListUpstreams`].
    Upstreams(Result<Vec<(Arc<str>, Digest)>, CallError>),
    /// The answer to [`Effect::Replace`] and [`Effect::Compact`].
    Replaced {
        /// Which file.
        file: File,
        /// The length of the new one; nothing if the old one stays.
        len: Option<u64>,
    },
    /// A write failed. Effects behind it for the same file, calls included, were not done.
    VolumeFailed {
        /// Which file.
        file: File,
        /// Why.
        message: String,
    },
}

/// What the core wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write a secret file: a temporary one with mode 0600, then the rename.
    WriteKey {
        /// Names the file.
        digest: Digest,
        /// Its content.
        bytes: Secret,
    },
    /// Unlink secret files.
    UnlinkKeys(Vec<Digest>),
    /// Append whole lines.
    Append {
        /// To which journal.
        file: File,
        /// The lines.
        lines: Bytes,
    },
    /// Cut everything behind an offset.
    Cut {
        /// Of which journal.
        file: File,
        /// The offset.
        len: u64,
    },
    /// Put a new journal in the place of the old one. Answer with [`Input::Replaced`].
    Replace {
        /// Which one.
        file: File,
        /// Its content.
        content: Bytes,
    },
    /// Write the configuration journal anew as [`journal::Anew`], beside everything else, however long it takes, and put it
    /// in its place. Answer with [`Input::Replaced`]: until then nothing is written to it.
    Compact {
        /// The id of the new journal.
        journal: Arc<str>,
        /// The old one counts up to this offset.
        settled: u64,
    },
    /// `POST /v1/reload`. Answer with [`Input::Reloaded`].
    Reload {
        /// The journal.
        journal: Arc<str>,
        /// The commit.
        commit: u64,
    },
    /// `GET /v1/config`. Answer with [`Input::ReadBack`].
    ReadBack,
    /// Run `scalwsd check` on a commit. Answer with [`Input::Checked`].
    Check {
        /// The journal.
        journal: Arc<str>,
        /// The commit.
        commit: u64,
    },
    /// `GET /v1/upstreams`. Answer with [`Input::Upstreams`].
    ListUpstreams,
    /// `PUT /v1/upstreams/{set}`. Answer with [`Input::MembersAnswered`].
    PutMembers {
        /// The set.
        set: Arc<str>,
        /// All members.
        members: Arc<[Arc<str>]>,
    },
    /// `PATCH /v1/upstreams/{set}`. Answer with [`Input::MembersAnswered`].
    PatchMembers {
        /// The set.
        set: Arc<str>,
        /// The digest of what it changes.
        base: Digest,
        /// New members.
        add: Vec<Arc<str>>,
        /// Members that go.
        remove: Vec<Arc<str>>,
    },
    /// `DELETE /v1/upstreams/{set}`. Answer with [`Input::MembersAnswered`].
    DeleteMembers {
        /// The set.
        set: Arc<str>,
    },
    /// Say this to the controller.
    Report(Report),
    /// The volume is broken in a way that only a new start can mend: end the process.
    Fatal(String),
}

impl Effect {
    /// The journal that an effect belongs to; a failed write drops the later effects of the same one.
    pub fn file(&self) -> Option<File> {
        match self {
            Effect::Append { file, .. } | Effect::Cut { file, .. } | Effect::Replace { file, .. } => Some(*file),
            Effect::WriteKey { .. }
            | Effect::UnlinkKeys(_)
            | Effect::Compact { .. }
            | Effect::Reload { .. }
            | Effect::ReadBack
            | Effect::Check { .. } => Some(File::Config),
            Effect::ListUpstreams
            | Effect::PutMembers { .. }
            | Effect::PatchMembers { .. }
            | Effect::DeleteMembers { .. } => Some(File::Members),
            Effect::Report(report) => Some(report.file()),
            Effect::Fatal(_) => None,
        }
    }
}

/// What the controller must hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// `scalwsd` runs it, and it was read back.
    Applied {
        /// The version.
        version: Version,
        /// Its root.
        root: Digest,
        /// How long it took.
        timings: Timings,
        /// What is not live.
        not_live: Vec<NotLive>,
    },
    /// Nothing of it could be used. What ran before runs on.
    Refused {
        /// The version.
        version: Version,
        /// Its root.
        root: Digest,
        /// A stable word.
        code: &'static str,
        /// A sentence.
        message: String,
        /// The leaves to blame, if they are known.
        leaves: Vec<Digest>,
        /// Whether it may work later as it is.
        transient: bool,
    },
    /// The list of what is not live changed without a reload.
    NotLiveChanged(Vec<NotLive>),
    /// What is held changed, and not by what this stream asked for.
    HoldingsChanged,
    /// A member change is done: applied and journaled, or one of the two below came before.
    MembersApplied {
        /// Its number.
        seq: u64,
        /// The member root now.
        root: Digest,
    },
    /// A member change is based on a set that is not held: the whole set is needed.
    MembersBaseUnknown {
        /// The set.
        set: Arc<str>,
    },
    /// A member change is refused; the old set stays.
    MembersRefused {
        /// Its number.
        seq: u64,
        /// The set.
        set: Arc<str>,
        /// A stable word.
        code: &'static str,
        /// A sentence.
        message: String,
    },
}

impl Report {
    fn file(&self) -> File {
        match self {
            Report::MembersApplied { .. } | Report::MembersBaseUnknown { .. } | Report::MembersRefused { .. } => {
                File::Members
            }
            _ => File::Config,
        }
    }
}

/// Codes of [`Report::Refused`] and [`Report::MembersRefused`].
pub mod refusals {
    /// `scalwsd` died on it. Never transient.
    pub const CRASHED: &str = push::server_session::CRASHED;
    /// `scalwsd` ended more than once while it loaded it, and no resource of it can be blamed for that. Transient.
    pub const DIED: &str = "died";
    /// `scalwsd` cannot use the whole.
    pub const UNUSABLE: &str = "unusable";
    /// A body is not what a journal may hold.
    pub const BODY: &str = "body";
    /// `scalwsd` runs something else than what was committed.
    pub const READ_BACK: &str = "read_back";
    /// The volume could not be written. Transient.
    pub const VOLUME: &str = "volume";
    /// An older leader's, or one that would go back. Transient: it says nothing about the bytes.
    pub const FENCED: &str = "fenced";
    /// It does not lead to its root from what is held, or names secrets that are not there. Transient.
    pub const BASE_LOST: &str = "base_lost";
}

/// How `scalwsd` is, for a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalwsdState {
    /// No connection.
    Down,
    /// Connected; it does not run what was accepted yet.
    Starting,
    /// It runs what was accepted.
    Ready,
}

impl ScalwsdState {
    /// As it travels in a Hello.
    pub fn as_str(self) -> &'static str {
        match self {
            ScalwsdState::Down => "down",
            ScalwsdState::Starting => "starting",
            ScalwsdState::Ready => "ready",
        }
    }
}

/// What a Hello says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The highest epoch seen.
    pub highest_epoch: u64,
    /// What was applied last, with the root that was accepted; `None` on an empty volume.
    pub applied: Option<(Version, Digest)>,
    /// The root of what is held now: differs from the accepted one when a key file is missing.
    pub root: Digest,
    /// The member root.
    pub member_root: Digest,
    /// Leaves on which `scalwsd` died.
    pub condemned: Vec<Digest>,
    /// How `scalwsd` is.
    pub scalwsd: ScalwsdState,
}
