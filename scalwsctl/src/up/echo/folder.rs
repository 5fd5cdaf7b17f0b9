//! The EndpointSlices of a folder of manifests: each file is read when it may have changed, and only then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::watch::Look;
use crate::manifests::{self, text};

/// The clock of a file system may stand still for so long: a file that was written less than this before it was read may
/// be written again without a trace.
const CLOCK: Duration = Duration::from_millis(100);

/// The last good EndpointSlices of each file: the proxies go on sending to them while a file is broken.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    files: BTreeMap<PathBuf, File>,
}

#[derive(Debug, Default)]
struct File {
    /// What it was when it was read; nothing when that does not tell whether it changed since.
    signature: Option<Signature>,
    slices: Vec<Value>,
}

/// Differs when a file changed: device, file, length, and the times of its content and of its owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signature {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    fn of(metadata: &Metadata) -> Signature {
        Signature {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The signature, if a later change of the file is sure to change it too.
    fn settled(self, now: SystemTime) -> Option<Signature> {
        let seconds = u64::try_from(self.changed.0).ok()?;
        let nanoseconds = u32::try_from(self.changed.1).ok()?;
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(changed).is_ok_and(|age| age > CLOCK).then_some(self)
    }
}

impl Folder {
    /// A folder that was not looked at yet.
    pub(super) fn new(root: &Path) -> Folder {
        Folder { root: root.to_owned(), files: BTreeMap::new() }
    }

    /// Looks, and says whether EndpointSlices may have changed. A folder that is not there changes nothing.
    pub(super) fn look(&mut self, look: &Look) -> bool {
        match look {
            Look::Everything => self.everything(),
            Look::At(paths) => self.at(paths),
        }
    }

    /// All EndpointSlices, those of the first file first.
    pub(super) fn slices(&self) -> impl Iterator<Item = &Value> {
        self.files.values().flat_map(|file| &file.slices)
    }

    fn everything(&mut self) -> bool {
        let Ok(list) = manifests::files(&self.root) else { return false };
        if !self.root.is_dir() {
            // It went away under way, and was listed in part.
            return false;
        }
        let there: BTreeSet<&PathBuf> = list.iter().collect();
        let before = self.files.len();
        self.files.retain(|path, _| there.contains(path));
        let mut changed = before != self.files.len();
        for path in list {
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let signature = Signature::of(&metadata);
            if self.files.get(&path).is_none_or(|file| file.signature != Some(signature)) {
                changed |= self.read(path, signature);
            }
        }
        changed
    }

    fn at(&mut self, paths: &BTreeSet<PathBuf>) -> bool {
        if paths.iter().any(|path| !manifests::counts(path) && self.is_folder(path)) {
            return self.everything();
        }
        if !self.root.is_dir() {
            return false;
        }
        let mut changed = false;
        for path in paths.iter().filter(|path| manifests::counts(path)) {
            changed |= match fs::metadata(path) {
                Ok(metadata) if metadata.is_file() => self.read(path.clone(), Signature::of(&metadata)),
                // A folder may be called like a file.
                _ if self.is_folder(path) => return self.everything(),
                _ => self.files.remove(path).is_some_and(|file| !file.slices.is_empty()),
            };
        }
        changed
    }

    /// Whether it is a folder, or was one with files that are known.
    fn is_folder(&self, path: &Path) -> bool {
        path.is_dir()
            || self
                .files
                .range(path.to_owned()..)
                .next()
                .is_some_and(|(file, _)| file.starts_with(path) && file != path)
    }

