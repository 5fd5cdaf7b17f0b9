//! What the configuration lane writes, and how long its journal is after that.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use journal::{Digest, Record};

use super::{ConfigLane, Phase};
use crate::core::types::{Effect, File};

impl ConfigLane {
    /// Secret files that neither the accepted state nor an open commit names.
    pub(super) fn unlink_unnamed(&mut self, out: &mut Vec<Effect>) {
        let open = self.work.iter().flat_map(|work| work.changes.values().flatten());
        let named: BTreeSet<Digest> =
            self.resources.values().chain(open).flat_map(|stored| stored.secrets.iter().copied()).collect();
        let gone: Vec<Digest> = self.keys.difference(&named).copied().collect();
        if !gone.is_empty() {
            self.keys.retain(|key| named.contains(key));
            out.push(Effect::UnlinkKeys(gone));
        }
    }

    pub(super) fn append(&mut self, lines: Vec<u8>, out: &mut Vec<Effect>) {
        self.len += lines.len() as u64;
        out.push(Effect::Append { file: File::Config, lines: Bytes::from(lines) });
    }

    /// Records outside of a transaction. They count at once.
    pub(super) fn append_settled(&mut self, records: &[Record], out: &mut Vec<Effect>) {
        self.cut_to(self.settled, out);
        let mut lines = Vec::new();
        records.iter().for_each(|record| record.encode_into(&mut lines));
        self.append(lines, out);
        self.settled = self.len;
    }

    pub(super) fn cut_to(&mut self, len: u64, out: &mut Vec<Effect>) {
        if self.len != len {
            self.len = len;
            out.push(Effect::Cut { file: File::Config, len });
        }
    }

    pub(super) fn compact(&mut self, out: &mut Vec<Effect>) {
        self.journals += 1;
        let journal: Arc<str> = format!("{}-{}", self.boot_id, self.journals).into();
        self.phase = Phase::Compacting;
        self.next_journal = Some(Arc::clone(&journal));
        out.push(Effect::Compact { journal, settled: self.settled });
    }

    pub(in crate::core) fn replaced(&mut self, len: Option<u64>, out: &mut Vec<Effect>) {
        let Some(journal) = self.next_journal.take() else { return };
        self.phase = Phase::Idle;
        match len {
            Some(len) => {
                self.journal = journal;
                (self.len, self.settled, self.live) = (len, len, len);
            }
            // There is no old one.
            None if self.journal.is_empty() => {
                out.push(Effect::Fatal("cannot write a configuration journal".to_owned()));
                return;
            }
            // The old file stays. Not again before it has grown once more.
            None => self.compact_from = self.len.saturating_mul(2),
        }
        self.pump(out);
    }
}
