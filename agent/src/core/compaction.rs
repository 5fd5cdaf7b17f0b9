//! When a journal is written anew, and as what.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::members::MemberSet;
use journal::record::encode_transaction;
use journal::{Digest, Head, Key, Record, Stored};

/// A journal shorter than this is not worth writing anew, in bytes.
const FLOOR: u64 = 64 * 1024;

/// Whether a journal of this length is due: it is twice what is live in it.
pub(super) fn is_due(len: u64, live: u64) -> bool {
    len > FLOOR && len > live.saturating_mul(2)
}

/// A configuration journal that says the same in one transaction.
pub(super) fn config_journal(
    id: &str,
    highest_epoch: u64,
    condemned: &[Digest],
    head: Option<Head>,
    resources: &BTreeMap<Key, Stored>,
) -> Vec<u8> {
    let mut out = Vec::new();
    Record::Journal { id: id.to_owned() }.encode_into(&mut out);
    if highest_epoch > 0 {
        Record::Epoch { highest: highest_epoch }.encode_into(&mut out);
    }
    if !condemned.is_empty() {
        Record::Condemned { leaves: condemned.to_vec() }.encode_into(&mut out);
    }
    if let Some(head) = head {
        let puts = resources.iter().map(|(key, stored)| Record::Put {
            key: key.clone(),
            secrets: stored.secrets.clone(),
            body: stored.body.clone(),
        });
        encode_transaction(puts, head.commit, head.version, head.root, &mut out);
        Record::Accepted { id: head.commit }.encode_into(&mut out);
    }
    out
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
