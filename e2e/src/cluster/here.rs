//! Whether a cluster can run here: as root, with the programs that were built and the tools that its scripts call.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools that the scripts call; `cargo xtask cluster build` knows where to get them.
const TOOLS: [&str; 6] = ["curl", "ip", "nsenter", "openssl", "setsid", "unshare"];
/// The tools that a node needs too.
const NODE_TOOLS: [&str; 6] = ["conntrack", "containerd", "iptables", "jq", "nft", "runc"];

/// The folder of the scripts.
pub(super) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster").join(name)
}

/// The folder of the programs, for nodes too if they are wanted.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn programs(nodes: bool) -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = |tool: &&str| !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let tools = TOOLS.into_iter().chain(NODE_TOOLS.into_iter().filter(|_| nodes));
    let missing: Vec<_> = tools.filter(missing).collect();
    // The last one that is built.
    let last = if nodes { "helm" } else { "kube-apiserver" };
    let this = std::env::current_exe().unwrap_or_default();
    // The folder of all builds is some levels above this test: target/debug/deps.
    let folders = this.ancestors().map(|folder| folder.join("cluster/current/bin"));
    let found = folders.into_iter().find(|folder| folder.join(last).is_file());
    match found {
        Some(programs) if missing.is_empty() => Ok(programs),
        _ => {
            let lacks = if missing.is_empty() { "its programs are not built".to_owned() } else { missing.join(", ") };
            let more = if nodes { "" } else { " --control-plane" };
            Err(format!("missing: {lacks}; `cargo xtask cluster build{more}` says how to get it"))
        }
    }
}

/// Runs `helm` without a cluster; gives what it wrote to stdout, or to stderr when it fails.
///
/// # Errors
/// When it is not there, with the way to get it.
pub fn helm(arguments: &[&str]) -> anyhow::Result<Result<String, String>> {
    let programs = programs(true).map_err(anyhow::Error::msg)?;
    let home = tempfile::tempdir()?;
    let output = Command::new(programs.join("helm")).args(arguments).env("HOME", home.path()).output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) })
}
