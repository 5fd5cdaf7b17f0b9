//! What `scalwsd` keeps to follow a `config.jsonl`: each reload reads only the part that is new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::digest::{self, Place};
use crate::record::{self, Commit, Record, checksum};
use crate::replay::Outline;
use crate::transactions::{Change, Event, Machine, Put, Transaction, lines};
use crate::{Digest, Head, Key, Tree};

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
    settled: BTreeMap<Key, Option<Held>>,
    settled_offset: u64,
    settled_commit: u64,
    settled_head: Option<(Digest, (u64, u64))>,
    /// The changes of the commit itself.
    tail: BTreeMap<Key, Option<Held>>,
    /// Whether `settled` starts from nothing.
    from_start: bool,
    /// Another file, with the places of what is held already in it.
    file: Option<File>,
    moved: Vec<(Key, Place)>,
}

/// A leaf, and where its body stands.
type Held = (Digest, Place);

/// A first transaction that needs no reading.
struct Skipped {
    head: Commit,
    /// Where it ends in the file.
    len: usize,
    /// Where its bodies stand there.
    places: Vec<(Key, Place)>,
}

/// Follows one journal file. Bodies stay in it: what is kept is where they stand, and each is checked when it is read.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    journal: Option<String>,
    commit: u64,
    root: Digest,
    /// Up to here all is accepted.
    offset: u64,
    offset_commit: u64,
    /// Root and version at `offset`, once something was accepted.
    accepted: Option<(Digest, (u64, u64))>,
    /// What was kept on top of it may not be accepted yet: this is how its keys were before.
    before: BTreeMap<Key, Option<Held>>,
    /// What is held, with that on top.
    tree: Tree,
}

impl Follower {
    /// Opens a journal at its last accepted state; gives that too. Without a file it holds nothing, and the first read
    /// finds it.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn open(path: &Path) -> io::Result<(Follower, Option<Head>)> {
        let mut text = Vec::new();
        let file = match File::open(path) {
            Ok(mut file) => {
                file.read_to_end(&mut text)?;
                Some(file)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let outline = Outline::of(&text);
        let head = outline.head.filter(|_| outline.journal.is_some());
        let commit = outline.head.map_or(0, |h| h.commit);
        let mut tree = outline.tree;
        let follower = Follower {
            path: path.to_owned(),
            // The descriptor stays on the file that was read, whatever is renamed over its path later.
            file: file.filter(|_| outline.journal.is_some()),
            journal: outline.journal,
            commit,
            root: tree.root(),
            offset: outline.settled,
            offset_commit: commit,
            accepted: outline.head.map(|h| (h.root, h.version)),
            before: BTreeMap::new(),
            tree,
        };
        Ok((follower, head))
    }

    /// The keys of what it holds.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.tree.iter().map(|(key, _)| key)
    }

    /// The body of a resource that it holds, read from the file.
    ///
    /// # Errors
    /// When the file cannot be read, or does not hold what was read from it before.
    pub fn body(&self, key: &Key) -> io::Result<Option<Bytes>> {
        self.tree.get_at(key).map(|held| self.read_body(key, held)).transpose()
    }

