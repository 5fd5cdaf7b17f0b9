//! A folder of manifests as everybody reads it: which names count, what a file holds, which file has an object; pure.
//!
//! Whoever reads a folder does the walking and opening, and asks here what it means: the same folder then means the same
//! to the controller, to `scalwsctl lint` and to the echo servers.

mod documents;
mod folder;
mod path;
mod rules;
mod yaml;

pub use documents::{Document, FAULT, Outcome, documents};
pub use folder::{Content, FileFinding, Folder, UNREADABLE};
pub use path::FilePath;
pub use rules::{Entry, Unreadable, entry, fits, is_hidden, is_manifest, leads_inside, shown};

/// The longest file that is read, in bytes. An API server takes 1.5 MiB per object; a file may hold several.
pub const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;
/// The most objects that are read of one file. What fits into a file is mostly fewer; it bounds what a file of empty
/// husks costs.
pub const MAX_FILE_OBJECTS: usize = 50_000;

/// Why a file, or a document of it, could not be read. Nothing of the text of the file is in it: it may hold keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Longer than [`MAX_FILE_BYTES`].
    #[error(
        "the file has {bytes} bytes, and at most {MAX_FILE_BYTES} are read; split it into several files, one object each"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: u64,
    },
    /// More objects than [`MAX_FILE_OBJECTS`].
    #[error(
        "the file has {objects} documents or objects, and at most {MAX_FILE_OBJECTS} are read; split it into several files"
    )]
    TooManyObjects {
        /// How many there are.
        objects: usize,
    },
    /// Not UTF-8.
    #[error("the file is not UTF-8 text (byte {offset}); save it as UTF-8")]
    NotUtf8 {
        /// Where the first wrong byte stands, counted from 0.
        offset: usize,
    },
    /// Not YAML or JSON.
    #[error("not valid YAML{}: {why}", place(*line, *column))]
    Syntax {
        /// The line, counted from 1; 0 if it is not known.
        line: u64,
        /// The column, counted from 1.
        column: u64,
        /// What the parser said.
        why: String,
    },
}

fn place(line: u64, column: u64) -> String {
    if line == 0 { String::new() } else { format!(" at line {line}, column {column}") }
}
