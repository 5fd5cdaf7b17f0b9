//! Walking a folder and reading one manifest file, safely: no devices, no pipes, no way out of the folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use translate::manifest::{MAX_FILE_BYTES, ManifestError};
use zeroize::Zeroizing;

/// What tells one version of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Signature {
    fn of(metadata: &Metadata) -> Signature {
        let ns = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Signature {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether it was emptied a moment ago, as whoever writes a file in place does first.
    pub(super) fn is_being_written(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos().cast_signed());
        self.length == 0 && now - self.modified_ns < Duration::from_millis(200).as_nanos().cast_signed()
    }

    /// Whether a later write might have left the same signature: the file changed just before it was read, and clocks
    /// of file systems are coarse.
    pub(super) fn is_racy(&self, read_at: SystemTime) -> bool {
        let margin = Duration::from_secs(2).as_nanos().cast_signed();
        let now = read_at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos().cast_signed());
        now - self.changed_ns < margin
    }
}

/// Everything below a root that counts.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Manifest files, by path relative to the root.
    pub(super) files: BTreeMap<PathBuf, Option<Signature>>,
    /// Folders, the root first.
    pub(super) folders: Vec<PathBuf>,
    /// Folders that could not be listed, and why: what was known of them stays.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
    /// The folder where the walk began is not there.
    pub(super) missing: bool,
}

/// Names with a dot in front are not read: editors, version control and mounted volumes use them for their own ends.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Whether a file of this name is a manifest.
pub(super) fn is_manifest(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let extension = path.extension().map(OsStrExt::as_bytes);
    !is_hidden(name) && matches!(extension, Some(b"yaml" | b"yml" | b"json"))
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
                walk.unreadable.insert(folder, format!("the folder cannot be listed: {error}"));
                continue;
            }
        };
        walk.folders.push(folder.clone());
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    walk.unreadable.insert(folder.clone(), format!("the folder cannot be listed: {error}"));
                    break;
                }
            };
            let name = entry.file_name();
            if is_hidden(&name) {
                continue;
            }
            let path = folder.join(&name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(_) if is_manifest(&path) => {
                    let signature = fs::metadata(root.join(&path)).ok().map(|m| Signature::of(&m));
                    walk.files.insert(path, signature);
                }
                _ => {}
            }
        }
    }
    walk
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// It is not there (any more).
    #[error("the file is gone")]
    Gone,
    /// It is there and cannot be read; the sentence says why and what to do.
    #[error("{0}")]
    Unreadable(String),
}

/// Reads a manifest file. Its bytes may hold keys, so they are wiped when they are dropped.
///
/// A symbolic link is followed when it leads to a plain file inside the root. What is not a plain file (a pipe, a
/// device, a folder) is never opened for real.
pub(super) fn read(root: &Path, path: &Path) -> Result<(Zeroizing<Vec<u8>>, Signature), ReadError> {
    let whole = root.join(path);
    let refuse = |why: &str| Err(ReadError::Unreadable(why.to_owned()));
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Gone,
        _ => ReadError::Unreadable(format!("the file cannot be read: {error}")),
    };
    let seen = fs::symlink_metadata(&whole).map_err(fail)?;
    let target = if seen.file_type().is_symlink() {
        let root = fs::canonicalize(root).map_err(fail)?;
        match fs::canonicalize(&whole) {
            Ok(target) if target.starts_with(&root) => target,
            Ok(_) => return refuse("the link leads out of the folder; put a copy of the file in its place"),
            Err(error) => return refuse(&format!("the link leads nowhere: {error}")),
        }
    } else {
        whole
    };
    // Not blocking, so that a pipe cannot stop the one thread that reads; not following, so that the check above holds.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits();
    let file: File = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&target).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return refuse("it is not a plain file");
    }
    if metadata.len() > MAX_FILE_BYTES as u64 {
        let bytes = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        return Err(ReadError::Unreadable(ManifestError::TooLong { bytes }.to_string()));
    }
    let capacity = usize::try_from(metadata.len()).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok((bytes, Signature::of(&metadata)))
}

/// A path as people and programs see it: relative, with control characters and what is not UTF-8 escaped.
pub fn shown(path: &Path) -> String {
    let mut out = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}
