//! What agent and `scalwsd` share: digests, journal records, and `scalwsd`'s admin API with its client.
//!
//! Kinds, names and bodies are opaque here: an older agent carries what a newer controller sends.

pub mod admin;
pub mod check;
pub mod client;
mod compaction;
pub mod digest;
mod file;
mod follower;
pub mod members;
pub mod mutants;
pub mod record;
mod replay;
mod transactions;

pub use client::AdminClient;
pub use compaction::Anew;
pub use digest::{Digest, Key, MemberTree, Place, Tree};
pub use file::{Compacted, Compaction, JournalFile};
pub use follower::{Follower, JournalChange, JournalError, Staged};
pub use record::Record;
pub use replay::{Accepted, Head, Outline, Replay, Stored};
pub use transactions::{Change, Corrupt, Put, Transaction};

/// The name of the configuration journal on a volume.
pub const CONFIG_FILE: &str = "config.jsonl";
/// The name of the members journal on a volume.
pub const MEMBERS_FILE: &str = "members.jsonl";
/// The folder of secret files on a volume; each is named by the digest of its bytes.
pub const KEYS_FOLDER: &str = "keys";