    /// Reads a file, which looked like this before. Says whether it has or had slices.
    fn read(&mut self, path: PathBuf, signature: Signature) -> bool {
        let objects = manifests::read_file(&path);
        let file = self.files.entry(path).or_default();
        file.signature = signature.settled(SystemTime::now());
        let Ok(objects) = objects else { return false };
        let slices: Vec<Value> = objects.into_iter().filter(|o| text(o, "/kind") == "EndpointSlice").collect();
        let old = std::mem::replace(&mut file.slices, slices);
        old != file.slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(ip: &str) -> String {
        format!("kind: EndpointSlice\nendpoints: [{{addresses: [{ip}]}}]\nports: [{{port: 80}}]\n")
    }

    fn addresses(folder: &Folder) -> Vec<String> {
        super::super::endpoints::of(folder.slices()).into_keys().map(|a| a.ip().to_string()).collect()
    }

    fn at(root: &Path, names: &[&str]) -> Look {
        Look::At(names.iter().map(|name| root.join(name)).collect())
    }

    /// A folder with `a.yaml` and `b.yaml`, looked at once.
    fn two() -> (tempfile::TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.yaml"), slice("127.0.0.2")).unwrap();
        fs::write(root.path().join("b.yaml"), slice("127.0.0.3")).unwrap();
        let mut folder = Folder::new(root.path());
        assert!(folder.look(&Look::Everything));
        (root, folder)
    }

    #[test]
    fn a_broken_file_keeps_its_endpoints_and_one_that_is_gone_does_not() {
        // Both ways of looking come to the same.
        for everything in [true, false] {
            let (root, mut folder) = two();
            let look = |names: &[&str]| if everything { Look::Everything } else { at(root.path(), names) };
            assert_eq!(addresses(&folder), ["127.0.0.2", "127.0.0.3"]);
            fs::write(root.path().join("a.yaml"), "kind: [").unwrap();
            assert!(!folder.look(&look(&["a.yaml"])), "a broken file changes nothing");
            fs::remove_file(root.path().join("b.yaml")).unwrap();
            assert!(folder.look(&look(&["b.yaml"])));
            assert_eq!(addresses(&folder), ["127.0.0.2"]);
            fs::remove_file(root.path().join("a.yaml")).unwrap();
            assert!(folder.look(&look(&["a.yaml"])));
            assert_eq!(addresses(&folder), [""; 0]);
        }
    }

    #[test]
    fn a_look_at_one_file_leaves_the_others_alone() {
        let (root, mut folder) = two();
        fs::write(root.path().join("a.yaml"), slice("127.0.0.4")).unwrap();
        fs::write(root.path().join("b.yaml"), slice("127.0.0.5")).unwrap();
        assert!(folder.look(&at(root.path(), &["b.yaml"])));
        assert_eq!(addresses(&folder), ["127.0.0.2", "127.0.0.5"]);
        assert!(!folder.look(&at(root.path(), &["b.yaml", "README.md"])), "nothing is different");
        assert!(folder.look(&Look::Everything), "a change that was not signalled is found all the same");
        assert_eq!(addresses(&folder), ["127.0.0.4", "127.0.0.5"]);
    }

    #[test]
    fn a_file_that_is_as_it_was_is_not_read_again() {
        let (root, mut folder) = two();
        let of = |folder: &Folder| folder.files.values().map(|file| file.signature).collect::<Vec<_>>();
        let path = root.path().join("a.yaml");
        // Here the signature lies, so that a reading shows.
        let there = Signature::of(&fs::metadata(&path).unwrap());
        folder.files.get_mut(&path).unwrap().signature = Some(there);
        folder.files.get_mut(&path).unwrap().slices.clear();
        folder.look(&Look::Everything);
        assert_eq!(addresses(&folder), ["127.0.0.3"], "it was read though it did not change");
        assert_eq!(of(&folder)[0], Some(there));
        let written = SystemTime::UNIX_EPOCH
            + Duration::new(there.changed.0.try_into().unwrap(), there.changed.1.try_into().unwrap());
        assert_eq!(there.settled(written), None, "it may be written once more within the same tick of the clock");
        assert_eq!(there.settled(written + Duration::from_secs(1)), Some(there));
    }

    #[test]
    fn folders_come_and_go_with_all_that_is_in_them() {
        let (root, mut folder) = two();
        for name in ["sub", "sub.yaml"] {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("c.yaml"), slice("127.0.0.9")).unwrap();
            assert!(folder.look(&at(root.path(), &[name])));
            assert_eq!(addresses(&folder), ["127.0.0.2", "127.0.0.3", "127.0.0.9"]);
            fs::rename(root.path().join(name), root.path().join(".away")).unwrap();
            assert!(folder.look(&at(root.path(), &[name])));
            assert_eq!(addresses(&folder), ["127.0.0.2", "127.0.0.3"]);
            fs::remove_dir_all(root.path().join(".away")).unwrap();
        }
    }

    #[test]
    fn a_folder_that_is_away_keeps_its_endpoints() {
        let (root, mut folder) = two();
        let away = root.path().with_extension("away");
        fs::rename(root.path(), &away).unwrap();
        assert!(!folder.look(&Look::Everything) && !folder.look(&at(root.path(), &["a.yaml"])));
        assert_eq!(addresses(&folder).len(), 2);
        fs::rename(&away, root.path()).unwrap();
    }
}
