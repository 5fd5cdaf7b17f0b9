//! `scalwsd run` without a keeper outside: this process keeps the sockets and restarts the worker that proxies.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use keeper::server::Keeper;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

use crate::admin;
use crate::cli::Run;
use crate::worker::Ends;

/// A worker that lived for less than this is not started again at once.
const SOON: Duration = Duration::from_secs(1);
/// The pause before such a restart, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long after the drain time a worker may still take to end.
const STRAGGLE: Duration = Duration::from_secs(3);

/// Keeps sockets and a worker until it is told to end.
///
/// # Errors
/// When it cannot start.
pub async fn run(options: &Run, arguments: &[String]) -> anyhow::Result<()> {
    let socket = options.volume.join("keeper.sock");
    if !options.volume.is_dir() {
        bail!("the volume {} is no folder; make it on tmpfs, for its owner only", options.volume.display());
    }
    let listener = admin::bind(&socket).with_context(|| socket.display().to_string())?;
    let keeper = Keeper::new();
    let keeping = tokio::spawn(async move { keeper.serve(listener).await });
    let mut ends = Ends::new(options.supervised)?;
    let mut pause = PAUSE.0;
    let result = loop {
        let began = Instant::now();
        match start(arguments, &socket) {
            Ok((mut worker, _pipe)) => tokio::select! {
                status = worker.wait() => match status {
                    Ok(status) => tracing::error!(%status, "the worker ended and is started again"),
                    Err(error) => tracing::error!(%error, "the worker was lost and is started again"),
                },
                why = ends.next() => {
                    tracing::info!(why, "ending");
                    break end(&mut worker, options.common.drain_timeout + STRAGGLE).await;
                }
            },
            // The sockets stay open meanwhile: what waits in their queues is not lost.
            Err(error) => tracing::error!(%error, "the worker cannot be started; it is tried again"),
        }
        if began.elapsed() < SOON {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = ends.next() => break Ok(()),
            }
            pause = (pause * 2).min(PAUSE.1);
        } else {
            pause = PAUSE.0;
        }
    };
    keeping.abort();
    // Whoever starts next replaces it anyway.
    let _gone = std::fs::remove_file(&socket);
    result
}

/// Starts the worker: the same command line with `worker` in place of `run`, and the keeper's socket.
fn start(arguments: &[String], keeper: &Path) -> io::Result<(Child, Option<tokio::process::ChildStdin>)> {
    // The very program that runs here, even if its file was replaced or removed since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("scalwsd").arg("worker").args(arguments.iter().filter(|a| *a != "--supervised"));
    // The pipe ends with this process, whatever ends it.
    command.arg("--keeper").arg(keeper).arg("--supervised").stdin(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    // Waiting for a child closes its standard input, unless somebody else holds it.
    let pipe = child.stdin.take();
    Ok((child, pipe))
}

async fn end(worker: &mut Child, limit: Duration) -> anyhow::Result<()> {
    if let Some(pid) = worker.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
        // It is not reaped yet, so the number is its own.
        rustix::process::kill_process(pid, Signal::TERM)?;
    }
    match tokio::time::timeout(limit, worker.wait()).await {
        Ok(status) => {
            let status: ExitStatus = status?;
            anyhow::ensure!(status.success(), "the worker ended with {status}");
        }
        Err(_) => {
            tracing::warn!("the worker did not end in time and is killed");
            worker.kill().await?;
        }
    }
    Ok(())
}