    fn read_body(&self, key: &Key, (leaf, place): Held) -> io::Result<Bytes> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut body = vec![0; place.len()];
        file.read_exact_at(&mut body, place.offset())?;
        if digest::leaf(key, &body) != leaf {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the journal changed where {key} stands")));
        }
        Ok(body.into())
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
            return self.back_to_accepted();
        }
        let mut opened = if known { None } else { Some(File::open(&self.path).map_err(io)?) };
        let (from, after) = if known { (self.offset, self.offset_commit) } else { (0, 0) };
        let mut text = Vec::new();
        if let Some(file) = opened.as_mut().or(self.file.as_mut()) {
            file.seek(SeekFrom::Start(from)).map_err(io)?;
            file.read_to_end(&mut text).map_err(io)?;
        }
        let mut found = self.scan((&text, from, after, known), journal, commit)?;
        found.file = opened;
        Ok(found)
    }

    /// Takes back a commit that was kept and never accepted: the way to a journal that was cut.
    fn back_to_accepted(&mut self) -> Result<Staged, JournalError> {
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
            moved: Vec::new(),
        };
        staged.changes = self.difference(&staged, &[], 0)?;
        Ok(staged)
    }

    /// Reads `text`, which begins at the offset `base` of the file, behind the commit `after`. A file that is not `known`
    /// is read from its start.
    fn scan(
        &mut self,
        (text, base, after, known): (&[u8], u64, u64, bool),
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
        let (whole, whole_base) = (text, base);
        let (text, base, after) = match &skipped {
            Some(skipped) => (text.get(skipped.len..).unwrap_or_default(), skipped.len as u64, skipped.head.id),
            None => (text, base, after),
        };
        let from_start = !known && skipped.is_none();
        let mut machine = if from_start { Machine::default() } else { Machine::after(after) };
        let mut staged = Staged {
            changes: Vec::new(),
            root: self.root,
            version: (0, 0),
            journal: journal.to_owned(),
            commit,
            settled: BTreeMap::new(),
            settled_offset: base,
            settled_commit: after,
            settled_head: self.accepted.filter(|_| known),
            tail: BTreeMap::new(),
            from_start,
            file: None,
            moved: Vec::new(),
        };
        if let Some(Skipped { head, places, .. }) = skipped {
            let (root, version) = (head.root, (head.epoch, head.generation));
            staged.settled_head = Some((root, version));
            // Its root is that of what is held, so what was kept last is accepted there.
            let kept = self.before.keys().map(|key| (key.clone(), self.tree.get_at(key)));
            staged.settled.extend(kept);
            for (key, place) in &places {
                if let Some(Some(held)) = staged.settled.get_mut(key) {
                    held.1 = *place;
                }
            }
            staged.moved = places;
            if head.id == commit {
                (staged.root, staged.version) = (root, version);
                staged.changes = self.difference(&staged, whole, whole_base)?;
                return Ok(staged);
            }
        }
        let held = |put: Option<Put>| put.map(|put| (put.leaf, put.place));
        for (from, to) in lines(text) {
            match machine.line(text, from, to, base).map_err(|e| no_commit(e.to_string()))? {
                Some(Event::Accepted(done)) => {
                    staged.settled_commit = done.commit.id;
                    staged.settled_head = Some((done.commit.root, (done.commit.epoch, done.commit.generation)));
                    staged.settled.extend(done.changes.into_iter().map(|c| (c.key, held(c.put))));
                    staged.settled_offset = base + to as u64;
                }
                Some(Event::Committed) if machine.open().is_some_and(|open| open.commit.id == commit) => break,
                Some(Event::Committed) | None => {}
                Some(Event::Journal(_) | Event::Epoch(_) | Event::Condemned(_)) => {
                    staged.settled_offset = base + to as u64;
                }
            }
        }
        let Some(Transaction { commit: head, changes, .. }) = machine.take_open().filter(|t| t.commit.id == commit)
        else {
            return Err(no_commit("it ends before it".to_owned()));
        };
        staged.tail = changes.into_iter().map(|Change { key, put }| (key, held(put))).collect();
        (staged.root, staged.version) = (head.root, (head.epoch, head.generation));
        staged.changes = self.difference(&staged, whole, whole_base)?;
        let after = staged.changes.iter().map(|c| (c.key.clone(), c.body.as_ref().map(|b| digest::leaf(&c.key, b))));
        let found = self.tree.root_after(&after.collect());
        if found != head.root {
            return Err(JournalError::Root { commit, named: head.root, found });
        }
        Ok(staged)
    }

    /// The first transaction of a compacted journal is its whole accepted state. When that is what is held, only its
    /// checksum is looked at.
    fn skip_held_state(&self, text: &[u8]) -> Option<Skipped> {
        let mut start = None;
        let mut places = Vec::new();
        let mut all = lines(text).skip(1);
        let (line, to) = loop {
            let (from, to) = all.next()?;
            let line = text.get(from..to - 1)?;
            if line.starts_with(br#"{"put":"#) {
                start.get_or_insert(from);
                let (key, body) = record::put_at(line)?;
                places.push((key, Place::new((from + body.start) as u64, body.len())?));
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
        let held = head.root == self.root && self.commit > 0 && places.len() == self.tree.len();
        (held && sum == head.checksum && accepted == Record::Accepted { id: head.id }).then_some(Skipped {
            head,
            len: to_accepted,
            places,
        })
    }

    /// What differs between what is held and what was staged from `text`, which begins at an offset of its file. Costs
    /// what changed, unless the journal is a new one.
    fn difference(&self, staged: &Staged, text: &[u8], base: u64) -> Result<Vec<JournalChange>, JournalError> {
        let touched = self.before.keys().chain(staged.settled.keys()).chain(staged.tail.keys());
        let all = staged.from_start.then(|| self.keys()).into_iter().flatten();
        let keys: BTreeSet<&Key> = touched.chain(all).collect();
        let mut changes = Vec::new();
        for key in keys {
            let staged_new = staged.tail.get(key).or_else(|| staged.settled.get(key));
            let new = match staged_new {
                Some(new) => *new,
                None if staged.from_start => None,
                None => self.accepted(key),
            };
            if new.map(|(leaf, _)| leaf) == self.tree.get(key) {
                continue;
            }
            let body = match (new, staged_new) {
                (None, _) => None,
                (Some((_, place)), Some(_)) if place.offset() >= base => {
                    let from = usize::try_from(place.offset() - base).unwrap_or(usize::MAX);
                    let body = text.get(from..from.saturating_add(place.len())).unwrap_or_default();
                    Some(Bytes::copy_from_slice(body))
                }
                (Some(held), _) => {
                    let read = self.read_body(key, held);
                    Some(read.map_err(|source| JournalError::Io { path: self.path.clone(), source })?)
                }
            };
            changes.push(JournalChange { key: key.clone(), body });
        }
        Ok(changes)
    }

    /// What was accepted of a key.
    fn accepted(&self, key: &Key) -> Option<Held> {
        match self.before.get(key) {
            Some(before) => *before,
            None => self.tree.get_at(key),
        }
    }

    /// What was staged is loaded: the next read starts from it.
    pub fn keep(&mut self, staged: Staged) {
        // Back to what was accepted, then all that was accepted since, then the commit on top.
        for (key, held) in std::mem::take(&mut self.before) {
            self.put(key, held);
        }
        if staged.from_start {
            self.tree = Tree::default();
        }
        for (key, place) in staged.moved {
            if let Some(leaf) = self.tree.get(&key) {
                self.tree.insert_at(key, leaf, place);
            }
        }
        if let Some(file) = staged.file {
            self.file = Some(file);
            self.journal = Some(staged.journal);
        }
        for (key, held) in staged.settled {
            self.put(key, held);
        }
        for (key, held) in staged.tail {
            let old = self.tree.get_at(&key);
            self.put(key.clone(), held);
            self.before.insert(key, old);
        }
        self.tree.root();
        self.offset = staged.settled_offset;
        self.offset_commit = staged.settled_commit;
        self.accepted = staged.settled_head;
        self.commit = staged.commit;
        self.root = staged.root;
    }

    fn put(&mut self, key: Key, held: Option<Held>) {
        match held {
            Some((leaf, place)) => drop(self.tree.insert_at(key, leaf, place)),
            None => drop(self.tree.remove(&key)),
        }
    }
}
