//! What this process asks of the operating system: no core dumps, many descriptors, an end together with its parent.

use std::io::{self, IsTerminal as _, Read};

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

/// Keys stay in memory: no core dumps, and nobody of the same user reads this process.
///
/// # Errors
/// When the kernel refuses.
pub fn seal() -> io::Result<()> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Raises the limit of open descriptors to what is allowed: each connection takes one or two.
pub fn raise_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open descriptors stays as it is");
    }
}

/// Asks the kernel for SIGTERM when the parent dies.
///
/// # Errors
/// When the kernel refuses.
pub fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(())
}

/// Ends when standard input does: the other end is held by the supervisor alone.
pub async fn stdin_ended() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // A thread of its own: a blocking read would hold up the end of the runtime.
    let spawned = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut bytes = [0; 1024];
        while matches!(io::stdin().read(&mut bytes), Ok(1..)) {}
        // Nobody waits any more when the process is ending anyway.
        let _nobody = ended.send(());
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "the end of the supervisor will not be noticed by its pipe");
        std::future::pending::<()>().await;
    }
    // An error means that the thread is gone, and the input with it.
    let _ended = end.await;
}

/// Writes log lines to standard error, filtered by `SCALWS_LOG` (default `info`).
pub fn log(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SCALWS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Colours are for people who look, unless they do not want any (<https://no-color.org>).
    let coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(coloured).with_writer(io::stderr);
    if json {
        builder.json().init();
    } else {
        builder.init();
    }
}
