//! Whether a cluster can run here: as root, with the programs that were built and the tools that its scripts call.

use std::path::{Path, PathBuf};

/// The tools that the scripts call; `cargo xtask cluster build` knows where to get them.
const TOOLS: [&str; 6] = ["curl", "ip", "nsenter", "openssl", "setsid", "unshare"];

/// The folder of the scripts.
pub(super) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster").join(name)
}

/// The folder of the programs.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn programs() -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = |tool: &&str| !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing: Vec<_> = TOOLS.into_iter().filter(missing).collect();
    let this = std::env::current_exe().unwrap_or_default();
    // The folder of all builds is some levels above this test: target/debug/deps.
    let folders = this.ancestors().map(|folder| folder.join("cluster/current/bin"));
    let found = folders.into_iter().find(|folder| folder.join("kube-apiserver").is_file());
    match found {
        Some(programs) if missing.is_empty() => Ok(programs),
        _ => {
            let lacks = if missing.is_empty() { "its programs are not built".to_owned() } else { missing.join(", ") };
            Err(format!("missing: {lacks}; `cargo xtask cluster build --control-plane` says how to get it"))
        }
    }
}
