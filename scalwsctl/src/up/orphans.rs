//! No process outlives `up`: grandchildren whose parent died become our children, and are ended and reaped here.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

/// How long killed orphans may take to vanish.
const LIMIT: Duration = Duration::from_secs(1);

/// Makes this process the parent of all orphans below it (prctl(2), PR_SET_CHILD_SUBREAPER).
///
/// # Errors
///
/// What the system says.
pub fn adopt() -> std::io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(Into::into)
}

/// Reaps orphans that have ended. `known` are the children that somebody else waits for.
pub fn reap(known: &BTreeSet<i32>) {
    for pid in children().difference(known) {
        wait_for(*pid);
    }
}

/// Kills and reaps everything that is left. For the very end, when nobody else waits for a child.
pub fn end_all() {
    let end = Instant::now() + LIMIT;
    loop {
        let left = children();
        if left.is_empty() || Instant::now() > end {
            return;
        }
        for pid in left {
            if let Some(pid) = Pid::from_raw(pid) {
                // It may have ended in between; then there is nothing to do.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            wait_for(pid);
        }
        // A killed process needs a moment, and its own children come to us only then.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_for(pid: i32) {
    let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
}

/// The process ids of our children, from /proc/PID/stat (proc_pid_stat(5), field 4).
fn children() -> BTreeSet<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeSet::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent_of(*pid) == Some(me))
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses; it may hold spaces and parentheses itself.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_by_their_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(children().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&pid));
    }
}
