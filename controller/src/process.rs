//! What a process that may hold keys does first: no core dumps, no tracing, and an end with its parent.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, set_parent_process_death_signal, setrlimit,
};

/// No core file, and no other process of the same user may look into this one.
///
/// # Errors
/// When the kernel refuses, which a sandbox may cause.
pub fn no_core_dumps() -> Result<(), rustix::io::Errno> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Ends this process when its parent does.
///
/// # Errors
/// When the kernel refuses.
pub fn die_with_parent() -> Result<(), rustix::io::Errno> {
    set_parent_process_death_signal(Some(Signal::TERM))
}
