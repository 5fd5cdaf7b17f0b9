//! Finds the transactions in the lines of a `config.jsonl`. Pure: bytes in, events out.

use std::sync::Arc;

use bytes::Bytes;

use crate::digest::{self, Place};
use crate::record::{Commit, Read, Record, checksum};
use crate::{Digest, Key};

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Kind and name.
    pub key: Key,
    /// What it is from now on; `None` removes the resource.
    pub put: Option<Put>,
}

/// A resource as a transaction puts it. The body stays in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its leaf.
    pub leaf: Digest,
    /// Where its body stands in the file.
    pub place: Place,
    /// The secrets that the body names.
    pub secrets: Arc<[Digest]>,
}

impl Put {
    /// Its body, in the text of the journal that it was read from.
    pub fn body(&self, text: &[u8]) -> Bytes {
        body_at(text, self.place)
    }
}

/// The body at a place of a text that was read from there.
pub(crate) fn body_at(text: &[u8], place: Place) -> Bytes {
    let from = usize::try_from(place.offset()).unwrap_or(usize::MAX);
    Bytes::copy_from_slice(text.get(from..from.saturating_add(place.len())).unwrap_or_default())
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
        let record = match Read::of(line) {
            Ok(Read::Other(record)) => record,
            Ok(Read::Put { key, secrets, body }) if self.named => {
                let leaf = digest::leaf(&key, body);
                // The body ends before two braces and the line feed.
                let from = end - 3 - body.len() as u64;
                let Some(place) = Place::new(from, body.len()) else {
                    return fail(format!("the body of {key} is too long, or too far behind"));
                };
                self.change(Change { key, put: Some(Put { leaf, place, secrets }) }, offset);
                return Ok(None);
            }
            Ok(Read::Put { .. }) => {
                return fail("the first record, and only the first, names the journal".to_owned());
            }
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
            // Read above.
            Record::Put { .. } => Ok(None),
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
