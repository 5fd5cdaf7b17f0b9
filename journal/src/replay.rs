//! What a `config.jsonl` means: the last accepted state, and what an agent must settle behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::mutants::{self, Mutant};
use crate::transactions::{Change, Corrupt, Event, Machine, Put, Transaction, body_at, lines};
use crate::{Digest, Key, Tree};

/// A resource as the journal holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The raw bytes of its body.
    pub body: Bytes,
    /// The secrets that the body names.
    pub secrets: Arc<[Digest]>,
}

/// The last accepted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its commit.
    pub commit: u64,
    /// Epoch and generation.
    pub version: (u64, u64),
    /// The root of the state.
    pub root: Digest,
}

/// The last accepted state of a journal, for `scalwsd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The id of the journal.
    pub journal: String,
    /// The commit.
    pub commit: u64,
    /// Epoch and generation.
    pub version: (u64, u64),
    /// The root; the bodies were checked against it.
    pub root: Digest,
    /// Every resource.
    pub resources: BTreeMap<Key, Bytes>,
    /// Offset behind the transaction.
    pub offset: u64,
}

/// A journal that was read from its first byte. Every root in it was recomputed.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// The id of the journal; `None` when it has no first record.
    pub journal: Option<String>,
    /// The highest epoch that was recorded.
    pub highest_epoch: u64,
    /// Leaves on which `scalwsd` died.
    pub condemned: BTreeSet<Digest>,
    /// The last accepted transaction.
    pub head: Option<Head>,
    /// The state after it.
    pub resources: BTreeMap<Key, Stored>,
    /// Its digests.
    pub tree: Tree,
    /// Everything behind this offset is leftovers, apart from `open`.
    pub settled: u64,
    /// A commit at the end of the file that is not accepted: it never happened, unless the agent finds that `scalwsd`
    /// runs it.
    pub open: Option<Transaction>,
    /// Why reading stopped before the end, if it did.
    pub corrupt: Option<Corrupt>,
}

impl Replay {
    /// Reads the bytes of a journal. Never fails: what cannot be read ends the journal there.
    pub fn of(text: &[u8]) -> Replay {
        let outline = Outline::read(text);
        let Outline { journal, highest_epoch, condemned, head, tree, secrets, settled, open, corrupt } = outline;
        let mut resources: BTreeMap<Key, Stored> = BTreeMap::new();
        for (key, place) in tree.places() {
            let secrets = secrets.get(key).cloned().unwrap_or_default();
            resources.insert(key.clone(), Stored { body: body_at(text, place), secrets });
        }
        let mut replay = Replay { journal, highest_epoch, condemned, head, resources, tree, settled, open, corrupt };
        if mutants::active(Mutant::CommitCountsAsAccepted) {
            replay.take_open_as_accepted(text);
        }
        replay
    }

    /// What a replay that does not wait for `accepted` would do.
    fn take_open_as_accepted(&mut self, text: &[u8]) {
        let Some(open) = self.open.take() else { return };
        for change in open.changes {
            match change.put {
                Some(put) => {
                    let stored = Stored { body: put.body(text), secrets: put.secrets };
                    drop(self.resources.insert(change.key, stored));
                }
                None => drop(self.resources.remove(&change.key)),
            }
        }
    }

    /// Reads a journal file; `None` when there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<Replay>> {
        Ok(read_file(path)?.map(|text| Replay::of(&text)))
    }

    /// The last accepted state of a journal file; `None` when there is no file or nothing was accepted yet.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn accepted(path: &Path) -> io::Result<Option<Accepted>> {
        Ok(Replay::read(path)?.and_then(|replay| replay.to_accepted()))
    }

    /// The accepted state, if there is one.
    pub fn to_accepted(&self) -> Option<Accepted> {
        let head = self.head?;
        Some(Accepted {
            journal: self.journal.clone()?,
            commit: head.commit,
            version: head.version,
            root: head.root,
            resources: self.resources.iter().map(|(key, stored)| (key.clone(), stored.body.clone())).collect(),
            offset: self.settled,
        })
    }
}

