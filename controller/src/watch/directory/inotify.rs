//! Which files and folders below a root changed, as the kernel tells it (inotify, recursive).
//!
//! A folder is watched before it is listed, so nothing that appears in between is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Something that changed. Paths are relative to the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signal {
    /// A file was written and closed, moved here, linked, or its mode changed.
    File(PathBuf),
    /// A file was unlinked or moved away.
    FileGone(PathBuf),
    /// A folder is new here.
    Folder(PathBuf),
    /// A folder was removed or moved away.
    FolderGone(PathBuf),
    /// Look at everything: events were lost, the root moved, or something that links may lead through changed.
    Everything,
}

/// What a folder is watched for. Plain writes are not: a file counts when its writer closed it.
const FOLDER_EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// A recursive watch.
#[derive(Debug)]
pub(super) struct Watcher {
    fd: OwnedFd,
    root: PathBuf,
    folders: BTreeMap<i32, PathBuf>,
    numbers: BTreeMap<PathBuf, i32>,
    /// The folder that the root stands in, to see the root come back.
    parent: Option<(i32, OsString)>,
}

impl Watcher {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the kernel gives no inotify instance (`fs.inotify.max_user_instances`).
    pub(super) fn new(root: &Path) -> Result<Watcher, Errno> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut watcher =
            Watcher { fd, root: root.to_owned(), folders: BTreeMap::new(), numbers: BTreeMap::new(), parent: None };
        watcher.watch_parent();
        Ok(watcher)
    }

    fn watch_parent(&mut self) {
        let (Some(parent), Some(name)) = (self.root.parent(), self.root.file_name()) else { return };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        // Without it the root's return is seen at the next scan.
        self.parent = inotify::add_watch(&self.fd, parent, flags).ok().map(|number| (number, name.to_owned()));
    }

    /// The descriptor: readable when there are signals.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Watches one folder, not what is below it.
    ///
    /// # Errors
    /// When the folder is gone or the limit of watches is reached (`fs.inotify.max_user_watches`).
    pub(super) fn watch(&mut self, folder: &Path) -> Result<(), Errno> {
        let mut flags = FOLDER_EVENTS;
        if !folder.as_os_str().is_empty() {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        let number = inotify::add_watch(&self.fd, self.root.join(folder), flags)?;
        if let Some(old) = self.folders.insert(number, folder.to_owned())
            && old != folder
        {
            // The same folder under another name: it was moved.
            self.numbers.remove(&old);
        }
        if let Some(old) = self.numbers.insert(folder.to_owned(), number)
            && old != number
        {
            self.folders.remove(&old);
            // It may be gone already, and its number with it.
            let _ = inotify::remove_watch(&self.fd, old);
        }
        Ok(())
    }

    /// Forgets a folder and everything below it.
    pub(super) fn forget(&mut self, folder: &Path) {
        let below: Vec<PathBuf> = self.numbers.keys().filter(|path| path.starts_with(folder)).cloned().collect();
        for path in below {
            if let Some(number) = self.numbers.remove(&path) {
                self.folders.remove(&number);
                let _ = inotify::remove_watch(&self.fd, number);
            }
        }
    }

    /// Forgets every folder that is not among these.
    pub(super) fn keep_only(&mut self, folders: &[PathBuf]) {
        let folders: BTreeSet<&PathBuf> = folders.iter().collect();
        let others: Vec<PathBuf> = self.numbers.keys().filter(|path| !folders.contains(path)).cloned().collect();
        for path in others {
            self.forget(&path);
        }
    }

    /// Everything that was signalled since the last call, in order. Does not wait.
    ///
    /// # Errors
    /// When the descriptor cannot be read, which only a bug explains.
    pub(super) fn drain(&mut self) -> Result<Vec<Signal>, Errno> {
        let mut signals = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut dead = Vec::new();
        {
            let mut reader = Reader::new(self.fd.as_fd(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                        let flags = event.events();
                        if flags.contains(ReadFlags::IGNORED) {
                            dead.push(event.wd());
                        } else {
                            self.translate(event.wd(), flags, name, &mut signals);
                        }
                    }
                    Err(Errno::WOULDBLOCK) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        for number in dead {
            if let Some(path) = self.folders.remove(&number)
                && self.numbers.get(&path) == Some(&number)
            {
                self.numbers.remove(&path);
            }
            if self.parent.as_ref().is_some_and(|(parent, _)| *parent == number) {
                self.parent = None;
            }
        }
        Ok(signals)
    }

    fn translate(&self, number: i32, flags: ReadFlags, name: Option<&OsStr>, signals: &mut Vec<Signal>) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            signals.push(Signal::Everything);
            return;
        }
        let folder = self.folders.get(&number);
        if folder.is_none()
            && self
                .parent
                .as_ref()
                .is_some_and(|(parent, root)| *parent == number && name.is_some_and(|name| name == root))
        {
            signals.push(Signal::Everything);
            return;
        }
        // A number that is not known belongs to a folder that was forgotten.
        let Some(folder) = folder else { return };
        let Some(name) = name else {
            if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
                signals.push(match folder.as_os_str().is_empty() {
                    true => Signal::Everything,
                    false => Signal::FolderGone(folder.clone()),
                });
            }
            return;
        };
        let path = folder.join(name);
        let gone = flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        if translate::manifest::is_hidden(name) {
            // Mounted Kubernetes volumes swap a hidden link that the visible ones lead through.
            if flags.intersects(ReadFlags::MOVED_TO) && name.as_bytes().starts_with(b"..") {
                signals.push(Signal::Everything);
            }
            return;
        }
        signals.push(match (flags.contains(ReadFlags::ISDIR), gone) {
            (true, true) => Signal::FolderGone(path),
            (true, false) => Signal::Folder(path),
            (false, true) => Signal::FileGone(path),
            (false, false) => {
                let created_only = flags.contains(ReadFlags::CREATE);
                // A new plain file is read when its writer closes it; a link has no writer.
                if created_only && !super::scan::is_link(&self.root.join(&path)) {
                    return;
                }
                Signal::File(path)
            }
        });
    }
}
