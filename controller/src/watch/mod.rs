//! Sources of cluster objects: a folder of manifests, or an API server.

mod batch;
pub mod cluster;
pub mod directory;
mod source;

pub use batch::{Batch, Listing};
pub use source::Source;
