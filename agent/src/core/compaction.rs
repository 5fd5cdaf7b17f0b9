//! When a journal is written anew, and as what.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::members::MemberSet;
use journal::{Key, Record, Stored};

/// A journal shorter than this is not worth writing anew, in bytes.
pub(super) const FLOOR: u64 = 64 * 1024;

/// Whether a journal of this length is due: it is longer than `floor` and twice what is live in it.
pub(super) fn is_due(len: u64, live: u64, floor: u64) -> bool {
    len > floor && len > live.saturating_mul(2)
}

/// A members journal that names every set once.
pub(super) fn members_journal(id: &str, sets: &BTreeMap<Arc<str>, MemberSet>) -> Vec<u8> {
    let mut out = Vec::new();
    Record::Journal { id: id.to_owned() }.encode_into(&mut out);
    for (name, set) in sets {
        set.record(name).encode_into(&mut out);
    }
    out
}

/// About how many bytes the line of a put takes.
pub(super) fn put_len(key: &Key, stored: &Stored) -> u64 {
    let digest = 67;
    (key.kind.len() + key.name.len() + stored.body.len() + stored.secrets.len() * digest + 40) as u64
}

/// About how many bytes the line of a set takes.
pub(super) fn set_len(name: &str, set: &MemberSet) -> u64 {
    let quotes = 3;
    set.members.iter().map(|m| (m.len() + quotes) as u64).sum::<u64>() + name.len() as u64 + 110
}
