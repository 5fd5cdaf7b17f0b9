//! Finds the transactions in the lines of a `config.jsonl`. Pure: bytes in, events out.

use std::sync::Arc;

use bytes::Bytes;

use crate::record::{Commit, Record, checksum};
use crate::{Digest, Key};

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Kind and name.
    pub key: Key,
    /// The new body and the secrets it names; `None` removes the resource.
    pub put: Option<(Bytes, Arc<[Digest]>)>,
}

/// A commit with its changes and what followed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// What the commit says.
    pub commit: Commit,
    /// In the order of the file.
    pub changes: Vec<Change>,
    /// The start ids of its tries, in order.
    pub tries: Vec<String>,
    /// Offset of its first line.
    pub start: u64,
    /// Offset behind its last complete line: the commit, a try, or `accepted`.
    pub end: u64,
}

/// Where and why reading stopped. What stands before it is good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {why}")]
pub struct Corrupt {
    /// Offset of the line.
    pub offset: u64,
    /// What is wrong with it.
    pub why: String,
}

/// What a line completes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The first record.
    Journal(String),
    Epoch(u64),
    Condemned(Vec<Digest>),
    /// A commit whose checksum fits is open: it counts once `accepted` follows.
    Committed,
    Accepted(Transaction),
}

/// Takes lines one by one.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    named: bool,
    last_commit: u64,
    changes: Vec<Change>,
    /// Offset of the first line of the changes above.
    start: u64,
    open: Option<Transaction>,
}

impl Machine {
    /// For lines that follow the named commit of a journal.
    pub(crate) fn after(last_commit: u64) -> Machine {
        Machine { named: true, last_commit, ..Machine::default() }
    }

    /// The commit that waits for `accepted`.
    pub(crate) fn open(&self) -> Option<&Transaction> {
        self.open.as_ref()
    }

    /// Takes the open commit out.
    pub(crate) fn take_open(&mut self) -> Option<Transaction> {
        self.open.take()
    }

    /// Takes the line `text[from..to]`, `to` behind its line feed; `base` is the offset of `text[0]` in the file.
    pub(crate) fn line(&mut self, text: &[u8], from: usize, to: usize, base: u64) -> Result<Option<Event>, Corrupt> {
        let offset = base + from as u64;
        let end = base + to as u64;
        let fail = |why: String| Err(Corrupt { offset, why });
        let line = text.get(from..to).and_then(|l| l.strip_suffix(b"\n")).unwrap_or_default();
        let record = match Record::decode(line) {
            Ok(record) => record,
            Err(e) => return fail(e.to_string()),
        };
        if self.named == matches!(record, Record::Journal { .. }) {
            return fail("the first record, and only the first, names the journal".to_owned());
        }
        match record {
            Record::Journal { id } => {
                self.named = true;
                Ok(Some(Event::Journal(id)))
            }
            Record::Epoch { highest } => {
                self.void();
                Ok(Some(Event::Epoch(highest)))
            }
            Record::Condemned { leaves } => {
                self.void();
                Ok(Some(Event::Condemned(leaves)))
            }
            Record::Put { key, secrets, body } => {
                self.change(Change { key, put: Some((body, secrets)) }, offset);
                Ok(None)
            }
            Record::Remove { key } => {
                self.change(Change { key, put: None }, offset);
                Ok(None)
            }
            Record::Commit(commit) => {
                // A commit right behind another one is an empty transaction: the one before never happened.
                self.open = None;
                let start = if self.changes.is_empty() { offset } else { self.start };
                let lines = usize::try_from(start - base).ok().and_then(|s| text.get(s..from)).unwrap_or_default();
                let sum = checksum(lines, commit.id, commit.epoch, commit.generation, &commit.root);
                if sum != commit.checksum {
                    return fail(format!("the checksum of commit {} does not fit", commit.id));
                }
                if commit.id <= self.last_commit {
                    return fail(format!("commit {} follows commit {}", commit.id, self.last_commit));
                }
                let changes = std::mem::take(&mut self.changes);
                self.open = Some(Transaction { commit, changes, tries: Vec::new(), start, end });
                Ok(Some(Event::Committed))
            }
            Record::Try { commit, start } => match &mut self.open {
                Some(open) if open.commit.id == commit => {
                    open.tries.push(start);
                    open.end = end;
                    Ok(None)
                }
                _ => fail(format!("a try for commit {commit}, which is not open")),
            },
            Record::Accepted { id } => match self.open.take() {
                Some(mut open) if open.commit.id == id => {
                    open.end = end;
                    self.last_commit = id;
                    Ok(Some(Event::Accepted(open)))
                }
                _ => fail(format!("accepted {id}, which is not open")),
            },
            Record::Set { .. } | Record::Drop { .. } => fail("a member record in a configuration journal".to_owned()),
        }
    }

    fn change(&mut self, change: Change, offset: u64) {
        self.open = None;
        if self.changes.is_empty() {
            self.start = offset;
        }
        self.changes.push(change);
    }

    fn void(&mut self) {
        self.open = None;
        self.changes.clear();
    }
}

/// The complete lines of a text as `(from, to)`, `to` behind the line feed.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = text.get(from..)?;
        let to = from + rest.iter().position(|b| *b == b'\n')? + 1;
        let line = (from, to);
        from = to;
        Some(line)
    })
}
