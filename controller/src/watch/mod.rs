//! Sources of cluster objects. Built so far: a folder of manifests; an API server comes later.

pub mod directory;
