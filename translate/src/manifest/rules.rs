//! Which names of a folder count, how far a link may lead, and why something there is not read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{MAX_FILE_BYTES, ManifestError};

/// What an entry of a folder counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder that is walked.
    Folder,
    /// A manifest. That it can be read is not said: it may be a pipe, or a link that leads nowhere.
    File,
    /// Nothing of ours.
    Other,
}

/// What an entry counts as. `is_folder` is said of the entry itself: a link to a folder is none.
pub fn entry(name: &OsStr, is_folder: bool) -> Entry {
    match is_folder {
        _ if is_hidden(name) => Entry::Other,
        true => Entry::Folder,
        false if is_manifest(Path::new(name)) => Entry::File,
        false => Entry::Other,
    }
}

/// Names with a dot in front are not read: editors, version control and mounted volumes use them for their own ends.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Whether a file of this name is a manifest.
pub fn is_manifest(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let extension = path.extension().map(OsStrExt::as_bytes);
    !is_hidden(name) && matches!(extension, Some(b"yaml" | b"yml" | b"json"))
}

/// Whether a link that leads to `target` is followed. Both paths are canonical. Hidden names on the way do not matter:
/// mounted Kubernetes volumes lead through them.
pub fn leads_inside(root: &Path, target: &Path) -> bool {
    target.starts_with(root)
}

/// Whether a file of this length is read; the length is in bytes.
///
/// # Errors
/// [`Unreadable::TooLong`] for more than [`MAX_FILE_BYTES`].
pub fn fits(bytes: u64) -> Result<(), Unreadable> {
    if bytes > MAX_FILE_BYTES as u64 { Err(Unreadable::TooLong(ManifestError::TooLong { bytes })) } else { Ok(()) }
}

/// Why a file or a folder that is there is not read, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A link to something that is not below the root.
    #[error("the link leads out of the folder; put a copy of the file in its place")]
    LeadsOut,
    /// A link whose target cannot be found; what the system said.
    #[error("the link leads nowhere: {0}")]
    LeadsNowhere(String),
    /// A pipe, a device, or a link to a folder.
    #[error("it is not a plain file")]
    NotPlain,
    /// Longer than [`MAX_FILE_BYTES`].
    #[error(transparent)]
    TooLong(ManifestError),
    /// Any other reason of the system.
    #[error("the file cannot be read: {0}")]
    File(String),
    /// A folder whose entries the system does not give.
    #[error("the folder cannot be listed: {0}")]
    Folder(String),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_and_folders_count_and_hidden_names_do_not() {
        for (name, is_folder, wanted) in [
            ("a.yaml", false, Entry::File),
            ("a.yml", false, Entry::File),
            ("a.json", false, Entry::File),
            ("a", true, Entry::Folder),
            ("a.yaml", true, Entry::Folder),
            (".git", true, Entry::Other),
            ("..data", true, Entry::Other),
            (".a.yaml", false, Entry::Other),
            (".yaml", false, Entry::Other),
            ("yaml", false, Entry::Other),
            ("a.YAML", false, Entry::Other),
            ("a.yaml~", false, Entry::Other),
            ("a.yaml.part", false, Entry::Other),
            ("README.md", false, Entry::Other),
        ] {
            assert_eq!(entry(OsStr::new(name), is_folder), wanted, "{name}");
        }
    }

    #[test]
    fn a_link_is_followed_only_inside_the_folder() {
        let inside = |target: &str| leads_inside(Path::new("/a/m"), Path::new(target));
        assert!(inside("/a/m/..data/x.yaml") && inside("/a/m"));
        assert!(!inside("/a/mm/x.yaml") && !inside("/a") && !inside("/dev/zero"));
    }

    #[test]
    fn strange_names_are_shown_so_that_they_steer_nothing() {
        assert_eq!(shown(Path::new(OsStr::from_bytes(b"a\xff\n\x1bb.yaml"))), "a\\xff\\n\\u{1b}b.yaml");
    }
}
