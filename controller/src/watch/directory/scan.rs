//! Walking a folder and reading one manifest file, safely: no devices, no pipes, no way out of the folder.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use translate::manifest::{Entry, FilePath, MAX_FILE_BYTES, Unreadable, entry, fits, leads_inside};
use zeroize::Zeroizing;

/// What tells one version of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// Not a pipe or the like.
    plain: bool,
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Signature {
    fn of(metadata: &Metadata) -> Signature {
        // Until the year 2262.
        let ns = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
        Signature {
            plain: metadata.is_file(),
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether it was emptied a moment ago, as whoever writes a file in place does first.
    pub(super) fn is_being_written(&self, now: SystemTime) -> bool {
        // A time in the future is that of a clock that was set back since.
        self.plain && self.length == 0 && (0..200_000_000).contains(&(ns_since_1970(now) - self.modified_ns))
    }

    /// Whether a later write might have left the same signature: the file changed just before it was read, and clocks
    /// of file systems are coarse.
    pub(super) fn is_racy(&self, read_at: SystemTime) -> bool {
        ns_since_1970(read_at) - self.changed_ns < 2_000_000_000
    }
}

fn ns_since_1970(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Everything below a root that counts.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Manifest files, by path relative to the root, sorted.
    pub(super) files: Vec<(FilePath, Option<Signature>)>,
    /// Folders, the root first.
    pub(super) folders: Vec<PathBuf>,
    /// Folders that could not be listed, and why: what was known of them stays.
    pub(super) unreadable: BTreeMap<PathBuf, Unreadable>,
    /// The folder where the walk began is not there.
    pub(super) missing: bool,
}

/// Whether this is a symbolic link or one of several hard links.
pub(super) fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_symlink() || m.nlink() > 1)
}

/// Walks from `start` (relative to the root). `on_folder` is called with each folder before it is listed.
pub(super) fn walk(root: &Path, start: &Path, mut on_folder: impl FnMut(&Path)) -> Walk {
    let mut walk = Walk::default();
    let mut waiting = vec![start.to_owned()];
    while let Some(folder) = waiting.pop() {
        on_folder(&folder);
        let entries = match fs::read_dir(root.join(&folder)) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                walk.missing |= folder == start;
                continue;
            }
            Err(error) => {
                walk.unreadable.insert(folder, Unreadable::Folder(error.to_string()));
                continue;
            }
        };
        walk.folders.push(folder.clone());
        for found in entries {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    walk.unreadable.insert(folder, Unreadable::Folder(error.to_string()));
                    break;
                }
            };
            let Ok(kind) = found.file_type() else { continue };
            let name = found.file_name();
            let path = folder.join(&name);
            match entry(&name, kind.is_dir()) {
                Entry::Folder => waiting.push(path),
                Entry::File => {
                    let signature = fs::metadata(root.join(&path)).ok().map(|m| Signature::of(&m));
                    walk.files.push((path.as_path().into(), signature));
                }
                Entry::Other => {}
            }
        }
    }
    walk.files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    walk
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// It is not there (any more).
    #[error("the file is gone")]
    Gone,
    /// It is there and cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Reads a manifest file. Its bytes may hold keys, so they are wiped when they are dropped.
///
/// A symbolic link is followed when it leads to a plain file inside the root. What is not a plain file (a pipe, a
/// device, a folder) is never opened for real.
pub(super) fn read(root: &Path, path: &Path) -> Result<(Zeroizing<Vec<u8>>, Signature), ReadError> {
    let whole = root.join(path);
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Gone,
        _ => ReadError::Unreadable(Unreadable::File(error.to_string())),
    };
    let seen = fs::symlink_metadata(&whole).map_err(fail)?;
    let target = if seen.file_type().is_symlink() {
        let root = fs::canonicalize(root).map_err(fail)?;
        let target = fs::canonicalize(&whole).map_err(|error| Unreadable::LeadsNowhere(error.to_string()))?;
        if !leads_inside(&root, &target) {
            return Err(Unreadable::LeadsOut.into());
        }
        target
    } else {
        whole
    };
    // Not blocking, so that a pipe cannot stop the one thread that reads; not following, so that the check above holds.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits();
    let file: File = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&target).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(Unreadable::NotPlain.into());
    }
    fits(metadata.len())?;
    let capacity = usize::try_from(metadata.len()).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok((bytes, Signature::of(&metadata)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_empty_file_is_being_written_for_a_moment_and_not_until_a_clock_that_was_set_back_gets_there() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let emptied = |at: SystemTime| {
            let modified_ns = ns_since_1970(at);
            let signature =
                Signature { plain: true, device: 1, inode: 1, length: 0, modified_ns, changed_ns: modified_ns };
            signature.is_being_written(now)
        };
        assert!(emptied(now) && emptied(now - Duration::from_millis(150)));
        assert!(!emptied(now - Duration::from_millis(250)));
        assert!(!emptied(now + Duration::from_secs(3_600)), "its time is that of the clock before");
    }
}
