//! What to look at next in a folder of manifests: what the kernel says has changed, and everything from time to time.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long after a change the folder is read, so that one write of many files is read once.
const SETTLE: Duration = Duration::from_millis(20);
/// How often everything is looked at without a notice: links lead through hidden folders, and the folder may be another.
const REREAD: Duration = Duration::from_secs(5);

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The whole folder.
    Everything,
    /// These paths: files or folders that are new, changed or gone.
    At(BTreeSet<PathBuf>),
}

/// A recursive watch of one folder.
pub(super) struct Watch {
    root: PathBuf,
    notices: Arc<Notices>,
    watcher: Option<RecommendedWatcher>,
    /// Device and number of the folder that is watched.
    watched: Option<(u64, u64)>,
    everything_at: Instant,
}

struct Notices {
    root: PathBuf,
    pending: Mutex<Look>,
    came: Notify,
}

impl Watch {
    /// Watches nothing before the first [`Watch::renew`].
    pub(super) fn new(root: &Path) -> Watch {
        let notices = Arc::new(Notices {
            root: root.to_owned(),
            pending: Mutex::new(Look::At(BTreeSet::new())),
            came: Notify::new(),
        });
        let notice = Arc::clone(&notices);
        // Without a watch, what changed is found when everything is looked at.
        let watcher = notify::recommended_watcher(move |event| notice.take(event)).ok();
        Watch { root: root.to_owned(), notices, watcher, watched: None, everything_at: Instant::now() + REREAD }
    }

    /// Watches the folder that is there now; nothing is done when it is the one that is watched already.
    pub(super) fn renew(&mut self) {
        let there = std::fs::metadata(&self.root).ok().map(|data| (data.dev(), data.ino()));
        let Some(watcher) = self.watcher.as_mut().filter(|_| there != self.watched) else { return };
        // It fails when there is nothing to forget.
        let _ = watcher.unwatch(&self.root);
        self.watched = there.filter(|_| watcher.watch(&self.root, RecursiveMode::Recursive).is_ok());
    }

    /// Waits for changes to be over, and says what to look at.
    pub(super) async fn next(&mut self) -> Look {
        let noticed = tokio::time::timeout_at(self.everything_at, self.notices.came.notified()).await.is_ok();
        if noticed {
            tokio::time::sleep(SETTLE).await;
        }
        let look = self.notices.drain();
        if noticed && look != Look::Everything && Instant::now() < self.everything_at {
            return look;
        }
        self.everything_at = Instant::now() + REREAD;
        Look::Everything
    }
}

impl Notices {
    fn take(&self, event: notify::Result<notify::Event>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(event) if event.need_rescan() => *pending = Look::Everything,
            // Files that are opened and read say nothing, and readers, this one among them, cause nothing but that. A
            // file that is written counts when its writer closes it.
            Ok(event) if !is_change(event.kind) => return,
            Ok(event) if event.paths.iter().any(|path| self.is_entrance(path)) => *pending = Look::Everything,
            Ok(event) => {
                if let Look::At(paths) = &mut *pending {
                    paths.extend(event.paths.into_iter().filter(|path| self.concerns(path)));
                }
            }
            Err(_) => *pending = Look::Everything,
        }
        let nothing = matches!(&*pending, Look::At(paths) if paths.is_empty());
        drop(pending);
        if !nothing {
            self.came.notify_one();
        }
    }

    /// The folder itself, or the hidden link that mounted Kubernetes volumes swap (`..data`): anything may be different.
    fn is_entrance(&self, path: &Path) -> bool {
        let swapped = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".."));
        swapped || path == self.root
    }

    /// Hidden files and folders do not count.
    fn concerns(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.root) else { return false };
        below.iter().all(|part| !part.as_encoded_bytes().starts_with(b"."))
    }

    fn drain(&self) -> Look {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut pending, Look::At(BTreeSet::new()))
    }
}

fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Create(_)
        | EventKind::Remove(_)
        | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_)) => true,
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Waits for notices until this path is among them, and gives what came until then.
    async fn until(watch: &mut Watch, path: &Path) -> BTreeSet<PathBuf> {
        let mut seen = BTreeSet::new();
        let all = async {
            while !seen.contains(path) {
                match watch.next().await {
                    Look::At(paths) => seen.extend(paths),
                    Look::Everything => {}
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("a change was never signalled");
        seen
    }

    #[tokio::test]
    async fn reading_a_folder_is_no_reason_to_read_it_again() {
        let root = tempfile::tempdir().unwrap();
        let (read, written) = (root.path().join("read.yaml"), root.path().join("written.yaml"));
        fs::write(&read, "kind: A\n").unwrap();
        let mut watch = Watch::new(root.path());
        watch.renew();
        crate::manifests::read(root.path()).unwrap();
        watch.renew();
        fs::write(&written, "kind: B\n").unwrap();
        assert_eq!(until(&mut watch, &written).await, BTreeSet::from([written]), "the reading was taken for a change");
    }

    #[tokio::test]
    async fn changes_are_signalled_by_their_paths_and_hidden_ones_are_not() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("gone.yaml"), "").unwrap();
        fs::write(path("moved.part"), "").unwrap();
        let mut watch = Watch::new(root.path());
        watch.renew();
        fs::write(path(".hidden.yaml"), "").unwrap();
        fs::remove_file(path("gone.yaml")).unwrap();
        fs::rename(path("moved.part"), path("moved.yaml")).unwrap();
        fs::create_dir(path("sub")).unwrap();
        fs::write(path("z.yaml"), "").unwrap();
        let seen = until(&mut watch, &path("z.yaml")).await;
        assert_eq!(seen, BTreeSet::from(["gone.yaml", "moved.part", "moved.yaml", "sub", "z.yaml"].map(path)));
    }

    #[tokio::test]
    async fn a_folder_that_was_replaced_is_looked_at_whole_and_watched_again() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut watch = Watch::new(&root);
        watch.renew();
        fs::rename(&root, parent.path().join("old")).unwrap();
        fs::create_dir(&root).unwrap();
        assert_eq!(watch.next().await, Look::Everything);
        watch.renew();
        fs::write(root.join("new.yaml"), "").unwrap();
        until(&mut watch, &root.join("new.yaml")).await;
    }

    #[test]
    fn a_mounted_volume_that_was_swapped_is_looked_at_whole() {
        let watch = Watch::new(Path::new("/config"));
        let came = |path: &str| {
            let event = notify::Event::new(EventKind::Modify(ModifyKind::Any));
            watch.notices.take(Ok(event.add_path(PathBuf::from(path))));
            watch.notices.drain()
        };
        assert_eq!(came("/config/a.yaml"), Look::At(BTreeSet::new()), "a plain write is not over yet");
        let renamed = |path: &str| {
            let kind = EventKind::Modify(ModifyKind::Name(notify::event::RenameMode::To));
            watch.notices.take(Ok(notify::Event::new(kind).add_path(PathBuf::from(path))));
            watch.notices.drain()
        };
        assert_eq!(renamed("/config/..data"), Look::Everything);
        assert_eq!(renamed("/config"), Look::Everything);
        assert_eq!(renamed("/config/.git/x.yaml"), Look::At(BTreeSet::new()));
        watch.notices.take(Err(notify::Error::generic("lost")));
        assert_eq!(watch.notices.drain(), Look::Everything);
    }
}
