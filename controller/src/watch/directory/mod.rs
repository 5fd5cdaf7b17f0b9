//! A folder of manifests as a source of objects: watched for edits, read file by file.
//!
//! A rename or a close acts at once. Removals wait a few milliseconds, so that a folder that is being removed file by
//! file is told apart from a file that was.

mod inotify;
mod scan;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use translate::manifest::{Content, FilePath, Folder, UNREADABLE, documents, is_manifest};
pub use translate::manifest::{FileFinding, shown};

use inotify::{Signal, Watcher};
use scan::{ReadError, Signature};

use super::{Batch, Listing};

/// Removals are acted on when no further one came for this long, ...
const SETTLE: Duration = Duration::from_millis(10);
/// ... and at the latest after this long.
const SETTLE_AT_MOST: Duration = Duration::from_millis(500);
/// How often a folder that is not there is looked for.
const LOOK_FOR_ROOT: Duration = Duration::from_millis(200);
/// How often everything is looked at when the kernel cannot tell what changed.
const WITHOUT_INOTIFY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Seen {
    signature: Option<Signature>,
    racy: bool,
}

#[derive(Clone, Copy, Debug)]
struct Settling {
    first: Instant,
    last: Instant,
}

/// The folder.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    watcher: Option<Watcher>,
    held: Folder,
    seen: HashMap<FilePath, Seen>,
    settling: Option<Settling>,
    missing: bool,
    next_look: Option<Instant>,
}

impl Directory {
    /// Opens a folder. Nothing is read before the first [`Directory::rescan`].
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open(root: &Path) -> io::Result<Directory> {
        if !std::fs::metadata(root)?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"));
        }
        let watcher = match Watcher::new(root) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "the kernel gives no inotify instance (fs.inotify.max_user_instances); looking at the folder every second instead");
                None
            }
        };
        Ok(Directory {
            root: root.to_owned(),
            watcher,
            held: Folder::default(),
            seen: HashMap::new(),
            settling: None,
            missing: false,
            next_look: None,
        })
    }

    /// The descriptor that is readable when [`Directory::step`] has something to do.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.as_ref().map(Watcher::fd)
    }

    /// When [`Directory::step`] has something to do even without an event.
    pub fn wake_at(&self) -> Option<Instant> {
        let settle = self.settling.map(|s| (s.last + SETTLE).min(s.first + SETTLE_AT_MOST));
        [settle, self.next_look].into_iter().flatten().min()
    }

    /// Whether removals are waiting to be acted on.
    pub fn is_settling(&self) -> bool {
        self.settling.is_some()
    }

    /// Kinds of objects that are there and not read, with the files they are in.
    pub fn ignored(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.held.ignored()
    }

    /// Takes in what the kernel signalled, and what is due.
    pub fn step(&mut self, now: Instant) -> Batch {
        let signals = match self.watcher.as_mut().map(Watcher::drain) {
            Some(Ok(signals)) => signals,
            Some(Err(error)) => {
                tracing::warn!(%error, "inotify cannot be read; looking at the folder every second instead");
                self.watcher = None;
                vec![Signal::Everything]
            }
            None => Vec::new(),
        };
        let mut files = BTreeSet::new();
        let mut everything = self.next_look.is_some_and(|at| at <= now);
        for signal in signals {
            match signal {
                Signal::File(path) => {
                    if is_manifest(&path) {
                        files.insert(FilePath::from(path.as_path()));
                    }
                }
                Signal::FileGone(path) => {
                    let path = FilePath::from(path.as_path());
                    files.remove(&path);
                    self.gone(&path, now);
                }
                Signal::Folder(path) => {
                    let walk = self.walk(&path);
                    files.extend(walk.files.into_iter().map(|(path, _)| path));
                }
                Signal::FolderGone(path) => {
                    if let Some(watcher) = self.watcher.as_mut() {
                        watcher.forget(&path);
                    }
                    files.retain(|file| !file.starts_with(&path));
                    for file in self.held.files_below(&path) {
                        self.gone(&file, now);
                    }
                }
                Signal::Everything => everything = true,
            }
        }
        self.read(files.into_iter().collect(), now);
        let mut batch = Batch { observed: self.held.take_changes(), ..Batch::default() };
        if everything {
            self.list(now, &mut batch);
        } else if self.settling.is_some_and(|s| now >= s.last + SETTLE || now >= s.first + SETTLE_AT_MOST) {
            self.settle(now, &mut batch);
        }
        batch.findings.extend(self.take_findings());
        batch
    }

    /// Adds what a look at everything shows.
    fn list(&mut self, now: Instant, batch: &mut Batch) {
        let Batch { observed, listed, findings, .. } = self.rescan(now);
        batch.observed.extend(observed);
        batch.listed = listed;
        batch.findings.extend(findings);
    }

    /// Acts on removals: those from a folder that is still there were seen to happen, the others are a list's word.
    fn settle(&mut self, now: Instant, batch: &mut Batch) {
        if !self.root.is_dir() {
            self.list(now, batch);
            return;
        }
        self.settling = None;
        let parents: BTreeSet<PathBuf> =
            self.held.gone().iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        let there: BTreeSet<&PathBuf> = parents.iter().filter(|parent| self.root.join(parent).is_dir()).collect();
        self.held.sweep(|path| path.parent().is_some_and(|parent| there.contains(&parent.to_owned())));
        batch.observed.append(&mut self.held.take_changes());
        if !self.held.gone().is_empty() {
            self.held.sweep(|_| true);
            let changes = self.held.take_changes();
            batch.listed = Some(Listing { changes, objects: self.held.len(), missing: false });
        }
    }

    /// Looks at everything and reads each file that is not as it was when it was last read.
    pub fn rescan(&mut self, now: Instant) -> Batch {
        self.settling = None;
        let walk = self.walk(Path::new(""));
        if walk.missing != self.missing {
            match walk.missing {
                true => tracing::warn!(folder = %shown(&self.root), "the folder is gone; what it held stays in force"),
                false => tracing::info!(folder = %shown(&self.root), "the folder is back"),
            }
        }
        self.missing = walk.missing;
        if let Some(watcher) = self.watcher.as_mut() {
            watcher.keep_only(&walk.folders);
        }
        self.next_look = match (self.missing, &self.watcher) {
            (true, _) => Some(now + LOOK_FOR_ROOT),
            (false, None) => Some(now + WITHOUT_INOTIFY),
            (false, Some(_)) => None,
        };
        let mut stale = Vec::new();
        for (path, signature) in &walk.files {
            let known = self.seen.get(path);
            if known.is_some() && signature.is_some_and(|signature| signature.is_being_written(SystemTime::now())) {
                // Whoever truncated it has not written yet; the end of that is signalled.
                continue;
            }
            let same = known.is_some_and(|seen| !seen.racy && seen.signature == *signature && signature.is_some());
            if !same || self.held.gone().contains(path) {
                stale.push(path.clone());
            }
        }
        self.read(stale, now);
        self.held.unreadable_folders(walk.unreadable);
        let there: HashSet<&Path> = walk.files.iter().map(|(path, _)| &**path).collect();
        let lost = self.held.lost(|path| there.contains(path));
        for path in lost {
            self.gone(&path, now);
        }
        self.settling = None;
        self.held.sweep(|_| true);
        let changes = self.held.take_changes();
        let listed = Some(Listing { changes, objects: self.held.len(), missing: self.missing });
        Batch { listed, findings: self.take_findings(), ..Batch::default() }
    }

    /// The findings that changed, with what stays in force where the finding does not say so.
    fn take_findings(&mut self) -> Vec<(PathBuf, Vec<FileFinding>)> {
        let mut findings = self.held.take_findings();
        for finding in findings.iter_mut().flat_map(|(_, findings)| findings).filter(|f| f.reason == UNREADABLE) {
            finding.message.push_str("; what it held before stays in force");
        }
        findings
    }

    fn walk(&mut self, start: &Path) -> scan::Walk {
        let watcher = &mut self.watcher;
        let mut failed = None;
        let walk = scan::walk(&self.root, start, |folder| {
            if let Some(watcher) = watcher.as_mut()
                && let Err(error) = watcher.watch(folder)
                && !matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS)
            {
                failed = Some(error);
            }
        });
        if let Some(error) = failed {
            tracing::warn!(%error, "a folder cannot be watched (fs.inotify.max_user_watches); looking at all of them every second instead");
            self.watcher = None;
            self.next_look = Some(Instant::now() + WITHOUT_INOTIFY);
        }
        walk
    }

    /// Reads files, and takes in what they hold in this order.
    fn read(&mut self, paths: Vec<FilePath>, now: Instant) {
        for (path, found) in paths.iter().zip(read_all(&self.root, &paths)) {
            match found {
                Ok((seen, content)) => {
                    self.seen.insert(path.clone(), seen);
                    self.held.update(path.clone(), content);
                }
                Err(Gone) => self.gone(path, now),
            }
        }
    }

    fn gone(&mut self, path: &FilePath, now: Instant) {
        self.seen.remove(path);
        self.held.mark_gone(path);
        if !self.held.gone().is_empty() {
            let first = self.settling.map_or(now, |s| s.first);
            self.settling = Some(Settling { first, last: now });
        }
    }
}

