//! How many descriptors a running process may open.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit};

use crate::process::Below;

/// Leaves a process so many descriptors more than it has open; none lifts the limit.
///
/// # Errors
/// When there is no such process.
pub fn allow_more(process: &Below, more: Option<usize>) -> Result<()> {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.pid))?;
    let open: BTreeSet<u64> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The limit is on the number of a descriptor: below it only so many may be free.
    let free = |more| (0..).filter(|number| !open.contains(number)).nth(more);
    let pid = Pid::from_raw(process.pid);
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid))?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).context("no limit")?;
    let maximum = line.split_whitespace().nth(4).and_then(|word| word.parse().ok());
    let current = match more {
        Some(more) => free(more),
        None => maximum,
    };
    rustix::process::prlimit(pid, Resource::Nofile, Rlimit { current, maximum })?;
    Ok(())
}
