//! What agent and `scalwsd` share: digests, journal records, and `scalwsd`'s admin API with its client.
//!
//! Kinds, names and bodies are opaque here: an older agent carries what a newer controller sends.

pub mod admin;
pub mod digest;

pub use digest::{Digest, Key, MemberTree, Tree};
