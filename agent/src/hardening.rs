//! Keys stay in memory: no core dumps, nobody traces this process, and it ends with its parent.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

/// Takes core dumps away and makes the process unreadable for others of the same user.
///
/// # Errors
/// When the kernel refuses.
pub fn seal() -> io::Result<()> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // Undumpable: ptrace(2) and /proc/<pid>/mem are refused, too.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Asks the kernel to end this process when its parent dies.
///
/// # Errors
/// When the kernel refuses.
pub fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(())
}