/// The file is not there (any more).
#[derive(Debug)]
struct Gone;

/// Files from which on it pays to read with several threads.
const MANY: usize = 64;
/// Files that a thread takes at a time.
const SHARE: usize = 32;

/// Reads and parses files, with as many threads as there are processors when there are many. The answers are in the order
/// of the files: what they come to does not depend on who read which.
fn read_all(root: &Path, paths: &[FilePath]) -> Vec<Result<(Seen, Content), Gone>> {
    let one_by_one = || paths.iter().map(|path| read_one(root, path)).collect();
    if paths.len() < MANY {
        return one_by_one();
    }
    // Asking reads the limits of the control group from files, which costs more than reading a manifest.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    if threads == 1 {
        return one_by_one();
    }
    let shares: Vec<&[FilePath]> = paths.chunks(SHARE).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(share) = shares.get(number) else { return };
            let read: Vec<_> = share.iter().map(|path| read_one(root, path)).collect();
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(number, read);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().flatten().collect()
}

fn read_one(root: &Path, path: &Path) -> Result<(Seen, Content), Gone> {
    match scan::read(root, path) {
        Ok((bytes, signature)) => {
            let seen = Seen { signature: Some(signature), racy: signature.is_racy(SystemTime::now()) };
            Ok((seen, Content::Documents(documents(&bytes))))
        }
        Err(ReadError::Gone) => Err(Gone),
        Err(ReadError::Unreadable(why)) => Ok((Seen { signature: None, racy: true }, Content::Unreadable(why))),
    }
}
