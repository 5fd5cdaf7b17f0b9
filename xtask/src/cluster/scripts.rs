//! The scripts of `e2e/cluster`, started with what they read from the environment.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::machine;
use super::programs::FOLDER;
use crate::{command, repository};

/// A script, with the folder of programs that it looks in.
fn script(name: &str) -> Command {
    let mut command = Command::new(repository::root().join(FOLDER).join(name));
    command.env("BIN", repository::target().join("cluster/current/bin"));
    command
}

/// An error if a cluster with another number of nodes runs there.
pub(super) fn refuse_other(state: &Path, nodes: u8) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(state.join(name)).map(|text| text.trim().to_owned());
    let (Ok(pid), Ok(there)) = (read("pid"), read("nodes")) else { return Ok(()) };
    if there != nodes.to_string() && Path::new("/proc").join(pid).exists() {
        bail!("a cluster with --nodes {there} runs in {}; `cargo xtask cluster down` first", state.display());
    }
    Ok(())
}

/// Starts a cluster. Without nodes nothing needs controllers either.
pub(super) fn up(state: &Path, nodes: u8) -> Result<()> {
    let mut up = script("up.sh");
    up.arg(state).env("NODE", nodes.to_string()).env("KCM", if nodes == 0 { "0" } else { "1" });
    command::succeed(up)?;
    let flag = if state == super::default_state() { String::new() } else { format!(" --state {}", state.display()) };
    eprintln!("now: cargo xtask cluster enter{flag} -- kubectl get namespaces");
    Ok(())
}

/// Ends it.
pub(super) fn down(state: &Path) -> Result<()> {
    if !state.join("pid").exists() {
        eprintln!("no cluster runs in {}", state.display());
        return Ok(());
    }
    machine::require_root()?;
    let mut down = script("down.sh");
    down.arg(state);
    command::succeed(down)
}

/// Runs a command inside it in place of this process, a shell if it is empty.
pub(super) fn enter(state: &Path, node: u8, net_only: bool, words: &[String]) -> Result<()> {
    machine::require_root()?;
    let file = if node == 1 { "pid".to_owned() } else { format!("pid-{node}") };
    if !state.join(file).is_file() {
        bail!("no node-{node} runs in {}; `cargo xtask cluster up` starts a cluster", state.display());
    }
    let mut enter = script("enter.sh");
    enter.arg(state).env("ON", node.to_string()).env("NET_ONLY", if net_only { "1" } else { "0" });
    if words.is_empty() {
        enter.arg("bash");
    }
    enter.args(words);
    Err(enter.exec()).with_context(|| format!("starting {}", command::show(&enter)))
}
