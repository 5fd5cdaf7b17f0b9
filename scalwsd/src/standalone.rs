//! Standing alone: a hand-written `scalws.yaml`, the files it names, and what changed since it was read last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use config::{ResourceId, SecretDigest, Standalone, StandaloneFile, StandaloneFiles};
use journal::{Digest, Key, Tree, digest};
use zeroize::Zeroizing;

use crate::state::{Bodies, Change};

/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// A configuration that was read.
pub struct Read {
    resources: BTreeMap<ResourceId, Bytes>,
    members: BTreeMap<String, Vec<Arc<str>>>,
    /// Private keys, by digest.
    pub keys: BTreeMap<SecretDigest, Zeroizing<Vec<u8>>>,
    /// The root of the resources.
    pub root: Digest,
}

/// The file, and what was loaded from it last.
pub struct StandAlone {
    path: PathBuf,
    resources: BTreeMap<ResourceId, Bytes>,
    members: BTreeMap<String, Vec<Arc<str>>>,
}

impl Read {
    /// Everything, as changes of nothing.
    pub fn changes(&self) -> Vec<Change> {
        self.resources.iter().map(|(id, bytes)| Change { id: id.clone(), bytes: Some(bytes.clone()) }).collect()
    }
}

impl Bodies for Read {
    fn body(&self, id: &ResourceId) -> std::io::Result<Option<Bytes>> {
        Ok(self.resources.get(id).cloned())
    }
}

impl Bodies for StandAlone {
    fn body(&self, id: &ResourceId) -> std::io::Result<Option<Bytes>> {
        Ok(self.resources.get(id).cloned())
    }
}

impl StandAlone {
    /// A file that was not read yet.
    pub fn new(path: &Path) -> StandAlone {
        StandAlone { path: path.to_owned(), resources: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Reads the file, and the certificates and keys that it names.
    ///
    /// # Errors
    /// Sentences that name the file and the place in it.
    pub fn read(&self) -> Result<Read, Vec<String>> {
        let of_file = |error: String| format!("{}: {error}", self.path.display());
        let text = read_text(&self.path).map_err(|e| vec![of_file(e)])?;
        let file: StandaloneFile = serde_saphyr::from_str(&text).map_err(|e| vec![of_file(e.to_string())])?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut files = Beside { folder, keys: BTreeMap::new() };
        let Standalone { resources, members } =
            file.resources(&mut files).map_err(|errors| errors.into_iter().map(of_file).collect::<Vec<_>>())?;
        let resources: BTreeMap<ResourceId, Bytes> = resources.into_iter().map(|r| (r.id, r.bytes)).collect();
        let mut tree = Tree::default();
        for (id, bytes) in &resources {
            let leaf = digest::leaf(&key(id), bytes);
            tree.insert(key(id), leaf);
        }
        let shared = |members: Vec<String>| members.into_iter().map(Arc::from).collect();
        let members =
            members.into_iter().map(|(set, members)| (set.to_name().as_str().to_owned(), shared(members))).collect();
        Ok(Read { resources, members, keys: files.keys, root: tree.root() })
    }

    /// What differs from what was kept last.
    pub fn changes(&self, read: &Read) -> Vec<(Key, Option<Bytes>)> {
        let gone = self.resources.keys().filter(|id| !read.resources.contains_key(id)).map(|id| (key(id), None));
        let new = read.resources.iter().filter(|(id, bytes)| self.resources.get(id) != Some(bytes));
        gone.chain(new.map(|(id, bytes)| (key(id), Some(bytes.clone())))).collect()
    }

    /// What was read is loaded. Gives the member sets that the file changed: others hold what was set at run time.
    pub fn keep(&mut self, read: Read) -> Vec<(String, Option<Vec<Arc<str>>>)> {
        let gone = self.members.keys().filter(|set| !read.members.contains_key(*set)).map(|set| (set.clone(), None));
        let new = read.members.iter().filter(|(set, members)| self.members.get(*set) != Some(members));
        let changed = gone.chain(new.map(|(set, members)| (set.clone(), Some(members.clone())))).collect();
        self.resources = read.resources;
        self.members = read.members;
        changed
    }
}

fn key(id: &ResourceId) -> Key {
    Key::new(id.kind.as_str(), id.name.as_str())
}

/// Files by their path, seen from the folder of the configuration.
struct Beside<'a> {
    folder: &'a Path,
    keys: BTreeMap<SecretDigest, Zeroizing<Vec<u8>>>,
}

impl StandaloneFiles for Beside<'_> {
    fn text(&mut self, path: &str) -> Result<String, String> {
        read_text(&self.folder.join(path)).map_err(|e| format!("{path}: {e}"))
    }

    fn secret(&mut self, path: &str) -> Result<SecretDigest, String> {
        let bytes = read_bytes(&self.folder.join(path)).map_err(|e| format!("{path}: {e}"))?;
        let digest = SecretDigest(Digest::of(&bytes).to_string().into());
        self.keys.insert(digest.clone(), bytes);
        Ok(digest)
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_bytes(path)?;
    std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| "it is not UTF-8".to_owned())
}

fn read_bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let size = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if size > FILE_MAX {
        return Err(format!("{size} bytes are more than {FILE_MAX}"));
    }
    std::fs::read(path).map(Zeroizing::new).map_err(|e| e.to_string())
}
