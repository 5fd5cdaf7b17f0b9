//! A folder of manifests, looked at once: what is in it, for [`translate::manifest`] to say what it means.
//!
//! The walk and the opening are the controller's (`controller/src/watch/directory/scan.rs`): the same names, the same
//! links, the same limits. A test holds the two together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use translate::manifest::{Content, Entry, Folder, MAX_FILE_BYTES, Unreadable, documents, entry, fits, leads_inside};
use zeroize::Zeroizing;

/// The files and folders below a root, by path relative to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Everything that counts as a manifest by its name, readable or not.
    pub files: BTreeSet<PathBuf>,
    /// Folders that could not be listed.
    pub unreadable: BTreeMap<PathBuf, Unreadable>,
}

/// Walks a folder.
///
/// # Errors
///
/// When the folder itself cannot be listed.
pub fn walk(root: &Path) -> io::Result<Walk> {
    let mut walk = Walk::default();
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        if let Err(error) = list(root, &folder, &mut waiting, &mut walk.files) {
            match error.kind() {
                _ if folder.as_os_str().is_empty() => return Err(error),
                // It went away under way.
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {}
                _ => drop(walk.unreadable.insert(folder, Unreadable::Folder(error.to_string()))),
            }
        }
    }
    Ok(walk)
}

fn list(root: &Path, folder: &Path, folders: &mut Vec<PathBuf>, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for found in fs::read_dir(root.join(folder))? {
        let found = found?;
        let Ok(kind) = found.file_type() else { continue };
        let name = found.file_name();
        match entry(&name, kind.is_dir()) {
            Entry::Folder => folders.push(folder.join(name)),
            Entry::File => drop(files.insert(folder.join(name))),
            Entry::Other => {}
        }
    }
    Ok(())
}

/// Reads one file of a walk; nothing when it is not there any more.
pub fn content(root: &Path, path: &Path) -> Option<Content> {
    match bytes(root, path) {
        Ok(bytes) => Some(Content::Documents(documents(&bytes))),
        Err(Failure::Gone) => None,
        Err(Failure::Unreadable(why)) => Some(Content::Unreadable(why)),
    }
}

enum Failure {
    Gone,
    Unreadable(Unreadable),
}

impl From<Unreadable> for Failure {
    fn from(why: Unreadable) -> Failure {
        Failure::Unreadable(why)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::Gone,
            _ => Failure::Unreadable(Unreadable::File(error.to_string())),
        }
    }
}

fn bytes(root: &Path, path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut target = root.join(path);
    if fs::symlink_metadata(&target)?.file_type().is_symlink() {
        let root = fs::canonicalize(root)?;
        target = fs::canonicalize(&target).map_err(|error| Unreadable::LeadsNowhere(error.to_string()))?;
        if !leads_inside(&root, &target) {
            return Err(Unreadable::LeadsOut.into());
        }
    }
    // Without blocking, and looked at when it is open: what was a file a moment ago may be a pipe, a device or a link now.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&target)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Unreadable::NotPlain.into());
    }
    fits(metadata.len())?;
    // Not more than the limit and one byte, whatever the file grows to meanwhile.
    // It may hold keys. The room is made beforehand: a buffer that grows leaves copies behind.
    let room = usize::try_from(metadata.len()).unwrap_or_default().saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole folder, as a controller does that starts on it.
///
/// # Errors
///
/// As [`walk`].
pub fn read(root: &Path) -> io::Result<Folder> {
    let Walk { files, unreadable } = walk(root)?;
    let read = files.into_iter().filter_map(|path| content(root, &path).map(|content| (path, content)));
    let mut folder = Folder::default();
    folder.take_in(read.collect(), unreadable);
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use translate::manifest::ManifestError;

    fn unreadable(read: Option<Content>) -> Unreadable {
        match read {
            Some(Content::Unreadable(why)) => why,
            other => panic!("{other:?} is not unreadable"),
        }
    }

    #[test]
    fn only_manifests_count_and_sub_folders_are_walked() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("sub/.hidden")).unwrap();
        fs::create_dir_all(root.join("named.yaml")).unwrap();
        for name in
            ["b.yaml", "a.json", "sub/c.yml", "named.yaml/d.yaml", "sub/.hidden/d.yaml", ".e.yaml", "f.yaml.part"]
        {
            fs::write(root.join(name), "kind: A\n").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("sub/loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("link.yaml")).unwrap();
        let wanted = ["a.json", "b.yaml", "link.yaml", "named.yaml/d.yaml", "sub/c.yml"].map(PathBuf::from);
        assert_eq!(walk(root).unwrap(), Walk { files: wanted.into(), unreadable: BTreeMap::new() });
        assert!(walk(&root.join("nowhere")).is_err());
    }

    #[test]
    fn what_is_no_plain_file_is_refused_at_once() {
        // A pipe without a writer blocks whoever opens it; the device never ends.
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        std::os::unix::fs::symlink("folder", root.join("link")).unwrap();
        for path in ["pipe", "folder", "link", "/dev/zero"] {
            assert_eq!(unreadable(content(root, Path::new(path))), Unreadable::NotPlain, "{path}");
        }
    }

    #[test]
    fn links_do_not_lead_out_and_long_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(folder.path().join("out.yaml"), "kind: A\n").unwrap();
        for (name, target) in [("a", "../out.yaml"), ("b", "/dev/zero"), ("c", "c"), ("d", "nowhere")] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let why = |name: &str| unreadable(content(&root, Path::new(name)));
        assert_eq!((why("a"), why("b")), (Unreadable::LeadsOut, Unreadable::LeadsOut));
        assert!(matches!((why("c"), why("d")), (Unreadable::LeadsNowhere(_), Unreadable::LeadsNowhere(_))));
        fs::File::create(root.join("long")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(why("long"), Unreadable::TooLong(ManifestError::TooLong { bytes: 1 << 40 }));
        assert!(content(&root, Path::new("e")).is_none(), "what is gone is nothing");
    }
}
