//! Has the configuration journal written anew without making anything wait for it.

use std::io;

use journal::Compacted;

use super::{Driver, Job};
use crate::core::{File, Input};

impl Driver {
    /// Writes it beside the old one: at the start at once, later on a thread of its own, since it takes as long as the
    /// journal is large.
    pub(super) fn compact(&mut self, journal: &str, settled: u64) -> Option<Job> {
        let work = self.volume.compaction(journal, settled);
        if !self.started {
            let result = work.run();
            return Some(self.compacted(result));
        }
        let done = self.compacted.0.clone();
        tokio::spawn(async move {
            let work = tokio::task::spawn_blocking(move || work.run());
            // Even a panic in there has an answer: the configuration waits for one.
            let result = work.await.unwrap_or_else(|e| Err(io::Error::other(e)));
            // A driver that ended needs none.
            let _gone = done.send(result).await;
        });
        None
    }

    /// Puts it in the place of the old one. Here and not on the thread: whoever ends this driver and empties the volume
    /// must not find the journal back in it.
    pub(super) fn compacted(&mut self, result: io::Result<Compacted>) -> Job {
        self.faults.before_effect();
        let adopted = result.and_then(|compacted| {
            let len = compacted.len();
            self.volume.adopt(compacted).map(|old| (len, old))
        });
        let len = match adopted {
            Ok((len, old)) => {
                // Who closes it last gives back as much memory as it has.
                drop(tokio::task::spawn_blocking(move || drop(old)));
                Some(len)
            }
            Err(e) => {
                tracing::error!("the configuration journal cannot be written anew: {e}");
                None
            }
        };
        Job::Core(Input::Replaced { file: File::Config, len })
    }
}
