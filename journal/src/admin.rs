//! The types of `scalwsd`'s admin API: what the agent asks and what it answers.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// `POST /v1/reload`: read the journal to this commit and swap once. An empty object reloads `scalws.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadRequest {
    /// The id of the journal, from its first record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// The id of the commit to read up to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
}

/// The 200 answer of `POST /v1/reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadAnswer {
    /// The root of what runs now.
    pub root: Digest,
    /// How many resources changed.
    pub changed: usize,
    /// Every resource that is loaded and not live, not only those that changed.
    pub not_live: Vec<NotLive>,
}

/// A resource that is loaded but not live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotLive {
    /// `kind/name`.
    pub resource: String,
    /// A stable word for programs. See [`codes`].
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// Codes of [`NotLive`] and [`ErrorAnswer`] that programs look at.
pub mod codes {
    /// The body could not be read or built.
    pub const INVALID: &str = "invalid";
    /// A kind, field or value that this `scalwsd` does not know or has not built yet.
    pub const UNSUPPORTED: &str = "unsupported";
    /// Something it names is missing.
    pub const MISSING: &str = "missing";
    /// Environment: the port is taken. Never blames an object.
    pub const PORT_TAKEN: &str = "port_taken";
    /// Environment: the key file is missing or wrong.
    pub const KEY_MISSING: &str = "key_missing";
    /// Environment: the volume cannot be read or written.
    pub const VOLUME: &str = "volume";

    /// Whether a code speaks of the environment, which no object is to blame for.
    pub fn is_environment(code: &str) -> bool {
        matches!(code, PORT_TAKEN | KEY_MISSING | VOLUME)
    }
}

/// The 4xx answers: nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    /// What was wrong.
    pub errors: Vec<String>,
}

/// `PUT /v1/upstreams/{set}` (the set's name percent-encoded as one path segment).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutMembers {
    /// `address:port`, IPv6 in brackets; sorted, each once.
    pub members: Vec<String>,
}

/// `PATCH /v1/upstreams/{set}`. `DELETE /v1/upstreams/{set}` takes a set away and answers 200 or 204; 404 when there is
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchMembers {
    /// The digest of the set that this changes.
    pub base: Digest,
    /// Members to add.
    #[serde(default)]
    pub add: Vec<String>,
    /// Members to remove.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// The 200 answer of PUT and PATCH, and the 409 answer of PATCH: the digest that the set has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersAnswer {
    /// `digest(set name, sorted members)`.
    pub digest: Digest,
}

/// `GET /v1/config`: what is really running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigAnswer {
    /// A random id of this start of `scalwsd`.
    pub start: String,
    /// The version of `scalwsd`.
    pub version: String,
    /// The highest schema version it knows.
    pub schema: u32,
    /// The journal it read, if it runs from one.
    pub journal: Option<String>,
    /// The commit it runs; 0 before the first.
    pub commit: u64,
    /// The root of what runs.
    pub root: Digest,
    /// As in [`ReloadAnswer`].
    pub not_live: Vec<NotLive>,
    /// Listeners that accept connections, such as `tcp/443`.
    pub listening: Vec<String>,
}

/// `GET /v1/upstreams`: the digest of every set it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamsAnswer {
    /// The member root: [`crate::MemberTree`] over all sets.
    pub root: Option<Digest>,
    /// Set name and digest, sorted by name.
    pub sets: Vec<(String, Digest)>,
}

/// `GET /v1/upstreams/{set}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamAnswer {
    /// The digest.
    pub digest: Digest,
    /// Its members, sorted.
    pub members: Vec<String>,
}
