//! Keeps `STATEDIR/status/objects.json` readable: written by rename, only on change, never on the way of a push.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::files::replace;
use crate::hub::Hub;
use crate::store::Memory;

/// The shortest time between two writes.
const PAUSE: Duration = Duration::from_millis(500);
/// Writing takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// Writes until the hub is gone. Gives up nothing when a write fails: the next change tries again.
pub async fn run(hub: Arc<Hub>, path: PathBuf, memory: Memory) {
    let mut changed = hub.subscribe();
    let mut objects = None;
    loop {
        let begun = Instant::now();
        let revision = *changed.borrow_and_update();
        let written = tokio::task::spawn_blocking({
            let (hub, path) = (Arc::clone(&hub), path.clone());
            move || -> std::io::Result<usize> {
                let mut json = serde_json::to_vec_pretty(&hub.status())?;
                json.push(b'\n');
                replace(&path, &json, false)?;
                Ok(hub.objects_in_force())
            }
        });
        match written.await {
            Ok(Ok(count)) => {
                // Before the first publication nothing is known, and what was remembered still counts.
                if hub.is_published()
                    && objects != Some(count)
                    && let Err(error) = memory.note(count)
                {
                    tracing::warn!(%error, "cannot remember how much is in force");
                }
                objects = Some(count);
            }
            Ok(Err(error)) => tracing::warn!(path = %path.display(), %error, revision, "cannot write the statuses"),
            Err(error) => tracing::warn!(%error, "writing the statuses failed"),
        }
        let pause = PAUSE.max(begun.elapsed() * SHARE);
        tokio::time::sleep(pause).await;
        if changed.changed().await.is_err() {
            return;
        }
    }
}
