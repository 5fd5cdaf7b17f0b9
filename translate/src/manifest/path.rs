//! The path of a file below a folder: shared, and compared without taking it apart.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A path relative to the folder, made of plain names. All copies share one text.
///
/// Its order is that of [`Path`], part by part, so that what is below a folder stands together.
#[derive(Clone, PartialEq, Eq)]
pub struct FilePath(Arc<Path>);

impl FilePath {
    fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

impl From<&Path> for FilePath {
    fn from(path: &Path) -> FilePath {
        FilePath(path.into())
    }
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Hash for FilePath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl Ord for FilePath {
    fn cmp(&self, other: &FilePath) -> Ordering {
        let (ours, theirs) = (self.bytes(), other.bytes());
        // A slash ends a part, so it comes before every byte of a name.
        let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        match ours.iter().zip(theirs).find(|(a, b)| a != b) {
            Some((a, b)) => rank(a).cmp(&rank(b)),
            None => ours.len().cmp(&theirs.len()),
        }
    }
}

impl PartialOrd for FilePath {
    fn partial_cmp(&self, other: &FilePath) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_parts() {
        let texts = ["", "a", "a/b", "a/b.yaml", "a/b/c", "a-b", "a-b/c", "a.yaml", "a0", "ab/c", "b", "\u{e9}/x"];
        for one in texts.map(Path::new) {
            for other in texts.map(Path::new) {
                let ours = FilePath::from(one).cmp(&FilePath::from(other));
                assert_eq!(ours, one.cmp(other), "{one:?} and {other:?}");
            }
        }
    }
}
