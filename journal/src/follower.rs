//! What `scalwsd` keeps to follow a `config.jsonl`: each reload reads only the part that is new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::record::{Commit, Record, checksum};
use crate::replay::{Accepted, Replay};
use crate::transactions::{Change, Event, Machine, Transaction, lines};
use crate::{Digest, Key, Tree, digest};

/// A resource that changed between what the follower holds and the commit it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalChange {
    /// Kind and name.
    pub key: Key,
    /// The new body; `None` removes it.
    pub body: Option<Bytes>,
}

/// Why a journal could not be read up to a commit. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is another journal than the one that was named.
    #[error("journal {asked:?} was asked for, and {path} holds {found:?}")]
    OtherJournal {
        /// The file.
        path: PathBuf,
        /// The id in the request.
        asked: String,
        /// The id in the file.
        found: Option<String>,
    },
    /// The commit is not in the file.
    #[error("{path} holds no commit {commit}: {why}")]
    NoCommit {
        /// The file.
        path: PathBuf,
        /// The commit.
        commit: u64,
        /// Where reading ended.
        why: String,
    },
    /// The changes do not lead to the root that the commit names.
    #[error("commit {commit} leads to root {found}, and names {named}")]
    Root {
        /// The commit.
        commit: u64,
        /// What it names.
        named: Digest,
        /// What the bodies give.
        found: Digest,
    },
}

/// Changes that were read and are not loaded yet. Hand it to [`Follower::keep`] once they are.
#[derive(Debug)]
pub struct Staged {
    /// What differs from what the follower holds, by key, each key once.
    pub changes: Vec<JournalChange>,
    /// The root after the changes, recomputed from the bodies.
    pub root: Digest,
    /// Epoch and generation.
    pub version: (u64, u64),
    journal: String,
    commit: u64,
    /// Accepted changes behind the settled offset, and where they end.
    settled: BTreeMap<Key, Option<Bytes>>,
    settled_offset: u64,
    settled_commit: u64,
    settled_head: Option<(Digest, (u64, u64))>,
    /// The changes of the commit itself.
    tail: BTreeMap<Key, Option<Bytes>>,
    /// Whether `settled` starts from nothing.
    from_start: bool,
    file: Option<File>,
}

/// A first transaction that needs no reading.
struct Skipped {
    head: Commit,
    /// Where it ends in the file.
    len: usize,
}

/// Follows one journal file.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    journal: Option<String>,
    commit: u64,
    root: Digest,
    /// The state up to `offset`, all of it accepted.
    state: BTreeMap<Key, Bytes>,
    offset: u64,
    offset_commit: u64,
    /// Root and version at `offset`, once something was accepted.
    accepted: Option<(Digest, (u64, u64))>,
    /// What was kept on top of it and may not be accepted yet.
    tail: BTreeMap<Key, Option<Bytes>>,
    /// Digests of what is held: `state` with `tail`.
    tree: Tree,
}

