//! Whether a cluster can run here: as root, with the programs that were built and the tools that its scripts call.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

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
    if nodes {
        holds_containers()?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = |tool: &&str| !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let tools = TOOLS.into_iter().chain(NODE_TOOLS.into_iter().filter(|_| nodes));
    let missing: Vec<_> = tools.filter(missing).collect();
    // Helm is the last one that is built.
    match folder_with(if nodes { "helm" } else { "kube-apiserver" }) {
        Some(programs) if missing.is_empty() => Ok(programs),
        _ => {
            let lacks = if missing.is_empty() { "its programs are not built".to_owned() } else { missing.join(", ") };
            let more = if nodes { "" } else { " --control-plane" };
            Err(format!("missing: {lacks}; `cargo xtask cluster build{more}` says how to get it"))
        }
    }
}

/// The folder of the programs, if this one is among them: some levels above this test, target/debug/deps.
fn folder_with(program: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().unwrap_or_default();
    let mut folders = this.ancestors().map(|folder| folder.join("cluster/current/bin"));
    folders.find(|folder| folder.join(program).is_file())
}

/// Whether the kernel lets us make what a container is made of.
fn holds_containers() -> Result<(), String> {
    if !std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|text| text.lines().any(|line| line.ends_with("overlay")))
    {
        return Err("this kernel has no overlay file system".to_owned());
    }
    let groups = Path::new("/sys/fs/cgroup");
    // The first is that of version 1.
    let group = [groups.join("memory"), groups.to_owned()].into_iter().find(|folder| folder.is_dir());
    let probe = group.unwrap_or_default().join(format!("scalws-probe-{}", std::process::id()));
    let made = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe));
    made.map_err(|error| format!("no control group can be made here: {}: {error}", probe.display()))
}

/// Runs `helm` without a cluster; gives what it wrote to stdout, or to stderr when it fails.
///
/// # Errors
/// When it is not there, with the way to get it.
pub fn helm(arguments: &[&str]) -> anyhow::Result<Result<String, String>> {
    let programs = folder_with("helm").context("helm is not built; `cargo xtask cluster build` builds it")?;
    let home = tempfile::tempdir()?;
    let output = Command::new(programs.join("helm")).args(arguments).env("HOME", home.path()).output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) })
}
