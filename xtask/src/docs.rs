//! `cargo xtask docs`: pages that are written from the code, and whether they are fresh.

use std::path::PathBuf;

use anyhow::Result;

pub(crate) fn run() -> Result<()> {
    Ok(())
}

/// Generated pages that differ from what their source says now, relative to the root.
pub(crate) fn stale() -> Result<Vec<PathBuf>> {
    Ok(Vec::new())
}
