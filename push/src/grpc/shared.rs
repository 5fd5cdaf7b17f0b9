//! A fleet that its owner and all its sessions share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::fleet::{Fleet, FleetChange, Published};

/// A fleet behind a lock that is held for short pure steps only, and a signal that it changed. Clones share it.
#[derive(Clone)]
pub struct SharedFleet {
    fleet: Arc<Mutex<Fleet>>,
    changed: Arc<watch::Sender<u64>>,
}

impl SharedFleet {
    /// Shares this fleet.
    pub fn new(fleet: Fleet) -> SharedFleet {
        SharedFleet { fleet: Arc::new(Mutex::new(fleet)), changed: Arc::new(watch::Sender::new(0)) }
    }

    /// Publishes and wakes every session at once.
    pub fn publish(&self, change: FleetChange) -> Published {
        let published = self.lock().publish(change);
        self.wake();
        published
    }

    /// Enters a higher epoch and wakes every session.
    pub fn raise_epoch(&self, epoch: u64) {
        self.lock().raise_epoch(epoch);
        self.wake();
    }

    /// Looks at the fleet, or steps with it. Must be short; call [`SharedFleet::wake`] after a change.
    pub fn with<T>(&self, step: impl FnOnce(&mut Fleet) -> T) -> T {
        step(&mut self.lock())
    }

    /// Wakes every session.
    pub fn wake(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Told of every change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A step that panicked leaves a fleet whose parts may disagree; digests on the wire keep agents safe from that, so
    /// that going on is better than stopping every session.
    fn lock(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SharedFleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.with(|fleet| std::fmt::Debug::fmt(fleet, f))
    }
}
