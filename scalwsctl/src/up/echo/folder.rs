//! The EndpointSlices of a folder of manifests: each file is read when it may have changed, and only then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use translate::Object;
use translate::manifest::{self, Content, Document, Outcome, is_manifest};
use translate::objects::EndpointSlice;

use super::watch::Look;
use crate::manifests;

/// The clock of a file system may stand still for so long: a file that was written less than this before it was read may
/// be written again without a trace.
const CLOCK: Duration = Duration::from_millis(100);

/// The EndpointSlices that are in force, as for the controller: the proxies go on sending to the last good ones while a
/// file is broken.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// Nothing but EndpointSlices, and what may have been one.
    held: manifest::Folder,
    /// What each file was when it was read, as far as that tells whether it changed since.
    signatures: BTreeMap<PathBuf, Signature>,
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
        Folder { root: root.to_owned(), held: manifest::Folder::default(), signatures: BTreeMap::new() }
    }

    /// Looks, and says whether EndpointSlices changed. A folder that is not there changes nothing.
    pub(super) fn look(&mut self, look: &Look) -> bool {
        match look {
            Look::Everything => self.everything(),
            Look::At(paths) => self.at(paths),
        }
        // The controller tells what is wrong with the files.
        let _ = self.held.take_findings();
        !self.held.take_changes().is_empty()
    }

    /// All EndpointSlices, in the order of their names.
    pub(super) fn slices(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.held.objects().filter_map(|object| match &**object {
            Object::EndpointSlice(slice) => Some(slice),
            _ => None,
        })
    }

    fn everything(&mut self) {
        let Ok(walk) = manifests::walk(&self.root) else { return };
        if !self.root.is_dir() {
            // It went away under way, and was listed in part.
            return;
        }
        self.held.unreadable_folders(walk.unreadable);
        for path in self.held.lost(|path| walk.files.contains(path)) {
            self.gone(&path);
        }
        for path in walk.files {
            let there = fs::metadata(self.root.join(&path)).ok().map(|metadata| Signature::of(&metadata));
            if there.is_none() || self.signatures.get(&path) != there.as_ref() {
                self.read(&path);
            }
        }
        self.held.sweep(|_| true);
    }

    fn at(&mut self, paths: &BTreeSet<PathBuf>) {
        let paths: Vec<&Path> = paths.iter().filter_map(|path| path.strip_prefix(&self.root).ok()).collect();
        if paths.iter().any(|path| self.is_folder(path)) {
            return self.everything();
        }
        if !self.root.is_dir() {
            return;
        }
        for path in paths.into_iter().filter(|path| is_manifest(path)) {
            self.read(path);
        }
        self.held.sweep(|_| true);
    }

    /// Whether it is a folder, or was one with files that are known.
    fn is_folder(&self, path: &Path) -> bool {
        fs::symlink_metadata(self.root.join(path)).is_ok_and(|metadata| metadata.is_dir())
            || self.held.files_below(path).iter().any(|file| **file != *path)
    }

    fn read(&mut self, path: &Path) {
        let there = fs::metadata(self.root.join(path)).ok().map(|metadata| Signature::of(&metadata));
        self.signatures.remove(path);
        match manifests::content(&self.root, path) {
            Some(Content::Documents(documents)) => {
                let settled = there.and_then(|signature| signature.settled(SystemTime::now()));
                self.signatures.extend(settled.map(|signature| (path.to_owned(), signature)));
                let slices = documents.into_iter().filter(may_be_slice).collect();
                self.held.update(path, Content::Documents(slices));
            }
            Some(unreadable) => self.held.update(path, unreadable),
            None => self.gone(path),
        }
    }

    fn gone(&mut self, path: &Path) {
        self.signatures.remove(path);
        self.held.mark_gone(&path.into());
    }
}

fn may_be_slice(document: &Document) -> bool {
    match &document.outcome {
        Outcome::Object(object) => matches!(**object, Object::EndpointSlice(_)),
        Outcome::Refused { object, .. } => object.as_ref().is_none_or(|object| object.kind == "EndpointSlice"),
        Outcome::Ignored { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(ip: &str) -> String {
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: s-{ip}}}\naddressType: \
             IPv4\nendpoints: [{{addresses: [{ip}]}}]\nports: [{{port: 80}}]\n"
        )
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
        // What its times do not vouch for is read at each look, what they do is not: here they lie.
        let name = Path::new("a.yaml");
        let there = Signature::of(&fs::metadata(root.path().join(name)).unwrap());
        folder.signatures.insert(name.to_owned(), there);
        folder.held.update(name, Content::Documents(Vec::new()));
        folder.look(&Look::Everything);
        assert_eq!(addresses(&folder), ["127.0.0.3"], "it was read though it did not change");
        assert_eq!(folder.signatures.get(name), Some(&there));
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
