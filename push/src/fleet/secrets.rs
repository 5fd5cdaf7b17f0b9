//! The secrets of a fleet by digest, and how many bodies name each.

use std::collections::BTreeMap;

use journal::Digest;

use crate::secret::Secret;

struct Entry {
    secret: Option<Secret>,
    /// Bodies that name it.
    names: usize,
    /// The serial since which at least one body has named it.
    since: u64,
    /// Goes when no body names it.
    doomed: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Secrets {
    entries: BTreeMap<Digest, Entry>,
    /// Named by a body, but nobody gave the bytes.
    missing: usize,
}

impl Secrets {
    pub(super) fn give(&mut self, digest: Digest, secret: Secret) {
        let entry = self.entries.entry(digest).or_insert(Entry { secret: None, names: 0, since: 0, doomed: false });
        if entry.secret.is_none() && entry.names > 0 {
            self.missing -= 1;
        }
        entry.secret = Some(secret);
        entry.doomed = false;
    }

    /// A body names these from now on.
    pub(super) fn claim(&mut self, digests: &[Digest], serial: u64) {
        for digest in digests {
            let entry = self.entries.entry(*digest).or_insert(Entry { secret: None, names: 0, since: 0, doomed: true });
            if entry.names == 0 {
                entry.since = serial;
                if entry.secret.is_none() {
                    self.missing += 1;
                }
            }
            entry.names += 1;
        }
    }

    /// A body names these no longer.
    pub(super) fn release(&mut self, digests: &[Digest]) {
        for digest in digests {
            let Some(entry) = self.entries.get_mut(digest) else { continue };
            entry.names = entry.names.saturating_sub(1);
            if entry.names == 0 {
                if entry.secret.is_none() {
                    self.missing -= 1;
                }
                if entry.doomed || entry.secret.is_none() {
                    self.entries.remove(digest);
                }
            }
        }
    }

    pub(super) fn drop_when_unused(&mut self, digest: &Digest) {
        match self.entries.get_mut(digest) {
            Some(entry) if entry.names == 0 => {
                self.entries.remove(digest);
            }
            Some(entry) => entry.doomed = true,
            None => {}
        }
    }

    /// Those of these whose bytes are known, with the serial since which they have been named.
    pub(super) fn known(&self, digests: &[Digest]) -> Vec<(Digest, Secret, u64)> {
        let known = |digest: &Digest| {
            let entry = self.entries.get(digest)?;
            Some((*digest, entry.secret.clone()?, entry.since))
        };
        digests.iter().filter_map(known).collect()
    }

    pub(super) fn missing(&self) -> Vec<Digest> {
        if self.missing == 0 {
            return Vec::new();
        }
        let missing = self.entries.iter().filter(|(_, entry)| entry.names > 0 && entry.secret.is_none());
        missing.map(|(digest, _)| *digest).collect()
    }
}