/// A journal that was read from its first byte, without its bodies: those stay in the file.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// As in [`Replay::journal`].
    pub journal: Option<String>,
    /// As in [`Replay::highest_epoch`].
    pub highest_epoch: u64,
    /// As in [`Replay::condemned`].
    pub condemned: BTreeSet<Digest>,
    /// As in [`Replay::head`].
    pub head: Option<Head>,
    /// The digests of the state after it, and where its bodies stand.
    pub tree: Tree,
    /// The secrets of the resources that name some.
    pub secrets: BTreeMap<Key, Arc<[Digest]>>,
    /// As in [`Replay::settled`].
    pub settled: u64,
    /// As in [`Replay::open`].
    pub open: Option<Transaction>,
    /// As in [`Replay::corrupt`].
    pub corrupt: Option<Corrupt>,
}

impl Outline {
    /// Reads the bytes of a journal. Never fails: what cannot be read ends the journal there.
    pub fn of(text: &[u8]) -> Outline {
        let mut outline = Outline::read(text);
        if mutants::active(Mutant::CommitCountsAsAccepted) {
            outline.open = None;
        }
        outline
    }

    fn read(text: &[u8]) -> Outline {
        let mut outline = Outline::default();
        let mut machine = Machine::default();
        for (from, to) in lines(text) {
            let step = machine.line(text, from, to, 0).and_then(|event| match event {
                Some(event) => outline.take(event, to as u64),
                None => Ok(()),
            });
            if let Err(corrupt) = step {
                outline.corrupt = Some(corrupt);
                machine.take_open();
                break;
            }
        }
        outline.open = machine.take_open();
        outline
    }

    fn take(&mut self, event: Event, end: u64) -> Result<(), Corrupt> {
        match event {
            Event::Committed => return Ok(()),
            Event::Journal(id) => self.journal = Some(id),
            Event::Epoch(highest) => self.highest_epoch = self.highest_epoch.max(highest),
            Event::Condemned(leaves) => self.condemned = leaves.into_iter().collect(),
            Event::Accepted(transaction) => self.accept(transaction)?,
        }
        self.settled = end;
        Ok(())
    }

    fn accept(&mut self, transaction: Transaction) -> Result<(), Corrupt> {
        let Transaction { commit, changes, start, .. } = transaction;
        let mut undo = Vec::new();
        let first = self.tree.is_empty();
        for Change { key, put } in changes {
            if !first {
                let old = self.tree.get_at(&key).map(|(leaf, place)| {
                    let secrets = self.secrets.get(&key).cloned().unwrap_or_default();
                    Put { leaf, place, secrets }
                });
                undo.push((key.clone(), old));
            }
            self.plant(key, put);
        }
        if self.tree.root() == commit.root {
            let version = (commit.epoch, commit.generation);
            self.highest_epoch = self.highest_epoch.max(commit.epoch);
            self.head = Some(Head { commit: commit.id, version, root: commit.root });
            return Ok(());
        }
        if first {
            (self.tree, self.secrets) = (Tree::default(), BTreeMap::new());
        }
        for (key, old) in undo.into_iter().rev() {
            self.plant(key, old);
        }
        Err(Corrupt { offset: start, why: format!("commit {} does not lead to the root it names", commit.id) })
    }

    fn plant(&mut self, key: Key, put: Option<Put>) {
        match put {
            Some(Put { leaf, place, secrets }) => {
                if secrets.is_empty() {
                    self.secrets.remove(&key);
                } else {
                    self.secrets.insert(key.clone(), secrets);
                }
                self.tree.insert_at(key, leaf, place);
            }
            None => {
                self.tree.remove(&key);
                self.secrets.remove(&key);
            }
        }
    }
}

/// The bytes of a file; `None` when there is none.
pub(crate) fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::File::open(path) {
        Ok(mut file) => {
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok(Some(text))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
