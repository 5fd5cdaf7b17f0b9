//! A folder of manifests, read once: which files count, and the objects in them.
//!
//! The rules are those of the controller's directory source: `*.yaml`, `*.yml` and `*.json`, sub-folders too, names
//! that start with a dot left out.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::Value;
use translate::manifest::{self, MAX_FILE_BYTES};
use zeroize::Zeroizing;

/// One file.
#[derive(Clone, Debug)]
pub struct ManifestFile {
    /// Its path, below the folder.
    pub path: PathBuf,
    /// The objects in it, or why it cannot be read.
    pub objects: Result<Vec<Value>, String>,
}

/// The files of a folder, sorted by path.
///
/// # Errors
///
/// When the folder itself cannot be read. A sub-folder that cannot be read counts as empty.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    walk(folder, &mut out)?;
    out.sort();
    Ok(out)
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        // Links to files are followed, links to folders are not.
        if entry.file_type()?.is_dir() {
            let _ = walk(&path, out);
        } else if counts(&path) && fs::metadata(&path).is_ok_and(|data| data.is_file()) {
            out.push(path);
        }
    }
    Ok(())
}

/// Whether a file of this name is read as a manifest.
pub fn counts(path: &Path) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| matches!(e, "yaml" | "yml" | "json"))
}

/// Reads one file.
///
/// # Errors
///
/// When it is no plain file, cannot be read, is too long, or does not parse.
pub fn read_file(path: &Path) -> Result<Vec<Value>, String> {
    // Without blocking, and looked at when it is open: what was a file a moment ago may be a pipe or a device now.
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| e.to_string())?;
    let metadata = file.metadata().map_err(|e| e.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a plain file".to_owned());
    }
    let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    if metadata.len() > limit {
        let bytes = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        return Err(manifest::ManifestError::TooLong { bytes }.to_string());
    }
    // Not more than the limit and one byte, whatever the file grows to meanwhile.
    // It may hold keys. The room is made beforehand: a buffer that grows leaves copies behind.
    let room = usize::try_from(metadata.len()).unwrap_or_default().saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    manifest::values(&bytes).map_err(|e| e.to_string())
}

/// Reads all files of a folder.
///
/// # Errors
///
/// As [`files`].
pub fn read(folder: &Path) -> io::Result<Vec<ManifestFile>> {
    let list = files(folder)?;
    Ok(list
        .into_iter()
        .map(|path| {
            let objects = read_file(&path);
            let path = path.strip_prefix(folder).map(Path::to_owned).unwrap_or(path);
            ManifestFile { path, objects }
        })
        .collect())
}

/// The text at a JSON pointer (RFC 6901), or nothing.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The array at a JSON pointer, or nothing.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The namespace of an object; `default` when it does not say, as with `kubectl apply`.
pub fn namespace(value: &Value) -> &str {
    match text(value, "/metadata/namespace") {
        "" => "default",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_manifests_count_and_sub_folders_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("sub/.hidden")).unwrap();
        for name in ["b.yaml", "a.json", "sub/c.yml", "sub/.hidden/d.yaml", ".e.yaml", "f.yaml.part", "README.md"] {
            fs::write(root.join(name), "kind: A\n").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("sub/loop")).unwrap();
        let found: Vec<PathBuf> =
            read(root).unwrap().into_iter().map(|f| f.path).filter(|p| !p.starts_with("sub/loop")).collect();
        assert_eq!(found, ["a.json", "b.yaml", "sub/c.yml"].map(PathBuf::from));
    }

    #[test]
    fn what_is_no_plain_file_is_refused_at_once() {
        // A pipe without a writer blocks whoever opens it; the device never ends. The walk leaves both out, unless they
        // take the place of a file just then.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("a.yaml");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            assert_eq!(read_file(path), Err("it is not a plain file".to_owned()), "{}", path.display());
        }
    }

    #[test]
    fn a_broken_file_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "kind: [").unwrap();
        fs::write(folder.path().join("b.yaml"), "kind: B\n---\nkind: C\n").unwrap();
        let read = read(folder.path()).unwrap();
        assert!(read[0].objects.is_err());
        assert_eq!(read[1].objects.as_ref().unwrap().len(), 2);
    }
}
