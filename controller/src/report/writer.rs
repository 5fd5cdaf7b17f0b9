//! Keeps `STATEDIR/status/objects.json` readable: written by rename, only on change, never on the way of a push.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Stream;
use crate::files::replace_with;
use crate::hub::Hub;
use crate::store::Memory;

/// The shortest time between two writes.
const PAUSE: Duration = Duration::from_millis(500);
/// Writing takes at most one part in so many of the time: the document is as long as the world is large, and who wants to
/// know at once asks the local API.
const SHARE: u32 = 500;
/// The longest time between two writes.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Writes until the hub is gone. Gives up nothing when a write fails: the next change tries again.
pub async fn run(hub: Arc<Hub>, path: PathBuf, memory: Memory) {
    let mut changed = hub.subscribe();
    let (mut objects, mut written) = (None, None);
    let mut next = Instant::now();
    loop {
        let revision = *changed.borrow_and_update();
        let count = hub.objects_by_kind();
        // Before the first publication nothing is known, and what was remembered still counts.
        if hub.is_published() && objects.as_ref() != Some(&count) {
            match memory.note(&count) {
                Ok(()) => objects = Some(count),
                Err(error) => {
                    hub.metrics().state_not_written();
                    tracing::warn!(%error, "cannot remember how much is in force");
                }
            }
        }
        if written != Some(revision) && next <= Instant::now() {
            let begun = Instant::now();
            let (whole, path) = (Arc::clone(&hub), path.clone());
            match tokio::task::spawn_blocking(move || write(&whole, &path)).await {
                Ok(Ok(())) => written = Some(revision),
                Ok(Err(error)) => {
                    hub.metrics().state_not_written();
                    tracing::warn!(%error, revision, "cannot write the statuses");
                }
                Err(error) => tracing::warn!(%error, "writing the statuses failed"),
            }
            next = Instant::now() + (begun.elapsed() * SHARE).clamp(PAUSE, LONGEST_PAUSE);
        }
        tokio::time::sleep(PAUSE).await;
        let is_stale = written != Some(*changed.borrow());
        tokio::select! {
            gone = changed.changed() => if gone.is_err() { return },
            () = tokio::time::sleep_until(next), if is_stale => {}
        }
    }
}

fn write(hub: &Hub, path: &Path) -> std::io::Result<()> {
    replace_with(path, false, |file| {
        serde_json::to_writer_pretty(&mut *file, &Stream(hub))?;
        file.write_all(b"\n")
    })
}