impl Follower {
    /// Opens a journal at its last accepted state. Without a file it holds nothing, and the first read finds it.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn open(path: &Path) -> io::Result<(Follower, Option<Accepted>)> {
        let mut text = Vec::new();
        let file = match File::open(path) {
            Ok(mut file) => {
                file.read_to_end(&mut text)?;
                Some(file)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let replay = Replay::of(&text);
        let accepted = replay.to_accepted();
        let commit = replay.head.map_or(0, |h| h.commit);
        let mut tree = replay.tree;
        let follower = Follower {
            path: path.to_owned(),
            // The descriptor stays on the file that was read, whatever is renamed over its path later.
            file: file.filter(|_| replay.journal.is_some()),
            journal: replay.journal,
            commit,
            root: tree.root(),
            state: accepted.as_ref().map(|a| a.resources.clone()).unwrap_or_default(),
            offset: replay.settled,
            offset_commit: commit,
            accepted: replay.head.map(|h| (h.root, h.version)),
            tail: BTreeMap::new(),
            tree,
        };
        Ok((follower, accepted))
    }

    /// The journal it last kept something from.
    pub fn journal(&self) -> Option<&str> {
        self.journal.as_deref()
    }

    /// The commit it holds; 0 before the first.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// The root of what it holds.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// Reads up to a commit. Changes nothing until [`Follower::keep`]; asked again without it, gives the same again.
    ///
    /// # Errors
    /// When the file is not that journal, does not hold the commit, or the commit's root does not fit the bodies.
    pub fn read_to(&mut self, journal: &str, commit: u64) -> Result<Staged, JournalError> {
        let io = |source| JournalError::Io { path: self.path.clone(), source };
        let known = self.journal.as_deref() == Some(journal) && self.file.is_some();
        if known && commit == self.offset_commit && self.accepted.is_some() {
            return Ok(self.back_to_accepted());
        }
        let mut opened = if known { None } else { Some(File::open(&self.path).map_err(io)?) };
        let (from, after) = if known { (self.offset, self.offset_commit) } else { (0, 0) };
        let mut text = Vec::new();
        if let Some(file) = opened.as_mut().or(self.file.as_mut()) {
            file.seek(SeekFrom::Start(from)).map_err(io)?;
            file.read_to_end(&mut text).map_err(io)?;
        }
        let mut found = self.scan(&text, from, after, known, journal, commit)?;
        found.file = opened;
        Ok(found)
    }

    /// Takes back a commit that was kept and never accepted: the way to a journal that was cut.
    fn back_to_accepted(&mut self) -> Staged {
        let (root, version) = self.accepted.unwrap_or((self.root, (0, 0)));
        let mut staged = Staged {
            changes: Vec::new(),
            root,
            version,
            journal: self.journal.clone().unwrap_or_default(),
            commit: self.offset_commit,
            settled: BTreeMap::new(),
            settled_offset: self.offset,
            settled_commit: self.offset_commit,
            settled_head: self.accepted,
            tail: BTreeMap::new(),
            from_start: false,
            file: None,
        };
        staged.changes = self.difference(&staged);
        staged
    }

    fn scan(
        &mut self,
        text: &[u8],
        base: u64,
        after: u64,
        known: bool,
        journal: &str,
        commit: u64,
    ) -> Result<Staged, JournalError> {
        let no_commit = |why: String| JournalError::NoCommit { path: self.path.clone(), commit, why };
        if !known {
            let found = lines(text).next().and_then(|(from, to)| match Record::decode(&text[from..to - 1]) {
                Ok(Record::Journal { id }) => Some(id),
                _ => None,
            });
            if found.as_deref() != Some(journal) {
                return Err(JournalError::OtherJournal { path: self.path.clone(), asked: journal.to_owned(), found });
            }
        }
        let skipped = if known { None } else { self.skip_held_state(text) };
        // What is held already is not parsed again, however much it is.
        let (text, base, after) = match &skipped {
            Some(skipped) => (text.get(skipped.len..).unwrap_or_default(), skipped.len as u64, skipped.head.id),
            None => (text, base, after),
        };
        let from_start = !known && skipped.is_none();
        let mut machine = if from_start { Machine::default() } else { Machine::after(after) };
        let mut settled = if skipped.is_some() { self.tail.clone() } else { BTreeMap::new() };
        let (mut settled_offset, mut settled_commit) = (base, after);
        let mut settled_head = match &skipped {
            Some(Skipped { head, .. }) => Some((head.root, (head.epoch, head.generation))),
            None => self.accepted.filter(|_| known),
        };
        if let Some(Skipped { head, .. }) = skipped.filter(|skipped| skipped.head.id == commit) {
            let mut staged = Staged {
                changes: Vec::new(),
                root: head.root,
                version: (head.epoch, head.generation),
                journal: journal.to_owned(),
                commit,
                settled,
                settled_offset,
                settled_commit,
                settled_head,
                tail: BTreeMap::new(),
                from_start,
                file: None,
            };
            staged.changes = self.difference(&staged);
            return Ok(staged);
        }
        for (from, to) in lines(text) {
            match machine.line(text, from, to, base).map_err(|e| no_commit(e.to_string()))? {
                Some(Event::Accepted(done)) => {
                    settled_commit = done.commit.id;
                    settled_head = Some((done.commit.root, (done.commit.epoch, done.commit.generation)));
                    settled.extend(done.changes.into_iter().map(|c| (c.key, c.put.map(|p| p.0))));
                    settled_offset = base + to as u64;
                }
                Some(Event::Committed) if machine.open().is_some_and(|open| open.commit.id == commit) => break,
                Some(Event::Committed) | None => {}
                Some(Event::Journal(_) | Event::Epoch(_) | Event::Condemned(_)) => settled_offset = base + to as u64,
            }
        }
        let Some(Transaction { commit: head, changes, .. }) = machine.take_open().filter(|t| t.commit.id == commit)
        else {
            return Err(no_commit("the file ends before it".to_owned()));
        };
        let tail = changes.into_iter().map(|Change { key, put }| (key, put.map(|p| p.0))).collect();
        let mut staged = Staged {
            changes: Vec::new(),
            root: head.root,
            version: (head.epoch, head.generation),
            journal: journal.to_owned(),
            commit,
            settled,
            settled_offset,
            settled_commit,
            settled_head,
            tail,
            from_start,
            file: None,
        };
        staged.changes = self.difference(&staged);
        let found = self.root_with(&staged.changes);
        if found != head.root {
            return Err(JournalError::Root { commit, named: head.root, found });
        }
        Ok(staged)
    }

    /// The first transaction of a compacted journal is its whole accepted state. When that is what is held, only its
    /// checksum is looked at.
    fn skip_held_state(&self, text: &[u8]) -> Option<Skipped> {
        let mut start = None;
        let mut all = lines(text).skip(1);
        let (line, to) = loop {
            let (from, to) = all.next()?;
            let line = text.get(from..to - 1)?;
            if line.starts_with(br#"{"put":"#) {
                start.get_or_insert(from);
                continue;
            }
            match Record::decode(line).ok()? {
                Record::Commit(head) => break ((head, start.unwrap_or(from), from), to),
                Record::Epoch { .. } | Record::Condemned { .. } if start.is_none() => {}
                _ => return None,
            }
        };
        let (head, start, end) = line;
        let sum = checksum(text.get(start..end)?, head.id, head.epoch, head.generation, &head.root);
        let (from, to_accepted) = all.next().filter(|(from, _)| *from == to)?;
        let accepted = Record::decode(text.get(from..to_accepted - 1)?).ok()?;
        let held = head.root == self.root && self.commit > 0;
        (held && sum == head.checksum && accepted == Record::Accepted { id: head.id })
            .then_some(Skipped { head, len: to_accepted })
    }

    /// What differs between what is held and what was staged. Costs what changed, unless the journal is a new one.
    fn difference(&self, staged: &Staged) -> Vec<JournalChange> {
        let touched = self.tail.keys().chain(staged.settled.keys()).chain(staged.tail.keys());
        let all = staged.from_start.then(|| self.state.keys()).into_iter().flatten();
        let keys: BTreeSet<&Key> = touched.chain(all).collect();
        keys.into_iter()
            .filter_map(|key| {
                let new = match staged.tail.get(key).or_else(|| staged.settled.get(key)) {
                    Some(new) => new.as_ref(),
                    None if staged.from_start => None,
                    None => self.state.get(key),
                };
                let changed = new != self.held(key);
                changed.then(|| JournalChange { key: key.clone(), body: new.cloned() })
            })
            .collect()
    }

    fn held(&self, key: &Key) -> Option<&Bytes> {
        match self.tail.get(key) {
            Some(kept) => kept.as_ref(),
            None => self.state.get(key),
        }
    }

    /// The root that the changes would lead to; the tree is as before afterwards.
    fn root_with(&mut self, changes: &[JournalChange]) -> Digest {
        let undo: Vec<_> = changes.iter().map(|change| (change.key.clone(), self.tree.get(&change.key))).collect();
        plant(&mut self.tree, changes);
        let root = self.tree.root();
        for (key, leaf) in undo {
            match leaf {
                Some(leaf) => self.tree.insert(key, leaf),
                None => self.tree.remove(&key),
            };
        }
        root
    }

    /// What was staged is loaded: the next read starts from it.
    pub fn keep(&mut self, staged: Staged) {
        plant(&mut self.tree, &staged.changes);
        if staged.from_start {
            self.state.clear();
        }
        if let Some(file) = staged.file {
            self.file = Some(file);
            self.journal = Some(staged.journal);
        }
        for (key, body) in staged.settled {
            match body {
                Some(body) => self.state.insert(key, body),
                None => self.state.remove(&key),
            };
        }
        self.tail = staged.tail;
        self.offset = staged.settled_offset;
        self.offset_commit = staged.settled_commit;
        self.accepted = staged.settled_head;
        self.commit = staged.commit;
        self.root = staged.root;
    }
}

fn plant(tree: &mut Tree, changes: &[JournalChange]) {
    for change in changes {
        match &change.body {
            Some(body) => tree.insert(change.key.clone(), digest::leaf(&change.key, body)),
            None => tree.remove(&change.key),
        };
    }
}
