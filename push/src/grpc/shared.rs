//! A fleet that its owner and all its sessions share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::signal::Signal;
use crate::fleet::{Fleet, FleetChange, Published};

/// A fleet behind a lock that is held for short pure steps only, and who is told that it changed. Clones share it.
#[derive(Clone)]
pub struct SharedFleet {
    fleet: Arc<Mutex<Fleet>>,
    listeners: Arc<Mutex<Listeners>>,
}

/// Who is told, each with the bits that it is told.
#[derive(Default)]
struct Listeners {
    newest: u64,
    told: HashMap<u64, (Arc<Signal>, u8)>,
}

/// Tells as long as it is there.
pub(super) struct Listening {
    listeners: Arc<Mutex<Listeners>>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.listeners).told.remove(&self.number);
    }
}

impl SharedFleet {
    /// Shares this fleet.
    pub fn new(fleet: Fleet) -> SharedFleet {
        SharedFleet { fleet: Arc::new(Mutex::new(fleet)), listeners: Arc::default() }
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
        lock(&self.listeners).told.values().for_each(|(signal, bits)| signal.tell(*bits));
    }

    /// Has this signal told of every change.
    pub(super) fn listen(&self, signal: &Arc<Signal>, bits: u8) -> Listening {
        let mut listeners = lock(&self.listeners);
        listeners.newest += 1;
        let number = listeners.newest;
        listeners.told.insert(number, (Arc::clone(signal), bits));
        Listening { listeners: Arc::clone(&self.listeners), number }
    }

    /// A step that panicked leaves a fleet whose parts may disagree; digests on the wire keep agents safe from that, so
    /// that going on is better than stopping every session.
    fn lock(&self) -> MutexGuard<'_, Fleet> {
        lock(&self.fleet)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for SharedFleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.with(|fleet| std::fmt::Debug::fmt(fleet, f))
    }
}
