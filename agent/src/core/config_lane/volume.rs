//! What the configuration lane writes, and how long its journal is after that.

use std::collections::BTreeSet;

use bytes::Bytes;
use journal::{Digest, Record};

use super::{BeforeCompaction, ConfigLane, Phase};
use crate::core::compaction;
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
        let id = format!("{}-{}", self.boot_id, self.journals);
        let content = compaction::config_journal(&id, self.highest_epoch, &self.condemned, self.head, &self.resources);
        self.phase = Phase::Compacting;
        self.before_compaction = Some(BeforeCompaction {
            journal: std::mem::replace(&mut self.journal, id.into()),
            len: self.len,
            settled: self.settled,
            live: self.live,
        });
        self.len = content.len() as u64;
        self.settled = self.len;
        self.live = self.len;
        self.recorded_epoch = self.highest_epoch;
        out.push(Effect::Replace { file: File::Config, content: content.into() });
    }

    pub(in crate::core) fn replaced(&mut self, done: bool, out: &mut Vec<Effect>) {
        if self.phase != Phase::Compacting {
            return;
        }
        self.phase = Phase::Idle;
        if let Some(before) = self.before_compaction.take()
            && !done
        {
            // The old file stays. Not again before it has grown once more.
            self.journal = before.journal;
            (self.len, self.settled, self.live) = (before.len, before.settled, before.live);
            self.compact_from = before.len.saturating_mul(2);
        }
        self.pump(out);
    }
}
