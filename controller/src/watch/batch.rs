//! What a source of objects tells the store, whatever the source is.

use std::path::PathBuf;

use translate::Change;
use translate::manifest::FileFinding;

/// What a source tells the store.
#[derive(Debug, Default)]
pub struct Batch {
    /// The part of the source that it is about, which is guarded by itself: a kind of an API server; empty for a folder.
    pub part: &'static str,
    /// Edits and removals that were seen to happen. They come before what a list showed.
    pub observed: Vec<Change>,
    /// What a list showed to be different.
    pub listed: Option<Listing>,
    /// Files or objects whose findings changed; no findings means that it is fine or gone.
    pub findings: Vec<(PathBuf, Vec<FileFinding>)>,
}

/// What a list of the source, or of a part of it, showed to be different from what was known.
#[derive(Debug, Default)]
pub struct Listing {
    /// The differences.
    pub changes: Vec<Change>,
    /// How many objects there are now.
    pub objects: usize,
    /// Whether the folder, or the kind, is not there at all.
    pub missing: bool,
}
