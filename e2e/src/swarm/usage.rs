//! What a process uses: CPU time by the scheduler's count, memory by the kernel's.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPU time of each thread of a process, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Cpu(BTreeMap<u32, u64>);

impl Cpu {
    /// Now. Empty when the process is gone.
    pub fn of(pid: u32) -> Cpu {
        let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let threads = entries.filter_map(|entry| {
            let tid = entry.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            Some((tid, text.split_whitespace().next()?.parse().ok()?))
        });
        Cpu(threads.collect())
    }

    /// What was used since an earlier look. A thread that ended in between is missing, which few do.
    pub fn since(&self, earlier: &Cpu) -> Duration {
        let used = |(tid, now): (&u32, &u64)| now.saturating_sub(earlier.0.get(tid).copied().unwrap_or(0));
        Duration::from_nanos(self.0.iter().map(used).sum())
    }

    /// Since the process began.
    pub fn total(&self) -> Duration {
        self.since(&Cpu::default())
    }
}

/// The memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that was resident.
    pub peak: u64,
}

/// The memory of a process now.
///
/// # Errors
/// When it is gone.
pub fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Ok(Memory { resident: field("VmRSS:"), peak: field("VmHWM:") })
}

/// How many runnable processes there were in the last minute: says how far the machine was shared.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

/// Binds this thread, and what it starts from now on, to one processor; none means to all.
pub fn bind_this_thread(cpu: Option<usize>) {
    let mut set = CpuSet::new();
    match cpu {
        Some(cpu) => set.set(cpu),
        None => (0..CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu)),
    }
    // A machine with fewer processors is measured unbound.
    let _ = sched_setaffinity(None, &set);
}

/// How many processors this thread may use.
pub fn processors() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Lets this process open as many descriptors as the system permits; children inherit it. Gives how many.
pub fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What is refused shows when a connection cannot be opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    limit.maximum.unwrap_or(u64::MAX)
}
