//! Ends the process when a load panics or does not end, so that both look from outside like any other death.
//!
//! What such a load left behind cannot be trusted, and whoever loads next would wait for it. A new process starts from
//! what was accepted, the keeper holds the sockets meanwhile, and the agent finds the resource (volume.md, "A death
//! during a reload"). A panic elsewhere costs its own connection only, so unwinding stays as it is.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a load may take, however little it loads.
const LEAST: Duration = Duration::from_secs(20);
/// How much more it may take for each resource that changes.
const EACH: Duration = Duration::from_millis(1);
/// How long it may take at most. The agent gives a reload up after 120 s.
const MOST: Duration = Duration::from_secs(100);
/// How long `scalwsd check` may take for one resource. It gets 30 s from the agent.
pub const CHECK: Duration = Duration::from_secs(10);

/// The time that a load of so many changes may take.
pub fn limit(changes: usize) -> Duration {
    (LEAST + EACH.saturating_mul(u32::try_from(changes).unwrap_or(u32::MAX))).min(MOST)
}

/// A thread that looks at the clock while something is loaded. Each owner watches one load at a time.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When the load under way must have ended.
    deadline: Option<Instant>,
    /// The thread runs.
    started: bool,
    /// It waits for a load. Otherwise it wakes by itself: a load that follows another need not wake it.
    idle: bool,
}

impl Watch {
    /// Watches until the value is dropped. In a test that asks for it the limit is another one.
    pub fn over(&self, limit: Duration) -> Loading<'_> {
        #[cfg(all(feature = "poison", debug_assertions))]
        let limit = crate::poison::load_limit().unwrap_or(limit);
        let mut state = self.0.lock();
        state.deadline = Some(Instant::now() + limit);
        if !state.started {
            let watched = Arc::clone(&self.0);
            let spawned = std::thread::Builder::new().name("watch".to_owned()).spawn(move || watched.run());
            match spawned {
                Ok(_) => state.started = true,
                Err(error) => tracing::error!(%error, "a load that hangs will not be noticed"),
            }
        } else if std::mem::take(&mut state.idle) {
            self.0.changed.notify_one();
        }
        Loading(self)
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each step leaves a whole state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let left = state.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => end("a load did not end in its time"),
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => {
                    state.idle = true;
                    self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// A load under way.
#[derive(Debug)]
pub struct Loading<'a>(&'a Watch);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.0.lock().deadline = None;
    }
}

/// While it is held, a panic of this thread ends the process.
#[derive(Debug)]
pub struct EndsWithPanic;

impl Drop for EndsWithPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end("a load panicked");
        }
    }
}

fn end(why: &str) -> ! {
    tracing::error!("{why}: this process ends, and another one starts from what was accepted");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_with_what_is_loaded_and_stays_below_the_agents() {
        assert_eq!(limit(0), LEAST);
        assert_eq!(limit(10_000), Duration::from_secs(30));
        assert_eq!(limit(usize::MAX), MOST);
        assert!(MOST < Duration::from_secs(120) && CHECK < Duration::from_secs(30));
    }

    #[test]
    fn a_load_that_ends_is_not_watched_any_more_and_the_next_one_is() {
        let watch = Watch::default();
        for _ in 0..3 {
            drop(watch.over(Duration::from_millis(20)));
            // sleep: longer than the limit; a watch that goes on would end this process.
            std::thread::sleep(Duration::from_millis(40));
            let state = watch.0.lock();
            assert!(state.started && state.idle && state.deadline.is_none(), "{state:?}");
        }
    }
}
